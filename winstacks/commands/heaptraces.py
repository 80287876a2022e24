# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.heaptraces`."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Dict, Iterator, NamedTuple, Optional, Sequence, Tuple, Union

from volatility3.framework import exceptions, interfaces

from ..heaps.decode import umdh
from ..heaps.decode.around import around
from ..heaps.decode.block import TraceGroup
from ..heaps.decode.contents import HeapContents, HeapOwner
from ..heaps.decode.totals import ProcessTotal
from ..heaps.decode.umdh import Change, Growth, Total
from ..heaps.lister import Heaps
from ..heaps.umdh_log import loaded_modules, log_of
from ..memory.decode.status import Status
from ..memory.image import AddressSpace
from ..names.usermodules import vad_at
from ..process.vads import regions
from ..rows import plugin
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.heaps import GRID, HeapRows
from ..stacklist.frames import NamedFrame
from ..tracedb.decode.recorded import NO_STACK

vollog = logging.getLogger(__name__)

_NOTHING = (
    "No readable heap records allocation stacks: a process's heaps do if its "
    "NtGlobalFlag has +ust 0x1000 (XP and 2003: +hpc 0x40 as well), or page heap (+hpa 0x2000000) is on "
    "(windows.gflags shows the flags)"
)


_NO_BLOCK = "No block of a heap that records stacks holds {:#x}, or lies in the memory region of this address"


class HeapOwnerItem(NamedTuple):
    """A heap or segment, and the name of the file to which its address space's blocks were written."""

    owner: HeapOwner
    file_output: str


class Allocated(NamedTuple):
    """The blocks of a trace, and the growth of its stack; None if growth does not apply."""

    group: TraceGroup
    change: Optional[Change]


class FreedGroup(NamedTuple):
    """A stack of the baseline that no longer has a busy block."""

    frames: Tuple[int, ...]
    before: Total


class HeapItem(NamedTuple):
    """An item of the heaps of an address space; a Status stands for data that cannot be read."""

    space: AddressSpace
    content: Union[Status, HeapOwnerItem, Allocated, FreedGroup]


