# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A walk up an x64 stack: by unwind data, across machine frames."""

from __future__ import annotations

import re
from typing import List, Mapping, Optional, Tuple

from ...columns.words import LEAF, SCAN, TRAP, UNWIND
from ...memory.decode.machine import KERNEL_HALF, Machine
from ...memory.decode.memo import Kept
from ...memory.decode.memory import ReadMemory
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.functiontable import MOST_DERIVED
from ...names.decode.functiontable_arm64 import FunctionTableArm64
from ...names.decode.hybrid import ARM64, ARM64EC
from ...names.decode.unwindinfo import UnwindDataError
from .calls_x64 import CodePlace, Site, effect_at, rule_at
from .epilogue import LONGEST, plainly_returning
from .frames import (
    ENTERING,
    CodeImage,
    FindImage,
    Frame,
    MayExecute,
    OwnCopy,
    StackRanges,
    UnwindError,
    UserTransition,
    may_execute_anywhere,
    shared,
)
from .go_frames import frame_at, is_base
from .go_x64 import back_to_goroutine, moves_rbp, step_in_go
from .leaf_x64 import (
    calls_without_data,
    code_at,
    has_made_room,
    may_have_called,
    may_have_left,
    was_called,
)
from .registers import NON_VOLATILE_XMM, NOTHING, RBP, Registers
from .rule_x64 import RETURN, Rule, of_epilogue
from .step_x64 import LEAF as LEAF_FUNCTION
from .step_x64 import Step, Unwinder, carry_out
from .surroundings import UNKNOWN, Surroundings
from .walk import NO_MEMORY, Walker, WalkStep

_CS = 8
"""Offset of SegCs in a machine frame of five slots: Rip, SegCs, EFlags, Rsp, SegSs."""

_DEEPEST = 0x100
"""Distance above Rsp within which the return address of a function of unknown depth is searched."""

_NEAR_CALL = 5
"""Length of the most common call, in bytes."""

_GOEXIT = re.compile(rb"\xcc\x90\xe8.{4}\x90\xcc", re.DOTALL)
"""`goexit` of Go on x64, between padding: nop; call goexit1; nop. Source: asm_amd64.s of Go's runtime."""
_GOEXIT_AT, _GOEXIT_SIZE = 2, 9
"""Bytes of that code before the address that Go pushes; length of that code."""


