# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The threads of an image: their IDs, states and stacks.

    stacks = KernelStacks(image, kernel_start)
    for thread in Threads.list_threads(image, pids=[4], tids=[8]):
        for segment in stacks.segments(thread): ...

The listers of trap frames and of call stacks both use this module. Each _ETHREAD is read in one piece and
decoded with the offsets of the image's symbol table; a member that is not in the image is None.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Collection, Dict, Iterator, List, Optional, Set, Tuple

from ..memory.decode import links
from ..memory.decode.ranges import Extents
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, StatusItem, contradicted, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from . import processors, stacklimits
from . import threadids as ids
from . import threadscan as threadscan
from .cidtable import CID_TABLE, CidTable, id_differs
from .kernelobjects import (
    PROCESS_OF_THREAD,
    THREAD_OBJECT,
    is_absent,
    is_type,
    may_lie_at,
    process_type,
    thread_type,
)
from .processlist import found_by, process_list
from .processors import PROCESSORS
from .spaces import AddressSpaces
from .thread import INITIALIZED, RUNNING, TEB, TERMINATED, Choice, Thread, ThreadLists, has_ended, has_state
from .userstacks import contradicts

vollog = logging.getLogger(__name__)

MAX_THREADS_OF_PROCESS = 1 << 16
"""Maximum number of threads that are read of one process."""

MAX_STRANGE = 64
"""The most nodes of a process's list that are shown although no thread is known to be there: Windows' own
list has few, and a page has room for hundreds of links."""

_MEMBERS = {
    "type": ("Tcb.Header.Type",),
    "debug_active": ("Tcb.Header.DebugActive", "Tcb.DebugActive"),
    "pid": ("Cid.UniqueProcess",),
    "tid": ("Cid.UniqueThread",),
    "process": PROCESS_OF_THREAD,
    "stack_base": ("Tcb.StackBase",),
    "stack_limit": ("Tcb.StackLimit",),
    "initial_stack": ("Tcb.InitialStack",),
    "kernel_stack": ("Tcb.KernelStack",),
    "trap_frame": ("Tcb.TrapFrame",),
    "callback_stack": ("Tcb.CallbackStack",),
    "callback_depth": ("Tcb.CallbackNestingLevel", "Tcb.CallbackDepth"),
    "teb": ("Tcb.Teb",),
    "system_call_number": ("Tcb.SystemCallNumber",),
    "first_argument": ("Tcb.FirstArgument",),
    "state": ("Tcb.State",),
    "signal_state": ("Tcb.Header.SignalState",),
    "wait_reason": ("Tcb.WaitReason",),
    "context_switches": ("Tcb.ContextSwitches",),
    "start_address": ("StartAddress",),
    "win32_start_address": ("Win32StartAddress",),
    "create_time": ("CreateTime.QuadPart",),
}
_IN_EVERY_KERNEL = (
    "type", "pid", "tid", "process", "stack_base", "stack_limit", "initial_stack", "kernel_stack", "teb",
    "state", "wait_reason", "start_address", "win32_start_address",
)  # fmt: skip
_FLAGS_OF_TIME = ("NestedFaultCount", "ApcNeeded")
"""In XP and 2003 these bit fields are the lowest bits of CreateTime; the time is in the bits above (public
symbols of XP)."""


class Process(NamedTuple):
    """A process: its native space, and its 32-bit half if it is a WoW64 process."""

    space: AddressSpace
    wow64: Optional[AddressSpace]


def processes(
    image: Image,
    pids: Optional[Collection[int]] = None,
    offset: Optional[int] = None,
) -> Iterator[Process]:
    """Yields the processes of an image; the arguments are the same as for `AddressSpaces.list_spaces`."""
    native: Optional[AddressSpace] = None
    for space in AddressSpaces.list_spaces(image, pids, offset):
        # The 32-bit half follows the native space.
        if native is not None:
            yield Process(native, space if space.wow64 else None)
        native = None if space.kernel or space.wow64 else space
    if native is not None:
        yield Process(native, None)


class NoThreads:
    """Lists no threads: the provider of `threads` for an input without a kernel."""

    def list_threads(self, *_: object) -> Iterator[Thread]:
        return iter(())

    def list_idle(self) -> Iterator[Thread]:
        return iter(())


def threads(image: Image) -> ThreadLists:
    """Returns the lister of threads, for `image.service(threads)`: here it reads a kernel's lists."""
    return KernelThreads(image) if image.table_name else NoThreads()


