# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An opened image whose kernel's table lacks a symbol, a type or a member for a while.

The image is decoded once. Only what the table says changes, in the JSON that Volatility has loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import pathlib
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Set, Tuple

import pytest
from volatility3.framework import constants, objects
from volatility3.framework.objects import templates

from tests.forge.context import Opened
from tests.support import grid
from tests.support.grid import Row

SYMBOLS, TYPES, MEMBERS = "symbols", "user_types", "members"


class Lost(NamedTuple):
    """What a table lacks: a symbol, a type, or a member as `type.member`."""

    kind: str
    name: str


class Run(NamedTuple):
    """A plugin with its options."""

    plugin: str
    options: Tuple[Tuple[str, Any], ...] = ()

    def of(self) -> Any:
        """The plugin's class."""
        module = importlib.import_module(f"volatility3.plugins.windows.{self.plugin}")
        (found,) = (
            each
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == module.__name__ and hasattr(each, "run")
        )
        return found


class Said(NamedTuple):
    """The rows of a run, the files that it wrote, and its warnings."""

    rows: List[Row]
    files: Dict[str, bytes]
    warnings: List[str]


class _Asked(Dict[str, Any]):
    """A part of a table that notes which of its names were asked for one by one."""

    def __init__(self, known: Dict[str, Any]) -> None:
        super().__init__(known)
        self.names: Set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.names.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.names.add(key)
        return super().__getitem__(key)


class LackingTable:
    """The kernel's table of an opened image.

    Args:
        opened: the image
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._name = opened.context.modules[opened.kernel].symbol_table_name
        self._data = opened.context.symbol_space[self._name]._delegate._json_object

    def asked(
        self, run: Run, folder: pathlib.Path, patch: pytest.MonkeyPatch
    ) -> Tuple[Said, FrozenSet[Lost]]:
        """What a plugin prints, and what it asks the table for that the table has."""
        members: Set[Tuple[str, str]] = set()
        prefix = self._name + constants.BANG

        def note(vol: Any, member: str) -> None:
            if vol.type_name.startswith(prefix):
                members.add((vol.type_name[len(prefix) :], member))

        def noting(method: Any) -> Any:
            def wrapped(self: Any, member: str) -> Any:
                note(self.vol, member)
                return method(self, member)

            return wrapped

        parts = {kind: _Asked(self._data[kind]) for kind in (SYMBOLS, TYPES)}
        with patch.context() as patched, self._with(parts):
            for name in ("has_member", "relative_child_offset", "child_template"):
                patched.setattr(
                    templates.ObjectTemplate, name, noting(getattr(templates.ObjectTemplate, name))
                )
            for name in ("member", "has_member"):
                patched.setattr(objects.AggregateType, name, noting(getattr(objects.AggregateType, name)))
            said = self.run(run, folder)
        found = {
            Lost(kind, name)
            for kind, part in parts.items()
            for name in part.names
            if name in self._data[kind]
        }
        types = self._data[TYPES]
        found |= {
            Lost(MEMBERS, f"{name}.{member}")
            for name, member in members
            if name in types and member in types[name]["fields"]
        }
        return said, frozenset(found)

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

    def run(self, run: Run, folder: pathlib.Path) -> Said:
        """What a plugin prints of the image as it is."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        handler = _Warnings()
        logging.getLogger().addHandler(handler)
        try:
            rows = grid.rendered(self._opened, run.of(), folder, **dict(run.options))
        finally:
            logging.getLogger().removeHandler(handler)
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        return Said(rows, files, handler.messages)


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