class HeapTraces(Command[AddressSpace, HeapItem]):
    """The work of `windows.heaptraces`."""

    grid = GRID
    recorded = True
    things = "traces"
    to_enable = _NOTHING
    kernel = False

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self._totals: Dict[AddressSpace, ProcessTotal] = {}

    @cached_property
    def _heaps(self) -> Heaps:
        return Heaps(self.image, self.databases)

    @cached_property
    def _rows(self) -> HeapRows:
        return HeapRows(self)

    @cached_property
    def _baseline(self) -> Optional[umdh.UmdhLog]:
        """The log to compare with, None without one.

        Raises:
            RenderException: the log cannot be used, so that no growth and no row can be shown
        """
        path = self.config.get("baseline")
        if not path:
            return None
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return umdh.parse(file)
        except (OSError, umdh.UmdhError) as error:
            raise exceptions.RenderException(f"The baseline cannot be used: {error}") from error

    def describe(self, step: AddressSpace) -> str:
        return f"Reading the heaps of process {step.pid_text}"

    def items(self, step: AddressSpace) -> Iterator[HeapItem]:
        keep = self.option("blocks") or self.option("dump") or self._address is not None
        contents = self._heaps.read(step, keep=keep)
        if contents is None:
            return
        if contents.status:
            yield HeapItem(step, contents.status)
        if self._address is not None:
            for group in around(contents.groups, self._address, self._region(step, self._address)):
                yield HeapItem(step, Allocated(group, None))
            return
        if contents.owners or contents.groups:
            for entry in self._list_entries(step, contents):
                yield HeapItem(step, entry)

    @cached_property
    def _address(self) -> Optional[int]:
        """The address of --address in canonical form, None without the option."""
        given = self.config.get("address")
        return None if given is None else self.image.machine.canonical(given)

    def _region(self, space: AddressSpace, address: int) -> Optional[Tuple[int, int]]:
        """Returns the memory region that holds an address; None if it may be in a region that is unknown.

        An address in no region has an empty one.
        """
        listed, whole = self.image.service(regions).list_regions(space)
        found = vad_at(sorted(listed), address)
        if found is not None:
            return found.start, found.end
        return (address, address) if whole else None

    def _list_entries(
        self, space: AddressSpace, contents: HeapContents
    ) -> Iterator[Union[HeapOwnerItem, Allocated, FreedGroup]]:
        modules: Tuple[umdh.UmdhModule, ...] = ()
        if self._baseline is not None or self.option("dump"):
            modules = loaded_modules(self.image, space)
        file_output = self._dump(space, contents, modules)
        yield from self._groups(contents, modules)
        for owner in contents.owners:
            yield HeapOwnerItem(owner, file_output)

    def _groups(
        self, contents: HeapContents, modules: Tuple[umdh.UmdhModule, ...]
    ) -> Iterator[Union[Allocated, FreedGroup]]:
        """Yields the traces of an address space, the one with most bytes, or most growth, first."""
        if self._baseline is None:
            for group in contents.groups:
                yield Allocated(group, None)
            return
        growth = Growth(self._baseline, modules, contents.groups)
        for group, change in growth.compared():
            yield Allocated(group, change)
        for stack, total in growth.left():
            yield FreedGroup(stack, total)

    def is_gap(self, item: HeapItem) -> bool:
        return not isinstance(item.content, (HeapOwnerItem, Allocated, FreedGroup))

    def frames(self, item: HeapItem) -> Sequence[NamedFrame]:
        named, content = self.frames_of(item.space), item.content
        if isinstance(content, FreedGroup):
            return named.stack(content.frames)
        assert isinstance(content, (HeapOwnerItem, Allocated))
        trace = content.owner.trace if isinstance(content, HeapOwnerItem) else content.group.trace
        return named.name_recorded(trace or NO_STACK)

    def rows(self, item: HeapItem, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        space, content, rows = item.space, item.content, self._rows
        if self.option("summary") and isinstance(content, (HeapOwnerItem, Allocated, FreedGroup)):
            self._add(space, content)
        elif isinstance(content, HeapOwnerItem):
            yield from rows.owner(space, content.owner, frames, content.file_output)
        elif isinstance(content, Allocated):
            yield from rows.group(space, content.group, frames, content.change)
            if self.option("blocks") or self._address is not None:
                for block in content.group.blocks:
                    yield 1, rows.block(space, block)
        elif isinstance(content, FreedGroup):
            yield from rows.freed_group(space, content.before, frames)
        else:
            yield 0, rows.unread(space, content)

    def _add(self, space: AddressSpace, content: Union[HeapOwnerItem, Allocated, FreedGroup]) -> None:
        """Adds an item to the sums of its address space."""
        total = self._totals.setdefault(space, ProcessTotal())
        if isinstance(content, Allocated):
            total.add(content.group, content.change)
        elif isinstance(content, FreedGroup):
            total.add_gone(content.before)

    def finish(self) -> Iterator[Row]:
        for space, total in sorted(self._totals.items(), key=lambda item: -item[1].size):
            yield 0, self._rows.total(space, total)

    def _dump(self, space: AddressSpace, contents: HeapContents, modules: Tuple[umdh.UmdhModule, ...]) -> str:
        """Writes a UMDH log if one is requested; returns the name of the file."""
        if not self.option("dump"):
            return plugin.DISABLED
        log, left_out = log_of(contents.groups, modules)
        if left_out:
            vollog.warning(
                f"Process {space.pid_text} ({space.arch}): {left_out} blocks in use name no trace or "
                "their size is not known: they are not in the UMDH log"
            )
        name = f"umdh.{space.file_part}.{space.arch}.log"
        return plugin.write_file(self.plugin, name, (piece.encode("utf-8") for piece in umdh.write(log)))

    def run(self) -> interfaces.renderers.TreeGrid:
        # An unusable baseline ends the command before any row.
        _ = self._baseline
        given = self.config.get("address")
        if given is not None:
            self.nothing, self.to_enable = _NO_BLOCK.format(given), ""
        return super().run()
