# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A thread: the facts that an input has about it, from a kernel's _ETHREAD or from elsewhere.

Source of the names of scheduling states and wait reasons: the public enumerations _KTHREAD_STATE and
_KWAIT_REASON (wdm.h and the kernel's symbols). If Windows gave a number a new meaning, the name here is the
newest one.
"""

from __future__ import annotations

from typing import Collection, Iterator, Optional, Protocol, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.image import AddressSpace

INITIALIZED = 0
RUNNING = 2
TERMINATED = 4
WAITING = 5

TEB = "Teb"
"""The member that a Status names as contradicted if the TEB is not the thread's own."""

_STATES = (
    "Initialized", "Ready", "Running", "Standby", "Terminated", "Waiting", "Transition",
    "DeferredReady", "GateWait", "WaitingForProcessInSwap",
)  # fmt: skip
_REASONS = (
    "Executive", "FreePage", "PageIn", "PoolAllocation", "DelayExecution", "Suspended", "UserRequest",
    "WrExecutive", "WrFreePage", "WrPageIn", "WrPoolAllocation", "WrDelayExecution", "WrSuspended",
    "WrUserRequest", "WrEventPair", "WrQueue", "WrLpcReceive", "WrLpcReply", "WrVirtualMemory",
    "WrPageOut", "WrRendezvous", "WrKeyedEvent", "WrTerminated", "WrProcessInSwap", "WrCpuRateControl",
    "WrCalloutStack", "WrKernel", "WrResource", "WrPushLock", "WrMutex", "WrQuantumEnd",
    "WrDispatchInt", "WrPreempted", "WrYieldExecution", "WrFastMutex", "WrGuardedMutex", "WrRundown",
    "WrAlertByThreadId", "WrDeferredPreempt", "WrPhysicalFault", "WrIoRing", "WrMdlCache", "WrRcu",
)  # fmt: skip


def state_name(state: int) -> str:
    """Returns the name of a KTHREAD.State; a number without a name is returned as text."""
    return _STATES[state] if 0 <= state < len(_STATES) else str(state)


def has_state(state: Optional[int]) -> bool:
    """Returns whether a KTHREAD.State is known, and one that Windows has."""
    return state is not None and 0 <= state < len(_STATES)


def wait_reason_name(reason: int) -> str:
    """Returns the name of a KTHREAD.WaitReason; a number without a name is returned as text."""
    return _REASONS[reason] if 0 <= reason < len(_REASONS) else str(reason)


def has_ended(state: Optional[int], signal_state: Optional[int]) -> bool:
    """Returns whether a thread has ended: State says so, and its object is signalled or not in the image.

    Sources: the object of a thread is signalled when the thread ends (Microsoft's documentation of
    synchronization objects); all 141 live threads of seven ReactOS images have 0 (measured).
    """
    return state == TERMINATED and signal_state != 0


_NO_THREAD = words_that(Means.NO_THREAD)


class SavedContext(NamedTuple):
    """A CONTEXT that an input has of a thread: its registers when it was stopped.

    Attributes:
        machine: machine of the CONTEXT: a WoW64 thread may have one of each machine
        address: canonical address of the CONTEXT, 0 if it is not in memory
        unknown: registers, by x64 names, whose value is unknown, though ContextFlags name their part
        unsure: registers for which it is unknown whether their value was saved
        status: status of these registers from the input; None if the input has none, so that bytes which are
            not a CONTEXT count as wrong
        kernel: whether the registers belong to kernel code on the thread's kernel stack
        later: whether the registers are later than the exception for which the input was made
        shadow: return addresses of the shadow stack of user mode, innermost first; empty without one
    """

    machine: Machine
    data: bytes
    address: int = 0
    unknown: Tuple[str, ...] = ()
    unsure: Tuple[str, ...] = ()
    status: Optional[Status] = None
    kernel: bool = False
    later: bool = False
    shadow: Tuple[int, ...] = ()


class Thread(NamedTuple):
    """A thread. Addresses are canonical; a member that could not be read is None.

    Attributes:
        ethread: address of the _ETHREAD; 0 if only a scan of physical memory found the thread, in a row that
            stands for a damaged list, and without a kernel
        system_call_number, first_argument: number and first argument of the thread's last system call from
            user mode (7 and later)
        create_time: a FILETIME
        contexts: registers that the input itself has; empty in a kernel's image
        kept_frames: addresses of trap frames that callbacks to user mode have saved, if the input itself has
            the registers; in a kernel's image they are on kernel stacks
        user_stack: limits of the native stack for a thread whose TEB may lack them; None in a kernel's image
    """

    ethread: int
    space: AddressSpace
    wow64: Optional[AddressSpace]
    tid: Optional[int]
    stack_base: Optional[int]
    stack_limit: Optional[int]
    initial_stack: Optional[int]
    kernel_stack: Optional[int]
    trap_frame: Optional[int]
    callback_stack: Optional[int]
    callback_depth: Optional[int]
    teb: Optional[int]
    state: Optional[int]
    wait_reason: Optional[int]
    debug_active: Optional[int]
    system_call_number: Optional[int]
    first_argument: Optional[int]
    start_address: Optional[int]
    win32_start_address: Optional[int]
    processor: Optional[int]
    status: Status
    create_time: Optional[int] = None
    contexts: Tuple[SavedContext, ...] = ()
    user_stack: Optional[Tuple[int, int]] = None
    kept_frames: Tuple[int, ...] = ()

    @property
    def running(self) -> bool:
        """Whether a processor was executing the thread: its stack pointer was in a register only."""
        unsaid = not has_status(self.status, StatusCode.RUNNING_ON_NO_PROCESSOR)
        return self.processor is not None or (self.state == RUNNING and unsaid)

    @property
    def ended(self) -> bool:
        """Whether it has ended by its State, and nothing contradicts that."""
        return self.state == TERMINATED and has_status(self.status, StatusCode.TERMINATED)

    @property
    def own_teb(self) -> int:
        """Address of its TEB; 0 if it has none, if it is unknown, or if another thread may have it."""
        doubted = any(item.code is StatusCode.CONTRADICTED and TEB in item.members for item in self.status)
        return 0 if doubted else self.teb or 0

    @property
    def of_user_mode(self) -> bool:
        """Whether the input has registers of user mode only, and no kernel stack of the thread."""
        return bool(self.contexts) and not any(context.kernel for context in self.contexts)

    @property
    def halves(self) -> Tuple[AddressSpace, ...]:
        """The native half of the process, then the 32-bit half if it has one."""
        return (self.space,) if self.wow64 is None else (self.space, self.wow64)

    def half_of(self, machine: Machine) -> Tuple[AddressSpace, Status]:
        """Returns the half of the process that runs the code of a machine.

        If no such half is known, the result is a space that cannot be read, and a status with the reason.
        """
        for space in self.halves:
            if space.machine is machine:
                return space, NOTHING
        unknown = self.space._replace(machine=machine, layer_name="", peb=0)
        return unknown, status(StatusCode.NO_32_BIT_HALF)

    @property
    def unusable(self) -> bool:
        """Whether none of its values can be trusted: it is unreadable, is no thread, or stands for a list."""
        return has_status(self.status, *_NO_THREAD)

    @property
    def state_name(self) -> str:
        """The name of its scheduling state, empty if the state is not readable."""
        return "" if self.state is None else state_name(self.state)

    @property
    def wait_reason_name(self) -> str:
        """The reason why it waits; empty if it does not wait."""
        waits = self.state == WAITING and self.wait_reason is not None
        return wait_reason_name(self.wait_reason or 0) if waits else ""


class Choice(NamedTuple):
    """The processes and threads that are listed: all if nothing is chosen.

    Attributes:
        pids: process IDs, 0 for the kernel; None for all
        offset: virtual or physical address of an _EPROCESS that no list holds; then only this is listed
        tids: thread IDs; None for all
    """

    pids: Optional[Collection[int]] = None
    offset: Optional[int] = None
    tids: Optional[Collection[int]] = None

    @property
    def nothing(self) -> bool:
        """Whether no process or no thread is chosen."""
        return any(ids is not None and not ids for ids in (self.pids, self.tids))

    @property
    def every_process(self) -> bool:
        """Whether all processes are chosen."""
        return self.pids is None and self.offset is None

    def takes_process(self, pid: Optional[int]) -> bool:
        """Returns whether a process is chosen, as far as its ID decides."""
        return self.pids is None or pid in self.pids

    def takes_thread(self, tid: Optional[int]) -> bool:
        """Returns whether a thread of a chosen process is chosen."""
        return self.tids is None or tid in self.tids


class ThreadLists(Protocol):
    """Lists the threads of an input."""

    def list_threads(self, choice: Choice, scan: bool = False) -> Iterator[Thread]:
        """Yields the threads; see `Threads.list_threads`."""

    def list_idle(self) -> Iterator[Thread]:
        """Yields the idle threads of processors that were executing them."""


def user_thread(
    space: AddressSpace,
    tid: Optional[int],
    teb: Optional[int],
    contexts: Tuple[SavedContext, ...] = (),
    wow64: Optional[AddressSpace] = None,
    user_stack: Optional[Tuple[int, int]] = None,
    create_time: Optional[int] = None,
    status: Status = NOTHING,
) -> Thread:
    """Returns a thread from an input without a kernel: members that only a kernel knows are None. `contexts`
    are registers of the thread, of each machine the earliest first."""
    return Thread(
        ethread=0,
        space=space,
        wow64=wow64,
        tid=tid,
        teb=teb,
        stack_base=None,
        stack_limit=None,
        initial_stack=None,
        kernel_stack=None,
        trap_frame=None,
        callback_stack=None,
        callback_depth=None,
        state=None,
        wait_reason=None,
        debug_active=None,
        system_call_number=None,
        first_argument=None,
        start_address=None,
        win32_start_address=None,
        processor=None,
        status=status,
        create_time=create_time,
        contexts=contexts,
        user_stack=user_stack,
    )
