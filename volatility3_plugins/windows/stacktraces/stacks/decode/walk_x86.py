# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A walk up an x86 stack: by the chain of frame pointers, across trap frames, with what the code tells.

The chain misses the caller of a function that has not set up its frame yet, or has none. At an interrupted
instruction and behind a system call the code is looked at for that; where it leaves doubt, the frame is not
sure.
"""

from __future__ import annotations

from typing import Collection, List, Optional

from ...base.decode.pagetable import PAGE_SIZE
from ...base.decode.status import Word
from ...base.decode.structure import Structure
from . import callsite, clues_x86
from .frames import (
    FRAME_POINTER,
    LEAF,
    SCAN,
    TRAP,
    UNWIND,
    Border,
    FindImage,
    MayExecute,
    Read,
    UnwindError,
    anywhere,
)
from .registers import Registers32
from .walk import Taken, Walker

MASK = 0xFFFFFFFF
TRAP_MARK = 0xBADB0D00
_TRAP_MEMBERS = ("DbgEbp", "DbgEip", "DbgArgMark", "Ebp", "Eip", "SegCs", "EFlags", "HardwareEsp")
_VIRTUAL_8086 = 0x20000

_NEAR_CODE = 0x4000
_NEAR_LEAF = 0x100
"""How far behind a function's start an address is taken to be in it, with and without a frame."""


