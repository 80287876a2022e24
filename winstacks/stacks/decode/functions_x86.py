# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The x86 functions of one address space, each followed when a walk first comes through it."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, NamedTuple, Optional, TypeVar

from ...memory.decode.pagetable import PAGE_SIZE
from . import clues_x86
from .code_x86 import CodePages
from .effects_x86 import OTHER, StackPlace
from .flow_x86 import NEAR, Flow
from .frames import LONGEST_CALL, Read, direct_target, lengths
from .helpers_x86 import set_up_depth, takes_down
from .instructions_x86 import instruction

MAX_FOLLOWED = 5_000_000
"""Instructions that are followed in one address space, in all."""

MAX_KEPT = 1 << 16
"""Answers that are kept: many threads wait in the same places."""

MAX_PLACES = 1 << 17
"""Instructions of followed functions that are kept."""

K = TypeVar("K")
V = TypeVar("V")

_CANDIDATES, _BARE_CANDIDATES = 4, 12
"""Starts of functions before an address that are tried, and jumps of a part; such starts as only the end of
another function shows."""

_MOST_OF_A_PART = 0x100
"""Instructions of a part that are looked at for a jump back."""

_JUMPS = frozenset((*range(0x70, 0x80), *range(0x0F80, 0x0F90), 0xE9, 0xEB))
_ENDS = frozenset((0xC2, 0xC3, 0xCC))

_MASK = 0xFFFFFFFF
_MOST_TAILS = 4
"""Functions that one may go on in which are looked at."""
_SET_UP_START = re.compile(rb"(?=((?:(?:\x6a.|\x68.{4})[\x68\xb8]|\xb8).{4}\xe8))", re.DOTALL)
"""How functions begin whose frame is set up by a helper: push size; push table; call, or push size;
mov eax, handler; call, or without a size."""


class _Candidate(NamedTuple):
    """Where a function may start.

    Attributes:
        start: the address
        surely: it begins as functions do that set up a frame, behind the end of another
        bare: only a return or a jump before it says so: its own returns have to prove it
    """

    start: int
    surely: bool
    bare: bool


class Own(NamedTuple):
    """The function that an instruction is in, by the code before it, and what is known there."""

    start: int
    place: StackPlace


