# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Thread and process IDs of `_ETHREAD` structures, by their addresses."""

from __future__ import annotations

from typing import Optional, Tuple

from ..memory.decode import text
from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, StatusItem, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from .cidtable import CidTable
from .kernelobjects import (
    IMAGE_FILE_NAME,
    PROCESS_OF_THREAD,
    THREAD,
    THREAD_OBJECT,
    is_type,
    process_at,
    process_type,
    thread_type,
)
from .programs import ProgramNames

MAX_ID = 0xFFFFFFFF
"""Process and thread IDs have 32 bits, but are stored in pointers."""


def identifier(value: Optional[int]) -> Optional[int]:
    """Returns a stored process or thread ID, or None for a value that cannot be an ID."""
    return value if value is not None and value <= MAX_ID else None


class ThreadOwner(NamedTuple):
    """A thread and its process, as the thread itself names them.

    Attributes:
        tid: the thread's ID, by which Windows finds the thread
        pid: the process's ID; None if it cannot be read
        process: the name of the process; None if it cannot be read
        status: `contradicted` if the process ID in the thread differs from the ID of the process to which the
            thread points; then `pid` is the ID of that process. Or if the thread points to no process, and
            PspCidTable has one with that ID; then `process` is the name of that process
            `ID … in PspCidTable` if the thread has another ID there, which is `tid` then
            `owner unreadable` if PspCidTable alone names the thread: its structure is not in the image
    """

    tid: int
    pid: Optional[int]
    process: Optional[str]
    status: Status = NOTHING


class ThreadIds:
    """Looks up threads, each once. Made as `image.service(ThreadIds)`."""

    def __init__(self, image: Image) -> None:
        thread, process = thread_type(image), process_type(image)
        self._image = image
        self._machine = image.machine
        self._memory = image.memory(image.kernel)
        self._type = thread.first_member("Tcb.Header.Type")
        self._tid = image.require_member(THREAD, "Cid.UniqueThread")
        self._pid = image.require_member(THREAD, "Cid.UniqueProcess")
        self._process = thread.first_member(*PROCESS_OF_THREAD)
        self._pointer = next(filter(thread.has, PROCESS_OF_THREAD), "")
        self._own = process.first_member("UniqueProcessId")
        self._ids = image.service(CidTable)
        self._programs = image.service(ProgramNames)
        self._known: Memo[int, Optional[ThreadOwner]] = Memo(self._read)

    def owner(self, ethread: int) -> Optional[ThreadOwner]:
        """Returns the thread at a canonical address, None if no thread is there or `is_absent` there."""
        return self._known[ethread]

    def is_absent(self, ethread: int) -> bool:
        """Returns whether the page that would show a thread is not in the image, or is all zeros, as tools
        write one that they could not read."""
        return self._memory.member(ethread, self._type) is None or self._memory.is_zero_page(ethread)

    def _read(self, ethread: int) -> Optional[ThreadOwner]:
        kind = self._memory.member(ethread, self._type)
        if kind is None and ethread in self._ids.unread:
            return ThreadOwner(self._ids.unread[ethread], None, None, status(StatusCode.OWNER_UNREADABLE))
        if self._tid is None or not is_type(kind, THREAD_OBJECT):
            return None
        own_id = identifier(self._memory.member(ethread, self._tid))
        tid = self._ids.threads.get(ethread, own_id)
        if tid is None:
            return None
        doubt = NOTHING if tid == own_id else status(StatusItem(StatusCode.ID_IN_CID_TABLE, tid))
        pid, eprocess, why = self._process_of(ethread)
        if not eprocess:
            return ThreadOwner(tid, pid, None, doubt + why)
        why = status(why, self._programs.doubt(eprocess))
        return ThreadOwner(tid, pid, self._process_name(eprocess), doubt + why)

    def _process_of(self, ethread: int) -> Tuple[Optional[int], int, Status]:
        """Returns ID and _EPROCESS of a thread's process, 0 if unknown, and what contradicts the thread."""
        stored = self._memory.member(ethread, self._pid)
        process = self._memory.member(ethread, self._process)
        pid, eprocess = identifier(stored), self._machine.canonical(process) if process else 0
        process_id = self._process_id(eprocess) if eprocess else None
        if process_id is not None:
            wrong = stored is not None and stored != process_id
            return process_id, eprocess, contradicted("Cid.UniqueProcess") if wrong else NOTHING
        known = self._ids.process_of.get(pid, eprocess) if pid is not None else eprocess
        wrong = process is not None and known != eprocess
        return pid, known, contradicted(self._pointer) if wrong else NOTHING

    def _process_id(self, eprocess: int) -> Optional[int]:
        """Returns the ID by which Windows finds a process, or else the ID in the process's own structure."""
        own_id = identifier(self._memory.member(eprocess, self._own))
        return self._ids.processes.get(eprocess, own_id)

    def _process_name(self, eprocess: int) -> Optional[str]:
        name = process_at(self._image, eprocess).data(IMAGE_FILE_NAME)
        return None if name is None else text.cell(text.narrow(name))
