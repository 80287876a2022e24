# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `hidden`: the lists and other witnesses disagree about a process or a thread."""

from __future__ import annotations

from typing import Dict, Iterator, Optional, Tuple

from ...columns.words import CERTAIN, HIGH, LIKELY, LOW, MEDIUM, THREAD_KINDS
from ...memory.decode.status import Status, StatusItem, has_status, text
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.text import counted
from ...memory.image import AddressSpace
from ...process.cidtable import CID_TABLE, CidTable
from ...process.handletables import handle_tables
from ...process.processlist import POOL_SCAN, create_time, process_list, process_member
from ...process.spaces import SYSTEM_PID, AddressSpaces
from ...process.threads import InterruptedThreadLists, Threads
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, Check, Finding

_EXIT_TIME = "ExitTime.QuadPart"
_UNFINISHED = "a process that is being created or removed: it has no thread"
_ENDING = "the process ended while the image was taken"
_SMEARED = "the thread was created while the image was taken"
_NEWEST = "no listed process is newer: it may have been created while the image was taken"
_ABSENT = "pages of the list are not in the image"
_MOVED = "page tables changed while the image was taken"
MAX_HANDLES = 1 << 20
"""The most handles that are searched for handles to processes found only by the scan."""

_INITIALIZED = 0
"""Value Initialized of KTHREAD_STATE: the thread never ran."""


def check_image(facts: CheckFacts) -> Iterator[Finding]:
    """Yields live processes missing from the process list, and processes with another's page tables."""
    alone: Dict[int, AddressSpace] = {}
    newest: Optional[int] = None
    for space in AddressSpaces.list_spaces(facts.image, facts.pids):
        if space.kernel or space.wow64:
            continue
        unlisted = has_status(space.remark, StatusCode.NOT_IN_THE_PROCESS_LIST)
        if _exited(space, facts):
            yield from _ended(space, facts) if unlisted else ()
            continue
        if unlisted:
            newest = _newest_listed(facts) if newest is None else newest
            yield from _unlisted(space, facts, alone, newest)
        other = _sharing(space.status + space.remark)
        if other is not None and space.pid != SYSTEM_PID:
            reasons = text(space.status + space.remark)
            evidence = f"_EPROCESS {space.eprocess:#x}: {reasons}"
            yield Finding(
                MEDIUM, LIKELY, space, evidence, _MOVED, ("tables", space.eprocess), address=space.eprocess
            )
    yield from _check_handles(alone, facts) if alone else ()


def _ended(space: AddressSpace, facts: CheckFacts) -> Iterator[Finding]:
    """Yields a process that has ended by its ExitTime, which who hides it can write, and has live threads.

    What only a scan finds is a remnant: its list may lead to memory that has become another process's thread.
    """
    remnant = POOL_SCAN in _witnesses(space.remark)
    threads = 0 if remnant else _live(space, facts)
    if threads:
        absent = facts.image.service(process_list).interrupted
        severity, innocent = (LOW, _ABSENT) if absent else (MEDIUM, _ENDING)
        evidence = f"_EPROCESS {space.eprocess:#x}: {text(space.remark)}, {counted(threads, 'live thread')} "
        evidence += "in its list, and an ExitTime"
        group = ("process", space.eprocess)
        yield Finding(severity, LIKELY, space, evidence, innocent, group, address=space.eprocess)


def _unlisted(
    space: AddressSpace, facts: CheckFacts, alone: Dict[int, AddressSpace], newest: int
) -> Iterator[Finding]:
    """Yields a process missing from the list; a scanned one without threads joins `alone`. `newest` is when
    the newest listed process was created, 0 if no time is known."""
    scanned = POOL_SCAN in _witnesses(space.remark)
    threads = len(facts.image.service(CidTable).threads_of.get(space.eprocess, ()))
    where = CID_TABLE
    if scanned and not threads:
        # A process found only by the scan may be a remnant: its page tables and a live thread show that it
        # lives.
        threads, where = _live(space, facts) if space.layer_name else 0, "its list"
        if not threads:
            if space.layer_name:
                alone[space.eprocess] = space
            return
    severity, confidence = HIGH, LIKELY if scanned else CERTAIN
    created = create_time(facts.image, space.eprocess)
    innocent = _NEWEST if created and 0 < newest <= created else NONE_KNOWN
    if not threads:
        severity, confidence, innocent = LOW, LIKELY, _UNFINISHED
    if facts.image.service(process_list).interrupted:
        severity, confidence, innocent = LOW, LIKELY, _ABSENT
    evidence = f"_EPROCESS {space.eprocess:#x}: {text(space.remark)}, {counted(threads, 'thread')} in {where}"
    yield Finding(
        severity, confidence, space, evidence, innocent, ("process", space.eprocess), address=space.eprocess
    )


