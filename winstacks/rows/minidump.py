# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.minidump`: each process, the streams of its dump, its threads and their registers."""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from ..memory.decode.status import StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..minidump.processdump import ProcessDump
from ..minidump.threadrecords import ThreadRecord
from ..process.thread import Thread
from .entries import ShownEntry
from .plugin import FAILED


def process(dump: ProcessDump, space: AddressSpace, file_output: str) -> Iterator[Tuple[int, ShownEntry]]:
    """Yields the entries of a dump, each with its depth.

    Args:
        dump: the dump; all of its memory was read if a file was written
    """
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
    """Returns the entry of a thread."""
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
