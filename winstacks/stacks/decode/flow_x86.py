# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What x86 code has done to the stack where it has come to: proven along every way that leads there.

A function is followed from its first instruction over its jumps. At each instruction is known how far below
the return address Esp is, and whether Ebp is the frame pointer that the function has set up. Where two ways
disagree nothing is known; what no way reaches (a neighbour without padding, a `__finally`) is not in
the function. A call through Ebx, Esi or Edi goes where the pointer in it leads, if the function loaded it.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import clues_x86
from .code_x86 import CodePages
from .effects_x86 import BASED, CALLERS, COPY, ENTRY, KEPT, OURS, SET_UP, StackPlace, both, changed, operand
from .instructions_x86 import Instruction, instruction

MAX_INSTRUCTIONS = 6000
MAX_ROUNDS = 4
"""Instructions of one function that are looked at, and how often."""

NEAR = 0x800
"""How far behind its start a function's jump with the caller's frame back goes to a part of it."""

MAX_POPPED = 0x40
"""Bytes of arguments that an unknown function is taken to pop."""

_PROBES = (0x10000, 0x20000)
"""Depths by which it is found out whether an instruction moves Esp by a known number of bytes."""

Pops = Callable[[int], Optional[int]]
"""address of a function -> how many bytes of arguments it pops, None if that is not known"""

SetUp = Callable[[int], Optional[int]]
"""address of a function -> how much who calls it has pushed if it sets up the frame for that, else None"""

Is = Callable[[int], bool]
"""address of a function -> whether it is one of a kind"""


_POP_EBP = b"\x5d"
_FAST_FAIL = 0x29
_JUMP_BY_TABLE = 0x24
"""ModRM of `jmp [table + 4 * register]`, the first of its two bytes."""


class Way(NamedTuple):
    """Where execution may go on, what is known there, and whether it gets there only if a call returns."""

    to: int
    place: StackPlace
    falls: bool = False


