# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stack state at each instruction of an x86 function, proven along every way that leads to the
instruction.

A function is followed from its first instruction along its jumps. For each instruction the depth of Esp below
the return address is known, and whether Ebp is the frame pointer that the function has set up. A fact on
which two ways disagree counts as unknown; code that no way reaches (a neighbour without padding, a
`__finally`) is not part of the function. A call through Ebx, Esi or Edi goes to the target of the pointer in
the register, if the function loaded it.
"""

from __future__ import annotations

import re
import struct
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from ...memory.decode.memo import Memo
from ...memory.decode.records import NamedTuple
from . import clues_x86
from .code_x86 import CodePages
from .effects_x86 import (
    BASED,
    CALLERS,
    COPY,
    ENTRY,
    KEPT,
    OURS,
    SET_UP,
    StackPlace,
    changed,
    merge_places,
    operand,
)
from .instructions_x86 import Instruction, instruction

MAX_INSTRUCTIONS = 6000
MAX_ROUNDS = 4
"""Limits for one function: instructions that are followed, and rounds."""

NEAR = 0x800
"""Distance from a function's start within which a jump with the caller's frame restored goes to a part of the
function."""

_NEIGHBOURHOOD = 0x4000
_MOST_ENTRIES = 128
"""Limits for a table of jumps without a comparison: distance from the function's start within which its code
and its table lie, and number of entries."""

MAX_POPPED = 0x40
"""Upper bound for the bytes of arguments that an unknown function may pop."""

_PROBES = (0x10000, 0x20000)
"""Depths with which an instruction is tried, to find out whether it moves Esp by a known number of bytes."""

Pops = Callable[[int], Optional[int]]
"""address of a function -> number of bytes of arguments that it pops, None if unknown"""

SetUp = Callable[[int], Optional[int]]
"""address of a function -> if it sets up the frame for its caller, bytes that the caller has pushed, else
None"""

Is = Callable[[int], bool]
"""address of a function -> whether it is of a certain kind"""


_POP_EBP = b"\x5d"
_KEPT_FIRST = re.compile(rb"[\x53\x55-\x57]+")
"""push ebx, ebp, esi, edi."""
_FAST_FAIL = 0x29
_INDEX_TIMES_4 = 0x85
"""SIB byte of such a jump, without the register's number."""
_JUMP_BY_TABLE = 0x24
"""ModRM of `jmp [table + 4 * register]`: the first of its two bytes."""
_JUMP_BY_POINTER = 0x25
"""ModRM of `jmp [address]`, as kernel32 forwards its functions."""


class Branch(NamedTuple):
    """A place where execution may continue, its stack state, and if only a returning call leads there."""

    to: int
    place: StackPlace
    falls: bool = False


