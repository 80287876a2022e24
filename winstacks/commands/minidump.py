# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.minidump`."""

from __future__ import annotations

import datetime
import itertools
import shlex
import sys
from typing import Iterable, Iterator, List, Optional, Sequence, Tuple

from volatility3.framework import constants, interfaces

from .. import VERSION
from ..memory.decode.machine import Machine
from ..memory.decode.status import Part, StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import moment, printable
from ..memory.image import AddressSpace
from ..minidump.processdump import ProcessDump
from ..minidump.threadrecords import ThreadRecord
from ..options import DUMP_FORMATS
from ..process.processlist import process_list
from ..process.thread import Thread
from ..process.threads import Process, processes
from ..rows import requested
from ..rows.command import Command
from ..rows.entries import ShownEntry
from ..rows.grid import Cells, Grid, Row
from ..rows.plugin import DISABLED, FAILED, OutputFile
from ..stacklist.frames import NamedFrame
from ..stacklist.imagefacts import identity
from ..stacklist.imagefiles import sha256

MAX_LINE = 0x1000
"""Greatest number of characters in a line of the comment; longer lines are cut."""


class MiniDump(Command[Process, Process]):
    """The work of `windows.minidump`."""

    grid = Grid.for_plugin("minidump")
    unreadable = ("PID", "Process", "TID", "Value")
    things = "processes"
    kernel = False

    @property
    def _format(self) -> str:
        return str(self.config.get("format") or DUMP_FORMATS[0])

    def steps(self) -> List[Process]:
        return list(processes(self.image, self.pids, self.config.get("offset")))

    def space(self, step: Process) -> AddressSpace:
        return step.space

    def describe(self, step: Process) -> str:
        return f"Reading the threads and the memory of process {step.space.pid_text}"

    def items(self, step: Process) -> Iterable[Process]:
        return (step,)

    def _obstacle(self, process: Process) -> Optional[Part]:
        """Returns why a process cannot be dumped, None if it can."""
        if not process.space.layer_name:
            return process.space.status or StatusCode.PAGE_TABLES_UNREADABLE
        if not process.space.peb:
            return StatusCode.NO_PEB
        if self._format == DUMP_FORMATS[1] and process.wow64 is None:
            return StatusCode.NO_32_BIT_HALF
        return None

    def is_gap(self, item: Process) -> bool:
        return not item.space.layer_name

    def rows(self, item: Process, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        obstacle = self._obstacle(item)
        if obstacle is not None:
            yield 0, self._not_dumped(item.space, obstacle)
            return
        narrow = self._format == DUMP_FORMATS[1] and item.wow64 is not None
        half = item.wow64 if narrow and item.wow64 is not None else item.space
        machine = Machine.I386 if narrow else item.space.machine
        offset = self.config.get("offset")
        dump = ProcessDump(self.image, self.symbolizer, item, machine, self._custody(item), offset)
        written = self._write(dump, half) if self.option("dump") else DISABLED
        for depth, entry in _entries(dump, half, written):
            yield depth, self.entries.cells(entry)

    def _not_dumped(self, space: AddressSpace, why: Part) -> Cells:
        """Returns the row of a process that cannot be dumped."""
        return self.entries.cells(ShownEntry(space, status(space.status, why)))

    def _write(self, dump: ProcessDump, half: AddressSpace) -> str:
        """Writes a dump; returns the cell for `File output`. An interrupted dump leaves no file."""
        eprocess = self.image.machine.masked(half.eprocess)
        name = f"pid.{half.file_part}.{half.arch}.{eprocess:#x}.dmp"
        file, whole = OutputFile(self.plugin, name), False
        try:
            whole = file.write(dump.head) and all(map(file.write_sparse, dump.memory.content()))
            if whole and dump.memory.unread:
                file.overwrite(dump.unread_rva, dump.memory.unread.to_bytes(8, "little"))
            whole = whole and file.end(dump.size)
        finally:
            if not whole:
                file.discard()
        return file.close() if whole else FAILED

    def _custody(self, process: Process) -> str:
        """Returns the text that names the origin of a dump."""
        known = self.image.service(identity)
        space = process.space
        captured = moment(known.clock.capture_time)
        lines = [
            f"Made by windows.minidump of winstacks {VERSION} on Volatility {constants.PACKAGE_VERSION} "
            "from the image of a machine's memory. Windows did not write it; CommentStreamA lists the "
            "missing data.",
            f"Command: {' '.join(map(shlex.quote, sys.argv))}",
            f"Made at: {datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')}",
            f"ImageId: {known.image_id}",
        ]
        for file in known.files:
            digest = sha256(file) if self.option("sha256") else None
            lines.append(f"File: {file.shown}, {file.size} bytes" + (f", SHA-256 {digest}" if digest else ""))
        lines += [
            f"Captured at: {captured.isoformat() if captured is not None else 'not known'}",
            f"Process: {space.process}, PID {space.pid}, _EPROCESS at {space.eprocess:#x}",
        ]
        return "\r\n".join(printable(line, MAX_LINE) for line in lines)

    def generate(self) -> Iterator[Row]:
        """Returns all rows, first the row for processes that a damaged process list may have lost."""
        some = self.pids is not None or self.config.get("offset") is not None
        damaged = () if some else self.image.service(process_list).status
        first = [(0, self._not_dumped(self.image.kernel, damaged))] if damaged else []
        return itertools.chain(first, super().generate())

    def run(self) -> interfaces.renderers.TreeGrid:
        """Returns the grid; ends if --format is invalid."""
        requested.check_words("format", [self._format], DUMP_FORMATS)
        return super().run()


def _entries(dump: ProcessDump, space: AddressSpace, file_output: str) -> Iterator[Tuple[int, ShownEntry]]:
    """Yields the entries of a dump, each with its depth. All memory of `dump` was read if a file was
    written."""
    failed = StatusCode.NOT_WRITTEN if file_output == FAILED else None
    cells = {"Member": "bytes of memory", "Value": str(dump.memory.size), "File output": file_output}
    yield 0, ShownEntry(space, status(dump.status, failed), cells)
    for stream in dump.streams:
        yield 1, ShownEntry(space, stream.status, {"Member": stream.name, "Value": str(stream.entries)})
        if stream.name == "ThreadListStream":
            for thread, record in dump.threads:
                yield 2, _of_thread(space, thread, record)
        for member, count in dump.lost.names_of(stream.name):
            zero = status(StatusItem(StatusCode.ZERO_FOR_UNKNOWN, count))
            yield 2, ShownEntry(space, zero, {"Member": member, "Value": None})


def _of_thread(space: AddressSpace, thread: Thread, record: Optional[ThreadRecord]) -> ShownEntry:
    if record is None:
        cells = {"TID": thread.tid, "Member": "MINIDUMP_THREAD", "Value": None}
        return ShownEntry(space, thread.status, cells)
    state = record.states[0]
    cells = {
        "TID": thread.tid,
        "Member": "ContextFlags",
        "Value": None if record.flags is None else f"{record.flags:#x}",
        "Unsure": " ".join(state.unsure),
        "NotSaved": " ".join(state.unknown),
    }
    return ShownEntry(space, record.status, cells)
