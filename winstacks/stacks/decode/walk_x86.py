# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A walk up an x86 stack: by the chain of frame pointers, across trap frames, with proof from the code.

The chain misses the caller of a function without a frame, or before its frame is set up. At an interrupted
instruction and behind a system call the code is examined for this; if doubt remains, the frame is not sure.
Across the dispatchers of user mode the chain continues, too, but misses the interrupted functions: the
following frames are sure only if the CONTEXT of an exception or of an APC proves itself, or if the trap frame
that a callback kept in the kernel agrees.
"""

from __future__ import annotations

from typing import Collection, Optional

from ...columns.words import FRAME_POINTER, LEAF, SCAN, TRAP, UNWIND
from ...memory.decode.memory import ReadMemory
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import Structures
from . import clues_x86, dispatchers_x86, go_x86
from .callees_x86 import CHAINED, Callees, is_near
from .dispatchers_x86 import Contexts
from .effects_x86 import BASED, CALLERS, OTHER, OURS, StackPlace
from .frames import (
    FindDispatcher,
    FindImage,
    MayExecute,
    OwnCopy,
    UnwindError,
    UserTransition,
    find_no_dispatcher,
    may_execute_anywhere,
    shared,
)
from .functions_x86 import Functions
from .registers import Registers32
from .surroundings import UNKNOWN, Surroundings
from .walk import Walker, WalkStep

MASK = 0xFFFFFFFF
TRAP_MARK = 0xBADB0D00
_TRAP_MEMBERS = ("DbgEbp", "DbgEip", "DbgArgMark", "Ebp", "Eip", "SegCs", "EFlags", "HardwareEsp")
_VIRTUAL_8086 = 0x20000

_DEEPEST = 0x400
"""Distance above Esp within which the return address of a function without a frame is searched."""

_GUESSED = 0x80
"""Distance above Esp within which the return address of a function of ambiguous depth is searched."""

_GAP = 0x40
"""Distance of a return address and its copy on a stack that is aligned to as many bytes."""

_APC_POPS = 12
"""Bytes of arguments that the routine of an APC pops: NormalContext, SystemArgument1, SystemArgument2."""

_CALL_NEXT = b"\xe8\0\0\0\0"
_CALL_NEXT_SIZE = len(_CALL_NEXT)


class Walker32(Walker[Registers32]):
    """Walks x86 stacks of one address space.

    Args:
        types: structures _KTRAP_FRAME, _CONTEXT and _EXCEPTION_RECORD; the members used here have the same
            offset in every version
        trap_frames: addresses of trap frames known to lie on the stack; for a user stack: those that the
            kernel kept at callbacks
    """

    slot_size = 4
    calls_push = True

    def __init__(
        self,
        find_image: FindImage,
        read: ReadMemory,
        types: Structures,
        trap_frames: Collection[int] = (),
        may_execute: MayExecute = may_execute_anywhere,
        functions: Optional[Functions] = None,
        find_dispatcher: FindDispatcher = find_no_dispatcher,
        own_copy: OwnCopy = shared,
        surroundings: Surroundings = UNKNOWN,
    ) -> None:
        super().__init__(find_image, read, may_execute, surroundings)
        trap_frame = types["_KTRAP_FRAME"]
        self._contexts = Contexts(types, read, self._is_code, self.is_no_code)
        self._find_dispatcher = find_dispatcher
        self._own_copy = own_copy
        self._functions = functions or Functions(read)
        self._callees = Callees(self._functions, find_image)
        self._trap_frames = trap_frames
        self._mark, self._esp = trap_frame.offset("DbgArgMark"), trap_frame.offset("HardwareEsp")
        last = trap_frame.field("HardwareSegSs")
        self._trap_size = last.offset + last.size
        self._trap_members = trap_frame.reader(*_TRAP_MEMBERS)

    def is_return(self, address: int) -> Optional[bool]:
        """Returns whether a value on a stack can be a return address.

        A call of the next instruction does not count: code uses it to read its own address.
        """
        verdict = super().is_return(address)
        if verdict and self._functions.code(address - _CALL_NEXT_SIZE, _CALL_NEXT_SIZE) == _CALL_NEXT:
            return False
        return verdict

    def step(self, registers: Registers32, interrupted: bool) -> WalkStep[Registers32]:
        """Finds the caller of a frame; raises UnwindError."""
        dispatcher = self._find_dispatcher(registers.ip if interrupted else registers.ip - 1)
        if dispatcher is not None:
            (start, name), functions, ip = dispatcher, self._functions, registers.ip
            if functions.place(start, ip) is not None or not functions.has_border(start, ip):
                return self._dispatched(registers, interrupted, start, name)
        go_stack = self.go_stack(self._find_image(registers.ip - (not interrupted)))
        taken = (go_stack and go_x86.step_in_go(go_stack, registers, interrupted)) or self._by_slot(registers)
        if taken is None and registers.exact:
            taken = self._by_code(registers, interrupted)
        if taken is not None:
            return taken
        try:
            chained = self._by_chain(registers, interrupted)
        except UnwindError:
            exact = self._without_chain(registers, interrupted)
            exact = (
                exact
                or (None if interrupted else self._out_of_windows(registers))
                or self._guessed(registers)
            )
            if exact is None:
                raise
            return exact
        # At the end of the chain, a function without a frame may still have a caller.
        doubtful = chained.doubt is not None or registers.bp == 0
        if not doubtful:
            return chained
        return self._without_chain(registers, interrupted) or self._guessed(registers) or chained

    def take_slot(self, slot: int, value: int) -> Optional[WalkStep[Registers32]]:
        """Returns the step to a trap frame, or to a possible return address."""
        trap_frame = slot - self._mark if value == TRAP_MARK else slot
        if value == TRAP_MARK or slot in self._trap_frames:
            step = self._trap(trap_frame)
            if step is not None:
                return step
        if not self.may_return(value):
            return None
        saved = self.read_stack(slot - 4)
        bp = saved if saved is not None and saved > slot else None
        return WalkStep(Registers32(value, slot + 4, bp, exact=False, before_call=slot + 4), SCAN)

    def _dispatched(
        self, registers: Registers32, interrupted: bool, start: int, name: str
    ) -> WalkStep[Registers32]:
        """Continues from a dispatcher of user mode, which has no caller.

        Ebp still has the value of the interrupted code.
        """
        if name == dispatchers_x86.CALLBACK:
            interrupted_registers = self._called_back(registers)
        else:
            entry = self._functions.entry_sp(registers, start, _APC_POPS)
            interrupted_registers = (
                None if entry is None else self._contexts.find_interrupted(name, entry, self._stacks.together)
            )
        if interrupted_registers is not None:
            return WalkStep(interrupted_registers, TRAP, True)
        try:
            guess = self._by_chain(registers, interrupted)
        except UnwindError:
            raise UnwindError(StatusCode.DISPATCHER) from None
        guess.doubt = StatusCode.DISPATCHER
        return guess

    def _called_back(self, registers: Registers32) -> Optional[Registers32]:
        """Returns the registers that a callback interrupted: its trap frame is kept, and Ebp is unchanged."""
        saved_states = (step.registers for step in map(self._trap, self._trap_frames) if step is not None)
        sp = registers.sp
        above = [state for state in saved_states if state.sp > sp and self._stacks.together(sp, state.sp)]
        nearest = min(above, key=lambda state: state.sp, default=None)
        if nearest is None or nearest.bp != registers.bp or not self._is_code(nearest.ip):
            return None
        return nearest

    def _entered(self, registers: Registers32) -> Optional[WalkStep[Registers32]]:
        """Takes [Esp] at the first byte of a function whose code is absent: nothing is pushed there yet."""
        image, address = self._find_image(registers.ip), self.read_stack(registers.sp)
        if image is None or address is None or not image.begins(registers.ip - image.base):
            return None
        if self._find_image(address - 1) is None or self.is_return(address) is False:
            return None
        above = registers.sp + self.slot_size
        return WalkStep(Registers32(address, above, registers.bp, exact=False, before_call=above), LEAF)

    def _is_code(self, address: int) -> bool:
        """Returns whether an instruction may lie at an address."""
        image = self._find_image(address)
        if image is not None:
            return image.executable(address)
        return self._read(address, 1) is not None and self._may_execute(address)

    def _by_slot(self, registers: Registers32) -> Optional[WalkStep[Registers32]]:
        """Takes the return address at a known place."""
        if registers.return_slot is None:
            return None
        address = self.read_stack(registers.return_slot)
        if address is None or not self.is_return(address):
            return None
        above = registers.return_slot + self.slot_size
        return WalkStep(Registers32(address, above, registers.bp, before_call=above), UNWIND)

    def _by_code(self, registers: Registers32, interrupted: bool) -> Optional[WalkStep[Registers32]]:
        """Takes the return address at the place that the code at Eip determines, if it determines one."""
        code = self._functions.code(registers.ip, clues_x86.LONGEST)
        leaving = clues_x86.exit_at(code)
        if leaving is not None:
            return self._leaving(registers, leaving)
        if not interrupted:
            return None
        if not code:
            return self._entered(registers)
        pops, before = self._functions.pops, self._functions.code(registers.ip - 1, 1)
        if clues_x86.at_entry(code):
            return self._taken(registers.sp, registers.bp, LEAF, pops(registers.ip))
        if clues_x86.behind_push(before, code):
            saved = self.read_stack(registers.sp)
            return self._taken(registers.sp + 4, saved, FRAME_POINTER, pops(registers.ip - 1))
        if clues_x86.behind_release(before, code):
            return self._taken(registers.sp, registers.bp, LEAF, None)
        return None

    def _without_chain(self, registers: Registers32, interrupted: bool) -> Optional[WalkStep[Registers32]]:
        """Takes the return address that the code alone determines, if no frame pointer leads to it."""
        calls = () if registers.before_call is None else self._functions.calls(registers.ip)
        for call in calls:
            at_call = Registers32(call, registers.before_call or 0, registers.bp)
            function = self._functions.containing(call)
            step = None if function is None else self._above(at_call, *function)
            step = step or self._by_depth(at_call)
            if step is not None:
                return step
        function = self._functions.containing(registers.ip)
        if function is not None and function.place.ebp == BASED:
            step = self._above(registers, *function)
            if step is not None:
                return step
        if registers.exact:
            return self._by_depth(registers)
        if registers.callee is None or self._functions.flow(registers.callee).aligns:
            return None
        popped = self._functions.pops(registers.callee)
        if popped is None:
            return None
        counted = registers._replace(sp=registers.sp + popped, exact=True)
        return self._by_code(counted, interrupted) or self._by_depth(counted)

    def _by_depth(self, registers: Registers32) -> Optional[WalkStep[Registers32]]:
        """Takes the return address at the depth that the code determines.

        The call before the return address goes to the start of the function, and every way from the start
        gives that depth.
        """
        function = self._functions.containing(registers.ip)
        if function is not None and function.place.depth is not None and function.place.ebp not in CHAINED:
            step = self._above(registers, *function)
            if step is not None:
                return step
        for depth in range(0, _DEEPEST, self.slot_size):
            slot = registers.sp + depth
            for start in self._functions.starts(self.read_stack(slot) or 0):
                near = is_near(start, registers.ip)
                place = self._functions.place(start, registers.ip)
                if place is None or place.depth != depth or place.ebp in CHAINED:
                    continue
                if near or self._callees.is_part(start, registers.ip):
                    step = self._at_depth(registers, start, place)
                    if step is not None:
                        return step
        return None

    def _guessed(self, registers: Registers32) -> Optional[WalkStep[Registers32]]:
        """Takes the nearest return address behind a call of the function at Eip, if ways of different depth
        lead there.

        Constructors of Delphi are such functions: one way makes room for an exception handler.
        """
        for slot in range(registers.sp, registers.sp + _GUESSED, self.slot_size):
            for start in self._functions.targets(self.read_stack(slot) or 0):
                near = is_near(start, registers.ip)
                place = self._functions.place(start, registers.ip) if near else None
                if place is not None and place.depth is None and place.ebp in (CALLERS, OTHER):
                    guess = self._at_depth(registers, start, place._replace(depth=slot - registers.sp))
                    if guess is not None:
                        guess.doubt, guess.lasting = StatusCode.FRAME_POINTER_UNSURE, False
                        return guess
        return None

    def _above(
        self, registers: Registers32, start: int, place: StackPlace
    ) -> Optional[WalkStep[Registers32]]:
        """Takes the return address at the place that the function's code determines.

        If the target of the call before the return address is known, it must be the function; else the pushes
        and pops of the function must balance.
        """
        slot = place.return_slot(registers.sp, registers.bp)
        if slot is None:
            return None
        starts = self._functions.starts(self.read_stack(slot) or 0)
        proven = start in starts or (not starts and self._functions.flow(start).proves(registers.ip))
        return self._at_depth(registers, start, place) if proven else None

    def _at_depth(
        self, registers: Registers32, start: int, place: StackPlace
    ) -> Optional[WalkStep[Registers32]]:
        """Takes the return address of the function that starts at an address, by its stack state."""
        slot, bp = place.return_slot(registers.sp, registers.bp), registers.bp
        if slot is None:
            return None
        if place.ebp != CALLERS:
            bp = None if place.saved is None else self.read_stack(slot - place.saved)
        how = FRAME_POINTER if place.ebp == BASED else LEAF
        return self._taken(slot, bp, how, self._functions.pops(start))

    def _leaving(
        self, registers: Registers32, leaving: clues_x86.FunctionExit
    ) -> Optional[WalkStep[Registers32]]:
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
    ) -> Optional[WalkStep[Registers32]]:
        """Returns to the address in a slot, if that is a return address. `arguments` is how many bytes of
        arguments the return pops in addition, None if unknown."""
        address = self.read_stack(slot)
        if address is None or not self.is_return(address):
            return None
        before = slot + self.slot_size
        above, exact = before + (arguments or 0), arguments is not None
        return WalkStep(Registers32(address, above, bp, exact=exact, before_call=before), how)

    def _by_chain(self, registers: Registers32, interrupted: bool) -> WalkStep[Registers32]:
        """Takes the return address above the saved frame pointer."""
        bp = registers.bp
        if bp is None:
            raise UnwindError(StatusCode.FRAME_POINTER_UNKNOWN)
        if bp == 0 and not interrupted:
            cleared = self._functions.clears_ebp(registers.ip)
            doubt = None if cleared else StatusCode.FRAME_POINTER_UNSURE
            return WalkStep(Registers32(0, registers.sp), FRAME_POINTER, doubt=doubt, lasting=False)
        if bp < registers.sp or bp % self.slot_size or not self._stacks.reach(bp):
            raise UnwindError(StatusCode.FRAME_POINTER_IMPLAUSIBLE)
        trapped = self._trap(bp)
        if trapped is not None:
            return trapped
        saved, address = self.read_stack(bp), self.read_stack(bp + self.slot_size)
        if saved is None or address is None:
            raise UnwindError(StatusCode.STACK_UNREADABLE)
        verdict = self.is_return(address) if address else True
        if verdict is False:
            raise UnwindError(StatusCode.FRAME_POINTER_IMPLAUSIBLE)
        callee = None if verdict is None else self._callees.proven(address, registers.ip, interrupted)
        doubt = StatusCode.FRAME_POINTER_UNSURE if callee is None else None
        sp = bp + 2 * self.slot_size
        before_call = self._before_call(address, sp, callee)
        above = Registers32(address, sp, saved, exact=False, callee=callee, before_call=before_call)
        return WalkStep(above, FRAME_POINTER, doubt=doubt, lasting=False)

    def _before_call(self, address: int, above: int, callee: Optional[int]) -> Optional[int]:
        """Returns the caller's Esp before it pushed the return address that lies above Ebp, None if unknown.

        That address may be the copy that a function made to align Esp. The original then lies a little
        above. The code of an unknown function does not say which of the two it is.
        """
        slots = range(above, above + _GAP, self.slot_size)
        originals = [slot for slot in slots if self.read_stack(slot) == address]
        if not (originals if callee is None else self._functions.flow(callee).aligns):
            return above
        return originals[0] + self.slot_size if callee is not None and len(originals) == 1 else None

    def _out_of_windows(self, registers: Registers32) -> Optional[WalkStep[Registers32]]:
        """Takes the return address above the saved frame pointer if it leads out of unmodified Windows code.

        The code of the function shows that it has set up its frame. So the caller pushed the address,
        whatever memory lies there.
        """
        ip, bp = registers.ip, registers.bp
        image = self._find_image(ip - 1)
        known = image is not None and image.windows and not self._own_copy(ip)
        if not known or bp is None or bp < registers.sp or bp % self.slot_size or not self._stacks.reach(bp):
            return None
        own = self._functions.containing(ip)
        saved, address = self.read_stack(bp), self.read_stack(bp + self.slot_size)
        if own is None or own.place.ebp not in CHAINED or saved is None or not address:
            return None
        if self._find_image(address - 1) is not None or self._read(address - 1, 1) is None:
            return None
        remark = StatusCode.NOT_BEHIND_A_CALL if self.is_behind_call(address) is False else None
        sp = bp + 2 * self.slot_size
        before_call = sp if own.place.ebp == OURS else None
        above = Registers32(address, sp, saved, exact=False, before_call=before_call)
        return WalkStep(above, FRAME_POINTER, remark=remark)

    def _trap(self, address: int) -> Optional[WalkStep[Registers32]]:
        """Steps to the code that a trap frame interrupted; None if there is no trap frame at the address."""
        data = self._read(address, self._trap_size)
        if data is None:
            return None
        same_bp, same_ip, mark, bp, ip, cs, flags, sp = self._trap_members(data, 0)
        marked = mark == TRAP_MARK and same_bp == bp and abs(same_ip - ip) <= 2
        if not marked and address not in self._trap_frames:
            return None
        if not (cs & 3 or flags & _VIRTUAL_8086):
            return WalkStep(Registers32(ip, address + self._esp, bp), TRAP, True, trap=address)
        border = UserTransition(address, ip, sp, cs & 0xFFFF)
        return WalkStep(Registers32(ip, sp, bp), TRAP, True, trap=address, border=border)
