# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An image whose memory can be written to, and what a plugin prints of it.

The image is opened once. A run with writes reads it anew, as a run of the command line would, in a hundredth
of the time.
"""

from __future__ import annotations

import itertools
import logging
import pathlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)
from tests.forge import context, sample, sampleowners
from tests.forge.kernel import Kernel
from tests.forge.locks import Sections
from tests.forge.obj import ring
from tests.support import remembered
from tests.windows.test_owners_hostile import build as owners
from winstacks.columns.tables import BRIEF, FLAT
from winstacks.stacklist.imagefacts import LOGGERS

from . import memory, pluginruns, plugins
from .belonging import Belonging
from .members import Member, noting


def _sample(name: str) -> Kernel:
    """Builds the sample; its 32-bit half has a loader lock, to which the PEB points."""
    kernel = sample.build(name, legacy_pid=5136)
    for process in kernel.processes:
        for module in process.wow.modules if process.wow is not None else ():
            if module.name == "ntdll.dll" and process.wow is not None:
                head = module.base + sampleowners.LIST_RVA
                link = process.space.read_int(head, 4)
                loader_lock = Sections(module, head, wide=False).add()
                ring(process.wow.space, [head, link, loader_lock.link])
                process.wow.peb["LoaderLock"] = loader_lock.address
    return kernel


BUILDERS: Dict[str, Callable[[], Kernel]] = {
    "win7-x64": lambda: _sample("win7-x64"),
    "win10-x64": lambda: _sample("win10-x64"),
    "win11-x64": lambda: _sample("win11-x64"),
    "xp-x86": lambda: owners("xp-x86")[0],
}

Cells = Tuple[Any, ...]
Write = Tuple[int, bytes]
"""A physical address and what is written there."""

Translate = Callable[[str, int], Optional[int]]
"""Takes the name of a layer and an address in it; returns where that is in physical memory."""


class Answer(NamedTuple):
    """What a plugin prints: its columns, its rows (absent values None), its warnings."""

    columns: Tuple[str, ...]
    rows: Tuple[Cells, ...]
    warnings: Tuple[str, ...]

    def column(self, name: str) -> List[Any]:
        """Returns the cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def place(self, name: str) -> Optional[int]:
        """Returns the place of a column, None if there is no such column."""
        return self.columns.index(name) if name in self.columns else None


class Read(NamedTuple):
    """What a plugin reads: the members, and (structure, path) of all that it asks for."""

    members: Tuple[Member, ...]
    requests: Set[Tuple[str, str]]


