# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A walk up an x64 stack: by unwind data, across machine frames."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Tuple

from ...columns.words import LEAF, SCAN, TRAP, UNWIND
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.unwindinfo import Bytes
from .calls_x64 import MOST, Site, effect_at
from .frames import (
    MAX_FRAMES,
    FindImage,
    Frame,
    MayExecute,
    OwnCopy,
    Read,
    UnwindError,
    UserTransition,
    may_execute_anywhere,
    shared,
)
from .registers import MASK, NON_VOLATILE_XMM, NOTHING, Registers
from .rule_x64 import RETURN
from .step_x64 import LEAF as LEAF_FUNCTION
from .step_x64 import Step, Unwinder, carry_out
from .walk import Walker, WalkStep

_CS = 8
"""Offset of SegCs in a machine frame of five slots: Rip, SegCs, EFlags, Rsp, SegSs."""

_NEAR_CALL = 5
"""Length of the most common call, in bytes."""

_ENTERING = (b"\x0f\x05", b"\xcd\x2e")
"""syscall, int 2Eh (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""

_KERNEL_HALF = 1 << 63
"""The bit that is set in every kernel address."""


class Walker64(Walker[Registers]):
    """Walks x64 stacks of one address space.

    Args:
        find_image: finds the module that holds an address
        read: reads memory, by canonical address
        machine_frames: addresses of machine frames known to lie on the stack, each with the registers saved
            beside it
        may_execute: returns whether an address outside all modules may be code
        own_copy: returns whether the process has changed the module code at an address
        sites: results of earlier walks for return addresses in the same address space
    """

    slot_size = 8

    def __init__(
        self,
        find_image: FindImage,
        read: Read,
        machine_frames: Optional[Mapping[int, Registers]] = None,
        may_execute: MayExecute = may_execute_anywhere,
        own_copy: OwnCopy = shared,
        sites: Optional[Dict[int, Site]] = None,
    ) -> None:
        super().__init__(find_image, read, may_execute)
        self._machine_frames = machine_frames or {}
        self._own_copy = own_copy
        self._sites: Dict[int, Site] = {} if sites is None else sites

    def step(self, registers: Registers, interrupted: bool) -> WalkStep[Registers]:
        """Finds the caller of a frame; raises UnwindError."""
        try:
            step = self._unwind(registers, interrupted)
        except UnwindError:
            entered = self._entered(registers) if interrupted else None
            if entered is None:
                raise
            return entered
        doubt, remark = None if step.sure else StatusCode.CODE_UNREADABLE, None
        if step.differs:
            remark = StatusCode.CODE_AND_UNWIND_DATA_DIFFER
            doubt = remark if self._own_copy(registers.ip) else None
        if step.machine_frame is not None:
            return self._interrupted(step.registers, step.machine_frame, doubt, remark)
        if step.position != LEAF_FUNCTION:
            if doubt is None and self._site(step.registers.ip)[1]:
                if self._leaves_windows(registers.ip, step.registers.ip):
                    return WalkStep(step.registers, UNWIND, remark=StatusCode.NOT_BEHIND_A_CALL)
                doubt = StatusCode.NOT_BEHIND_A_CALL
            return WalkStep(step.registers, UNWIND, doubt=doubt, remark=remark)
        proven = self.is_return(step.registers.ip)
        if not proven and interrupted and self._is_stub(registers.ip) and step.registers.ip:
            return WalkStep(
                step.registers, LEAF, remark=StatusCode.NOT_BEHIND_A_CALL if proven is False else None
            )
        if not proven and not self.may_return(step.registers.ip):
            raise UnwindError(StatusCode.NO_UNWIND_DATA)
        return WalkStep(step.registers, LEAF, doubt=None if proven else StatusCode.CODE_UNREADABLE)

    def _entered(self, registers: Registers) -> Optional[WalkStep[Registers]]:
        """Returns the step from the first byte of a function, None elsewhere.

        Nothing is pushed there yet: the top slot is the return address, although code and unwind data are
        missing. A slot that leads into no module, or not behind a call, is none.
        """
        image = self._find_image(registers.ip)
        if image is None or not image.begins(registers.ip - image.base):
            return None
        caller = carry_out(RETURN, registers, self._read)[0]
        if self._find_image(caller.ip - 1) is None or self.is_return(caller.ip) is False:
            return None
        return WalkStep(caller, LEAF)

    def take_slot(self, slot: int, value: int) -> Optional[WalkStep[Registers]]:
        """Returns the step to a known machine frame, or to a possible return address."""
        if slot in self._machine_frames:
            return self._interrupted(self._machine_frames[slot], slot)
        if self.may_return(value):
            return WalkStep(Registers.from_known(value, slot + self.slot_size), SCAN)
        return None

    def follow(self, registers: Registers, frames: List[Frame], sure: bool) -> Optional[Registers]:
        """Continues from a return address as long as each step needs only one read within a page of the
        stack."""
        make, sites, general, xmm = tuple.__new__, self._sites, registers.general, registers.xmm
        ip, sp, limit = registers.ip, registers.sp, self._stacks.reach(registers.sp)
        effect = (sites.get(ip) or self._site(ip))[0]
        low, page = self._page(sp)
        if xmm != NOTHING:
            xmm = tuple(value if number in NON_VOLATILE_XMM else None for number, value in enumerate(xmm))
        while effect is not None and len(frames) < MAX_FRAMES:
            base = general[effect.base]
            if base is None:
                break
            place = base + effect.start - low
            if not 0 <= place <= len(page) - effect.size:
                low, page = self._page(base + effect.start)
                place = base + effect.start - low
                if not 0 <= place <= len(page) - effect.size:
                    break
            slots = effect.unpack(page, place)
            ip, to = slots[effect.returns], base + effect.release
            if not ip:
                return None
            following, no_return = sites.get(ip) or self._site(ip)
            if no_return or not sp < to <= limit:
                break
            general = effect.general((*general, *slots, to, None))
            for number, slot in effect.xmm:
                xmm = (*xmm[:number], slots[slot] | slots[slot + 1] << 64, *xmm[number + 1 :])
            effect, sp = following, to
            # Builds the NamedTuples directly: calling their constructors would take longer than the rest of a
            # step.
            registers = make(Registers, (ip, general, xmm))
            frames.append(make(Frame, (ip, sp, UNWIND, True, sure, registers, 0)))
        return registers

    def _page(self, address: int) -> Tuple[int, Bytes]:
        """Returns start and bytes of the page that holds an address; no bytes unless the whole page is
        present."""
        low = address & MASK & -PAGE_SIZE
        return low, self._read(low, PAGE_SIZE) or b""

    def _unwind(self, registers: Registers, interrupted: bool) -> Step:
        image = self._find_image(registers.ip if interrupted else registers.ip - 1)
        if image is None:
            raise UnwindError(StatusCode.CODE_IN_NO_MODULE)
        if image.table is None:
            raise UnwindError(StatusCode.NO_FUNCTION_TABLE)
        return Unwinder(image.table, image.base, self._read, image.read_rva).step(registers, interrupted)

    def _leaves_windows(self, ip: int, to: int) -> bool:
        """Returns whether unmodified Windows code returns into memory outside all modules.

        The unwind data of such code is the data in its file. So the return address is sure: the caller pushed
        it. The next frame cannot be found by unwinding.
        """
        image = self._find_image(ip - 1)
        return image is not None and image.windows and not self._own_copy(ip) and not self._find_image(to - 1)

    def _is_stub(self, ip: int) -> bool:
        """Returns whether a thread waits behind a system call instruction in unmodified Windows code.

        A stub does not move the stack pointer: the top slot is the return address, whatever it holds.
        """
        image = self._find_image(ip)
        if image is None or not image.windows or self._own_copy(ip):
            return False
        code = image.read_rva(ip - image.base - len(_ENTERING[0]), len(_ENTERING[0]))
        return code is not None and bytes(code) in _ENTERING

    def _site(self, address: int) -> Site:
        """Returns the analysis of a return address, made once per address space."""
        site = self._sites.get(address)
        if site is None:
            if len(self._sites) >= MOST:
                self._sites.clear()
            site = self._sites[address] = self._looked_at(address)
        return site

    def _looked_at(self, address: int) -> Site:
        image = self._find_image(address - 1) if address else None
        if image is None:
            return None, bool(address) and self.is_behind_call(address) is False
        rva = address - image.base
        effect = None if image.table is None else effect_at(image.table, rva)
        code = image.read_rva(rva - _NEAR_CALL, 1)
        if code is not None and code[0] == 0xE8:
            return effect, False
        return effect, self.is_behind_call(address) is False

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
        if saved is not None:
            pairs = zip(registers.general, saved.general)
            registers = registers._replace(general=tuple(a if a is not None else b for a, b in pairs))
        border = None
        cs = self.read_stack(machine_frame + _CS) if machine_frame & _KERNEL_HALF else None
        if cs is not None and cs & 3:
            border = UserTransition(machine_frame, registers.ip, registers.sp, cs & 0xFFFF, registers)
        return WalkStep(registers, TRAP, True, doubt, trap=machine_frame, border=border, remark=remark)
