# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.minidump`: each process, the streams of its dump, its threads and their registers."""

from __future__ import annotations

from typing import Iterator, Optional

from ..memory.decode.status import Part, StatusItem, status, text
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..minidump.processdump import ProcessDump
from ..minidump.threadrecords import ThreadRecord
from ..process.thread import Thread
from .grid import NOT_APPLICABLE, UNREADABLE, Cells, Grid, Row, or_unreadable
from .plugin import FAILED

GRID = Grid.for_plugin("minidump")

_process = GRID.maker("PID", "Process", "Arch", "Member", "Value", "Status", "File output")
_gap = GRID.maker("PID", "Process", "Arch", "Status")
_stream = GRID.maker("PID", "Process", "Arch", "Member", "Value", "Status")
_thread = GRID.maker("PID", "Process", "Arch", "TID", "Member", "Value", "Unsure", "NotSaved", "Status")


def gap(space: AddressSpace, *remarks: Part) -> Row:
    """Returns the row of a process that cannot be dumped."""
    return 0, _gap(*_key(space), text(status(space.status, *remarks)))


def process(dump: ProcessDump, space: AddressSpace, file_output: str) -> Iterator[Row]:
    """Yields the rows of a dump.

    Args:
        dump: the dump; all of its memory was read if a file was written
    """
    failed = StatusCode.NOT_WRITTEN if file_output == FAILED else None
    row_status = text(status(dump.status, failed))
    key = _key(space)
    yield 0, _process(*key, "bytes of memory", str(dump.memory.size), row_status, file_output)
    for stream in dump.streams:
        yield 1, _stream(*key, stream.name, str(stream.entries), text(stream.status))
        if stream.name == "ThreadListStream":
            for thread, record in dump.threads:
                yield 2, _of_thread(space, thread, record)
        for member, count in dump.lost.names_of(stream.name):
            yield (
                2,
                _stream(*key, member, UNREADABLE, text((StatusItem(StatusCode.ZERO_FOR_UNKNOWN, count),))),
            )


def _key(space: AddressSpace) -> Cells:
    """Returns the cells of PID, Process and Arch."""
    return or_unreadable(space.pid), or_unreadable(space.known_name), space.arch


def _of_thread(space: AddressSpace, thread: Thread, record: Optional[ThreadRecord]) -> Cells:
    """Returns the row of a thread."""
    key = *_key(space), or_unreadable(thread.tid)
    if record is None:
        return _thread(
            *key, "MINIDUMP_THREAD", UNREADABLE, NOT_APPLICABLE, NOT_APPLICABLE, text(thread.status)
        )
    state = record.states[0]
    value = UNREADABLE if record.flags is None else f"{record.flags:#x}"
    return _thread(
        *key,
        "ContextFlags",
        value,
        " ".join(state.unsure),
        " ".join(state.unknown),
        text(record.status),
    )