class Target:
    """An image that is written to, and read anew by each plugin.

    Args:
        kernel: the image's builder
        folder: where its file goes
    """

    def __init__(self, kernel: Kernel, folder: pathlib.Path) -> None:
        self.kernel = kernel
        image = kernel.image()
        # Volatility searches a raw image of 32 bits for seconds; a crash dump says where the page tables are.
        self.opened = context.open_image(image, folder)
        self.belonging = Belonging(kernel)
        self.data = image.save(folder / "image.raw").read_bytes()
        self._below = self.opened.layer.config["memory_layer"]
        found = {plugins.full_name(plugin).rsplit(".", 1)[-1]: plugin for plugin in plugins.discover()}
        self._plugins = {name: plugin for name, plugin in found.items() if name in (*BRIEF, *FLAT)}
        self._own = set(self.opened.context.layers)
        self._clean: Dict[Tuple[str, str], Answer] = {}
        self._physical = memory.install(self.opened, self.data)
        self._caches = remembered.caches()

    @property
    def names(self) -> List[str]:
        """The plugins that are judged. Flat tables and dumps are made of what these find."""
        return sorted(set(self._plugins) - {*FLAT, "minidump"})

    def physical(self, layer_name: str, address: int) -> Optional[int]:
        """Returns where an address of a layer is in physical memory, None if it is not in the image.

        The layers of processes are there until the next run.
        """
        layer = self.opened.context.layers.get(layer_name)
        if layer is None or layer_name == self._below:
            return address if layer is not None else None
        found = list(layer.mapping(address & layer.address_mask, 1, ignore_errors=True))
        return int(found[0][2]) if found else None

    def at(self, address: int, value: int, size: int = 0, owner: Any = None) -> Write:
        """Returns a write to an address of the kernel's space or of that of a forged process."""
        space = (owner or self.kernel).space
        size = size or space.pointer_size
        return space.physical(address), (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def run(
        self, plugin: str, writes: Sequence[Write] = (), cut: Optional[int] = None, **options: Any
    ) -> Answer:
        """Runs a plugin on the image with some writes, and with its end cut off at an address."""
        data = self._physical.data
        kept = [(place, bytes(data[place : place + len(value)])) for place, value in writes]
        tail = bytes(data[cut:]) if cut is not None else b""
        for place, value in writes:
            data[place : place + len(value)] = value
        if cut is not None:
            del data[cut:]
        try:
            return self._answer(plugin, options)
        finally:
            data += tail
            for place, value in reversed(kept):
                data[place : place + len(value)] = value

    def clean(self, plugin: str, **options: Any) -> Answer:
        """Returns what a plugin prints of the undamaged image."""
        key = (plugin, repr(sorted(options.items())))
        if key not in self._clean:
            self._clean[key] = self.run(plugin, **options)
        return self._clean[key]

    def read(self, plugin: str) -> Read:
        """Returns what a plugin reads of the undamaged image."""
        with noting(self.kernel.space.pointer_size) as notes:
            self.run(plugin)
        found = (
            member._replace(place=self.physical(member.layer, member.address)) for member in notes.members
        )
        inside = [
            block for block in found if block.place is not None and block.place + block.size <= len(self.data)
        ]
        return Read(tuple(_once(inside)), notes.requests)

    def _answer(self, plugin: str, options: Dict[str, Any]) -> Answer:
        self._forget()
        found = answer_of(self.opened, self._plugins[plugin], options)
        place = found.place("ImageId")
        if place is None or plugin in FLAT:
            return found
        # It is the hash of parts of the image: any write may give another one.
        return found._replace(rows=tuple((*row[:place], None, *row[place + 1 :]) for row in found.rows))

    def _forget(self) -> None:
        """Forgets what Volatility keeps of the run before: layers of processes, and what it read."""
        layers = self.opened.context.layers
        for name in [name for name in layers if name not in self._own]:
            del layers._layers[name]
        for cache in self._caches:
            cache.cache_clear()


def answer_of(opened: context.Opened, plugin: plugins.Plugin, options: Dict[str, Any]) -> Answer:
    """Returns what a plugin prints of an opened image."""
    rows: List[Cells] = []
    handler = _Warnings()
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        grid = opened.construct(plugin, **options).run()
        grid.populate(
            lambda node, found: found.append(tuple(map(pluginruns.plain, node.values))) or found, rows
        )
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    return Answer(tuple(column.name for column in grid.columns), tuple(rows), tuple(handler.texts))


def _once(members: Iterable[Member]) -> Iterator[Member]:
    """Yields what was read at each place, which several layers may map, once and with all of its names."""
    held: Dict[Tuple[Optional[int], int], List[Member]] = {}
    within: Dict[int, List[Member]] = {}
    for member in members:
        held.setdefault((member.place, member.size), []).append(member)
        within.setdefault(member.place or 0, []).append(member)
    for first, *others in held.values():
        # A search reads members of other structures together, or takes them for parts of longer ones.
        place = first.place or 0
        parts = itertools.chain.from_iterable(within.get(at, ()) for at in range(place, place + first.size))
        others += [part for part in parts if part.structure not in ("", first.structure)]
        names = dict.fromkeys(name for member in (first, *others) for name in member.names)
        yield first._replace(others=tuple(name for name in names if name != first.name))


class _Warnings(logging.Handler):
    """Keeps the text of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
