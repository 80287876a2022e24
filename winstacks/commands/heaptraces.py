# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.heaptraces`."""

from __future__ import annotations

import itertools
import logging
from functools import cached_property
from typing import Dict, Iterator, Optional, Sequence, Tuple, Union

from volatility3.framework import exceptions, interfaces

from ..heaps.decode import umdh
from ..heaps.decode.around import around
from ..heaps.decode.block import UNKNOWN_SIZE, Block, TraceGroup
from ..heaps.decode.contents import HeapContents, HeapOwner
from ..heaps.decode.totals import ProcessTotal
from ..heaps.decode.umdh import UNKNOWN, Change, Growth, Total
from ..heaps.lister import Heaps
from ..heaps.umdh_log import loaded_modules, log_of
from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import counted
from ..memory.image import AddressSpace
from ..process.vads import regions
from ..rows import plugin
from ..rows.databasecommand import DatabaseCommand
from ..rows.entries import ShownEntry
from ..rows.grid import NOT_AVAILABLE, UNPARSABLE, Grid, Row
from ..stacklist.frames import NamedFrame
from ..tracedb.decode.recorded import NO_STACK, RecordedStack
from ..tracedb.gap import Gap

vollog = logging.getLogger(__name__)

_TRACE = ("Heap", "Index", "EntryAddress")
_SUMS = ("Count", "Bytes", "CountGrowth", "BytesGrowth")
_MOST = (1 << 63) - 1

_NOTHING = (
    "No readable heap records allocation stacks: a process's heaps do if its "
    "NtGlobalFlag has +ust 0x1000 (XP and 2003: +hpc 0x40 as well), or page heap (+hpa 0x2000000) is on "
    "(windows.gflags shows the flags)"
)


_NO_BLOCK = "No block of a heap that records stacks holds {:#x}, or lies in the memory region of this address"


class Allocated(NamedTuple):
    """The blocks of a trace, and the growth of its stack; None if growth does not apply."""

    group: TraceGroup
    change: Optional[Change]


class FreedGroup(NamedTuple):
    """A stack of the baseline that no longer has a busy block."""

    frames: Tuple[int, ...]
    before: Total


Listed = Union[HeapOwner, Allocated, FreedGroup]


