# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An opened image whose kernel's table lacks a symbol, a type or a member for a while.

The image is decoded once. Only what the table says changes, in the JSON that Volatility has loaded.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import logging
import os
import pathlib
import re
import sys
from types import CodeType, FrameType
from typing import (
    AbstractSet,
    Any,
    DefaultDict,
    Dict,
    FrozenSet,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

import pytest
from volatility3.framework import constants, objects
from volatility3.framework.objects import templates
from volatility3.framework.symbols import SymbolSpace

import winstacks
from tests.forge.context import Opened, table_of
from tests.support import grid
from tests.support.grid import Row

_NOW = re.compile(b"M\0a\0d\0e\0 \0a\0t\0:\0 \0(?:[-+:0-9T]\0)*")
"""When a dump was written, in its comment."""

_PACKAGES = (
    *("findings", "handles", "heaps", "locks", "minidump", "names", "objects", "process"),
    *("stacklist", "stacks", "tracedb", "traps"),
)
"""Packages of the library that know what they ask for."""

SYMBOLS, TYPES, MEMBERS = "symbols", "user_types", "members"


class Lost(NamedTuple):
    """What a table lacks: a symbol, a type, or a member as `type.member`."""

    kind: str
    name: str


class Run(NamedTuple):
    """A plugin with its options."""

    plugin: str
    options: Tuple[Tuple[str, Any], ...] = ()

    def plugin_class(self) -> Any:
        """The plugin's class."""
        module = importlib.import_module(f"volatility3.plugins.windows.{self.plugin}")
        (found,) = (
            attribute
            for attribute in vars(module).values()
            if isinstance(attribute, type)
            and attribute.__module__ == module.__name__
            and hasattr(attribute, "run")
        )
        return found


class Output(NamedTuple):
    """The rows of a run, the files that it wrote, and its warnings."""

    rows: List[Row]
    files: Dict[str, bytes]
    warnings: List[str]


Site = Tuple[CodeType, ...]
"""Functions of ours that ask for something: the one that asks first, then those that it works for."""

Requests = Dict[Lost, FrozenSet[Site]]
"""What is asked for, and where."""

_OURS = tuple(str(pathlib.Path(winstacks.__file__).parent / package) + os.sep for package in _PACKAGES)

DEPTH = 3
"""Functions of a site."""

_OFTEN = 32
"""After so many runs what they left in memory is released."""


def _site() -> Site:
    """The innermost functions of ours that are running, apart from those that ask for anybody."""
    found: List[CodeType] = []
    frame: Optional[FrameType] = sys._getframe(2)
    while frame is not None and len(found) < DEPTH:
        if frame.f_code.co_filename.startswith(_OURS):
            found.append(frame.f_code)
        frame = frame.f_back
    return tuple(found)


def _remembering(mapping: Any) -> Any:
    """A layer's `mapping` that reads the page tables once for each range."""

    @functools.lru_cache(maxsize=None)
    def known(*arguments: Any, **options: Any) -> Tuple[Tuple[int, int, int, int, str], ...]:
        return tuple(mapping(*arguments, **options))

    def listed(*arguments: Any, **options: Any) -> Iterator[Tuple[int, int, int, int, str]]:
        return iter(known(*arguments, **options))

    return listed


def chosen(requests: Dict[Run, Requests], lost: Lost, met: AbstractSet[Site] = frozenset()) -> List[Run]:
    """The fewest and smallest runs that ask for something at each place where any of them does.

    Args:
        requests: what each run asks for
        lost: what is asked for
        met: places that need no run any more
    """
    sites = {run: names[lost] for run, names in requests.items() if lost in names}
    left = set().union(*sites.values()) - met
    found: List[Run] = []
    while left:
        found.append(max(sites, key=lambda run: (len(sites[run] & left) / len(requests[run]), run.plugin)))
        left -= sites[found[-1]]
    return found


class LackingTable:
    """The kernel's table of an opened image.

    Args:
        opened: the image
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._name = opened.context.modules[opened.kernel].symbol_table_name
        self._data = table_of(opened)
        self._runs = 0
        # Where pages lie depends on no symbol. Scans of the kernel's memory ask for all of them.
        opened.layer.mapping = _remembering(opened.layer.mapping)

    def requests(self, run: Run, folder: pathlib.Path, patch: pytest.MonkeyPatch) -> Tuple[Output, Requests]:
        """What a plugin prints, and what it asks the table for that the table has."""
        found: DefaultDict[Tuple[str, str], Set[Site]] = collections.defaultdict(set)
        prefix = self._name + constants.BANG

        def note(kind: str, full: str, member: str = "") -> None:
            if full.startswith(prefix):
                found[kind, full[len(prefix) :] + member].add(_site())

        def noting(kind: str, method: Any) -> Any:
            def asking(self: Any, name: str, *more: Any) -> Any:
                note(kind, name)
                return method(self, name, *more)

            return asking

        def noting_members(method: Any) -> Any:
            def asking(self: Any, member: str) -> Any:
                note(TYPES, self.vol.type_name)
                note(MEMBERS, self.vol.type_name, "." + member)
                return method(self, member)

            return asking

        space, template, aggregate = SymbolSpace, templates.ObjectTemplate, objects.AggregateType
        named = {TYPES: ("get_type", "has_type"), SYMBOLS: ("get_symbol", "has_symbol")}
        with patch.context() as patched, self._with({TYPES: self._data[TYPES]}):
            for kind, methods in named.items():
                for name in methods:
                    patched.setattr(space, name, noting(kind, getattr(space, name)))
            for name in ("has_member", "relative_child_offset", "child_template"):
                patched.setattr(template, name, noting_members(getattr(template, name)))
            for name in ("member", "has_member"):
                patched.setattr(aggregate, name, noting_members(getattr(aggregate, name)))
            output = self.run(run, folder)
        requests = {Lost(*key): frozenset(sites) for key, sites in found.items()}
        return output, {key: sites for key, sites in requests.items() if self.has(key)}

    def has(self, lost: Lost) -> bool:
        """Whether the table has something."""
        if lost.kind != MEMBERS:
            return lost.name in self._data[lost.kind]
        name, _, member = lost.name.partition(".")
        return name in self._data[TYPES] and member in self._data[TYPES][name]["fields"]

    @contextlib.contextmanager
    def only(self, types: Set[str]) -> Iterator[None]:
        """The table has no other types meanwhile."""
        with self._with({TYPES: {name: table for name, table in self._data[TYPES].items() if name in types}}):
            yield

    @contextlib.contextmanager
    def without(self, lost: Lost) -> Iterator[None]:
        """The table lacks something meanwhile."""
        kind, name = lost
        if kind != MEMBERS:
            with self._with({kind: {key: value for key, value in self._data[kind].items() if key != name}}):
                yield
            return
        name, _, member = name.partition(".")
        known = self._data[TYPES][name]
        fields = {key: value for key, value in known["fields"].items() if key != member}
        with self._with({TYPES: {**self._data[TYPES], name: {**known, "fields": fields}}}):
            yield

    @contextlib.contextmanager
    def _with(self, parts: Dict[str, Any]) -> Iterator[None]:
        space = self._opened.context.symbol_space
        before = {kind: self._data[kind] for kind in parts}
        known = space._resolved
        self._data.update(parts)
        space.clear_symbol_cache(self._name)
        if TYPES in parts:
            prefix = self._name + constants.BANG
            space._resolved = {full: kind for full, kind in known.items() if not full.startswith(prefix)}
        try:
            yield
        finally:
            self._data.update(before)
            space.clear_symbol_cache(self._name)
            space._resolved = known

    def run(self, run: Run, folder: pathlib.Path) -> Output:
        """What a plugin prints of the image as it is."""
        self._runs += 1
        if not self._runs % _OFTEN:
            # The templates of types are circles: 4 MB of each run, for which Python does not look soon.
            gc.collect()
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        handler = _Warnings()
        logging.getLogger().addHandler(handler)
        try:
            rows = grid.rendered(self._opened, run.plugin_class(), folder, **dict(run.options))
        finally:
            logging.getLogger().removeHandler(handler)
        files = {path.name: _NOW.sub(b"", path.read_bytes()) for path in sorted(folder.iterdir())}
        return Output(rows, files, handler.messages)


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
