# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A walk up an x86 stack: by the chain of frame pointers, across trap frames, with what the code tells.

The chain misses the caller of a function that has not set up its frame yet, or has none. At an interrupted
instruction and behind a system call the code is looked at for that; where it leaves doubt, the frame is not
sure. Across the dispatchers of user mode the chain leads on, too, but misses those who were interrupted: what
follows is sure only where the CONTEXT of an exception or of an APC proves itself, or where the trap frame
that a callback kept in the kernel agrees.
"""

from __future__ import annotations

from typing import Collection, Optional

from ...columns.words import FRAME_POINTER, LEAF, SCAN, TRAP, UNWIND
from ...memory.decode.status import Word
from ...memory.decode.structure import Structures
from . import clues_x86, dispatchers_x86
from .dispatchers_x86 import Contexts
from .effects_x86 import BASED, CALLERS, COPY, OURS, StackPlace
from .frames import (
    LONGEST_CALL,
    Border,
    FindDispatcher,
    FindImage,
    MayExecute,
    Read,
    UnwindError,
    anywhere,
    lengths,
    nowhere,
)
from .functions_x86 import Functions
from .registers import Registers32
from .walk import Taken, Walker

MASK = 0xFFFFFFFF
TRAP_MARK = 0xBADB0D00
_TRAP_MEMBERS = ("DbgEbp", "DbgEip", "DbgArgMark", "Ebp", "Eip", "SegCs", "EFlags", "HardwareEsp")
_VIRTUAL_8086 = 0x20000

_NEAR_CODE = 0x4000
"""How far behind a function's start an address is taken to be in it."""

_DEEPEST = 0x80
"""How far above Esp a return address is looked for where a function has no frame."""

_CHAINED = (OURS, COPY)
"""What Ebp is where the chain of frame pointers leads to the caller."""

_APC_POPS = 12
"""Bytes of arguments that the routine of an APC pops: NormalContext, SystemArgument1, SystemArgument2."""

_CALL_NEXT = b"\xe8\0\0\0\0"
_CALL_NEXT_SIZE = len(_CALL_NEXT)