def _newest_listed(facts: CheckFacts) -> int:
    """Returns when the newest process of the list was created, a FILETIME; 0 if no time is known.

    Windows adds a new process at the end of the list. An image may have the list of before, and all else of
    the process.
    """
    listed = facts.image.service(process_list).processes()
    times = (
        create_time(facts.image, process.eprocess) or 0
        for process in listed
        if not has_status(process.status, StatusCode.NOT_IN_THE_PROCESS_LIST)
    )
    return max(times, default=0)


def _check_handles(alone: Dict[int, AddressSpace], facts: CheckFacts) -> Iterator[Finding]:
    """Yields the processes found only by the scan to which a handle of another process leads."""
    tables = handle_tables(facts.image)
    if tables is None:
        return
    body, remaining = facts.image.types["_OBJECT_HEADER"].offset("Body"), MAX_HANDLES
    for holder in AddressSpaces.list_spaces(facts.image):
        unlisted = has_status(holder.remark, StatusCode.NOT_IN_THE_PROCESS_LIST)
        table = None if holder.kernel or holder.wow64 or unlisted else tables.table_of(holder.eprocess)
        for entry in tables.entries(table) if table is not None and table.address else ():
            remaining -= 1
            if remaining < 0:
                return
            space = None if entry is None else alone.pop(entry.object_header + body, None)
            if entry is not None and space is not None:
                evidence = f"_EPROCESS {space.eprocess:#x}: {text(space.remark)}, no thread in its list; "
                evidence += f"handle {entry.handle:#x} of PID {holder.pid} leads to it"
                group = ("process", space.eprocess)
                yield Finding(MEDIUM, LIKELY, space, evidence, _UNFINISHED, group, address=space.eprocess)


def _live(space: AddressSpace, facts: CheckFacts) -> int:
    """Returns the number of threads in a process's own list that have not ended."""
    listed = Threads.list_threads(facts.image, offset=space.eprocess)
    return sum(not thread.unusable and not thread.ended for thread in listed)


def check_thread(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields a thread that is missing from its process's list and known to another witness."""
    thread = stack.thread
    if thread is None or thread.state is None or thread.ended or thread.unusable:
        return
    if not has_status(thread.status, StatusCode.NOT_IN_THE_THREAD_LIST) or not _witnesses(thread.status):
        return
    if _exited(thread.space, facts):
        return
    new = thread.state == _INITIALIZED
    # The thread may have been in the list after an absent page.
    interrupted = facts.image.service(InterruptedThreadLists).processes
    absent = has_status(thread.space.remark, StatusCode.PROCESS_UNREADABLE)
    absent = absent or thread.space.eprocess in interrupted
    evidence = f"_ETHREAD {thread.ethread:#x}: {text(thread.status)}"
    yield Finding(
        LOW if new or absent else MEDIUM,
        LIKELY,
        thread.space,
        evidence,
        _ABSENT if absent else _SMEARED,
        ("thread", thread.ethread),
        tid=thread.tid,
        address=thread.ethread,
    )


def _witnesses(thread_status: Status) -> Tuple[str, ...]:
    return tuple(name for item in thread_status if item.code is StatusCode.FOUND_BY for name in item.members)


def _sharing(process_status: Status) -> Optional[StatusItem]:
    """Returns the item for page tables shared with a process other than Idle and System."""
    shared = (item for item in process_status if item.code is StatusCode.PAGE_TABLES_OF_PROCESS)
    return next((item for item in shared if item.number != SYSTEM_PID), None)


def _exited(space: AddressSpace, facts: CheckFacts) -> bool:
    return bool(process_member(facts.image, space.eprocess, _EXIT_TIME))


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that only a scan finds hidden processes and threads, if no scan was requested."""
    if not facts.scan:
        yield "processes and threads that only a pool scan finds: --scan"


CHECK = Check(
    "hidden",
    "T1014",
    THREAD_KINDS,
    "A live process or thread is missing from the list that Windows keeps, but another structure refers "
    "to it; or two live processes have the same page tables.",
    "high for a process with threads; medium for a thread, for shared page tables, for a process that only "
    "a pool scan and a handle of another process show, and for one with ExitTime and live threads; low for "
    "a process without threads, for a thread that never ran, and where a page of the list is not in the "
    "image",
    "An image is not a snapshot: a process or thread that started or ended during acquisition may be on "
    "some lists only. The check leaves out processes that have exited, unless threads of them live.",
    "Compare windows.pslist, windows.psscan and windows.thrdscan; dump the process by its offset.",
    head="a process or thread that a list lacks",
    command="windows.psscan --pid {pid}",
    of_stack=check_thread,
    of_image=check_image,
    unchecked=unchecked,
    kernel=True,
)
