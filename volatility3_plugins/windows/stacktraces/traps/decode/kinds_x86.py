# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86 trap frames: how the kernel was entered, told from the bytes, and what each entry writes.

Until 8 no member names the kind. Exceptions and interrupts write the same members from user mode and
cannot be told apart; services differ from both in what they store into the Edx slot.

Source: measured on 5.1.2600.5512 and 5.2.3790.3959; FrameType (8.0 and later): Geoff Chappell, KTRAP_FRAME.
"""

from __future__ import annotations

from .members import (
    COMPUTED,
    EFLAGS_VM,
    EXCEPTION,
    INTERRUPT,
    REUSED,
    REUSED_UNSURE,
    SAVED,
    SERVICE,
    SYSCALL,
    UNSURE,
    UNWRITTEN,
    Facts,
    Layout,
    Verdicts,
    debug_registers_plausible,
    mark,
    number,
)

ARGUMENT_MARK = 0xBADB0D00
KERNEL_START = 0x80000000

# How the kernel was entered.
SYSENTER = "sysenter"
GATE = "gate"  # int 2E and its like, and Zw calls from kernel mode
TRAP = "trap"  # an exception or an interrupt
FAULT = "fault"
DEVICE = "device"
EITHER = "either"  # a trap or a service, from user mode
TASK_NMI = "task"  # the NMI's task gate: the frame is put together from the TSS
FAST_V86 = "v86"  # fast paths of virtual-8086 mode, which write no mark
UNKNOWN = ""

_FRAME_TYPES = {0: DEVICE, 1: FAULT, 2: GATE}
_USER_FS = 0x3B
_KERNEL_FS = 0x30
_MODES = (0, 1)

_EVERY_MEMBER = (
    "DbgEbp DbgEip DbgArgMark DbgArgPointer TempSegCs TempEsp Logging FrameType Dr0 Dr1 Dr2 Dr3 Dr6 Dr7 SegGs"
    " SegEs SegDs Edx Ecx Eax PreviousPreviousMode EntropyQueueDpc PreviousIrql MxCsr SegFs HardwareEsp"
    " HardwareSegSs V86Es V86Ds V86Fs V86Gs ErrCode"
)
_SEGMENTS = "SegGs SegEs SegDs SegFs"


def from_v86(layout: Layout, data: bytes) -> bool:
    """Tells whether the processor was in virtual-8086 mode."""
    return bool(number(layout, data, "EFlags") & EFLAGS_VM)


def from_user(layout: Layout, data: bytes) -> bool:
    """Tells whether SegCs is a user-mode selector or the mode was virtual-8086."""
    return from_v86(layout, data) or bool(number(layout, data, "SegCs") & 1)


def is_task_nmi(layout: Layout, data: bytes) -> bool:
    """Tells whether a frame is the one that the NMI's handler puts together from the interrupted task."""
    if "DbgArgPointer" not in layout.members:
        return False
    zeros = ("DbgArgMark", "DbgArgPointer", "TempEsp", "Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7", "ErrCode")
    return number(layout, data, "PreviousPreviousMode") == 0xFFFFFFFF and not any(
        number(layout, data, name) for name in zeros
    )


def entry_of(layout: Layout, data: bytes, facts: Facts) -> str:
    """Returns how the kernel was entered, one of the constants above; UNKNOWN if the bytes fit none."""
    if is_task_nmi(layout, data):
        return TASK_NMI
    v86, user = from_v86(layout, data), from_user(layout, data)
    if number(layout, data, "DbgArgMark") != ARGUMENT_MARK:
        return FAST_V86 if v86 else UNKNOWN
    has_pointer = "DbgArgPointer" in layout.members
    if "FrameType" in layout.members:
        entry = _FRAME_TYPES.get(number(layout, data, "FrameType"), UNKNOWN)
        return SYSENTER if entry == GATE and has_pointer and user and _is_sysenter(layout, data) else entry
    if not has_pointer:
        return UNKNOWN
    edx = number(layout, data, "Edx")
    trap = number(layout, data, "DbgArgPointer") == (number(layout, data, "V86Ds") if v86 else edx)
    sysenter = user and not v86 and _is_sysenter(layout, data)
    gate = number(layout, data, "PreviousPreviousMode") in _MODES and (edx == 0 or edx >= KERNEL_START)
    if trap:
        # A stale mode byte, or a chosen Edx, makes one look like the other. Zw calls choose no Edx.
        service = user and (sysenter or gate) and not number(layout, data, "ErrCode")
        return EITHER if service else _trap(facts)
    if sysenter:
        return SYSENTER
    return GATE if gate else UNKNOWN


def _trap(facts: Facts) -> str:
    """Says which of the two a trap is, where the handler's name tells."""
    if facts.handler.startswith("KiTrap"):
        return FAULT
    if facts.handler.startswith(("KiInterruptDispatch", "KiChainedDispatch", "KiUnexpected")):
        return DEVICE
    return TRAP