class Walker64(Walker[Registers]):
    """Walks x64 stacks of one address space.

    Args:
        machine_frames: addresses of machine frames known to lie on the stack, each with the registers saved
            beside it
        replaced: returns whether the function at an address is other code than its unwind data describes
        sites: results of earlier walks for return addresses in the same address space
    """

    slot_size = 8
    calls_push = True
    weighs = True

    def __init__(
        self,
        find_image: FindImage,
        read: ReadMemory,
        machine_frames: Optional[Mapping[int, Registers]] = None,
        may_execute: MayExecute = may_execute_anywhere,
        own_copy: OwnCopy = shared,
        replaced: OwnCopy = shared,
        sites: Optional[Kept[int, Site]] = None,
        surroundings: Surroundings = UNKNOWN,
    ) -> None:
        super().__init__(find_image, read, may_execute, surroundings)
        self._machine_frames = machine_frames or {}
        self._own_copy = own_copy
        self._replaced = replaced
        self._sites: Kept[int, Site] = Kept(MOST_DERIVED) if sites is None else sites
        self._absent: Kept[int, bool] = Kept(MOST_DERIVED)
        self._strange_bp: Optional[Tuple[StackRanges, Optional[int]]] = None

    def step(self, registers: Registers, interrupted: bool) -> WalkStep[Registers]:
        """Finds the caller of a frame; raises UnwindError."""
        goroutine = None if interrupted else back_to_goroutine(self._find_image, self._read, registers)
        if goroutine is not None and self.is_return(goroutine.ip):
            return WalkStep(goroutine, UNWIND)
        go_stack = self.go_stack(self._find_image(registers.ip - (not interrupted)))
        in_go = None if go_stack is None else step_in_go(go_stack, registers, interrupted, self._unwind)
        if in_go is not None:
            if self._is_replaced(registers.ip, interrupted):
                in_go.doubt = StatusCode.CODE_AND_UNWIND_DATA_DIFFER
            return in_go
        stranger = self._stranger()
        known = registers
        if stranger is not None and registers.general[RBP] == stranger:
            known = registers.with_bp(None)
        try:
            step = self._unwind(known, interrupted)
        except UnwindError as error:
            other = error.code is StatusCode.OTHER_ARCHITECTURE
            entered = self._entered(registers) if interrupted and not other else None
            if not interrupted and error.code is StatusCode.NO_UNWIND_DATA:
                entered = self._pushed(registers)
            if entered is None:
                raise
            return entered
        if known is not registers and step.registers.general[RBP] is None:
            step = step._replace(registers=step.registers.with_bp(stranger))
        on_top = self.read_stack(registers.sp) if step.ambiguous else None
        if on_top is not None and self.is_return(on_top):
            caller = carry_out(RETURN, registers, self._read)[0]
            return WalkStep(caller, LEAF, doubt=StatusCode.CODE_AND_UNWIND_DATA_DIFFER)
        doubt, remark = None if step.sure else StatusCode.CODE_UNREADABLE, None
        if step.ambiguous and self._returns_below(registers):
            doubt = StatusCode.CODE_AND_UNWIND_DATA_DIFFER
        if step.differs:
            remark = StatusCode.CODE_AND_UNWIND_DATA_DIFFER
            doubt = remark if self._own_copy(registers.ip) else None
        if step.position != LEAF_FUNCTION and self._is_replaced(registers.ip, interrupted):
            doubt = StatusCode.CODE_AND_UNWIND_DATA_DIFFER
        go_frame = frame_at(go_stack, registers.ip, True) if interrupted and go_stack is not None else None
        if go_frame is not None and go_frame.may_have_left:
            doubt = StatusCode.NO_UNWIND_DATA
        if step.machine_frame is not None:
            return self._interrupted(step.registers, step.machine_frame, doubt, remark)
        begin, look = step.undescribed, (self._find_image, self._read, registers.ip)
        if begin is not None and not was_called(*look, begin, step.registers.ip, interrupted):
            raise UnwindError(StatusCode.UNWIND_DATA_INCOMPLETE)
        if step.position != LEAF_FUNCTION:
            objection = self._objection(step.registers)
            if objection is StatusCode.RETURNS_NOWHERE:
                raise UnwindError(objection)
            if objection is StatusCode.NOT_BEHIND_A_CALL and self._begins(step.registers.ip):
                framed = self._begins_with_machine_frame(step.registers.ip)
                doubt = doubt if framed else objection
                return WalkStep(step.registers, UNWIND, True, doubt, remark=StatusCode.FUNCTION_BEGINS_THERE)
            if doubt is None and objection is not None:
                if self._leaves_windows(registers.ip, step.registers.ip):
                    return WalkStep(step.registers, UNWIND, remark=objection)
                doubt = objection
            return WalkStep(step.registers, UNWIND, doubt=doubt, remark=remark)
        return self._leaf(registers.ip, step.registers, interrupted)

    def _returns_below(self, registers: Registers) -> bool:
        """Returns whether a return address lies between the stack pointer and Rbp, behind code that may have
        undone a frame.

        The function itself returns there if it has no frame, and Rbp is its caller's.
        """
        image = self._find_image(registers.ip)
        if image is None or not may_have_left(image, registers.ip):
            return False
        sp, high = registers.sp, min(registers.general[RBP] or 0, registers.sp + _DEEPEST)
        return any(self.is_return(self.read_stack(slot) or 0) for slot in range(sp, high, self.slot_size))

    def _leaf(self, ip: int, caller: Registers, interrupted: bool) -> WalkStep[Registers]:
        """Returns the step from code without unwind data to the address on top of the stack."""
        if _other_half(caller.ip, caller.sp):
            raise UnwindError(StatusCode.RETURNS_NOWHERE)
        proven, waits = self.is_return(caller.ip), self._waits(ip)
        if proven and not waits and not self._may_be_leaf(ip, caller.ip):
            raise UnwindError(StatusCode.NO_UNWIND_DATA)
        if not proven and interrupted and waits and self._is_unchanged(ip) and caller.ip:
            return WalkStep(caller, LEAF, remark=StatusCode.NOT_BEHIND_A_CALL if proven is False else None)
        if not proven and not self.may_return(caller.ip):
            raise UnwindError(StatusCode.NO_UNWIND_DATA)
        return WalkStep(caller, LEAF, doubt=None if proven else StatusCode.CODE_UNREADABLE)

    def _may_be_leaf(self, ip: int, to: int) -> bool:
        """Returns whether code without unwind data may return to an address on top of the stack."""
        image = self._find_image(ip)
        if image is not None and has_made_room(image, ip):
            return False
        return may_have_called(self._find_image, self._read, to, ip)

    def _entered(self, registers: Registers) -> Optional[WalkStep[Registers]]:
        """Returns the step from the first byte of a function, or from code that returns at once, such as the
        end of a stub of a system call; None elsewhere.

        Where the return address is needs no unwind data there. A slot that leads into no module, or not
        behind a call, is none.
        """
        image = self._find_image(registers.ip)
        rule = RETURN if image is not None and image.begins(registers.ip - image.base) else None
        rule = rule or (None if image is None else self._returning(registers.ip))
        if rule is None:
            return None
        caller = carry_out(rule, registers, self._read)[0]
        if self._find_image(caller.ip - 1) is None or self.is_return(caller.ip) is False:
            return None
        return WalkStep(caller, LEAF)

    def _returning(self, ip: int) -> Optional[Rule]:
        """Returns the rule of code that does nothing before it returns but release the stack; None for other
        code."""
        codes = (code_at(self._find_image, self._read, ip, length) for length in (LONGEST, 1))
        rest = next((plainly_returning(code) for code in codes if code is not None), None)
        return None if rest is None else of_epilogue(rest)

    def _pushed(self, registers: Registers) -> Optional[WalkStep[Registers]]:
        """Returns the step from code without unwind data to which no call returns, None behind a call.

        The runtime of Go pushes such addresses: the place of a fault, before it calls its handler, and the
        second byte of `goexit` below the first function of each routine.
        """
        if self._site(registers.ip)[1] is not StatusCode.NOT_BEHIND_A_CALL:
            return None
        code = code_at(self._find_image, self._read, registers.ip - _GOEXIT_AT, _GOEXIT_SIZE)
        if code is not None and _GOEXIT.match(bytes(code)):
            return WalkStep(Registers.from_known(0, registers.sp), UNWIND)
        return self.step(registers, True)

    def take_slot(self, slot: int, value: int) -> Optional[WalkStep[Registers]]:
        """Returns the step to a known machine frame, or to a possible return address."""
        if slot in self._machine_frames:
            return self._interrupted(self._machine_frames[slot], slot)
        if value <= NO_MEMORY or _other_half(value, slot):
            return None
        if not self.may_return(value) and not calls_without_data(self._find_image, self._read, value):
            return None
        # A pointer to a function is data, even if the function before it ends with a call.
        if not self._surroundings.is_start(value):
            return WalkStep(Registers.from_known(value, slot + self.slot_size), SCAN)
        return None

    def is_absent(self, slot: int, value: int) -> bool:
        """Returns whether the value of a stack slot may lead to code that the image lacks, behind a call."""
        if value <= NO_MEMORY or _other_half(value, slot):
            return False
        absent = self._absent.get(value)
        if absent is None:
            canonical = Machine.AMD64.is_canonical(value - 1)
            absent = canonical and super().is_absent(slot, value) and not self._surroundings.is_start(value)
            self._absent.keep(value, absent)
        return absent

    def follow(self, registers: Registers, frames: List[Frame], sure: bool) -> Optional[Registers]:
        """Continues from a return address as long as each step needs only one read within a stack page."""
        make, sites, general, xmm = tuple.__new__, self._sites, registers.general, registers.xmm
        ip, sp, limit = registers.ip, registers.sp, self._stacks.reach(registers.sp)
        stranger = self._stranger()
        effect = (sites.get(ip) or self._site(ip))[0]
        low, page = self.read_page(sp)
        if xmm != NOTHING:
            xmm = tuple(value if number in NON_VOLATILE_XMM else None for number, value in enumerate(xmm))
        while effect is not None and len(frames) < self.most_frames:
            base = general[effect.base]
            if base is None or base == stranger:
                break
            place = base + effect.start - low
            if not 0 <= place <= len(page) - effect.size:
                low, page = self.read_page(base + effect.start)
                place = base + effect.start - low
                if not 0 <= place <= len(page) - effect.size:
                    break
            slots = effect.unpack(page, place)
            ip, to = slots[effect.returns], base + effect.release
            if not ip:
                return None
            following, no_return = sites.get(ip) or self._site(ip)
            if no_return or not sp < to <= limit or (ip ^ to) & KERNEL_HALF:
                break
            general = effect.general((*general, *slots, to, None))
            for number, slot in effect.xmm:
                xmm = (*xmm[:number], slots[slot] | slots[slot + 1] << 64, *xmm[number + 1 :])
            effect, sp = following, to
            # Builds the NamedTuples directly: calling their constructors would take longer than the rest of a
            # step.
            registers = make(Registers, (ip, general, xmm))
            frames.append(make(Frame, (ip, sp, UNWIND, True, sure, registers, 0, None)))
        return registers

    def _stranger(self) -> Optional[int]:
        """Returns the Rbp of interrupted code if it leads off the stack of this walk: no frame is there.

        A callback begins with the registers of the kernel (Wine). Code that keeps something else in Rbp saved
        the frame pointer of its caller, so no walk needs the value.
        """
        strange = self._strange_bp
        return None if strange is None or strange[0] is not self._stacks else strange[1]

    def _unwind(self, registers: Registers, interrupted: bool) -> Step:
        image = self._find_image(registers.ip if interrupted else registers.ip - 1)
        if image is None:
            raise UnwindError(self._surroundings.no_code)
        if self._is_other(image, registers.ip if interrupted else registers.ip - 1):
            raise UnwindError(StatusCode.OTHER_ARCHITECTURE)
        if image.table is None or isinstance(image.table, FunctionTableArm64):
            raise UnwindError(StatusCode.NO_FUNCTION_TABLE)
        return Unwinder(image.table, image.base, self._read, image.read_rva).step(registers, interrupted)

    def _is_other(self, image: CodeImage, address: int) -> bool:
        """Returns whether an address is in code of ARM64EC or ARM64, in an x64 process on ARM64."""
        kind = image.kind(address)
        return kind in (ARM64, ARM64EC) or (kind is None and isinstance(image.table, FunctionTableArm64))

    def _begins(self, address: int) -> bool:
        """Returns whether a function begins exactly at an address."""
        image = self._find_image(address)
        if image is None or image.table is None:
            return False
        piece = image.find_entry(address)
        if piece is None or piece.begin != address - image.base:
            return False
        return image.table.primary(piece) == image.table.direct(piece)

    def _begins_with_machine_frame(self, address: int) -> bool:
        """Returns whether the stack holds a machine frame before the first instruction of a function.

        Windows puts the addresses of such functions on stacks itself: KiUserApcDispatcher returns there, and
        a thread's first function.
        """
        image = self._find_image(address)
        piece = None if image is None else image.find_entry(address)
        if image is None or image.table is None or piece is None:
            return False
        try:
            place = CodePlace.at_rva(image.table, piece, address - image.base)
        except UnwindDataError:
            return False
        return rule_at(image.table, place)[0].ip is not None

    def _objection(self, registers: Registers) -> Optional[StatusCode]:
        """Returns the reason to doubt an address to which unwind data led; RETURNS_NOWHERE if it is none."""
        if _other_half(registers.ip, registers.sp):
            return StatusCode.RETURNS_NOWHERE
        return self._site(registers.ip)[1]

    def _leaves_windows(self, ip: int, to: int) -> bool:
        """Returns whether unmodified Windows code returns into existing memory outside all modules.

        The unwind data of such code is the data in its file. So the return address is sure: the caller pushed
        it. The next frame cannot be found by unwinding.
        """
        image = self._find_image(ip - 1)
        if image is None or not image.windows or self._own_copy(ip) or self._find_image(to - 1):
            return False
        return self._read(to - 1, 1) is not None or bool(self._surroundings.is_mapped(to - 1))

    def _waits(self, ip: int) -> bool:
        """Returns whether a thread is at a system call instruction, or waits behind it.

        A stub does not move the stack pointer: the top slot is the return address, in unmodified Windows code
        whatever the slot holds.
        """
        size = len(ENTERING[0])
        codes = (code_at(self._find_image, self._read, start, size) for start in (ip - size, ip))
        return any(code is not None and bytes(code) in ENTERING for code in codes)

    def _is_unchanged(self, ip: int) -> bool:
        """Returns whether an address is in unmodified Windows code."""
        image = self._find_image(ip)
        return image is not None and image.windows and not self._own_copy(ip)

    def _is_replaced(self, ip: int, interrupted: bool) -> bool:
        """Returns whether the unwind data of a frame is of other code.

        Before the first instruction nothing is pushed, whatever the code is.
        """
        image = self._find_image(ip) if interrupted else None
        return self._replaced(ip - (not interrupted)) and (image is None or not image.entry_begins(ip))

    def _site(self, address: int) -> Site:
        """Returns the analysis of a return address, made once per address space."""
        site = self._sites.get(address)
        return self._sites.keep(address, self._looked_at(address)) if site is None else site

    def _looked_at(self, address: int) -> Site:
        image = self._find_image(address - 1) if address else None
        if image is None:
            return None, self._doubt_outside(address) if address else None
        if self._is_other(image, address - 1):
            return None, None
        rva = address - image.base
        effect = None if image.table is None else effect_at(image.table, rva)
        if effect is not None and (self._replaced(address - 1) or moves_rbp(image, address)):
            effect = None
        code = image.read_rva(rva - _NEAR_CALL, 1)
        if (code is not None and code[0] == 0xE8) or is_base(image, address):
            return effect, None
        behind_call = self.is_behind_call(address)
        if behind_call is None and self._begins(address):
            # A thread's first function lies on its stack like a return address, with no call before it.
            return effect, StatusCode.CODE_UNREADABLE
        return effect, StatusCode.NOT_BEHIND_A_CALL if behind_call is False else None

    def _doubt_outside(self, address: int) -> Optional[StatusCode]:
        """Returns the reason to doubt a return address outside all modules, None if a call is before it."""
        if address <= NO_MEMORY or not Machine.AMD64.is_canonical(address - 1):
            return StatusCode.RETURNS_NOWHERE
        behind_call = self.is_behind_call(address)
        if behind_call is None:
            known = self._surroundings.is_mapped(address - 1)
            return StatusCode.RETURNS_NOWHERE if known is False else StatusCode.CODE_UNREADABLE
        return None if behind_call and self._may_execute(address - 1) else StatusCode.NOT_BEHIND_A_CALL

    def _interrupted(
        self,
        registers: Registers,
        machine_frame: int,
        doubt: Optional[StatusCode] = None,
        remark: Optional[StatusCode] = None,
    ) -> WalkStep[Registers]:
        """Steps to the interrupted code, and adds the registers saved beside its machine frame.

        The processor pushes machine frames onto kernel stacks only: there SegCs marks the border to user
        mode. The kernel itself writes the machine frames on a user stack, below KiUserExceptionDispatcher,
        KiUserApcDispatcher and KiUserCallbackDispatcher, and writes only Rip and Rsp. Source:
        KiDispatchException and KeUserModeCallback of 5.2.3790.3959.
        """
        saved = self._machine_frames.get(machine_frame)
        if not machine_frame & KERNEL_HALF:
            bp = registers.general[RBP]
            off_stack = bp is not None and not self._stacks.joins(registers.sp, bp)
            self._strange_bp = (self._stacks, bp) if off_stack else None
        if saved is not None:
            pairs = zip(registers.general, saved.general)
            registers = registers._replace(general=tuple(a if a is not None else b for a, b in pairs))
        border = None
        cs = self.read_stack(machine_frame + _CS) if machine_frame & KERNEL_HALF else None
        if cs is not None and cs & 3:
            border = UserTransition(machine_frame, registers.ip, registers.sp, cs & 0xFFFF, registers)
        return WalkStep(registers, TRAP, True, doubt, trap=machine_frame, border=border, remark=remark)


def _other_half(ip: int, sp: int) -> bool:
    """Returns whether an address other than 0 lies in the half that has no code of a stack."""
    return bool(ip and (ip ^ sp) & KERNEL_HALF)
