# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the two shadow stacks of a thread, in the kernel and in user mode, and compares frames with them.

Kernel: KernelShadowStack, the pointer of a thread that does not run, and KernelShadowStackBase, the upper
end, are members of _KTHREAD (public symbols of Windows 11). This use of the members is inferred.

User mode: a system call leaves the pointer in the MSR IA32_PL3_SSP. XSAVES saves the MSR with the thread's
state, in component 11, CET_U: IA32_U_CET, then IA32_PL3_SSP. The area is in the compacted form: each
component follows those before it, at a multiple of 64 bytes if it must be aligned (Intel 64 and IA-32
Architectures Software Developer's Manual, volume 1, "Managing state using the XSAVE feature set").
_KTHREAD.StateSaveArea leads to the area; sizes and alignment of all components are in XSTATE_CONFIGURATION of
KUSER_SHARED_DATA (public symbols; winnt.h defines AllFeatures and AlignedFeatures). That the area of a
waiting thread contains CET_U is inferred; so the page to which the pointer leads must have the page table
entry of a shadow stack: not writable, and dirty (the same manual, volume 3).
"""

from __future__ import annotations

import struct
from typing import Iterator, List, Optional, Set, Tuple, Union

from ..columns.words import KERNEL, USER
from ..memory.decode import pagetable
from ..memory.decode.machine import KERNEL_HALF
from ..memory.decode.records import NamedTuple
from ..process.kernelobjects import thread_at
from ..process.thread import RUNNING, Thread
from ..stacklist.stack import StackRecord
from ..traps.decode.xstate import CET_U, CET_U_SIZE, LEGACY, SH_STK_EN, ComponentSizes, component
from .facts import CheckFacts

MAX_ENTRIES = 0x1000
"""The most entries that are read of a shadow stack."""

POINTER = "Tcb.KernelShadowStack"
_BASE = "Tcb.KernelShadowStackBase"
USER_FLAG = ("Tcb.CetUserShadowStack", "Tcb.CetShadowStack")
_AREA = "Tcb.StateSaveArea"

_NONE = "threads without a kernel shadow stack"
_NONE_OF_USER = "threads without a shadow stack of user mode"
_UNREADABLE = "the shadow stack is not in memory"
_IMPLAUSIBLE = "the pointers to the shadow stack contradict each other"
_NO_STATE = "no saved state has the pointer to the shadow stack of user mode"
_NOT_ITS_PAGE = "the pointer to the shadow stack of user mode leads to a page of another kind"

_SHARED_DATA = 0xFFFFF78000000000
"""KI_USER_SHARED_DATA of ntddk.h for x64."""
_ALL_FEATURES, _ALIGNED_FEATURES = "XState.AllFeatures", "XState.AlignedFeatures"
_COMPONENTS = 63
_WRITABLE, _DIRTY = 1 << 1, 1 << 6

_LEAD = {KERNEL: 4, USER: 0}
"""The most calls above the innermost frame of a walk, by kind: the calls of the thread switch itself."""


class ShadowStack(NamedTuple):
    """A shadow stack: its pointer, and the values from the pointer on that may be return addresses."""

    start: int
    returns: List[int]


def kernel_shadow_stack(thread: Thread, facts: CheckFacts) -> Union[ShadowStack, str]:
    """Returns a thread's kernel shadow stack, or the reason why there is none to compare."""
    memory, kthread = facts.image.memory(facts.image.kernel), thread_at(facts.image, thread.ethread)
    missing = [name for name in (POINTER, _BASE) if kthread.lack(name)]
    if missing:
        if len(missing) == 1:
            # A kernel with one of the two members has the other.
            kthread.lacks(*missing)
        return ""
    start, end = kthread[POINTER], kthread[_BASE]
    if not start:
        return _NONE
    if not end or start % 8 or not KERNEL_HALF <= start < end <= start + 8 * MAX_ENTRIES:
        return _IMPLAUSIBLE
    data = memory.load(start, end - start).read(start, end - start)
    if data is None:
        return _UNREADABLE
    low = start - 8 * MAX_ENTRIES
    # Values that are no return addresses: tokens and saved shadow stack pointers, which point into the shadow
    # stack, and CS.
    values = (value for (value,) in struct.iter_unpack("<Q", data[: (end - start) // 8 * 8]))
    return ShadowStack(start, [value for value in values if value >= KERNEL_HALF and not low <= value <= end])


def of_user(thread: Thread, facts: CheckFacts) -> Union[ShadowStack, str]:
    """Returns a thread's user-mode shadow stack, or the reason why there is none to compare."""
    kthread = thread_at(facts.image, thread.ethread)
    if kthread.lack(*USER_FLAG):
        return ""
    pointer = _user_pointer(thread, facts)
    if not pointer:
        return _NONE_OF_USER if kthread.first(*USER_FLAG) == 0 else _NO_STATE
    space = thread.space
    vad = facts.vad(space, pointer) if facts.is_user(pointer) and pointer % 8 == 0 else None
    if vad is None:
        return _IMPLAUSIBLE
    page = facts.page(space, pointer)
    if page is None:
        return _UNREADABLE
    if page.entry & pagetable.PRESENT and page.entry & (_WRITABLE | _DIRTY) != _DIRTY:
        return _NOT_ITS_PAGE
    data = b""
    for start, piece in facts.image.memory(space).pages(pointer, min(vad.end, pointer + 8 * MAX_ENTRIES)):
        if start != pointer + len(data):
            break
        data += piece
    values = (value for (value,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]))
    # Tokens and pointers to another segment of the shadow stack are no return addresses.
    candidates = [value for value in values if facts.is_user(value) and not vad.start <= value < vad.end]
    return ShadowStack(pointer, candidates)


def _user_pointer(thread: Thread, facts: CheckFacts) -> Optional[int]:
    """Returns the saved IA32_PL3_SSP: 0 without a shadow stack, None if it was not saved."""
    kernel = facts.image.kernel
    memory, sizes = facts.image.memory(kernel), facts.find_once(__name__, kernel, 0, lambda: _sizes(facts))
    area = thread_at(facts.image, thread.ethread)[_AREA] or 0
    header = memory.read(area + LEGACY, 16) if area >= KERNEL_HALF else None
    if header is None or sizes is None:
        return None
    place = component(bytes(header), CET_U, sizes)
    state = None if place is None else memory.read(area + place, CET_U_SIZE)
    if state is None:
        return None
    enabled, pointer = struct.unpack("<QQ", state)
    return pointer if enabled & SH_STK_EN else 0


def _sizes(facts: CheckFacts) -> Optional[ComponentSizes]:
    """Returns the sizes of the machine's state components, None if they cannot be read."""
    shared = facts.image.at("_KUSER_SHARED_DATA", _SHARED_DATA)
    if shared.lacks(_ALL_FEATURES) or shared.lacks(_ALIGNED_FEATURES):
        return None
    place, bits = shared.place(_ALL_FEATURES), shared[_ALIGNED_FEATURES]
    data = facts.image.memory(facts.image.kernel).read(place, 4 * _COMPONENTS) if place else None
    if data is None or bits is None:
        return None
    return ComponentSizes(struct.unpack(f"<{_COMPONENTS}I", data), bits)


def confirmed(stack: StackRecord, facts: CheckFacts) -> Set[int]:
    """Returns the numbers of the frames of a stack that its shadow stack confirms."""
    shadow = shadow_stack_of(stack, facts)
    if shadow is None:
        return set()
    return {number for number, other in compare_frames(stack, shadow.returns) if other is None}


def shadow_stack_of(stack: StackRecord, facts: CheckFacts, check: str = "") -> Optional[ShadowStack]:
    """Returns the shadow stack that belongs to a stack, None if there is none to compare. `check` is the name
    of the check for which `facts.left_out` reports the reason; empty for none."""
    thread = stack.thread
    if stack.kind not in _LEAD or thread is None or not _waits(stack, thread):
        return None
    shadow = (kernel_shadow_stack if stack.kind == KERNEL else of_user)(thread, facts)
    if isinstance(shadow, ShadowStack):
        return shadow
    if check and shadow:
        facts.leave_out(check, shadow, thread.space.process)
    return None


def _waits(stack: StackRecord, thread: Thread) -> bool:
    return bool(stack.frames) and not thread.unusable and not thread.ended and thread.state != RUNNING


def compare_frames(stack: StackRecord, shadow: List[int]) -> Iterator[Tuple[int, Optional[int]]]:
    """Yields the numbers of the frames that agree, then the first that differs, with its shadow address.

    The comparison ends where the shadow stack ends, at the first guess of the walk, and in user mode where a
    dispatcher continues with a state that Windows saved: the content of the shadow stack there is not
    documented.
    """
    position, agreed, lead = 0, 0, _LEAD[stack.kind]
    for number, walked in enumerate(stack.walked):
        if not walked.sure or position >= len(shadow):
            return
        if not walked.returns and stack.kind == USER:
            if number:
                return
            continue
        if not walked.returns:
            # An interrupt may be on the shadow stack; the frame that a dispatcher continues with is not.
            position += shadow[position] == walked.address
            continue
        reach = shadow[position : position + (1 if agreed else lead + 1)]
        if walked.address not in reach:
            yield number, shadow[position]
            return
        yield number, None
        position += reach.index(walked.address) + 1
        agreed += 1