class Walker32(Walker[Registers32]):
    """Walks x86 stacks of one address space.

    Args:
        find_image: finds the module that holds an address
        read: reads memory
        types: _KTRAP_FRAME, _CONTEXT and _EXCEPTION_RECORD; the members used here have the same place in
            every version
        trap_frames: addresses of trap frames that are known to lie on the stack; on a user stack: that the
            kernel kept at callbacks
        may_execute: tells which memory in no module may be code
        functions: what was found out of the functions of the address space
        find_dispatcher: finds the dispatchers of ntdll
    """

    slot_size = 4

    def __init__(
        self,
        find_image: FindImage,
        read: Read,
        types: Structures,
        trap_frames: Collection[int] = (),
        may_execute: MayExecute = anywhere,
        functions: Optional[Functions] = None,
        find_dispatcher: FindDispatcher = nowhere,
    ) -> None:
        super().__init__(find_image, read, may_execute)
        trap_frame = types["_KTRAP_FRAME"]
        self._contexts = Contexts(types, read, self._is_code)
        self._find_dispatcher = find_dispatcher
        self._functions = functions or Functions(read)
        self._trap_frames = trap_frames
        self._mark, self._esp = trap_frame.offset("DbgArgMark"), trap_frame.offset("HardwareEsp")
        last = trap_frame.field("HardwareSegSs")
        self._trap_size = last.offset + last.size
        self._trap_members = trap_frame.reader(*_TRAP_MEMBERS)

    def is_return(self, address: int) -> Optional[bool]:
        """Returns whether a value on a stack can be a return address.

        A call of the next instruction is none: it pushes where it is, for code that does not know that.
        """
        verdict = super().is_return(address)
        if verdict and self._functions.code(address - _CALL_NEXT_SIZE, _CALL_NEXT_SIZE) == _CALL_NEXT:
            return False
        return verdict

    def step(self, registers: Registers32, interrupted: bool) -> Taken[Registers32]:
        """Finds the caller of a frame; raises UnwindError."""
        dispatcher = self._find_dispatcher(registers.ip if interrupted else registers.ip - 1)
        if dispatcher is not None:
            start, name = dispatcher
            if self._is_in(start, registers.ip):
                return self._dispatched(registers, interrupted, start, name)
        known = self._by_slot(registers)
        if known is None and registers.exact:
            known = self._by_code(registers, interrupted)
        if known is not None:
            return known
        try:
            found = self._by_chain(registers, interrupted)
        except UnwindError:
            exact = self._without_chain(registers, interrupted)
            if exact is None:
                raise
            return exact
        # Where the chain ends a function without a frame may still have a caller.
        doubtful = found.doubt is not None or registers.bp == 0
        return (self._without_chain(registers, interrupted) if doubtful else None) or found

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

    def _dispatched(
        self, registers: Registers32, interrupted: bool, start: int, name: str
    ) -> Taken[Registers32]:
        """Goes on from a dispatcher of user mode, which has no caller.

        Ebp is still that of the code that was interrupted.
        """
        if name == dispatchers_x86.CALLBACK:
            found = self._called_back(registers)
        else:
            entry = self._entry_of(registers, start)
            found = None if entry is None else self._contexts.find(name, entry, self._stacks.together)
        if found is not None:
            return Taken(found, TRAP, True)
        try:
            guess = self._by_chain(registers, interrupted)
        except UnwindError:
            raise UnwindError(Word.DISPATCHER) from None
        guess.doubt = Word.DISPATCHER
        return guess

    def _called_back(self, registers: Registers32) -> Optional[Registers32]:
        """Returns what a callback interrupted: the kernel kept its trap frame, and Ebp is the same still."""
        kept = (found.registers for found in map(self._trap, self._trap_frames) if found is not None)
        sp = registers.sp
        above = [each for each in kept if each.sp > sp and self._stacks.together(sp, each.sp)]
        nearest = min(above, key=lambda each: each.sp, default=None)
        if nearest is None or nearest.bp != registers.bp or not self._is_code(nearest.ip):
            return None
        return nearest

    def _entry_of(self, registers: Registers32, start: int) -> Optional[int]:
        """Returns what Esp was at a function's first instruction, None if its code does not tell."""
        ip, place = registers.ip, self._functions.place(start, registers.ip)
        if registers.exact and place is not None and place.depth is not None:
            return registers.sp + place.depth
        # Arguments may have been popped since the call, which tells: before it they were there.
        popped = _APC_POPS if registers.exact else 0
        before = self._functions.code(ip - LONGEST_CALL, LONGEST_CALL)
        for length in lengths(before):
            place = self._functions.place(start, ip - length)
            if place is not None and place.depth is not None:
                return registers.sp - popped + place.depth
        return None

    def _is_in(self, start: int, ip: int) -> bool:
        """Returns whether an address may be in the function that starts at another."""
        return self._functions.place(start, ip) is not None or not self._functions.has_border(start, ip)

    def _is_code(self, address: int) -> bool:
        """Returns whether an instruction may lie at an address."""
        image = self._find_image(address)
        if image is not None:
            return image.executable(address)
        return self._read(address, 1) is not None and self._may_execute(address)

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
        code = self._functions.code(registers.ip, clues_x86.LONGEST)
        leaving = clues_x86.exit_at(code)
        if leaving is not None:
            return self._leaving(registers, leaving)
        if not interrupted:
            return None
        pops, before = self._functions.pops, self._functions.code(registers.ip - 1, 1)
        if clues_x86.at_entry(code):
            return self._taken(registers.sp, registers.bp, LEAF, pops(registers.ip))
        if clues_x86.behind_push(before, code):
            saved = self.read_stack(registers.sp)
            return self._taken(registers.sp + 4, saved, FRAME_POINTER, pops(registers.ip - 1))
        if clues_x86.behind_release(before, code):
            return self._taken(registers.sp, registers.bp, LEAF, None)
        return None

    def _without_chain(self, registers: Registers32, interrupted: bool) -> Optional[Taken[Registers32]]:
        """Takes the return address that the code alone tells, once the frame pointers do not."""
        own = self._functions.own(registers.ip)
        if own is not None and own.place.ebp == BASED:
            found = self._above(registers, *own)
            if found is not None:
                return found
        if registers.exact:
            return self._by_depth(registers)
        if registers.callee is None or self._functions.flow(registers.callee).aligns:
            return None
        popped = self._functions.pops(registers.callee)
        if popped is None:
            return None
        counted = registers._replace(sp=registers.sp + popped, exact=True)
        return self._by_code(counted, interrupted) or self._by_depth(counted)

    def _by_depth(self, registers: Registers32) -> Optional[Taken[Registers32]]:
        """Takes the return address that lies as deep as the code says that it does.

        The call before it goes to where the function starts, and every way from there pushed that much.
        """
        own = self._functions.own(registers.ip)
        if own is not None and own.place.depth is not None and own.place.ebp not in _CHAINED:
            found = self._above(registers, *own)
            if found is not None:
                return found
        for depth in range(0, _DEEPEST, self.slot_size):
            slot = registers.sp + depth
            for start in self._functions.starts(self.read_stack(slot) or 0):
                near = 0 <= registers.ip - start < _NEAR_CODE
                place = self._functions.place(start, registers.ip)
                if place is None or place.depth != depth or place.ebp in _CHAINED:
                    continue
                if near or self._is_part(start, registers.ip):
                    found = self._at_depth(registers, start, place)
                    if found is not None:
                        return found
        return None

    def _above(self, registers: Registers32, start: int, place: StackPlace) -> Optional[Taken[Registers32]]:
        """Takes the return address whose place the code of the function tells.

        If the call before it goes to a known place that has to be the function; else what the function pushes
        and what it pops has to come out even.
        """
        slot = self._slot(registers, place)
        if slot is None:
            return None
        starts = self._functions.starts(self.read_stack(slot) or 0)
        proven = start in starts or (not starts and self._functions.flow(start).proves(registers.ip))
        return self._at_depth(registers, start, place) if proven else None

    def _at_depth(
        self, registers: Registers32, start: int, place: StackPlace
    ) -> Optional[Taken[Registers32]]:
        """Takes the return address of the function that starts at an address, by what is known in it."""
        slot, bp = self._slot(registers, place), registers.bp
        if slot is None:
            return None
        if place.ebp != CALLERS:
            bp = None if place.saved is None else self.read_stack(slot - place.saved)
        how = FRAME_POINTER if place.ebp == BASED else LEAF
        return self._taken(slot, bp, how, self._functions.pops(start))

    @staticmethod
    def _slot(registers: Registers32, place: StackPlace) -> Optional[int]:
        """Returns where the return address lies by what is known of Ebp, or else of Esp."""
        if place.ebp == BASED and place.frame is not None:
            slot = None if registers.bp is None else registers.bp + place.frame & MASK
            return slot if slot is not None and slot >= registers.sp else None
        return None if place.depth is None else registers.sp + place.depth & MASK

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
        self, slot: int, bp: Optional[int], how: str, arguments: Optional[int]
    ) -> Optional[Taken[Registers32]]:
        """Returns to the address in a slot, if that is a return address.

        Args:
            slot: where it lies
            bp: the caller's Ebp
            how: how it was found
            arguments: bytes that the return pops besides, None if that is not known
        """
        address = self.read_stack(slot)
        if address is None or not self.is_return(address):
            return None
        above = slot + self.slot_size + (arguments or 0)
        return Taken(Registers32(address, above, bp, exact=arguments is not None), how)

    def _by_chain(self, registers: Registers32, interrupted: bool) -> Taken[Registers32]:
        """Takes the return address above the saved frame pointer."""
        bp = registers.bp
        if bp is None:
            raise UnwindError(Word.FRAME_POINTER_UNKNOWN)
        if bp == 0 and not interrupted:
            doubt = Word.FRAME_POINTER_UNSURE if self._functions.changes_ebp(registers.ip) else None
            return Taken(Registers32(0, registers.sp), FRAME_POINTER, doubt=doubt, lasting=False)
        if bp < registers.sp or bp % self.slot_size:
            raise UnwindError(Word.FRAME_POINTER_IMPLAUSIBLE)
        trapped = self._trap(bp)
        if trapped is not None:
            return trapped
        saved, address = self.read_stack(bp), self.read_stack(bp + self.slot_size)
        if saved is None or address is None:
            raise UnwindError(Word.STACK_UNREADABLE)
        verdict = self.is_return(address) if address else True
        if verdict is False:
            raise UnwindError(Word.FRAME_POINTER_IMPLAUSIBLE)
        callee = None if verdict is None else self._callee(address, registers.ip, interrupted)
        doubt = Word.FRAME_POINTER_UNSURE if callee is None else None
        above = Registers32(address, bp + 2 * self.slot_size, saved, exact=False, callee=callee)
        return Taken(above, FRAME_POINTER, doubt=doubt, lasting=False)

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

    def _callee(self, address: int, ip: int, interrupted: bool) -> Optional[int]:
        """Returns the start of the function of `ip` if code proves that it returns to the address above Ebp.

        Either the call before that goes there, or (where that does not show) the function has set up its
        frame.
        """
        functions = self._functions
        targets = functions.targets(address) if address else []
        # What a call that never returns is followed by may be another function.
        spots = [ip] if interrupted else functions.calls(ip) or [ip]
        for start in targets:
            near = 0 <= ip - start < _NEAR_CODE and not functions.has_border(start, ip)
            if near and not interrupted:
                return start
            places = [functions.place(start, spot) for spot in spots]
            if near and not any(places):
                return start
            if any(self._has_frame(start, spot, near) for spot in spots):
                return start
        for start in functions.tails(targets):
            if any(self._has_frame(start, spot, False) for spot in spots):
                return start
        if targets or (not interrupted and functions.behind_set_up(ip)):
            return None
        owns = map(functions.own, spots)
        return next((own.start for own in owns if own is not None and own.place.ebp in _CHAINED), None)

    def _has_frame(self, start: int, ip: int, near: bool) -> bool:
        """Returns whether the function that starts at an address has set up its frame at an instruction."""
        place = self._functions.place(start, ip)
        if place is None or place.ebp not in _CHAINED:
            return False
        uneven = self._functions.flow(start).proves(ip) is False
        return (near and not uneven) or self._is_part(start, ip)

    def _is_part(self, start: int, ip: int) -> bool:
        """Returns whether an instruction that lies elsewhere is in the function that starts at an address."""
        image = self._find_image(start)
        if image is not None and not (0 <= ip - image.base < image.size and image.executable(ip)):
            return False
        return self._functions.flow(start).proves(ip) is True
