# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.stacktracedb`."""

from __future__ import annotations

import itertools
import logging
from typing import Iterable, Iterator

from volatility3.framework import interfaces

from ..memory.decode.status import status
from ..memory.image import AddressSpace, Image
from ..process import globalflag
from ..process.spaces import AddressSpaces
from ..rows import plugin, requested
from ..rows.command import Command
from ..rows.frames import SpaceStacks
from ..rows.grid import Row
from ..rows.requested import Asked
from ..rows.traces import TRACES, TraceRows, missing, unread
from ..tracedb.decode import backtraces
from ..tracedb.decode.database import StdDatabase
from ..tracedb.decode.heaplog import HeapLog
from ..tracedb.decode.judge import Trace
from ..tracedb.finder import Databases
from ..tracedb.found import Database

vollog = logging.getLogger(__name__)

_NO_DATABASE = (
    "No stack trace database: the kernel keeps one when NtGlobalFlag has +kst 0x2000, "
    "a process when its own has +ust 0x1000 (windows.gflags shows the flags)"
)


class StackTraceDb(Command):
    """What `windows.stacktracedb` does."""

    def _generator(self) -> Iterator[Row]:
        with plugin.Listing(self, _NO_DATABASE, "back traces") as listing:
            image = self.image
            names = requested.symbolizer(self.plugin, image)
            stacks = SpaceStacks(names)
            finder = Databases(image, names.indexes)
            listed = list(AddressSpaces.list_spaces(image, self.config.get("pid")))
            objections = 0
            for space in listing.each(listed, _work, len(listed)):
                listing.nothing = plugin.advice(image, _NO_DATABASE)
                found = finder.search(space, self.config.get("carve", False))
                flags = globalflag.read(image, space)
                objection = missing(space, flags, finder.missing(space, found, flags))
                if objection:
                    objections += 1
                    vollog.warning(objection)
                if space.status or space.remark:
                    yield 0, unread(space)
                for each in found.databases:
                    listing.found = True
                    rows = TraceRows(image, each, stacks.of(space))
                    yield from self._database(image, finder, each, rows, listing)
            listing.unread = objections == len(listed)

    def _database(
        self, image: Image, finder: Databases, database: Database, rows: TraceRows, listing: plugin.Listing
    ) -> Iterator[Row]:
        listing.matched = listing.matched or self.config.get("dump", False)
        said = database.status
        dump, carve = self.config.get("dump", False), self.config.get("carve", False)
        wanted = self.config.get("index")
        picked = finder.pick(database, set(wanted)) if wanted and not (dump or carve) else None
        if picked is not None:
            yield 0, rows.database(database.header, said, plugin.DISABLED)
            yield from self._traces(rows, picked, listing)
            return
        opened = finder.open(database)
        if opened is None:
            yield 0, rows.database(None, said, plugin.FAILED if dump else plugin.DISABLED)
            return
        said = status(said, opened.status)
        if isinstance(opened, HeapLog):
            unreadable = opened.figures().unreadable
            yield 0, rows.heaplog(opened.trace_count, said)
        else:
            unreadable = opened.unreadable
            file_name = self._dump(image, finder, database, opened) if dump else plugin.DISABLED
            yield 0, rows.database(opened.header, said, file_name)
        where = (
            f"Process {database.space.pid} ({database.space.arch}), {database.kind} at {database.address:#x}"
        )
        if unreadable:
            vollog.warning(f"{where}: {unreadable} bytes of the used parts are not in the image")
        if isinstance(opened, StdDatabase) and opened.unlisted:
            vollog.warning(f"{where}: {opened.unlisted} more index slots lead to no entry; they have no row")
        if not dump:
            with plugin.collector_paused():
                traces = listing.many(opened.traces(carve), _work(database.space))
                yield from self._traces(rows, traces, listing)

    def _traces(self, rows: TraceRows, traces: Iterable[Trace], listing: plugin.Listing) -> Iterator[Row]:
        if listing.asked.wanted("index"):
            traces = _indexed(traces, listing.asked)
        if not listing.selection.everything:
            traces = rows.selected(listing.selection, traces)
        if self.config.get("fold", False):
            return listing.noting(zip(itertools.repeat(0), map(rows.folded, traces)))
        return listing.noting(itertools.chain.from_iterable(map(rows.unfolded, traces)))

    def _dump(self, image: Image, finder: Databases, database: Database, opened: StdDatabase) -> str:
        """Writes RTL_PROCESS_BACKTRACES; returns the name of the file."""
        space = database.space
        address = image.machine.masked(database.address)
        name = f"backtraces.{space.pid}.{space.arch}.{address:x}.bin"
        layout = finder.layouts(space).backtraces
        return plugin.write_file(
            self.plugin, name, backtraces.encode(opened.buffer(), opened.records(), layout)
        )

    def run(self) -> interfaces.renderers.TreeGrid:
        return plugin.tree(self.plugin, TRACES, self._generator())


def _indexed(traces: Iterable[Trace], asked: Asked) -> Iterator[Trace]:
    """Yields the traces with one of the indices that --index asks for."""
    wanted = asked.wanted("index")
    for trace in traces:
        if trace.trace_index in wanted:
            asked.saw("index", trace.trace_index)
            yield trace


def _work(space: AddressSpace) -> str:
    return f"Reading the databases of process {space.pid}"
