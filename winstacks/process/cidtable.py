# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""PspCidTable: the handle table in which Windows finds each process and thread by its ID."""

from __future__ import annotations

import logging
from typing import Dict, Iterable, List, Optional, Set, Tuple

from ..memory.decode.status import NOTHING, Status, StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import MissingMemberError
from ..memory.image import Image
from .handletables import HandleTables
from .kernelobjects import (
    PROCESS_OBJECT,
    PROCESS_OF_THREAD,
    THREAD_OBJECT,
    is_type,
    process_type,
    thread_type,
)

vollog = logging.getLogger(__name__)

CID_TABLE = "PspCidTable"
MAX_IDS = 1 << 18
"""Maximum number of entries of PspCidTable that are read."""


class CidTable:
    """The objects in PspCidTable. Made as `image.service(CidTable)`.

    Attributes:
        processes, threads: the ID of each _EPROCESS and _ETHREAD, by canonical address
        unread: the ID of each process or thread whose type is not in the image, by canonical address
        addresses: the canonical addresses of all objects
        whole: whether all of the table was read
    """

    def __init__(self, image: Image) -> None:
        self.addresses: Set[int] = set()
        self.whole = False
        self.processes: Dict[int, int] = {}
        self.threads: Dict[int, int] = {}
        self.threads_of: Dict[int, List[int]] = {}
        self.process_of: Dict[int, int] = {}
        self.unread: Dict[int, int] = {}
        memory = image.memory(image.kernel)
        address = memory.pointer(image.require_symbol(CID_TABLE))
        if not address:
            return
        try:
            tables = image.service(HandleTables)
            thread = thread_type(image)
            kind, pid = thread.field("Tcb.Header.Type"), thread.field("Cid.UniqueProcess")
        except MissingMemberError as error:
            image.lacks(error)
            return
        own_ids = process_type(image).first_member("UniqueProcessId"), thread.first_member("Cid.UniqueThread")
        table, owner = tables.table_at(address), thread.first_member(*PROCESS_OF_THREAD)
        assignments: List[Tuple[int, Optional[int], Optional[int]]] = []
        self.whole = table is not None
        for number, entry in enumerate(tables.entries(table) if table is not None else ()):
            if number >= MAX_IDS:
                vollog.warning(f"{CID_TABLE} has more than {MAX_IDS} entries: the others are not read")
                self.whole = False
                break
            if entry is None:
                self.whole = False
                continue
            # The entries point to the objects themselves, not to their headers.
            body = entry.object_header
            self.addresses.add(body)
            object_type = memory.member(body, kind)
            if object_type is None:
                self.unread[body] = entry.handle
                continue
            is_process, is_thread = (is_type(object_type, each) for each in (PROCESS_OBJECT, THREAD_OBJECT))
            if is_process:
                # One write to Type makes no process of a thread: the ID decides.
                as_process, as_thread = (memory.member(body, own_id) == entry.handle for own_id in own_ids)
                is_thread = as_thread and not as_process
            if is_thread:
                self.threads[body] = entry.handle
                assignments.append((body, memory.member(body, owner), memory.member(body, pid)))
            elif is_process:
                self.processes[body] = entry.handle
        self._assign(assignments)

    def may_have(self, body: int) -> bool:
        """Returns whether a process or thread at a canonical address has an ID: what is on a list has one."""
        return body in self.addresses or not self.whole

    def _assign(self, assignments: Iterable[Tuple[int, Optional[int], Optional[int]]]) -> None:
        """Assigns each thread to the process that it points to, or else to the one with its process ID."""
        self.process_of = {number: eprocess for eprocess, number in self.processes.items()}
        for ethread, eprocess, pid in assignments:
            if eprocess not in self.processes:
                eprocess = self.process_of.get(pid or 0, eprocess)
            if eprocess:
                self.threads_of.setdefault(eprocess, []).append(ethread)


def id_differs(known: Optional[int], own: Optional[int]) -> Status:
    """Returns the status of an object whose own ID differs from its ID in PspCidTable.

    Args:
        known: the ID in PspCidTable, None if it is not there
        own: the ID in the object itself, None if it cannot be read
    """
    return (
        NOTHING
        if known in (None, own) or own is None
        else status(StatusItem(StatusCode.ID_IN_CID_TABLE, known))
    )
