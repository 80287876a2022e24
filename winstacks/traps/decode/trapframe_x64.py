# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x64 trap frames: the kind of entry, recognised in the bytes, and the members that each kind writes.

Source: measured on 5.2.3790.3959 (159 entries, each run twice); Windows 7 to 11 from public disassembly,
which agrees unless a comment names a build. No version writes the segment slots, R12-R15 or Xmm6-15.
"""

from __future__ import annotations

import re
from typing import FrozenSet, Optional, Sequence, Set, Tuple

from ...columns.words import EXCEPTION, INTERRUPT, SERVICE, SYSCALL, WRITTEN
from ...memory.decode.structure import Structures
from ...names.decode.unwindinfo import (
    ALLOC_LARGE,
    ALLOC_SMALL,
    PUSH_MACHFRAME,
    PUSH_NONVOL,
    SAVE_NONVOL,
    SAVE_NONVOL_FAR,
    UnwindInfo,
)
from .frame import (
    COMPUTED,
    CS_USER_32,
    EFLAGS_IF,
    EFLAGS_ONE,
    PARTIAL,
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

_INT3 = b"\xcc"
CS_KERNEL = 0x10
CS_USER = 0x33

_KINDS = {0: INTERRUPT, 1: EXCEPTION, 2: SYSCALL}
# Between the frame and the caller's stack the service stub pushes one more quadword.
_SERVICE_RSP = 8
# Selectors in SegSs of a frame from kernel mode: the processor sets SS to 0 when it changes stacks.
KERNEL_SS = (0, 0x18)

_EVERY_MEMBER = (
    "P1Home P2Home P3Home P4Home P5 PreviousMode PreviousIrql FaultIndicator ExceptionActive MxCsr Rax Rcx"
    " Rdx R8 R9 R10 R11 GsSwap Xmm0 Xmm1 Xmm2 Xmm3 Xmm4 Xmm5 FaultAddress Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"
    " DebugControl LastBranchToRip LastBranchFromRip LastExceptionToRip LastExceptionFromRip SegDs SegEs"
    " SegFs SegGs TrapFrame Rbx Rdi Rsi ErrorCode SegSs"
)
_VOLATILE = "Rax Rcx Rdx R8 R9 R10 R11 Xmm0 Xmm1 Xmm2 Xmm3 Xmm4 Xmm5"
_NONVOLATILE = {3: "Rbx", 6: "Rsi", 7: "Rdi"}
"""Keys are the register numbers of instructions and unwind codes."""

_NO_HANDLER = "stored by the faults that have one; nothing below the frame names the handler"
_WRITTEN_NOTE = "written for a new thread, but not stored by every interrupt"
_PERHAPS_PAGE_FAULT = "stored by a page fault; nothing below the frame names the handler"
# NTSTATUS values that a service returns after a user APC interrupted it (such as STATUS_USER_APC). A system
# call with one of these numbers looks the same.
_APC_STATUSES = (0, 0xC0, 0x101, 0x102)
_LAST_BRANCH = "DebugControl LastBranchToRip LastBranchFromRip LastExceptionToRip LastExceptionFromRip"

_HANDLER = re.compile(r"K[ix]\w+(Fault|Abort|Trap|Exception|Assertion|Failure)(Shadow)?$|KiSystemCall32")
# Handlers of faults for which the processor pushes an error code. For other faults the slot keeps the old
# content of the stack.
_WITH_ERROR_CODE = (
    "KiDoubleFault",
    "KiInvalidTss",
    "KiSegmentNotPresent",
    "KiStackFault",
    "KiGeneralProtection",
    "KiPageFault",
    "KiAlignment",
    "KiControlProtection",
)

# Bits of EFlags that are never set: 3, 5, 15 and all above 21; in 64-bit mode also NT and VM.
_EFLAGS_NEVER = 0xFFFFFFFFFFC2C028
_EFLAGS_IOPL = 0x3000
_USER_SS = 0x2B


class TrapFrameLayout64(TrapFrameLayout):
    """Trap frames of a 64-bit Windows."""

    exception_type = "_KEXCEPTION_FRAME"
    anchor = re.compile(rb"[\x10\x23\x33]\x00\x00[\x00\x01]\x00\x00\x00\x00")
    """SegCs as the processor pushed it (a quadword), except that Vista and later use one byte of it
    (Logging). Two matches cannot overlap, so that a search misses none."""

    anchor_member = "SegCs"
    alignment = 16

    def tops(self, types: Structures) -> Tuple[int, ...]:
        """Returns how far frames from user mode may lie below the top of a kernel stack, in bytes."""
        return (self.size,)

    def classify(self, address: int, data: bytes, facts: EntryFacts) -> Tuple[str, Validities]:
        """Returns the kind of entry and the validity of the members."""
        kind = self.kind_of(address, data, facts)
        return kind, self.list_validities(address, data, kind, facts)

    def plausible(self, address: int, data: bytes) -> bool:
        """Returns whether bytes to which the thread itself points may be a trap frame."""
        if len(data) < self.size or not self.number(data, "EFlags") & EFLAGS_ONE:
            return False
        code_segment = self.number(data, "SegCs")
        known_segment = code_segment in (CS_KERNEL, CS_USER, CS_USER_32) and self.number(data, "Rip") != 0
        service = self.shaped_like_service(address, data)
        return known_segment and (service or self.active_kind(data) != "")

    def previous(self, frame: TrapFrame, data: bytes) -> int:
        """Returns the address of the thread's previous trap frame, which services keep, or 0."""
        return self.number(data, "TrapFrame") if frame.kind == SERVICE else 0

    def stored_registers(self, infos: Sequence[UnwindInfo]) -> Optional[FrozenSet[str]]:
        """Returns which of Rbx, Rsi and Rdi an entry stores in the members of their names.

        None unless the unwind data describes a trap frame: its machine frame (the words that the processor
        pushes) must lie where Rip lies in a trap frame.
        """
        depth = 0
        names: Set[str] = set()
        for code in (code for info in infos for code in info.codes):
            name = _NONVOLATILE.get(code.info, "")
            if code.operation in (ALLOC_SMALL, ALLOC_LARGE):
                depth += code.value
            elif code.operation == PUSH_NONVOL:
                if name and depth == self.members[name].offset:
                    names.add(name)
                depth += 8
            elif code.operation in (SAVE_NONVOL, SAVE_NONVOL_FAR):
                if name and code.value == self.members[name].offset:
                    names.add(name)
            elif code.operation == PUSH_MACHFRAME:
                # With info 1 the machine frame begins with an error code, and Rip follows.
                rip = depth + 8 * code.info
                return frozenset(names) if rip == self.members["Rip"].offset else None
        return None

    def is_user(self, data: bytes) -> bool:
        """Returns whether SegCs names a user-mode code segment."""
        return self.number(data, "SegCs") & 3 == 3

    def shaped_like_service(self, address: int, data: bytes) -> bool:
        """Returns whether a frame may belong to a Zw call from kernel mode (KiServiceInternal).

        Such a frame has the caller's Rsp, and interrupts are off; ExceptionActive, SegSs and MxCsr are not
        written. A frame of an exception with interrupts off can look the same.
        """
        return (
            self.number(data, "SegCs") == CS_KERNEL
            and self.number(data, "Rsp") == address + self.size + _SERVICE_RSP
            and not self.number(data, "EFlags") & EFLAGS_IF
        )

    def code_size(self, address: int, data: bytes) -> int:
        return len(_INT3) if self.shaped_like_service(address, data) else 0

    def active_kind(self, data: bytes) -> str:
        """Returns the kind of entry that ExceptionActive states, empty if its value is impossible.

        The first frame of a thread, which no entry made, has 0 there, like an interrupt.
        """
        kind = _KINDS.get(self.number(data, "ExceptionActive"), "")
        if kind == INTERRUPT and self.is_user(data) and not self.number(data, "EFlags") & EFLAGS_ONE:
            return WRITTEN
        return "" if kind == SYSCALL and not self.is_user(data) else kind

    def kind_of(self, address: int, data: bytes, facts: EntryFacts) -> str:
        """Returns the kind of entry; empty if the bytes fit none, or fit both a service and another kind."""
        kind = self.active_kind(data)
        if not self.shaped_like_service(address, data):
            return kind
        if facts.service_linkage:
            return SERVICE if self.number(data, "Rip") == facts.service_linkage else kind
        if facts.chained:
            return SERVICE
        if facts.instruction == _INT3:
            return EXCEPTION
        return "" if kind and self.number(data, "SegSs") in KERNEL_SS else SERVICE

    def stack_switched(self, address: int, data: bytes) -> bool:
        """Returns whether the processor changed stacks for an entry from kernel mode, as it does through the
        interrupt stack table for NMI, #DF and #MC.

        Otherwise it aligns the interrupted Rsp down to 16 bytes, and pushes the frame right below.
        """
        return self.number(data, "Rsp") & ~0xF != address + self.size

    def list_validities(self, address: int, data: bytes, kind: str, facts: EntryFacts) -> Validities:
        """Returns the validity of every member that the entry code is known to write or to leave alone."""
        validities: Validities = {}
        set_validity(validities, UNWRITTEN, _EVERY_MEMBER)
        if not kind:
            set_validity(
                validities, UNSURE, "Rip SegCs EFlags Rsp SegSs Rbp", "the bytes fit no kind of entry"
            )
            if self.shaped_like_service(address, data):
                names = "Rip SegCs EFlags Rsp SegSs Rbp Rbx Rdi Rsi MxCsr " + _VOLATILE
                set_validity(validities, UNSURE, names, "a Zw call, or an exception with interrupts off")
            return validities
        set_validity(validities, SAVED, "Rbp Rip SegCs EFlags Rsp")
        set_validity(validities, COMPUTED, "Fill0 Logging Fill1 Fill2")
        if kind == SERVICE:
            set_validity(validities, SAVED, "Rbx Rdi Rsi")
            set_validity(validities, COMPUTED, "Rip", "KiServiceLinkage")
            set_validity(validities, COMPUTED, "EFlags", "after cli in the Zw stub")
            set_validity(validities, COMPUTED, "PreviousMode", "the thread's mode before")
            set_validity(validities, COMPUTED, "TrapFrame", "the thread's previous trap frame")
            return validities
        set_validity(validities, COMPUTED, "ExceptionActive Fill3 CodePatchCycle Fill4")
        set_validity(validities, SAVED, "MxCsr SegSs")
        if kind == SYSCALL:
            self._mark_system_call(validities, data, facts)
        elif kind == WRITTEN:
            # NtSetContextThread writes only the parts that the CONTEXT has: the rest may be an interrupt's.
            set_validity(validities, SAVED, _VOLATILE)
            set_validity(validities, UNSURE, "Rbx Rdi Rsi", _WRITTEN_NOTE)
        else:
            set_validity(validities, SAVED, _VOLATILE)
            if kind == INTERRUPT:
                switched = not self.is_user(data) and self.stack_switched(address, data)
                _mark_interrupt(validities, switched, facts)
            else:
                self._mark_exception(validities, data, facts)
        if self.is_user(data):
            self._mark_debug_registers(validities, data)
        return validities

    def _mark_system_call(self, validities: Validities, data: bytes, facts: EntryFacts) -> None:
        """Marks the members that KiSystemCall64 writes.

        It stores the arguments if the thread's DebugActive is set. Kernels with KiSystemCall64Shadow (2018)
        always store Rax, Rcx and Rdx.
        """
        set_validity(validities, SAVED, "Rbx Rdi Rsi")
        debug_registers = debug_registers_plausible(self.number(data, "Dr7"))
        first_argument = "R10: the first argument"
        if debug_registers or facts.saves_arguments:
            set_validity(validities, SAVED, "Rax", "the service number")
            set_validity(validities, SAVED, "Rdx")
            set_validity(validities, REUSED, "Rcx", first_argument)
        if debug_registers:
            set_validity(validities, SAVED, "R8 R9")
        elif facts.debug_active:
            # DebugActive is also set without debug registers: for instrumentation and alternative system
            # calls.
            note = "stored if DebugActive was set at the entry"
            if facts.saves_arguments:
                set_validity(validities, UNSURE, "R8 R9", note)
            elif self._is_newest(data, facts):
                set_validity(validities, SAVED, "Rax Rdx R8 R9")
                set_validity(validities, REUSED, "Rcx", first_argument)
            else:
                set_validity(validities, UNSURE, "Rax Rdx R8 R9", note)
                set_validity(validities, REUSED_UNSURE, "Rcx", note + ", " + first_argument)
        slots = {name: self.number(data, name) for name in ("Rax", "Rcx", "Rdx", "R8", "R9", "R10", "R11")}
        if facts.saves_arguments and slots["R10"] == slots["R11"] == slots["Rcx"] != 0:
            # The entry code of 24H2, and of alternative system calls before 24H2, stores R10 into three
            # slots.
            three_slots = "stored by the entries that store R10 three times"
            set_validity(validities, UNSURE, "R8 R9 R10", three_slots)
            set_validity(validities, REUSED_UNSURE, "R11", three_slots + ", " + first_argument)
        if slots["Rax"] < 1 << 32 and not any(value for name, value in slots.items() if name != "Rax"):
            # The exit into a user APC overwrites these slots: Rax with a status, the others with zeros.
            saved = [name for name in ("Rax", "Rdx", "R8", "R9") if validities[name].validity == SAVED]
            if slots["Rax"] in _APC_STATUSES or not self._is_newest(data, facts):
                set_validity(validities, UNSURE, " ".join(saved), "an APC's way out writes such values")

    def _is_newest(self, data: bytes, facts: EntryFacts) -> bool:
        """Returns whether the slots of Rax and Rcx match the thread's record of its newest system call.

        A frame may be the newest although they differ: NtCallbackReturn of a callback is a system call, too,
        and replaces the thread's record.
        """
        if facts.system_call is None:
            return False
        number, first_argument = facts.system_call
        return self.number(data, "Rax") == number and self.number(data, "Rcx") == first_argument

    def _mark_exception(self, validities: Validities, data: bytes, facts: EntryFacts) -> None:
        """Marks the members that faults and traps write. The frame does not hold the vector, so the name of
        the handler decides, if it is known."""
        user64 = self.number(data, "SegCs") == CS_USER
        if _HANDLER.match(facts.handler):
            validity = SAVED
            if not facts.handler.startswith(_WITH_ERROR_CODE):
                validity = PARTIAL if facts.handler.startswith("KiFloatingError") else UNWRITTEN
            set_validity(validities, validity, "ErrorCode")
            if facts.handler.startswith("KiPageFault"):
                set_validity(validities, SAVED, "FaultAddress", "CR2")
                set_validity(validities, COMPUTED, "FaultIndicator")
                if user64:
                    set_validity(validities, SAVED, "GsSwap", "the user's GS base")
            return
        code = self.number(data, "ErrorCode")
        # Error codes are 32 bits wide. A page fault stores bits of its error code into FaultIndicator.
        if code < 1 << 32:
            set_validity(validities, UNSURE, "ErrorCode", _NO_HANDLER)
            if self.number(data, "FaultIndicator") == code >> 1 & 9:
                names = "FaultAddress FaultIndicator" + (" GsSwap" if user64 else "")
                set_validity(validities, UNSURE, names, _PERHAPS_PAGE_FAULT)

    def _mark_debug_registers(self, validities: Validities, data: bytes) -> None:
        """Marks Dr0 to Dr7. They are stored if the thread uses them; otherwise 0 is written into the low word
        of Dr7."""
        dr7 = self.number(data, "Dr7")
        if not dr7 & 0xFFFF:
            set_validity(validities, PARTIAL, "Dr7", "low word 0: no debug registers in use")
            return
        plausible = debug_registers_plausible(dr7)
        set_validity(validities, SAVED if plausible else UNWRITTEN, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7")
        if plausible and dr7 & 0x300:
            set_validity(validities, UNSURE, _LAST_BRANCH, "stored if last-branch recording is on")

    def accepts(self, address: int, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether bytes at an address are a trap frame.

        The processor pushes the frame right below the interrupted stack pointer. So Rsp of a frame from
        kernel mode is the address of the frame's end; this rule found every measured frame, and nothing else
        in a real crash.
        """
        if len(data) < self.size or address % self.alignment:
            return False
        code_segment, flags = self.number(data, "SegCs"), self._quadword(data, "EFlags")
        if not flags & EFLAGS_ONE or flags & _EFLAGS_NEVER:
            return False
        rip, rsp = self.number(data, "Rip"), self.number(data, "Rsp")
        if code_segment == CS_KERNEL:
            if self.shaped_like_service(address, data) and _in_kernel_image(rip, bounds):
                return True
            in_place = rsp & ~0xF == address + self.size or address + self.size in bounds.ist_tops
            return (
                in_place
                and rip >= bounds.kernel_start
                and self.number(data, "SegSs") in KERNEL_SS
                and self.active_kind(data) != ""
            )
        return self._accepts_user(data, bounds)

    def accepts_written(self, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether bytes at the top of a stack are a frame that the kernel wrote from a CONTEXT."""
        known_segment = self.number(data, "SegCs") in (CS_USER, CS_USER_32)
        impossible = self._quadword(data, "EFlags") & _EFLAGS_NEVER
        return known_segment and not impossible and self._accepts_user(data, bounds)

    def _accepts_user(self, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether the members of a frame from user mode have possible values."""
        flags, rip, rsp = (self.number(data, name) for name in ("EFlags", "Rip", "Rsp"))
        narrow = self.number(data, "SegCs") == CS_USER_32
        end = min(bounds.user_end, 1 << 32) if narrow else bounds.user_end
        return (
            self.number(data, "SegSs") == _USER_SS
            and bool(flags & EFLAGS_IF)
            and not flags & _EFLAGS_IOPL
            and USER_LOWEST <= rip < end
            and USER_LOWEST <= rsp < end
            and self.active_kind(data) != ""
        )

    def _quadword(self, data: bytes, member: str) -> int:
        """Returns the quadword that the processor pushed; the member itself may be only its lowest part."""
        offset = self.members[member].offset
        return int.from_bytes(data[offset : offset + 8], "little")


def _mark_interrupt(validities: Validities, switched: bool, facts: EntryFacts) -> None:
    """Marks the members that hardware and software interrupts, NMI and machine check write. `switched` says
    whether the processor changed stacks through the interrupt stack table."""
    set_validity(validities, SAVED, "PreviousIrql")
    # The code of an interrupt object pushes Rsi; the APC, DPC, IPI, clock, NMI and MCE entries of 5.2 do not.
    dispatched = facts.handler.startswith(("KiInterruptDispatch", "KiChainedDispatch"))
    if facts.stored_registers is not None:
        set_validity(validities, SAVED if "Rsi" in facts.stored_registers else UNWRITTEN, "Rsi")
    elif dispatched:
        set_validity(validities, SAVED, "Rsi")
    else:
        set_validity(validities, UNSURE, "Rsi", "stored by the code of interrupt objects")
    set_validity(
        validities, REUSED_UNSURE, "ErrorCode", "Rax or the vector, stored by the code of interrupt objects"
    )
    set_validity(validities, REUSED_UNSURE, "FaultAddress", "0 or a time stamp, stored by some interrupts")
    if switched and "NmiInterrupt" in facts.handler:
        set_validity(validities, SAVED, "FaultAddress", "CR2")
        set_validity(validities, COMPUTED, "GsSwap", "the GS base")
    elif switched and not facts.handler:
        set_validity(validities, UNSURE, "FaultAddress GsSwap", "stored by an NMI")


def _in_kernel_image(rip: int, bounds: TrapBounds) -> bool:
    """Returns whether Rip is nt!KiServiceLinkage or, if its address is unknown, an address in nt."""
    if bounds.service_linkage:
        return rip == bounds.service_linkage
    start, end = bounds.kernel_image
    return start <= rip < end