class Flow:
    """A function, followed from its start, wherever its parts lie.

    Args:
        sets_up: see `SetUp`; _SEH_prolog and _EH_prolog3 set up a frame for their callers
        takes_down: returns whether a function takes down its caller's frame
        makes_room: returns whether a function lowers its caller's Esp by Eax
        keeps_size: returns whether a function changes neither its caller's Esp nor Eax
        most: number of instructions that may be followed, if lower than MAX_INSTRUCTIONS
        evens_out: whether to derive the bytes that unknown calls pop from the returns (see `_even_out`)

    Attributes:
        places: stack state before each reachable instruction, by address
        returns: bytes of arguments that each return pops, by address of the return
        tails: target in another function of each jump with the caller's frame restored, by address of the
            jump
    """

    def __init__(
        self,
        code: CodePages,
        start: int,
        pops: Pops,
        sets_up: SetUp,
        takes_down: Is,
        makes_room: Is,
        keeps_size: Is,
        most: int = MAX_INSTRUCTIONS,
        evens_out: bool = True,
    ) -> None:
        self._memory = code
        self._start = start
        self._pops = pops
        self._sets_up = sets_up
        self._takes_down = takes_down
        self._makes_room = makes_room
        self._keeps_size = keeps_size
        self._most = min(most, MAX_INSTRUCTIONS)
        self.places: Dict[int, StackPlace] = {}
        self.returns: Dict[int, int] = {}
        self.tails: Dict[int, int] = {}
        self.count = 0
        self._code = b""
        self._called_inside: Set[int] = set()
        self._judged: Memo[bool, Dict[int, bool]] = Memo(self._judge)
        self._needed: Dict[int, int] = {}
        self._unknown_calls = 0
        self._follow_all()
        if evens_out and self._unknown_calls and self.places and self._even_out():
            self._follow_all()

    def _follow_all(self) -> None:
        for _ in range(MAX_ROUNDS):
            borders = set(self._called_inside)
            self._follow(borders)
            # A called address starts another function, wherever it lies.
            if not any(inside in self.places for inside in self._called_inside):
                return
        self.places.clear()

    def _follow(self, borders: Set[int]) -> None:
        self.places.clear()
        self.returns.clear()
        self.tails.clear()
        pending = [Branch(self._start, ENTRY)]
        while pending:
            address, place, falls = pending.pop()
            earlier = self.places.get(address)
            if earlier is not None:
                if address == self._start:
                    # The state at the start is given: what comes here in another is a neighbour.
                    continue
                place = merge_places(earlier, place)
                if place == earlier:
                    continue
            if address in borders or self._is_border(address, place, falls):
                continue
            if self.count >= self._most:
                self.places.clear()
                return
            self.count += 1
            self.places[address] = place
            pending.extend(self._next(address, place, falls))

    def _is_border(self, address: int, place: StackPlace, falls: bool) -> bool:
        """Returns whether another function starts at an address, or no code can be read there.

        Code that looks like the start of a function counts as a start in two cases: it follows a call, which
        may never return; or the caller's Ebp has already been saved.
        """
        code, offset = self._memory.window(address)
        if offset >= len(code) or clues_x86.at_padding(code, offset):
            return True
        if falls:
            return clues_x86.at_border(code, offset)
        return place.saved is not None and clues_x86.at_entry(code[offset : offset + clues_x86.LONGEST_START])

    def _next(self, address: int, place: StackPlace, falls: bool = False) -> Iterator[Branch]:
        """Yields the places where execution may go from an instruction, with the stack state there."""
        self._code, offset = self._memory.window(address)
        decoded = instruction(self._code, offset)
        if decoded is None:
            return
        opcode, behind = decoded.opcode, address - offset + decoded.end
        if opcode in (0xC3, 0xC2):
            self.returns[address] = operand(self._code, decoded) if opcode == 0xC2 else 0
        elif opcode == 0xFF and self._code[decoded.modrm] == _JUMP_BY_TABLE:
            yield from (Branch(target, place) for target in self._cases(offset))
        elif opcode == 0xFF and self._code[decoded.modrm] == _JUMP_BY_POINTER:
            target = self._pointer(decoded)
            if target is not None and _is_entry(place):
                self.tails[address] = target
        elif self._stops(decoded):
            pass
        elif opcode in (0xE9, 0xEB):
            yield from self._jumped(address, behind + operand(self._code, decoded) & 0xFFFFFFFF, place)
        elif 0x70 <= opcode <= 0x7F or 0xE0 <= opcode <= 0xE3 or 0x0F80 <= opcode <= 0x0F8F:
            yield Branch(behind + operand(self._code, decoded) & 0xFFFFFFFF, place)
            yield Branch(behind, place)
        elif opcode == 0xE8 or (opcode == 0xFF and self._code[decoded.modrm] & 0x38 == 0x10):
            yield Branch(behind, self._called(decoded, behind, place), True)
        else:
            yield Branch(behind, changed(self._code, decoded, place), falls and opcode == 0x90)

    def _cases(self, offset: int) -> List[int]:
        """Returns the targets of a jump through a table.

        The comparison right before the jump bounds the entries; else the first value bounds them that does
        not lead to the neighbourhood of the function's start.
        """
        jump = self._code[offset : offset + clues_x86.TABLE_JUMP]
        bounded = clues_x86.jump_by_table(self._code[max(offset - clues_x86.LONGEST_BOUND, 0) : offset], jump)
        if bounded is None:
            by_index = len(jump) == clues_x86.TABLE_JUMP and jump[2] & 0xC7 == _INDEX_TIMES_4
            if not by_index:
                return []
            return self._neighbours(int.from_bytes(jump[3:], "little"))
        table, most, numbers = bounded
        if numbers is not None:
            data = self._memory.ahead(numbers, most + 1)
            most = max(data) if len(data) == most + 1 else -1
        data = self._memory.ahead(table, 4 * (most + 1)) if most >= 0 else b""
        entries = struct.iter_unpack("<I", data[: len(data) // 4 * 4])
        return list(dict.fromkeys(target for (target,) in entries))

    def _neighbours(self, table: int) -> List[int]:
        """Returns the first entries of a table that lead to the neighbourhood of the function's start."""
        if not 0 <= table - self._start < _NEIGHBOURHOOD:
            return []
        targets = []
        for (target,) in struct.iter_unpack("<I", self._memory.ahead(table, 4 * _MOST_ENTRIES)):
            if not 0 <= target - self._start < _NEIGHBOURHOOD:
                break
            targets.append(target)
        return list(dict.fromkeys(targets))

    def _stops(self, decoded: Instruction) -> bool:
        """Returns whether execution never continues behind an instruction: int 29h is a fast fail."""
        if decoded.opcode == 0xFF:
            # A jump through a pointer.
            return self._code[decoded.modrm] & 0x38 in (0x20, 0x28)
        return decoded.opcode in (0xCC, 0xCF, 0xF4, 0x0F0B) or (
            decoded.opcode == 0xCD and operand(self._code, decoded) == _FAST_FAIL
        )

    def _jumped(self, address: int, target: int, place: StackPlace) -> Iterator[Branch]:
        """Yields the target of a jump that is always taken.

        If the caller's frame is restored, the target is the start of another function, unless it is near.
        """
        if not _is_entry(place) or 0 <= target - self._start < NEAR:
            yield Branch(target, place)
        else:
            self.tails[address] = target

    def _pointer(self, decoded: Instruction) -> Optional[int]:
        """Returns the value of the pointer that a call or jump names by its address."""
        return self._memory.pointer(
            int.from_bytes(self._code[decoded.modrm + 1 : decoded.modrm + 5], "little")
        )

    def proves(self, address: int, returns: bool = False) -> Optional[bool]:
        """Returns whether the stack state at an instruction is proven by the ends of the function.

        A call that never returns may be followed by another function. The state that was carried over the
        call is then wrong, and the end of that function shows the error. So the state is proven if the
        instruction leads to an end with the caller's Esp and Ebp. It is also proven if the instruction leads
        to no end, but is reached from a proven instruction without passing a call. Returns None if no end is
        reached and the state is not proven otherwise. `returns` says whether only a return counts as an end,
        and a jump elsewhere does not: a part that was moved away jumps back to its function in any state of
        the stack.
        """
        return self._judged[returns].get(address)

    def _even_out(self) -> bool:
        """Derives the stack depth behind calls of unknown functions from the places where the function
        returns.

        A return needs its address on top of the stack. So the instructions between such a call and the
        returns behind it determine the depth behind the call, provided that all ways give the same depth.
        Returns whether any depth was found.
        """
        before: Dict[int, List[Tuple[int, int]]] = {}
        needed: Dict[int, Optional[int]] = {}
        for address, place in self.places.items():
            if address in self.returns:
                needed[address] = 0
            elif place.ebp in (OURS, BASED) and self._pops_ebp(address):
                needed[address] = place.saved
            low, high = (self._next(address, place._replace(depth=probe)) for probe in _PROBES)
            for low_way, high_way in zip(low, high):
                moved = _moved_by(low_way.place.depth, high_way.place.depth)
                if moved is not None:
                    before.setdefault(low_way.to, []).append((address, moved))
        pending = list(needed)
        while pending:
            address_behind = pending.pop()
            depth = needed[address_behind]
            for address, moved in before.get(address_behind, ()):
                depth_before = None if depth is None else depth - moved
                if address not in needed or needed[address] not in (depth_before, None):
                    # If two ways disagree, the depth is unknown.
                    needed[address] = depth_before if address not in needed else None
                    pending.append(address)
        kept = self._kept_first()
        self._needed = {
            address: depth for address, depth in needed.items() if depth is not None and depth >= kept
        }
        return bool(self._needed)

    def _kept_first(self) -> int:
        """Returns the bytes of registers that the function pushes first: no callee pops these."""
        code, offset = self._memory.window(self._start)
        pushes = _KEPT_FIRST.match(code, offset)
        return 0 if pushes is None else 4 * len(pushes[0])

    def _pops_ebp(self, address: int) -> bool:
        code, offset = self._memory.window(address)
        return code[offset : offset + 1] == _POP_EBP

    def _behind_unknown(self, behind: int, depth: Optional[int]) -> Optional[int]:
        """Returns the stack depth behind a call of an unknown function, None if unknown."""
        needed = self._needed.get(behind)
        if needed is None or needed % 4 or (depth is not None and not 0 <= depth - needed <= MAX_POPPED):
            return None
        return needed

    def _judge(self, returns: bool) -> Dict[int, bool]:
        before: Dict[int, List[int]] = {}
        behind: Dict[int, List[int]] = {}
        for address, place in self.places.items():
            for way in self._next(address, place):
                if way.to == self._start and not _is_entry(way.place):
                    continue
                before.setdefault(way.to, []).append(address)
                if not way.falls:
                    behind.setdefault(address, []).append(way.to)
        ends = [end for end in (*self.returns, *(() if returns else self.tails)) if end in self.places]
        even = _reached(before, (address for address in ends if self._is_even(self.places[address])))
        uneven = _reached(before, ends) - even
        never = self.places.keys() - even - uneven
        to = {address: [end for end in behind.get(address, ()) if end in never] for address in self.places}
        return {**dict.fromkeys(_reached(to, even), True), **dict.fromkeys(uneven, False)}

    def _is_even(self, place: StackPlace) -> bool:
        """Returns whether Esp and Ebp are the caller's, at an end of the function."""
        return place[:2] == ENTRY[:2] or (place.ebp == CALLERS and self.aligns)

    @property
    def aligns(self) -> bool:
        """Whether the function copies its return address to an aligned stack, so that Esp is elsewhere."""
        return any(place.ebp == COPY for place in self.places.values())

    def _called(self, decoded: Instruction, behind: int, place: StackPlace) -> StackPlace:
        """Returns the stack state behind a call."""
        target: Optional[int] = None
        size, place = place.eax, place._replace(eax=None)
        if decoded.opcode == 0xE8:
            target = behind + operand(self._code, decoded) & 0xFFFFFFFF
            if target == behind:
                # A call of the next instruction pushes its own address.
                return place._replace(depth=None if place.depth is None else place.depth + 4)
            if target != self._start:
                self._called_inside.add(target)
            if place.ebp == CALLERS and place.saved is None and place.depth is not None:
                if self._sets_up(target) == place.depth:
                    return SET_UP
            if place.ebp == OURS and self._takes_down(target):
                return ENTRY
            if self._makes_room(target):
                depth = None if size is None or place.depth is None else place.depth + size
                return place._replace(depth=depth)
            if size is not None and self._keeps_size(target):
                return place._replace(eax=size)
        elif self._code[decoded.modrm] == 0x15:
            target = self._pointer(decoded)
        elif self._code[decoded.modrm] & 0xF8 == 0xD0 and self._code[decoded.modrm] & 7 in KEPT:
            slot = place.loaded[KEPT.index(self._code[decoded.modrm] & 7)]
            target = None if slot is None else self._memory.pointer(slot)
        popped = None if target is None or place.depth is None else self._pops(target)
        if popped is None or place.depth is None:
            self._unknown_calls += 1
            return place._replace(depth=self._behind_unknown(behind, place.depth))
        return place._replace(depth=place.depth - popped)


def _is_entry(place: StackPlace) -> bool:
    """Returns whether Esp and Ebp are as at the start of the function."""
    return (place.depth, place.ebp) == ENTRY[:2]


def _moved_by(low: Optional[int], high: Optional[int]) -> Optional[int]:
    """Returns the bytes by which an instruction moves Esp, from the depths to which it leads from the two
    probes; None if the instruction sets Esp, or the result is unknown."""
    if low is None or high is None or low - _PROBES[0] != high - _PROBES[1]:
        return None
    return low - _PROBES[0]


def _reached(ways: Dict[int, List[int]], start: Iterable[int]) -> Set[int]:
    """Returns all addresses that can be reached from some addresses, these included."""
    pending = list(start)
    reached = set(pending)
    while pending:
        for to in ways.get(pending.pop(), ()):
            if to not in reached:
                reached.add(to)
                pending.append(to)
    return reached
