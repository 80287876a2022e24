# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import itertools
import logging
from typing import Iterable, Iterator, List, Tuple

from volatility3.framework import interfaces, renderers

from .stacktraces.base import bulk, globalflag, spaces, tables
from .stacktraces.base.decode import globalflags
from .stacktraces.names import symbolizer
from .stacktraces.rows import collector, options
from .stacktraces.rows.traces import COLUMNS, TraceRows
from .stacktraces.tracedb import finder as databases
from .stacktraces.tracedb.decode import backtraces, heaplog
from .stacktraces.tracedb.decode import database as stdwalk
from .stacktraces.tracedb.decode.database import Trace
from .stacktraces.tracedb.found import Database, Found

vollog = logging.getLogger(__name__)

Row = Tuple[int, Tuple[object, ...]]


class StackTraceDb(interfaces.plugins.PluginInterface):
    """Lists the stack trace databases of the kernel and of processes, their back traces and frames.

    A database row carries the header of RTL_PROCESS_BACKTRACES, a back-trace row what
    RTL_PROCESS_BACKTRACE_INFORMATION does; the frames stand below it, innermost first.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            options.kernel(),
            *options.helpers(
                spaces=spaces.AddressSpaces,
                databases=databases.Databases,
                symbolizer=symbolizer.Symbolizer,
            ),
            options.pid("the kernel"),
            options.numbers("index", "Show only the back traces with these indices, and check no others"),
            *options.selecting("back traces"),
            options.switch("fold", "Show no frame rows, but each back trace in one string (column Stack)"),
            options.switch(
                "carve", "Also show freed and orphan entries, and databases that no pointer leads to"
            ),
            options.switch(
                "dump", "Write each database as RTL_PROCESS_BACKTRACES, and show the database rows only"
            ),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        kernel_name = self.config["kernel"]
        names = options.symbolizer(self)
        finder = databases.Databases(self.context, kernel_name, self.config_path, names.indexes)
        listed = spaces.AddressSpaces.list_spaces(self.context, kernel_name, self.config.get("pid"))
        spaces_seen = databases_seen = 0
        try:
            for space in listed:
                spaces_seen += 1
                self._progress_callback(0, _work(space))
                found = finder.search(space, self.config.get("carve", False))
                self._warn(space, finder, found)
                for each in found.databases:
                    databases_seen += 1
                    rows = TraceRows(self.context.layers[space.layer_name], each, names.names(space))
                    yield from self._database(finder, each, rows)
        except tables.MissingTableError as error:
            vollog.error(error)
            return
        if not spaces_seen:
            vollog.warning("There is no process of these IDs")
        elif not databases_seen:
            vollog.warning(
                "No stack trace database: the kernel keeps one when NtGlobalFlag has +kst 0x2000, "
                "a process when its own has +ust 0x1000 (windows.gflags shows the flags)"
            )

    def _warn(self, space: spaces.AddressSpace, finder: databases.Databases, found: Found) -> None:
        """Says why a space shows no database although its flags ask for one."""
        flags = globalflag.read(self.context, self.config["kernel"], space)
        missing = finder.missing(space, found, flags)
        if missing or space.status:
            who = "The kernel" if space.kernel else f"Process {space.pid} ({space.arch})"
            asked = "" if flags is None else f" (NtGlobalFlag {flags:#x}: {globalflags.abbreviate(flags)})"
            vollog.warning(f"{who}{asked}: {missing or space.status}")

    def _database(self, finder: databases.Databases, database: Database, rows: TraceRows) -> Iterator[Row]:
        dump, carve = self.config.get("dump", False), self.config.get("carve", False)
        wanted = self.config.get("index")
        picked = finder.pick(database, set(wanted)) if wanted and not (dump or carve) else None
        if picked is not None:
            yield 0, rows.database(database.header, database.status, options.DISABLED)
            yield from self._traces(rows, picked)
            return
        opened = finder.open(database)
        if opened is None:
            yield 0, rows.database(None, database.status, options.FAILED if dump else options.DISABLED)
            return
        status = ", ".join(filter(None, (database.status, opened.status)))
        if isinstance(opened, heaplog.HeapLog):
            unreadable = opened.figures().unreadable
            yield 0, rows.heaplog(opened.trace_count, status)
        else:
            unreadable = opened.unreadable
            file_name = self._dump(finder, database, opened) if dump else options.DISABLED
            yield 0, rows.database(opened.header, status, file_name)
        where = (
            f"Process {database.space.pid} ({database.space.arch}), {database.kind} at {database.address:#x}"
        )
        if unreadable:
            vollog.warning(f"{where}: {unreadable} bytes of the used parts are not in the image")
        if isinstance(opened, stdwalk.Database) and opened.unlisted:
            vollog.warning(f"{where}: {opened.unlisted} more index slots lead to no entry; they have no row")
        if not dump:
            work = _work(database.space)
            with collector.paused():
                traces = options.with_progress(self, opened.traces(carve), lambda _: work)
                yield from self._traces(rows, traces)

    def _traces(self, rows: TraceRows, traces: Iterable[Trace]) -> Iterator[Row]:
        selection = options.selection(self)
        wanted = set(self.config.get("index") or ())
        if wanted:
            traces = (trace for trace in traces if trace.trace_index in wanted)
        if not selection.everything:
            traces = rows.selected(selection, traces)
        if self.config.get("fold", False):
            return zip(itertools.repeat(0), map(rows.folded, traces))
        return itertools.chain.from_iterable(map(rows.unfolded, traces))

    def _dump(self, finder: databases.Databases, database: Database, opened: stdwalk.Database) -> str:
        """Writes RTL_PROCESS_BACKTRACES; returns the name of the file."""
        space = database.space
        address = bulk.masked(self.context.layers[space.layer_name], database.address)
        name = f"backtraces.{space.pid}.{space.arch}.{address:x}.bin"
        layout = finder.layouts(space).backtraces
        return options.write_file(self, name, backtraces.encode(opened.buffer(), opened.records(), layout))

    def run(self) -> renderers.TreeGrid:
        return renderers.TreeGrid(COLUMNS, self._generator())


def _work(space: spaces.AddressSpace) -> str:
    return f"Reading the databases of process {space.pid}"