class HeapTraces(DatabaseCommand[AddressSpace, Listed]):
    """The work of `windows.heaptraces`."""

    grid = Grid.for_plugin("heaptraces")
    key = (*_TRACE, "Block")
    recorded = True
    things = "traces"
    to_enable = _NOTHING
    kernel = False

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self._totals: Dict[AddressSpace, ProcessTotal] = {}
        self._space: AddressSpace
        self._file_output = ""

    @cached_property
    def _heaps(self) -> Heaps:
        return Heaps(self.image, self.databases)

    @cached_property
    def _baseline(self) -> Optional[umdh.UmdhLog]:
        """The log to compare with, None without one. Raises RenderException if the log cannot be used, so
        that no growth and no row can be shown."""
        path = self.config.get("baseline")
        if not path:
            return None
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return umdh.parse(file)
        except (OSError, umdh.UmdhError) as error:
            raise exceptions.RenderException(f"The baseline cannot be used: {error}") from error

    def divides(self) -> bool:
        # Files of workers would compete for their names, and --summary sorts the sums of all processes.
        return not (self.option("dump") or self.option("summary"))

    def describe(self, step: AddressSpace) -> str:
        return f"Reading the heaps of process {step.pid_text}"

    def items(self, step: AddressSpace) -> Iterator[Union[Listed, Gap]]:
        keep = self.option("blocks") or self.option("dump") or self._address is not None
        contents = self._heaps.read(step, keep=keep)
        if contents is None:
            return
        # All rows of a step are made before the next step begins.
        self._space = step
        if contents.status:
            yield Gap(step, contents.status)
        if self._address is not None:
            for group in around(contents.groups, self._address, self._region(step, self._address)):
                yield Allocated(group, None)
        elif contents.owners or contents.groups:
            yield from self._list_entries(step, contents)

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
        found = span_at(listed, address)
        if found is not None:
            return found.start, found.end
        return (address, address) if whole else None

    def _list_entries(self, space: AddressSpace, contents: HeapContents) -> Iterator[Listed]:
        modules: Tuple[umdh.UmdhModule, ...] = ()
        if self._baseline is not None or self.option("dump"):
            modules = loaded_modules(self.image, space)
        self._file_output = self._dump(space, contents, modules)
        yield from self._groups(contents, modules)
        yield from contents.owners

    def _groups(self, contents: HeapContents, modules: Tuple[umdh.UmdhModule, ...]) -> Iterator[Listed]:
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

    def frames(self, item: Listed) -> Sequence[NamedFrame]:
        named = self.frames_of(self._space)
        if isinstance(item, FreedGroup):
            return named.stack(item.frames)
        trace = item.trace if isinstance(item, HeapOwner) else item.group.trace
        return named.name_recorded(trace or NO_STACK)

    def rows(self, item: Listed, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        if self.option("summary"):
            self._add(item)
            return iter(())
        rows = super().rows(item, frames)
        if isinstance(item, Allocated) and (self.option("blocks") or self._address is not None):
            blocks = map(self.entries.cells, map(self._block, item.group.blocks))
            return itertools.chain(rows, zip(itertools.repeat(1), blocks))
        return rows

    def entry(self, item: Listed) -> ShownEntry:
        if isinstance(item, FreedGroup):
            growth = -item.before.allocations, _number(-item.before.size)
            return ShownEntry(self._space, status(StatusCode.GONE), dict(zip(_SUMS, (0, 0, *growth))))
        if isinstance(item, HeapOwner):
            cells = {
                **_trace(item.trace, item.heap),
                "Block": item.address,
                "Size": item.size or NOT_AVAILABLE,
                "BlockKind": item.kind,
                "File output": self._file_output,
            }
            return ShownEntry(self._space, item.joined_status, cells)
        group, change = item
        size = NOT_AVAILABLE if group.unsized == group.allocations else _number(group.size)
        cells = {
            **_trace(group.trace, group.heaps[0] if len(group.heaps) == 1 else None),
            **dict(zip(_SUMS, (group.allocations, size, *_growth(change)))),
            "TraceKind": group.trace.kind if group.trace else None,
        }
        unknown = StatusCode.GROWTH_UNKNOWN if change == UNKNOWN else None
        return ShownEntry(self._space, group.joined_status + status(unknown), cells)

    def _block(self, block: Block) -> ShownEntry:
        """Returns the entry of a block; its Index is the index of a second trace in the database, if any."""
        trace = _trace(block.trace, block.heap)
        cells = {
            **trace,
            "Index": block.std_index or trace["Index"],
            "Block": block.user or NOT_AVAILABLE,
            "Size": NOT_AVAILABLE if block.size == UNKNOWN_SIZE else _number(block.size),
            "BlockKind": block.form,
        }
        freed = status(StatusCode.FREED if block.freed else None)
        return ShownEntry(self._space, freed + block.status, cells)

    def _add(self, item: Listed) -> None:
        """Adds an item to the sums of its address space."""
        total = self._totals.setdefault(self._space, ProcessTotal())
        if isinstance(item, Allocated):
            total.add(item.group, item.change)
        elif isinstance(item, FreedGroup):
            total.add_gone(item.before)

    def finish(self) -> Iterator[Row]:
        for space, total in sorted(self._totals.items(), key=lambda item: -item[1].size):
            size = NOT_AVAILABLE if total.unsized == total.count else _number(total.size)
            growth: Tuple[object, object] = (None, None)
            if total.growth is not None:
                growth = (total.growth.allocations, _number(total.growth.size))
            unknown = StatusCode.GROWTH_UNKNOWN if total.growth_unknown else None
            cells = dict(zip(_SUMS, (total.count, size, *growth)))
            yield 0, self.entries.cells(ShownEntry(space, status(total.status, unknown), cells))

    def _dump(self, space: AddressSpace, contents: HeapContents, modules: Tuple[umdh.UmdhModule, ...]) -> str:
        """Writes a UMDH log if one is requested; returns the name of the file."""
        if not self.option("dump"):
            return plugin.DISABLED
        log, left_out = log_of(contents.groups, modules)
        if left_out:
            vollog.warning(
                f"Process {space.pid_text} ({space.arch}): not in the UMDH log: "
                f"{counted(left_out, 'block')} in use without a trace, or with an unknown size"
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


def _trace(trace: Optional[RecordedStack], heap: Optional[int]) -> Dict[str, object]:
    """Returns the cells of _TRACE."""
    numbers = (None, None) if trace is None else (trace.trace_index or None, trace.address or None)
    return dict(zip(_TRACE, (heap, *numbers)))


def _growth(change: Optional[Change]) -> Tuple[object, object]:
    if change is None:
        return None, None
    if change.allocations is None or change.size is None:
        return NOT_AVAILABLE, NOT_AVAILABLE
    return change.allocations, _number(change.size)


def _number(value: int) -> object:
    """Returns a number as a column takes it; no number of a heap is too long."""
    return value if -_MOST <= value <= _MOST else UNPARSABLE