class Threads:
    """Lists the threads of any input."""

    @classmethod
    def list_threads(
        cls,
        image: Image,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
        tids: Optional[Collection[int]] = None,
        scan: bool = False,
    ) -> Iterator[Thread]:
        """Yields threads, process by process. If one cannot be read or is not a thread, its `status` has
        this. A damaged list ends with a row that has a `status` only. If the list of processes is damaged,
        the status of the first row has this.

        Args:
            pids: process IDs to list; None for all
            offset: address of an _EPROCESS that no list holds; then only its threads are listed
            tids: thread IDs to list; None for all
            scan: whether to add threads that only a scan for their pool blocks finds

        Raises:
            MissingMemberError: the kernel's symbols do not describe threads
        """
        choice = Choice(pids, offset, tids)
        return iter(()) if choice.nothing else image.service(threads).list_threads(choice, scan)


class InterruptedThreadLists:
    """The processes, by _EPROCESS, whose lists of threads break off at nodes that are not in the image: a
    thread that is missing there need not be hidden.

    Made as `image.service(InterruptedThreadLists)`. A process joins them when its list is walked.
    """

    def __init__(self, _image: Image) -> None:
        self.processes: Set[int] = set()


class KernelThreads:
    """Lists the threads of a kernel: the kernel's provider of `threads`. Raises MissingMemberError if the
    kernel's symbols do not describe threads."""

    def __init__(self, image: Image) -> None:
        thread, process = thread_type(image), process_type(image)
        self._image = image
        self._memory = image.memory(image.kernel)
        self._size = thread.size
        members = {name: thread.first_member(*paths) for name, paths in _MEMBERS.items()}
        self._fields = {name: field for name, field in members.items() if field is not None}
        for name in _IN_EVERY_KERNEL:
            if name not in self._fields:
                image.lacks(thread.lack(*_MEMBERS[name]))
        time, flags = self._fields.get("create_time"), [thread.first_member(name) for name in _FLAGS_OF_TIME]
        over = [flag for flag in flags if flag and time and flag.offset == time.offset]
        self._time_shift = max((flag.shift + flag.mask.bit_length() for flag in over), default=0)
        # The last of these members names the process to which the thread is attached, which may be another.
        self._owner_path = [path for path in PROCESS_OF_THREAD[:-1] if thread.has(path)][:1]
        self._entry = thread.offset("ThreadListEntry")
        self._head = process.offset("ThreadListHead")
        self._count = process.first_member("ActiveThreads")
        listed = image.service(processors.processors_of)
        self._running = {cpu.current_thread: cpu.number for cpu in listed if cpu.current_thread}
        self._ids = image.service(CidTable)
        self._all_known = bool(listed) and all(map(self._runs_a_thread, listed))
        self._limits = stacklimits.StackLimits(image)

    def _runs_a_thread(self, cpu: processors.Processor) -> bool:
        """Returns whether CurrentThread of a processor is a thread. PspCidTable lacks idle threads."""
        thread, field = cpu.current_thread, self._fields.get("type")
        known = thread in self._ids.threads or thread in self._ids.unread or thread == cpu.idle_thread
        return bool(thread) and (known or is_type(self._memory.member(thread, field), THREAD_OBJECT))

    def list_threads(self, choice: Choice, scan: bool = False) -> Iterator[Thread]:
        """Yields the threads; see `Threads.list_threads`."""
        image = self._image
        owners = list(processes(image, choice.pids, choice.offset))
        damaged = image.service(process_list).status
        if damaged and choice.every_process:
            yield self._nothing(Process(image.kernel, None), damaged)
        seen: List[int] = []
        for process in owners:
            for thread in self._listed_threads(process):
                seen.append(thread.ethread)
                if thread.tid is None or choice.takes_thread(thread.tid):
                    yield thread
        if scan:
            for thread in self._scanned(owners, seen, choice.every_process):
                if choice.takes_thread(thread.tid):
                    yield thread

    def list_idle(self) -> Iterator[Thread]:
        """Yields the idle threads that processors were executing: their process is on no list."""
        image = self._image
        for processor in image.service(processors.processors_of):
            if processor.idle_thread and processor.idle_thread == processor.current_thread:
                yield self._at(Process(image.kernel, None), processor.idle_thread)

    def _listed_threads(self, process: Process) -> Iterator[Thread]:
        """Yields the threads on a process's list, which is walked from both ends if it is damaged."""
        head = process.space.eprocess + self._head
        walk = links.walk(head, self._memory.links, MAX_THREADS_OF_PROCESS)
        lost = walk.gap.lost if walk.gap is not None else ()
        unreadable = list(filter(self._may_be_thread, lost))
        exact = walk.gap is None or (walk.gap.exact and len(unreadable) == len(lost))
        if self._breaks_off(head, walk.gap):
            self._image.service(InterruptedThreadLists).processes.add(process.space.eprocess)
        seen: Set[int] = set()
        ended = strange = 0
        for entry in (*walk.before, *unreadable, *walk.after):
            thread = self._at(process, entry - self._entry)
            if self._is_strange(thread):
                strange += 1
                if strange > MAX_STRANGE:
                    continue
            seen.add(thread.ethread)
            ended += thread.unusable or thread.ended
            if walk.altered is not None and walk.altered.link == entry:
                thread = thread._replace(status=status(StatusCode.THREAD_LINKS_DISAGREE, thread.status))
            yield thread
        listed = len(seen)
        for ethread, witness in self._witnessed(process.space.eprocess, seen):
            thread = self._at(process, ethread)
            remark = status(StatusCode.NOT_IN_THE_THREAD_LIST, found_by(witness), thread.status)
            yield thread._replace(status=remark)
        head_altered = walk.altered is not None and walk.altered.link == head
        if head_altered or not exact or strange > MAX_STRANGE:
            vollog.warning(f"The thread list of process {process.space.pid_text} is damaged")
            yield self._nothing(process, status(StatusCode.THREAD_LIST_DAMAGED))
        count = self._memory.member(process.space.eprocess, self._count)
        if walk.gap is None and count is not None and not listed - ended <= count <= listed:
            yield self._nothing(process, status(StatusItem(StatusCode.THREAD_COUNT, count)))

    def _is_strange(self, thread: Thread) -> bool:
        """Returns whether no thread is known to be at an address: its type is another, or it is not in the
        image and PspCidTable lacks it, too."""
        if has_status(thread.status, StatusCode.NOT_A_THREAD):
            return True
        partly = has_status(thread.status, StatusCode.PARTLY_UNREADABLE, StatusCode.UNREADABLE)
        known = not partly or thread.ethread in self._ids.unread
        return not known and self._memory.member(thread.ethread, self._fields.get("type")) is None

    def _may_be_thread(self, link: int) -> bool:
        """Returns whether a link may lead to a thread, as far as its address shows."""
        return may_lie_at(self._image, link - self._entry)

    def _breaks_off(self, head: int, gap: Optional[links.ListGap]) -> bool:
        """Returns whether pages that are not in the image may hold the links to threads that are."""
        absent = links.absent_nodes(
            head,
            gap,
            functools.partial(is_absent, self._memory),
            lambda link: self._may_be_thread(link) and self._ids.may_have(link - self._entry),
        )
        return links.may_hide(head, gap, absent)

    def _witnessed(self, eprocess: int, seen: Set[int]) -> Iterator[Tuple[int, str]]:
        """Yields (address, witness) of the threads that are missing in a process's list."""
        for ethread in self._ids.threads_of.get(eprocess, ()):
            if ethread not in seen and (ethread, eprocess) not in self._listed_elsewhere:
                seen.add(ethread)
                yield ethread, CID_TABLE
        for ethread in self._running:
            data = self._memory.load(ethread, self._size)
            if (
                ethread not in seen
                and self._owner(ethread, data) == eprocess
                and is_type(self._part("type", ethread, data), THREAD_OBJECT)
                and (ethread, eprocess) not in self._listed_elsewhere
            ):
                seen.add(ethread)
                yield ethread, PROCESSORS

    @functools.cached_property
    def _listed_elsewhere(self) -> Set[Tuple[int, int]]:
        """The threads that point to one process, and are on the list of another, which their ID names: the
        _ETHREAD, and the _EPROCESS to which it points.

        Each list is walked once, for all threads that name its process.
        """
        candidates: Dict[int, List[Tuple[int, int]]] = {}
        for ethread, eprocess in self._pointing():
            pid = self._memory.member(ethread, self._fields.get("pid"))
            other = eprocess if pid is None else self._ids.process_of.get(pid, eprocess)
            if other != eprocess:
                candidates.setdefault(other, []).append((ethread, eprocess))
        found: Set[Tuple[int, int]] = set()
        for other, pairs in candidates.items():
            nodes = set(links.walk(other + self._head, self._memory.links, MAX_THREADS_OF_PROCESS).nodes)
            found.update(pair for pair in pairs if pair[0] + self._entry in nodes)
        return found

    def _pointing(self) -> Iterator[Tuple[int, int]]:
        """Yields the threads that PspCidTable and the processors have, each with the _EPROCESS it names."""
        for eprocess, ethreads in self._ids.threads_of.items():
            for ethread in ethreads:
                yield ethread, eprocess
        for ethread in self._running:
            owner = self._owner(ethread, self._memory.load(ethread, self._size))
            if owner:
                yield ethread, owner

    def _part(self, name: str, start: int, extents: Extents) -> Optional[int]:
        """Returns one of the members of an _ETHREAD at `start`, None if the table or the image lacks it."""
        field = self._fields.get(name)
        data = None if field is None else extents.read(start + field.offset, field.size)
        return None if field is None or data is None else field.value_in(data, -field.offset)

    def _at(self, process: Process, ethread: int) -> Thread:
        """Returns the thread at an address."""
        return self._thread(process, ethread, ethread, self._memory.read_kept(ethread, self._size))

    def _nothing(self, process: Process, fault: Status) -> Thread:
        """Returns the row that stands for threads that cannot be listed."""
        thread = self._thread(process, 0, 0, Extents([]))
        return thread._replace(status=status(process.space.remark, fault))

    def _thread(self, process: Process, ethread: int, start: int, extents: Extents) -> Thread:
        """Decodes a thread from its _ETHREAD, which is at `start` in `held`."""
        values: Dict[str, Optional[int]] = dict.fromkeys(_MEMBERS)
        whole = extents.read(start, self._size)
        if whole is not None:
            data = bytes(whole)
            values.update({name: field.value_in(data) for name, field in self._fields.items()})
        if whole is None:
            values.update({name: self._part(name, start, extents) for name in self._fields})
        partly = None in (values[name] for name in self._fields)
        faults = status(StatusCode.PARTLY_UNREADABLE) if partly else NOTHING
        absent = partly and extents.missing(start, start + self._size) == self._size
        if values["type"] is not None and not is_type(values["type"], THREAD_OBJECT):
            faults = status(StatusCode.NOT_A_THREAD)
        elif absent:
            faults = status(StatusCode.UNREADABLE)
        elif has_ended(values["state"], values["signal_state"]):
            faults = status(StatusCode.TERMINATED)
        processor = self._running.get(ethread)
        if not absent and not has_status(faults, StatusCode.NOT_A_THREAD):
            faults = status(faults, self._doubts(process, ethread, values, processor))
        values["tid"] = ids.identifier(values["tid"])
        if not values["tid"] and ethread:
            # Only the threads of Idle have the ID 0, and PspCidTable has none of these.
            known = self._ids.unread.get(ethread, values["tid"])
            values["tid"] = self._ids.threads.get(ethread, known)
        if values["create_time"] is not None:
            values["create_time"] >>= self._time_shift
        members: Dict[str, Any] = {name: values[name] for name in Thread._fields if name in values}
        faults = status(process.space.remark, faults)
        return Thread(
            ethread=ethread,
            space=process.space,
            wow64=process.wow64,
            processor=processor,
            status=faults,
            **members,
        )

    def _doubts(
        self, process: Process, ethread: int, values: Dict[str, Optional[int]], processor: Optional[int]
    ) -> Status:
        """Returns the contradictions of a thread, and restores the borders of its stack."""
        lone = values["state"] == RUNNING and processor is None and self._all_known
        wrong: List[str] = []
        ended = has_ended(values["state"], values["signal_state"])
        if not ended:
            wrong = self._limits.restore(values)
            if "StackBase" not in wrong and self._limits.of_another(ethread, values):
                wrong.append("StackBase")
            tids = {values["tid"], self._ids.threads.get(ethread)}
            if values["teb"] and contradicts(self._image, process.space, values["teb"], tids):
                wrong.append(TEB)
        state = values["state"]
        known = state is None or has_state(state)
        ran = state == INITIALIZED and values["context_switches"]
        if not known or ran or (state == TERMINATED and not ended):
            wrong.append("State")
        pid, process_id, owner = values["pid"], process.space.pid, values["process"]
        if pid is not None and pid != process_id and ethread in self._ids.threads:
            wrong.append("Cid.UniqueProcess")
        elif owner is not None and process.space.eprocess not in (0, self._image.machine.canonical(owner)):
            wrong.extend(self._owner_path)
        if not lone and not wrong and self._ids.threads.get(ethread) == values["tid"]:
            return NOTHING
        return status(
            StatusCode.RUNNING_ON_NO_PROCESSOR if lone else None,
            contradicted(*wrong),
            id_differs(self._ids.threads.get(ethread), values["tid"]),
        )

    def _scanned(self, owners: List[Process], seen: List[int], every_process: bool) -> Iterator[Thread]:
        """Yields the threads that are on no list, found by the tags of their pool blocks."""
        by_eprocess = {item.space.eprocess: item for item in owners if item.space.eprocess}
        for layer_name, address, ethread in threadscan.scan(self._image, [item for item in seen if item]):
            extents = self._image.reader(layer_name)(address, self._size)
            start = extents.runs[0][0] if extents.runs else 0
            owner = self._owner(start, extents)
            process = by_eprocess.get(owner)
            if process is None and every_process and owner:
                process = next(processes(self._image, offset=owner), None)
            if process is not None:
                thread = self._thread(process, ethread, start, extents)
                if not has_status(thread.status, StatusCode.NOT_A_THREAD):
                    yield thread._replace(status=status(StatusCode.NOT_IN_THE_THREAD_LIST, thread.status))

    def _owner(self, start: int, extents: Extents) -> int:
        """Returns the canonical address of the _EPROCESS that a thread names, or 0."""
        process = self._part("process", start, extents)
        return 0 if process is None else self._image.machine.canonical(process)
