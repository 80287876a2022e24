# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86 trap frames: the kind of entry, recognised in the bytes, and the members that each kind writes.

Before Windows 8 no member names the kind. From user mode, exceptions and interrupts write the same members
and cannot be distinguished. Services store another value into the Edx slot than exceptions and interrupts do.

Source: measured on 5.1.2600.5512 and 5.2.3790.3959; FrameType (8.0 and later): Geoff Chappell, KTRAP_FRAME.
"""

from __future__ import annotations

import re
from typing import Mapping, Tuple

from ...columns.words import EXCEPTION, INTERRUPT, SERVICE, SYSCALL, WRITTEN
from ...memory.decode.machine import Machine
from ...memory.decode.structure import Structures
from .frame import (
    COMPUTED,
    EFLAGS_IF,
    EFLAGS_ONE,
    REUSED,
    REUSED_UNSURE,
    SAVED,
    UNSURE,
    UNWRITTEN,
    USER_LOWEST,
    EntryFacts,
    TrapBounds,
    TrapFrame,
    TrapFrameLayout,
    Validities,
    debug_registers_plausible,
    set_validity,
)

ARGUMENT_MARK = 0xBADB0D00
"""DbgArgMark of a frame: the entries store this constant."""

# Kinds of entry, as far as the bytes show them; `kind_of` translates them to the words of the column
# TrapKind.
SYSENTER = "sysenter"
GATE = "gate"  # int 2E and similar gates, and Zw calls from kernel mode
TRAP = "trap"  # an exception or an interrupt
FAULT = "fault"  # an exception
DEVICE = "device"  # an interrupt
EITHER = "either"  # a trap or a service, from user mode
TASK_NMI = "task"  # an NMI through its task gate: the kernel builds the frame from the TSS
FIRST = "first"  # no entry: the kernel wrote the frame from a CONTEXT
FAST_V86 = "v86"  # a fast path of virtual-8086 mode, which does not write DbgArgMark
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
_DEBUG_REGISTERS = "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"
_SEGMENTS = "SegGs SegEs SegDs SegFs"

_EFLAGS_VM = 0x20000
# Bits of EFlags that are never set: 3, 5, 15 and all above 21.
_EFLAGS_NEVER = 0xFFC08028
_EFLAGS_IOPL = 0x3000
_KERNEL_CS = 8
_USER_CS = 0x1B
_USER_DATA = 0x23
_MAX_EIP_SHIFT = 2

_CALLBACK_RETURN = b"\xcd\x2b"
_SERVICE_CALLS = (b"\xcd\x2e", b"\xcd\x2c", _CALLBACK_RETURN)
"""The instructions int 2E, int 2C (a service in 5.1) and int 2B."""

COLUMN_MEMBERS = {
    "Rip": "Eip",
    "Rsp": "HardwareEsp",
    "Rbp": "Ebp",
    "Rax": "Eax",
    "Rcx": "Ecx",
    "Rdx": "Edx",
    "Rbx": "Ebx",
    "Rsi": "Esi",
    "Rdi": "Edi",
    "ErrorCode": "ErrCode",
    "SegSs": "HardwareSegSs",
    "PreviousMode": "PreviousPreviousMode",
}
"""Names of members by the names of columns, where the two differ."""


class TrapFrameLayout86(TrapFrameLayout):
    """Trap frames of a 32-bit Windows."""

    shared_data = 0xFFDF0000
    """KI_USER_SHARED_DATA of ntddk.h, the same in every version."""

    only_names = COLUMN_MEMBERS
    anchor = re.compile(re.escape(ARGUMENT_MARK.to_bytes(4, "little")))
    anchor_member = "DbgArgMark"
    alignment = 4

    def tops(self, types: Structures) -> Tuple[int, ...]:
        """Returns the possible distances of frames from user mode below the top of a kernel stack, in bytes.

        Kernels that keep the registers of the floating-point unit on the stack have the frames below these
        registers; other kernels have them right below InitialStack.
        """
        return (self.size + types["_FX_SAVE_AREA"].size, self.size)

    def classify(self, address: int, data: bytes, facts: EntryFacts) -> Tuple[str, Validities]:
        """Returns the kind of entry and the validity of the members."""
        entry = self.entry_of(data, facts)
        return kind_of(entry, self.is_user(data)), self.list_validities(data, entry, facts)

    def implied_registers(self, address: int) -> Mapping[str, int]:
        """Returns Rsp (Esp) before an entry from kernel mode. The processor does not push it then: it is the
        address just above the words that were pushed."""
        return {"Rsp": address + self.members["HardwareEsp"].offset}

    def plausible(self, address: int, data: bytes) -> bool:
        """Returns whether bytes to which the thread itself points may be a trap frame."""
        if len(data) < self.size or not self.number(data, "EFlags") & EFLAGS_ONE:
            return False
        if self.is_task_nmi(data):
            return True
        if self.from_v86(data):
            return self.number(data, "Eip") < USER_LOWEST
        marked = self.number(data, "DbgArgMark") == ARGUMENT_MARK
        return marked and self.number(data, "SegCs") & 0xFFFF in (_KERNEL_CS, _USER_CS)

    def previous(self, frame: TrapFrame, data: bytes) -> int:
        """Returns the address of the thread's previous trap frame, which services keep, or 0."""
        edx = frame.validities.get("Edx")
        return self.number(data, "Edx") if edx is not None and edx.validity == REUSED else 0

    def from_v86(self, data: bytes) -> bool:
        """Returns whether the processor was in virtual-8086 mode."""
        return bool(self.number(data, "EFlags") & _EFLAGS_VM)

    def code_size(self, address: int, data: bytes) -> int:
        return 2 if self.is_user(data) else 0

    def is_user(self, data: bytes) -> bool:
        """Returns whether SegCs is a user-mode selector or the mode was virtual-8086."""
        return self.from_v86(data) or bool(self.number(data, "SegCs") & 1)

    def is_task_nmi(self, data: bytes) -> bool:
        """Returns whether a frame looks like one that the NMI's handler builds from the interrupted task."""
        if "DbgArgPointer" not in self.members:
            return False
        zeros = (
            "DbgArgMark",
            "DbgArgPointer",
            "TempEsp",
            "Dr0",
            "Dr1",
            "Dr2",
            "Dr3",
            "Dr6",
            "Dr7",
            "ErrCode",
        )
        return self.number(data, "PreviousPreviousMode") == 0xFFFFFFFF and not any(
            self.number(data, name) for name in zeros
        )

    def is_written(self, data: bytes) -> bool:
        """Returns whether a frame is one that the kernel wrote from a CONTEXT.

        Bit 1 of EFlags shows that no processor stored them. The kernel writes the selectors of user
        mode. DbgEip and DbgEbp may be 0: only the entries store them. Source: inferred from the frames of
        x64 threads before their first run, and from KeContextToKframes as public documentation describes it.
        """
        flags, selectors = self.number(data, "EFlags"), ("HardwareSegSs", "SegDs", "SegEs")
        if flags & (EFLAGS_ONE | _EFLAGS_NEVER | _EFLAGS_VM | _EFLAGS_IOPL) or not flags & EFLAGS_IF:
            return False
        return (
            self.number(data, "SegCs") & 0xFFFF == _USER_CS
            and all(self.number(data, name) & 0xFFFF == _USER_DATA for name in selectors)
            and self.number(data, "SegFs") & 0xFFFF == _USER_FS
            and self.number(data, "DbgArgMark") in (0, ARGUMENT_MARK)
            and self.number(data, "DbgEbp") in (0, self.number(data, "Ebp"))
            and self.number(data, "DbgEip") in (0, self.number(data, "Eip"))
        )

    def accepts_written(self, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether bytes at the top of a stack are a frame that the kernel wrote from a CONTEXT."""
        places = (self.number(data, name) for name in ("Eip", "HardwareEsp"))
        return self.is_written(data) and all(USER_LOWEST <= place < bounds.user_end for place in places)

    def entry_of(self, data: bytes, facts: EntryFacts) -> str:
        """Returns the kind of entry, one of the constants above; UNKNOWN if the bytes fit none."""
        if self.is_task_nmi(data):
            return TASK_NMI
        if self.is_written(data):
            return FIRST
        v86, user = self.from_v86(data), self.is_user(data)
        if self.number(data, "DbgArgMark") != ARGUMENT_MARK:
            return FAST_V86 if v86 else UNKNOWN
        has_pointer = "DbgArgPointer" in self.members
        if "FrameType" in self.members:
            entry = _FRAME_TYPES.get(self.number(data, "FrameType"), UNKNOWN)
            return SYSENTER if entry == GATE and has_pointer and user and self._is_sysenter(data) else entry
        if not has_pointer:
            return UNKNOWN
        edx = self.number(data, "Edx")
        trap = self.number(data, "DbgArgPointer") == (self.number(data, "V86Ds") if v86 else edx)
        sysenter = user and not v86 and self._is_sysenter(data)
        gate = self.number(data, "PreviousPreviousMode") in _MODES and (
            edx == 0 or edx >= Machine.I386.kernel_start
        )
        if trap:
            # A service looks like a trap if its caller chose Edx, and a trap looks like a service if a stale
            # slot happens to hold a mode. Zw calls from kernel mode do not choose Edx.
            service = user and (sysenter or gate) and not self.number(data, "ErrCode")
            return EITHER if service and self._may_follow_a_call(data, facts) else _trap_kind(facts)
        if sysenter:
            return SYSENTER
        return GATE if gate else UNKNOWN

    def _may_follow_a_call(self, data: bytes, facts: EntryFacts) -> bool:
        """Returns whether a service may return to Eip: Eip is SystemCallReturn, or follows an int instruction
        that calls a service. True if either is unknown."""
        if not facts.instruction or not facts.system_call_return or self.from_v86(data):
            return True
        return facts.instruction in _SERVICE_CALLS or self.number(data, "Eip") == facts.system_call_return

    def _is_sysenter(self, data: bytes) -> bool:
        """Returns whether a frame may be from KiFastCallEntry, the entry of sysenter.

        That entry takes the user's Esp from Edx, and stores Edx + 8 as DbgArgPointer. A frame of int 2E from
        ntdll's stub looks the same; that entry writes at least the same members.
        """
        stack = self.number(data, "HardwareEsp")
        return (
            self.number(data, "DbgArgPointer") == stack + 8 & 0xFFFFFFFF
            and self.number(data, "PreviousPreviousMode") in _MODES
            and self.number(data, "SegFs") & 0xFFFF == _USER_FS
        )

    def list_validities(self, data: bytes, entry: str, facts: EntryFacts) -> Validities:
        """Returns the validity of every member that the entry code is known to write or to leave alone."""
        validities: Validities = {}
        set_validity(validities, UNWRITTEN, _EVERY_MEMBER)
        user, v86 = self.is_user(data), self.from_v86(data)
        names = "Ebp Ebx Esi Edi Eip SegCs EFlags ExceptionList"
        if entry == UNKNOWN:
            names += " HardwareEsp HardwareSegSs" if user else ""
            set_validity(validities, UNSURE, names, "the bytes fit no kind of entry")
            return validities
        set_validity(validities, SAVED, names)
        if user:
            set_validity(validities, SAVED, "HardwareEsp HardwareSegSs")
        if v86:
            set_validity(validities, SAVED, "V86Es V86Ds V86Fs V86Gs")
        if entry not in (FAST_V86, FIRST):
            set_validity(validities, COMPUTED, "DbgEbp DbgEip DbgArgMark DbgArgPointer FrameType")
        if entry == SYSENTER:
            set_validity(validities, COMPUTED, "Eip", "SystemCallReturn")
            set_validity(validities, COMPUTED, "SegFs HardwareSegSs", "a constant")
        if entry in (SYSENTER, GATE):
            _mark_service(validities, entry, user, not user or "DbgArgPointer" in self.members, facts)
        elif entry == EITHER:
            names = "Eax Ecx Edx ErrCode SegGs SegEs SegDs"
            set_validity(
                validities,
                UNSURE,
                names,
                "stored by exceptions and interrupts; a system call would look the same",
            )
            set_validity(validities, SAVED, "SegFs")
        elif entry == FIRST:
            set_validity(validities, SAVED, "Eax Ecx Edx " + _SEGMENTS)
        elif entry == TASK_NMI:
            set_validity(validities, SAVED, "Eax Ecx Edx HardwareEsp HardwareSegSs " + _SEGMENTS)
            set_validity(
                validities, REUSED, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7 ErrCode PreviousPreviousMode", "a constant"
            )
        else:
            self._mark_trap(validities, data, entry)
        if user and entry not in (TASK_NMI, FIRST):
            self._mark_debug_registers(validities, data, entry, facts)
        if "MxCsr" in self.members and self.number(data, "MxCsr") < 0x10000:
            set_validity(
                validities, UNSURE, "MxCsr", "which entries of 8 and later store it was not measured"
            )
        return validities

    def _mark_trap(self, validities: Validities, data: bytes, entry: str) -> None:
        """Marks the members that exceptions and interrupts write. Exceptions, and interrupts from user mode,
        also write the selectors."""
        set_validity(validities, SAVED, "Eax Ecx Edx ErrCode")
        if entry == DEVICE:
            set_validity(validities, REUSED, "ErrCode", "0")
            set_validity(
                validities, UNSURE, "PreviousIrql", "which entries of 8 and later store it was not measured"
            )
        if entry == FAST_V86:
            return
        if self.is_user(data) or entry == FAULT:
            set_validity(validities, SAVED, _SEGMENTS)
        elif entry == DEVICE and "DbgArgPointer" in self.members:
            return
        elif self.number(data, "SegFs") & 0xFFFF == _KERNEL_FS:
            set_validity(validities, UNSURE, _SEGMENTS, "stored by exceptions, not by interrupts")

    def _mark_debug_registers(
        self, validities: Validities, data: bytes, entry: str, facts: EntryFacts
    ) -> None:
        """Marks Dr0 to Dr7. They are stored if they are in use; otherwise the slot of Dr7 becomes 0, but in
        5.1 only at a sysenter.

        If the slot of Dr7 may be stale, the thread's DebugActive decides: NtSetContextThread changes it
        together with the frame. The fast path of faults in virtual-8086 mode stores Dr0 to Dr7 whatever
        DebugActive is.
        """
        if not debug_registers_plausible(self.number(data, "Dr7")):
            return
        always_written = entry == SYSENTER or (facts.clears_dr7 and entry != FAST_V86)
        if entry == FAST_V86:
            set_validity(
                validities,
                UNSURE,
                _DEBUG_REGISTERS,
                "stored if Dr7 enabled something, whatever DebugActive says",
            )
        elif always_written or facts.debug_active:
            set_validity(validities, SAVED, _DEBUG_REGISTERS)
        elif facts.debug_active is None:
            set_validity(
                validities, UNSURE, _DEBUG_REGISTERS, "stored if DebugActive was set, which is not known"
            )

    def accepts(self, address: int, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether bytes at an address are a trap frame.

        The entries store ARGUMENT_MARK, and they store Eip and Ebp twice (DbgEip, DbgEbp).
        """
        if len(data) < self.size:
            return False
        flags = self.number(data, "EFlags")
        if not flags & EFLAGS_ONE or flags & _EFLAGS_NEVER:
            return False
        if self.number(data, "DbgArgMark") != ARGUMENT_MARK:
            return False
        eip = self.number(data, "Eip")
        if abs(self.number(data, "DbgEip") - eip) > _MAX_EIP_SHIFT:
            return False
        if self.number(data, "DbgEbp") != self.number(data, "Ebp"):
            return False
        if self.from_v86(data):
            return eip < USER_LOWEST
        code_segment = self.number(data, "SegCs") & 0xFFFF
        if code_segment == _KERNEL_CS:
            return eip >= bounds.kernel_start
        return code_segment == _USER_CS and USER_LOWEST <= eip < bounds.user_end and bool(flags & EFLAGS_IF)


def _trap_kind(facts: EntryFacts) -> str:
    """Returns FAULT or DEVICE if the handler's name shows which a trap is, else TRAP."""
    if facts.handler.startswith(("KiTrap", "KiRaiseAssertion", "KiDebugService")):
        return FAULT
    if facts.handler.startswith(("KiInterruptDispatch", "KiChainedDispatch", "KiUnexpected")):
        return DEVICE
    return TRAP


def kind_of(entry: str, user: bool) -> str:
    """Returns the kind for the column TrapKind, empty if the bytes do not decide."""
    if entry in (SYSENTER, GATE):
        return SYSCALL if user else SERVICE
    kinds = {FAULT: EXCEPTION, FAST_V86: EXCEPTION, DEVICE: INTERRUPT, TASK_NMI: INTERRUPT, FIRST: WRITTEN}
    return kinds.get(entry, "")


def _mark_service(
    validities: Validities, entry: str, user: bool, distinguishable: bool, facts: EntryFacts
) -> None:
    """Marks the members that system services write. They do not write the registers of arguments.

    Only KiCallbackReturn (int 2B) stores Ecx. Its frame looks like the frame of another service from user
    mode, and only the caller's instruction identifies it. In 5.1 it makes no frame. `distinguishable` says
    whether a GATE cannot be a sysenter; if it can (a kernel without DbgArgPointer), the Edx slot of an entry
    from user mode may be stale.
    """
    set_validity(validities, COMPUTED, "PreviousPreviousMode", "the thread's mode before")
    set_validity(validities, REUSED, "ErrCode", "0")
    if entry == GATE:
        note = "from the thread's previous trap frame"
        if distinguishable:
            set_validity(validities, REUSED, "Edx", note)
        else:
            set_validity(validities, REUSED_UNSURE, "Edx", note + "; sysenter stores none")
        set_validity(validities, SAVED, "SegFs")
        if facts.instruction == _CALLBACK_RETURN:
            set_validity(validities, SAVED, "Ecx")
        elif user and facts.clears_dr7 is not False and facts.instruction not in _SERVICE_CALLS:
            set_validity(validities, UNSURE, "Ecx", "stored by KiCallbackReturn only")