class Functions:
    """Tells what functions have done to the stack.

    Args:
        read: reads memory
    """

    def __init__(self, read: Read) -> None:
        self._code = CodePages(read)
        self._flows: Dict[int, Flow] = {}
        self._places = 0
        self._popped: Dict[int, Optional[int]] = {}
        self._own: Dict[int, Optional[Own]] = {}
        self._set_up: Dict[int, Optional[int]] = {}
        self._taken_down: Dict[int, bool] = {}
        self._left = MAX_FOLLOWED

    def place(self, start: int, ip: int) -> Optional[StackPlace]:
        """Returns what is known at an instruction of the function that starts at an address.

        Returns:
            None if no way from that start to the instruction was found.
        """
        return self.flow(start).places.get(ip)

    def flow(self, start: int) -> Flow:
        """Returns the function that starts at an address, followed: nothing of it once too much was."""
        flow = self._flows.get(start)
        if flow is None:
            if self._places >= MAX_PLACES:
                self._flows.clear()
                self._places = 0
            flow = self._flows[start] = self._follow(start, self.pops)
            self._places += len(flow.places) + 1
        return flow

    def starts(self, address: int) -> List[int]:
        """Returns where functions may start that return to an address.

        These are the targets of the call before it, and the functions that these go on in.
        """
        targets = self.targets(address)
        return [*targets, *(tail for tail in self.tails(targets) if tail not in targets)]

    def tails(self, targets: List[int]) -> List[int]:
        """Returns where functions go on in others."""
        tails = dict.fromkeys(tail for start in targets for tail in self.flow(start).tails.values())
        return list(tails)[:_MOST_TAILS]

    def has_border(self, start: int, ip: int) -> bool:
        """Returns whether another function may lie between a function's start and an address behind it."""
        # Its own entry is no border.
        inside = start + clues_x86.LONGEST_PATCHING + 1
        code = self.code(inside, max(ip - inside, 0))
        return clues_x86.has_border(code) or clues_x86.calls_into(code, inside, ip)

    def own(self, ip: int) -> Optional[Own]:
        """Returns the function of an instruction if code shows where it starts.

        That is the code before it, or (of a part that was moved away) before where it jumps back to.
        """
        return _kept(self._own, ip, lambda: self._find_own(ip))

    def changes_ebp(self, ip: int) -> bool:
        """Returns whether a function has put something else into Ebp, but 0: that is how a thread begins."""
        own = self.own(ip)
        if own is None or own.place.ebp != OTHER:
            return False
        return clues_x86.CLEAR_EBP.search(self.code(own.start, max(ip - own.start, 0))) is None

    def calls(self, address: int) -> List[int]:
        """Returns where the call before a return address may begin."""
        found = []
        for length in lengths(self.code(address - LONGEST_CALL, LONGEST_CALL)):
            code, at = self._code.window(address - length)
            call = instruction(code, at)
            if call is not None and call.end - at == length:
                found.append(address - length)
        return found

    def behind_set_up(self, address: int) -> bool:
        """Returns whether an address is behind the call that sets up the frame, which is not there before."""
        return any(self._sets_up(target) is not None for target in self.targets(address))

    def pops(self, start: int) -> Optional[int]:
        """Returns how many bytes of arguments a function pops, None if that is not known."""
        return _kept(self._popped, start, lambda: self._find_pops(start))

    def targets(self, address: int) -> List[int]:
        """Returns where the call before a return address goes, and where a jump there leads on to."""
        before = self.code(address - LONGEST_CALL, LONGEST_CALL)
        target = direct_target(before, address)
        if target is None and before[1:3] == b"\xff\x15":
            target = self._code.pointer(int.from_bytes(before[3:], "little"))
        if target is None:
            return []
        led = self._led(target & _MASK)
        return [target & _MASK] if led is None else [target & _MASK, led]

    def code(self, address: int, length: int) -> bytes:
        """Returns bytes of code: as many as wanted, or those up to a page border, or none."""
        return self._code.ahead(address, length)

    def _find_own(self, ip: int) -> Optional[Own]:
        returned_to = bool(self.calls(ip))
        for start, surely, bare in self._candidates(ip):
            place = self.place(start, ip)
            # No call returns to where a function starts: what is called there never returns.
            if place is None or (start == ip and returned_to):
                continue
            even = self.flow(start).proves(ip, bare)
            if even or (even is None and surely and not self.has_border(start, ip)):
                return Own(start, place)
        for back in self._jumps(ip):
            for start, _, bare in self._candidates(back):
                place = self.place(start, ip)
                if place is not None and self.flow(start).proves(ip, bare):
                    return Own(start, place)
        return None

    def _candidates(self, ip: int) -> List[_Candidate]:
        """Returns where the function of an instruction may start, the nearest first."""
        before = self._code.before(ip, PAGE_SIZE)
        low = ip - len(before)
        code = before + self.code(ip, clues_x86.LONGEST)
        starts = dict.fromkeys(clues_x86.bare_starts(code, low), False)
        starts.update(clues_x86.starts(code))
        for found in _SET_UP_START.finditer(code):
            behind = found.end(1) + 4
            if behind <= len(code) and clues_x86.ends(code[: found.start()]):
                distance = int.from_bytes(code[found.end(1) : behind], "little")
                if self._sets_up(low + behind + distance) is not None:
                    starts[found.start()] = True
        nearest = sorted((at for at in starts if at <= len(before)), reverse=True)[:_CANDIDATES]
        bare = [at for at in clues_x86.ends_before(code) if at not in starts and at <= len(before)]
        candidates = [_Candidate(low + at, starts[at], False) for at in nearest]
        candidates += [_Candidate(low + at, False, True) for at in bare[::-1][:_BARE_CANDIDATES]]
        return sorted(candidates, reverse=True)

    def _jumps(self, ip: int) -> List[int]:
        """Returns where the code at an instruction jumps to, up to the first jump that is always taken."""
        targets: List[int] = []
        for _ in range(_MOST_OF_A_PART):
            code, at = self._code.window(ip)
            found = instruction(code, at)
            if found is None or found.opcode in _ENDS:
                break
            if found.opcode in _JUMPS:
                behind = ip - at + found.end
                target = (
                    behind + int.from_bytes(code[found.operand : found.end], "little", signed=True) & _MASK
                )
                if not 0 <= target - ip < NEAR:
                    targets.append(target)
                if found.opcode in (0xE9, 0xEB):
                    break
            ip += found.end - at
        return list(dict.fromkeys(targets[::-1]))[:_CANDIDATES]

    def _find_pops(self, start: int) -> Optional[int]:
        led = self._led(start)
        popped = set(self._follow(start if led is None else led, _unknown, False).returns.values())
        return popped.pop() if len(popped) == 1 else None

    def _follow(self, start: int, pops: Callable[[int], Optional[int]], evens_out: bool = True) -> Flow:
        flow = Flow(self._code, start, pops, self._sets_up, self._takes_down, self._left, evens_out)
        self._left -= flow.count
        return flow

    def _sets_up(self, target: int) -> Optional[int]:
        return _kept(self._set_up, target & _MASK, lambda: set_up_depth(self._code, target & _MASK))

    def _takes_down(self, target: int) -> bool:
        return _kept(self._taken_down, target & _MASK, lambda: takes_down(self._code, target & _MASK))

    def _led(self, target: int) -> Optional[int]:
        """Returns where a jump that a function consists of leads to, None if it is none."""
        jump = self.code(target, 6)
        if jump[:1] == b"\xe9" and len(jump) >= 5:
            return target + 5 + int.from_bytes(jump[1:5], "little") & _MASK
        return self._code.pointer(int.from_bytes(jump[2:], "little")) if jump[:2] == b"\xff\x25" else None


def _unknown(_start: int) -> Optional[int]:
    return None


def _kept(memo: Dict[K, V], key: K, find: Callable[[], V]) -> V:
    if key not in memo:
        if len(memo) >= MAX_KEPT:
            memo.clear()
        memo[key] = find()
    return memo[key]