def _is_sysenter(layout: Layout, data: bytes) -> bool:
    """KiFastCallEntry takes the user's Esp from Edx, and DbgArgPointer is Edx + 8.

    int 2E from ntdll's stub looks the same; it writes no less than that.
    """
    stack = number(layout, data, "HardwareEsp")
    return (
        number(layout, data, "DbgArgPointer") == stack + 8 & 0xFFFFFFFF
        and number(layout, data, "PreviousPreviousMode") in _MODES
        and number(layout, data, "SegFs") & 0xFFFF == _USER_FS
    )


def kind_of(entry: str, user: bool) -> str:
    """Returns the public name of an entry, empty where the bytes leave it open."""
    if entry in (SYSENTER, GATE):
        return SYSCALL if user else SERVICE
    return {FAULT: EXCEPTION, FAST_V86: EXCEPTION, DEVICE: INTERRUPT, TASK_NMI: INTERRUPT}.get(entry, "")


def verdicts(layout: Layout, data: bytes, entry: str, facts: Facts) -> Verdicts:
    """Returns the validity of every member that the entry code is known to write or to leave alone."""
    found: Verdicts = {}
    mark(found, UNWRITTEN, _EVERY_MEMBER)
    user, v86 = from_user(layout, data), from_v86(layout, data)
    names = "Ebp Ebx Esi Edi Eip SegCs EFlags ExceptionList"
    if entry == UNKNOWN:
        mark(found, UNSURE, names + (" HardwareEsp HardwareSegSs" if user else ""))
        return found
    mark(found, SAVED, names)
    if user:
        mark(found, SAVED, "HardwareEsp HardwareSegSs")
    if v86:
        mark(found, SAVED, "V86Es V86Ds V86Fs V86Gs")
    if entry != FAST_V86:
        mark(found, COMPUTED, "DbgEbp DbgEip DbgArgMark DbgArgPointer FrameType")
    if entry == SYSENTER:
        mark(found, COMPUTED, "Eip", "SystemCallReturn")
        mark(found, COMPUTED, "SegFs HardwareSegSs", "a constant")
    if entry in (SYSENTER, GATE):
        _service(found, entry, not user or "DbgArgPointer" in layout.members)
    elif entry == EITHER:
        mark(found, UNSURE, "Eax Ecx Edx ErrCode SegGs SegEs SegDs")
        mark(found, SAVED, "SegFs")
    elif entry == TASK_NMI:
        mark(found, SAVED, "Eax Ecx Edx HardwareEsp HardwareSegSs " + _SEGMENTS)
        mark(found, REUSED, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7 ErrCode PreviousPreviousMode", "a constant")
    else:
        _trap_registers(found, layout, data, entry)
    if user and entry != TASK_NMI:
        _debug_registers(found, layout, data, entry, facts)
    if "MxCsr" in layout.members and number(layout, data, "MxCsr") < 0x10000:
        mark(found, UNSURE, "MxCsr")
    return found


def _service(found: Verdicts, entry: str, told_apart: bool) -> None:
    """System services: no argument registers; Ecx only by KiCallbackReturn, which looks like the others.

    Where sysenter cannot be told apart (no DbgArgPointer) the Edx slot of user-mode entries may be stale.
    """
    mark(found, COMPUTED, "PreviousPreviousMode", "the thread's mode before")
    mark(found, REUSED, "ErrCode", "0")
    if entry == GATE:
        mark(found, REUSED if told_apart else REUSED_UNSURE, "Edx", "the thread's trap frame before")
        mark(found, SAVED, "SegFs")
        mark(found, UNSURE, "Ecx", "written by KiCallbackReturn only")


def _trap_registers(found: Verdicts, layout: Layout, data: bytes, entry: str) -> None:
    """Exceptions and interrupts: everything, but that interrupts from kernel mode write no selectors."""
    mark(found, SAVED, "Eax Ecx Edx ErrCode")
    if entry == DEVICE:
        mark(found, REUSED, "ErrCode", "0")
        mark(found, UNSURE, "PreviousIrql")
    if entry == FAST_V86:
        return
    if from_user(layout, data) or entry == FAULT:
        mark(found, SAVED, _SEGMENTS)
    elif number(layout, data, "SegFs") & 0xFFFF == _KERNEL_FS:
        mark(found, UNSURE, _SEGMENTS, "written by exceptions, not by interrupts")


def _debug_registers(found: Verdicts, layout: Layout, data: bytes, entry: str, facts: Facts) -> None:
    """Dr0-7 are stored when in use; else Dr7 becomes 0, but in 5.1 only by KiFastCallEntry."""
    if debug_registers_plausible(number(layout, data, "Dr7")):
        sure = entry == SYSENTER or (facts.clears_dr7 and entry != FAST_V86)
        mark(found, SAVED if sure else UNSURE, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7")