class Walker32(Walker[Registers32]):
    """Walks x86 stacks of one address space.

    Args:
        find_image: finds the module that holds an address
        read: reads memory
        trap_frame: _KTRAP_FRAME; the members used here have the same place in every version
        trap_frames: addresses of trap frames that are known to lie on the stack
        may_execute: tells which memory in no module may be code
    """

    slot_size = 4

    def __init__(
        self,
        find_image: FindImage,
        read: Read,
        trap_frame: Structure,
        trap_frames: Collection[int] = (),
        may_execute: MayExecute = anywhere,
    ) -> None:
        super().__init__(find_image, read, may_execute)
        self._trap_frames = trap_frames
        self._mark, self._esp = trap_frame.offset("DbgArgMark"), trap_frame.offset("HardwareEsp")
        last = trap_frame.field("HardwareSegSs")
        self._trap_size = last.offset + last.size
        self._trap_members = trap_frame.reader(*_TRAP_MEMBERS)

    def step(self, registers: Registers32, interrupted: bool) -> Taken[Registers32]:
        """Finds the caller of a frame; raises UnwindError."""
        known = self._by_slot(registers)
        if known is None and registers.exact:
            known = self._by_code(registers, interrupted)
        return known or self._by_chain(registers, interrupted)

    def look(self, slot: int, value: int) -> Optional[Taken[Registers32]]:
        """Takes a trap frame, or what may be a return address."""
        trap_frame = slot - self._mark if value == TRAP_MARK else slot
        if value == TRAP_MARK or slot in self._trap_frames:
            found = self._trap(trap_frame)
            if found is not None:
                return found
        if not self.may_return(value):
            return None
        saved = self.read_stack(slot - 4)
        bp = saved if saved is not None and saved > slot else None
        return Taken(Registers32(value, slot + 4, bp, exact=False), SCAN)

    def _by_slot(self, registers: Registers32) -> Optional[Taken[Registers32]]:
        """Takes the return address whose place is known."""
        if registers.return_slot is None:
            return None
        address = self.read_stack(registers.return_slot)
        if address is None or not self.is_return(address):
            return None
        return Taken(Registers32(address, registers.return_slot + 4, registers.bp), UNWIND)

    def _by_code(self, registers: Registers32, interrupted: bool) -> Optional[Taken[Registers32]]:
        """Takes the return address where the code says that it is, if the code says so."""
        code = self._code(registers.ip, clues_x86.LONGEST)
        leaving = clues_x86.exit_at(code)
        if leaving is not None:
            return self._leaving(registers, leaving)
        if not interrupted:
            return None
        if clues_x86.at_entry(code):
            return self._taken(registers.sp, registers.bp, LEAF)
        before = self._code(registers.ip - 1, 1)
        if clues_x86.behind_push(before, code):
            return self._taken(registers.sp + 4, self.read_stack(registers.sp), FRAME_POINTER)
        if clues_x86.behind_release(before, code):
            return self._taken(registers.sp, registers.bp, LEAF)
        for start in self._targets(self.read_stack(registers.sp) or 0):
            into = registers.ip - start
            if 0 <= into < _NEAR_LEAF and not clues_x86.has_border(self._code(start, into)):
                return self._taken(registers.sp, registers.bp, LEAF)
        return None

    def _leaving(self, registers: Registers32, leaving: clues_x86.Exit) -> Optional[Taken[Registers32]]:
        """Carries out the rest of an exit."""
        base = registers.bp if leaving.from_ebp else registers.sp
        if base is None:
            return None
        slot, bp = (base + leaving.adjust) & MASK, registers.bp
        for register in leaving.pops:
            if register == clues_x86.EBP:
                bp = self.read_stack(slot)
            slot += self.slot_size
        how = FRAME_POINTER if leaving.from_ebp else LEAF
        return self._taken(slot, bp, how, leaving.arguments)

    def _taken(
        self, slot: int, bp: Optional[int], how: str, arguments: int = 0
    ) -> Optional[Taken[Registers32]]:
        """Returns to the address in a slot, if that is a return address."""
        address = self.read_stack(slot)
        if address is None or not self.is_return(address):
            return None
        return Taken(Registers32(address, slot + self.slot_size + arguments, bp), how)

    def _by_chain(self, registers: Registers32, interrupted: bool) -> Taken[Registers32]:
        """Takes the return address above the saved frame pointer."""
        bp = registers.bp
        if bp is None:
            raise UnwindError(Word.FRAME_POINTER_UNKNOWN)
        if bp == 0 and not interrupted:
            return Taken(Registers32(0, registers.sp), FRAME_POINTER)
        if bp < registers.sp or bp % self.slot_size:
            raise UnwindError(Word.FRAME_POINTER_IMPLAUSIBLE)
        trapped = self._trap(bp)
        if trapped is not None:
            return trapped
        saved, address = self.read_stack(bp), self.read_stack(bp + self.slot_size)
        if saved is None or address is None:
            raise UnwindError(Word.STACK_UNREADABLE)
        above = Registers32(address, bp + 2 * self.slot_size, saved, exact=False)
        verdict = self.is_return(address) if address else True
        if verdict is False:
            raise UnwindError(Word.FRAME_POINTER_IMPLAUSIBLE)
        called = self._calls(address, registers.ip) if address else None
        unsure = verdict is None or called is False or (interrupted and called is None)
        return Taken(above, FRAME_POINTER, doubt=Word.FRAME_POINTER_UNSURE if unsure else None, lasting=False)

    def _trap(self, address: int) -> Optional[Taken[Registers32]]:
        """Steps to what a trap frame interrupted; None if there is no trap frame at the address."""
        data = self._read(address, self._trap_size)
        if data is None:
            return None
        same_bp, same_ip, mark, bp, ip, cs, flags, sp = self._trap_members(data, 0)
        marked = mark == TRAP_MARK and same_bp == bp and abs(same_ip - ip) <= 2
        if not marked and address not in self._trap_frames:
            return None
        if not (cs & 3 or flags & _VIRTUAL_8086):
            return Taken(Registers32(ip, address + self._esp, bp), TRAP, True, trap=address)
        border = Border(address, ip, sp, cs & 0xFFFF)
        return Taken(Registers32(ip, sp, bp), TRAP, True, trap=address, border=border)

    def _calls(self, address: int, ip: int) -> Optional[bool]:
        """Tells whether the call before a return address went to the function of `ip`, if that shows."""
        targets = self._targets(address)
        for start in targets:
            # Its own entry is no border.
            inside = start + clues_x86.LONGEST_PATCHING + 1
            if 0 <= ip - start < _NEAR_CODE and not clues_x86.has_border(
                self._code(inside, max(ip - inside, 0))
            ):
                return True
        return False if targets else None

    def _targets(self, address: int) -> List[int]:
        """Returns where the call before a return address goes, and where a jump there leads on to."""
        before = self._code(address - callsite.LONGEST_CALL, callsite.LONGEST_CALL)
        target = callsite.direct_target(before, address)
        if target is None and before[1:3] == b"\xff\x15":
            target = self.read_stack(int.from_bytes(before[3:], "little"))
        if target is None:
            return []
        targets = [target & MASK]
        jump = self._code(targets[0], 6)
        if jump[:1] == b"\xe9":
            targets.append((targets[0] + 5 + int.from_bytes(jump[1:5], "little")) & MASK)
        elif jump[:2] == b"\xff\x25":
            targets.append(self.read_stack(int.from_bytes(jump[2:], "little")) or 0)
        return targets

    def _code(self, address: int, length: int) -> bytes:
        """Returns bytes of code: as many as wanted, or those up to a page border, or none."""
        for wanted in (length, min(length, PAGE_SIZE - address % PAGE_SIZE)):
            data = self._read(address & MASK, wanted)
            if data is not None:
                return bytes(data)
        return b""