class Flow:
    """A function, followed from its start, wherever its parts lie.

    Args:
        code: the code of the address space
        start: the address of its first instruction
        pops: tells what functions pop
        sets_up: tells which functions set up a frame for their caller, as _SEH_prolog and _EH_prolog3 do
        takes_down: tells which functions take it down
        most: instructions that may be looked at, if these are fewer than MAX_INSTRUCTIONS
        evens_out: find out what unknown calls pop by what comes out even (see `_even_out`)

    Attributes:
        places: what is known before each instruction that it can come to, by address
        returns: bytes of arguments that its returns pop, by address
        tails: where it goes on in other functions, with the caller's frame back, by address of the jump
        count: instructions that were looked at
    """

    def __init__(
        self,
        code: CodePages,
        start: int,
        pops: Pops,
        sets_up: SetUp,
        takes_down: Is,
        most: int = MAX_INSTRUCTIONS,
        evens_out: bool = True,
    ) -> None:
        self._memory = code
        self._start = start
        self._pops = pops
        self._sets_up = sets_up
        self._takes_down = takes_down
        self._most = min(most, MAX_INSTRUCTIONS)
        self.places: Dict[int, StackPlace] = {}
        self.returns: Dict[int, int] = {}
        self.tails: Dict[int, int] = {}
        self.count = 0
        self._code = b""
        self._called_inside: Set[int] = set()
        self._judged: Dict[bool, Dict[int, bool]] = {}
        self._needed: Dict[int, int] = {}
        self._unknown_calls = 0
        self._follow_all()
        if evens_out and self._unknown_calls and self.places and self._even_out():
            self._follow_all()

    def _follow_all(self) -> None:
        for _ in range(MAX_ROUNDS):
            borders = set(self._called_inside)
            self._follow(borders)
            # What is called is a function of its own, wherever it lies.
            if not any(inside in self.places for inside in self._called_inside):
                return
        self.places.clear()

    def _follow(self, borders: Set[int]) -> None:
        self.places.clear()
        self.returns.clear()
        self.tails.clear()
        left = [Way(self._start, ENTRY)]
        while left:
            address, place, falls = left.pop()
            known = self.places.get(address)
            if known is not None:
                place = both(known, place)
                if place == known:
                    continue
            if address in borders or self._is_border(address, place, falls):
                continue
            if self.count >= self._most:
                self.places.clear()
                return
            self.count += 1
            self.places[address] = place
            left.extend(self._next(address, place, falls))

    def _is_border(self, address: int, place: StackPlace, falls: bool) -> bool:
        """Returns whether another function starts at an address, or no code can be read there.

        What looks like a start is one behind a call, which may never return, and where Ebp is saved already.
        """
        code, at = self._memory.window(address)
        if at >= len(code) or clues_x86.at_padding(code, at):
            return True
        if falls:
            return clues_x86.at_border(code, at)
        return place.saved is not None and clues_x86.at_entry(code[at : at + clues_x86.LONGEST_START])

    def _next(self, address: int, place: StackPlace, falls: bool = False) -> Iterator[Way]:
        """Yields where execution may go from an instruction, and what is known there."""
        self._code, at = self._memory.window(address)
        found = instruction(self._code, at)
        if found is None:
            return
        opcode, behind = found.opcode, address - at + found.end
        if opcode in (0xC3, 0xC2):
            self.returns[address] = operand(self._code, found) if opcode == 0xC2 else 0
        elif opcode == 0xFF and self._code[found.modrm] == _JUMP_BY_TABLE:
            yield from (Way(target, place) for target in self._cases(at))
        elif self._stops(found):
            pass
        elif opcode in (0xE9, 0xEB):
            yield from self._jumped(address, behind + operand(self._code, found) & 0xFFFFFFFF, place)
        elif 0x70 <= opcode <= 0x7F or 0xE0 <= opcode <= 0xE3 or 0x0F80 <= opcode <= 0x0F8F:
            yield Way(behind + operand(self._code, found) & 0xFFFFFFFF, place)
            yield Way(behind, place)
        elif opcode == 0xE8 or (opcode == 0xFF and self._code[found.modrm] & 0x38 == 0x10):
            yield Way(behind, self._called(found, behind, place), True)
        else:
            yield Way(behind, changed(self._code, found, place), falls and opcode == 0x90)

    def _cases(self, at: int) -> List[int]:
        """Returns where a jump through a table goes, if the comparison right before it bounds its entries."""
        bounded = clues_x86.jump_by_table(
            self._code[max(at - clues_x86.LONGEST_BOUND, 0) : at],
            self._code[at : at + clues_x86.TABLE_JUMP],
        )
        if bounded is None:
            return []
        table, most, numbers = bounded
        if numbers is not None:
            data = self._memory.ahead(numbers, most + 1)
            most = max(data) if len(data) == most + 1 else -1
        data = self._memory.ahead(table, 4 * (most + 1)) if most >= 0 else b""
        entries = struct.iter_unpack("<I", data[: len(data) // 4 * 4])
        return list(dict.fromkeys(target for (target,) in entries))

    def _stops(self, found: Instruction) -> bool:
        """Returns whether nothing goes on behind an instruction: int 29h is a fast fail."""
        if found.opcode == 0xFF:
            # A jump through a pointer.
            return self._code[found.modrm] & 0x38 in (0x20, 0x28)
        return found.opcode in (0xCC, 0xCF, 0xF4, 0x0F0B) or (
            found.opcode == 0xCD and operand(self._code, found) == _FAST_FAIL
        )

    def _jumped(self, address: int, target: int, place: StackPlace) -> Iterator[Way]:
        """Yields the target of a jump that is always taken.

        With the caller's frame back it is the start of another function, unless it is near.
        """
        if (place.depth, place.ebp) != ENTRY[:2] or 0 <= target - self._start < NEAR:
            yield Way(target, place)
        else:
            self.tails[address] = target

    def proves(self, address: int, returns: bool = False) -> Optional[bool]:
        """Returns whether what is known at an instruction is proven by where the function ends.

        Behind a call that never returns another function may lie: what the call's own function knows of the
        stack does not come out even at its end. It is proven where an end with the caller's Esp and Ebp is
        reached, and where execution never ends, but comes from such a place without a call to return from.

        Args:
            address: the instruction
            returns: take only a return for an end, and no jump to elsewhere: a part that was moved away jumps
                back to its function, wherever the stack is

        Returns:
            None if no end is reached and nothing else proves it.
        """
        judged = self._judged.get(returns)
        if judged is None:
            judged = self._judged[returns] = self._judge(returns)
        return judged.get(address)

    def _even_out(self) -> bool:
        """Finds how deep the stack is behind calls of unknown functions, from where the function returns.

        A return has to find its address. So what lies between such a call and the returns behind it tells how
        deep the stack is behind the call, as long as it is the same by every way.

        Returns:
            Whether anything was found.
        """
        before: Dict[int, List[Tuple[int, int]]] = {}
        needed: Dict[int, Optional[int]] = {}
        for address, place in self.places.items():
            if address in self.returns:
                needed[address] = 0
            elif place.ebp in (OURS, BASED) and self._pops_ebp(address):
                needed[address] = place.saved
            low, high = (self._next(address, place._replace(depth=probe)) for probe in _PROBES)
            for one, other in zip(low, high):
                moved = _moved_by(one.place.depth, other.place.depth)
                if moved is not None:
                    before.setdefault(one.to, []).append((address, moved))
        left = list(needed)
        while left:
            to = left.pop()
            depth = needed[to]
            for address, moved in before.get(to, ()):
                found = None if depth is None else depth - moved
                if address not in needed or needed[address] not in (found, None):
                    # Two ways that disagree tell nothing.
                    needed[address] = found if address not in needed else None
                    left.append(address)
        self._needed = {
            address: depth for address, depth in needed.items() if depth is not None and depth > 0
        }
        return bool(self._needed)

    def _pops_ebp(self, address: int) -> bool:
        code, at = self._memory.window(address)
        return code[at : at + 1] == _POP_EBP

    def _behind_unknown(self, behind: int, depth: Optional[int]) -> Optional[int]:
        """Returns how deep the stack is behind a call of an unknown function, None if nothing tells."""
        needed = self._needed.get(behind)
        if needed is None or needed % 4 or (depth is not None and not 0 <= depth - needed <= MAX_POPPED):
            return None
        return needed

    def _judge(self, returns: bool) -> Dict[int, bool]:
        before: Dict[int, List[int]] = {}
        behind: Dict[int, List[int]] = {}
        for address, place in self.places.items():
            for way in self._next(address, place):
                before.setdefault(way.to, []).append(address)
                if not way.falls:
                    behind.setdefault(address, []).append(way.to)
        ends = [each for each in (*self.returns, *(() if returns else self.tails)) if each in self.places]
        even = _reached(before, (address for address in ends if self._is_even(self.places[address])))
        uneven = _reached(before, ends) - even
        never = self.places.keys() - even - uneven
        to = {address: [each for each in behind.get(address, ()) if each in never] for address in self.places}
        return {**dict.fromkeys(_reached(to, even), True), **dict.fromkeys(uneven, False)}

    def _is_even(self, place: StackPlace) -> bool:
        """Returns whether Esp and Ebp are the caller's, where a function ends."""
        return place[:2] == ENTRY[:2] or (place.ebp == CALLERS and self.aligns)

    @property
    def aligns(self) -> bool:
        """Whether it keeps a copy of its return address on an aligned stack, and Esp elsewhere."""
        return any(place.ebp == COPY for place in self.places.values())

    def _called(self, found: Instruction, behind: int, place: StackPlace) -> StackPlace:
        """Returns what is known behind a call."""
        target: Optional[int] = None
        if found.opcode == 0xE8:
            target = behind + operand(self._code, found) & 0xFFFFFFFF
            if target == behind:
                # Pushes where it is.
                return place._replace(depth=None if place.depth is None else place.depth + 4)
            if target != self._start:
                self._called_inside.add(target)
            if place.ebp == CALLERS and place.saved is None and place.depth is not None:
                if self._sets_up(target) == place.depth:
                    return SET_UP
            if place.ebp == OURS and self._takes_down(target):
                return ENTRY
        elif self._code[found.modrm] == 0x15:
            target = self._memory.pointer(
                int.from_bytes(self._code[found.modrm + 1 : found.modrm + 5], "little")
            )
        elif self._code[found.modrm] & 0xF8 == 0xD0 and self._code[found.modrm] & 7 in KEPT:
            slot = place.loaded[KEPT.index(self._code[found.modrm] & 7)]
            target = None if slot is None else self._memory.pointer(slot)
        popped = None if target is None or place.depth is None else self._pops(target)
        if popped is None or place.depth is None:
            self._unknown_calls += 1
            return place._replace(depth=self._behind_unknown(behind, place.depth))
        return place._replace(depth=place.depth - popped)


def _moved_by(low: Optional[int], high: Optional[int]) -> Optional[int]:
    """Returns by how much an instruction moves Esp, from where it gets from each of the probes.

    Returns:
        None if it sets Esp, or that is not known.
    """
    if low is None or high is None or low - _PROBES[0] != high - _PROBES[1]:
        return None
    return low - _PROBES[0]


def _reached(ways: Dict[int, List[int]], start: Iterable[int]) -> Set[int]:
    """Returns what is reached from some addresses, themselves included."""
    left = list(start)
    seen = set(left)
    while left:
        for to in ways.get(left.pop(), ()):
            if to not in seen:
                seen.add(to)
                left.append(to)
    return seen
