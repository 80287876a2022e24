# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The x86 functions of one address space, each followed when a walk first passes through it."""

from __future__ import annotations

import re
from functools import partial
from typing import Callable, Dict, List, Optional

from ...memory.decode.memo import Memo
from ...memory.decode.memory import ReadMemory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from . import clues_x86
from .budget import MAX_FOLLOWED, FollowBudget
from .code_x86 import CodePages
from .effects_x86 import StackPlace
from .flow_x86 import NEAR, Flow
from .frames import LONGEST_CALL, direct_target, lengths
from .helpers_x86 import keeps_size, makes_room, set_up_depth, takes_down
from .instructions_x86 import instruction
from .registers import Registers32

MAX_KEPT = 1 << 16
"""Number of answers that are kept: many threads wait in the same places."""

MAX_PLACES = 1 << 17
"""Number of instructions of followed functions that are kept."""

_CANDIDATES, _BARE_CANDIDATES = 4, 12
"""Number of possible function starts before an address, and of jumps of a part, that are tried; number of
starts that are tried because another function ends before them."""

_MOST_OF_A_PART = 0x100
"""Instructions of a part that are searched for a jump back."""

_JUMPS = frozenset((*range(0x70, 0x80), *range(0x0F80, 0x0F90), 0xE9, 0xEB))
_ENDS = frozenset((0xC2, 0xC3, 0xCC))

_LONGEST_INSTRUCTION = 16
_CLEARING = 0x40
"""Bytes of code before a return address in which Ebp is set to 0 if the function's start is unknown."""
_MASK = 0xFFFFFFFF
_MOST_TAILS = 4
"""Number of tail-called functions that are examined for one function."""
_SET_UP_START = re.compile(rb"(?=((?:(?:\x6a.|\x68.{4})[\x68\xb8]|\xb8).{4}\xe8))", re.DOTALL)
"""Starts of functions whose frame a helper sets up: push size; push table; call, or push size; mov eax,
handler; call, or without a size."""


class _Candidate(NamedTuple):
    """A possible start of a function.

    Attributes:
        surely: whether it begins like a function that sets up a frame, behind the end of another
        bare: whether only a return or a jump before it suggests a start: its own returns must then prove it
    """

    start: int
    surely: bool
    bare: bool


class OwnFunction(NamedTuple):
    """The function that holds an instruction, found by the code before it, and the stack state there."""

    start: int
    place: StackPlace


class Functions:
    """Finds the changes that functions have made to the stack. `budget` is the image's; without one, the
    functions have a budget of their own."""

    def __init__(self, read: ReadMemory, budget: Optional[FollowBudget] = None) -> None:
        self._code = CodePages(read)
        self._flows: Dict[int, Flow] = {}
        self._places = 0
        self._popped: Memo[int, Optional[int]] = Memo(self._find_pops, MAX_KEPT)
        self._own: Memo[int, Optional[OwnFunction]] = Memo(self._find_own, MAX_KEPT)
        self._set_up: Memo[int, Optional[int]] = Memo(partial(set_up_depth, self._code), MAX_KEPT)
        self._taken_down: Memo[int, bool] = Memo(partial(takes_down, self._code), MAX_KEPT)
        self._room: Memo[int, bool] = Memo(partial(makes_room, self._code), MAX_KEPT)
        self._size_kept: Memo[int, bool] = Memo(partial(keeps_size, self._code), MAX_KEPT)
        self._budget = budget or FollowBudget(MAX_FOLLOWED << 10)

    def place(self, start: int, ip: int) -> Optional[StackPlace]:
        """Returns the stack state at an instruction of the function that starts at an address; None if no way
        from that start to the instruction was found."""
        return self.flow(start).places.get(ip)

    def entry_sp(self, registers: Registers32, start: int, popped: int) -> Optional[int]:
        """Returns the value of Esp at a function's first instruction, None if its code does not determine it.
        `popped` is how many bytes of arguments the last callee has popped, as far as is known."""
        ip, place = registers.ip, self.place(start, registers.ip)
        if registers.exact and place is not None and place.depth is not None:
            return registers.sp + place.depth
        # The callee may have popped its arguments, so the state before the call is taken: there they were
        # still on the stack.
        still = popped if registers.exact else 0
        for length in lengths(self.code(ip - LONGEST_CALL, LONGEST_CALL)):
            place = self.place(start, ip - length)
            if place is not None and place.depth is not None:
                return registers.sp - still + place.depth
        return None

    def flow(self, start: int) -> Flow:
        """Returns the function that starts at an address, followed; empty when the budget is used up."""
        flow = self._flows.get(start)
        if flow is None:
            if self._places >= MAX_PLACES:
                self._flows.clear()
                self._places = 0
            flow = self._flows[start] = self._follow(start, self.pops)
            self._places += len(flow.places) + 1
        return flow

    def starts(self, address: int) -> List[int]:
        """Returns the possible starts of functions that return to an address.

        These are the targets of the call before the address, and the functions that these tail-call.
        """
        targets = self.targets(address)
        return [*targets, *(tail for tail in self.tails(targets) if tail not in targets)]

    def tails(self, targets: List[int]) -> List[int]:
        """Returns the functions that some functions tail-call."""
        tails = dict.fromkeys(tail for start in targets for tail in self.flow(start).tails.values())
        return list(tails)[:_MOST_TAILS]

    def has_border(self, start: int, ip: int) -> bool:
        """Returns whether another function may lie between a function's start and an address behind it."""
        # The function's own entry does not count.
        inside = start + clues_x86.LONGEST_PATCHING + 1
        code = self.code(inside, max(ip - inside, 0))
        return clues_x86.has_border(code) or clues_x86.calls_into(code, inside, ip)

    def containing(self, ip: int) -> Optional[OwnFunction]:
        """Returns the function of an instruction if code shows where it starts.

        The start is found in the code before the instruction or, for a part that was moved away, in the code
        before the target of its jump back.
        """
        return self._own[ip]

    def clears_ebp(self, ip: int) -> bool:
        """Returns whether the code before a return address sets Ebp to 0, as where a thread begins.

        A function that pushes Ebp first has a caller, and uses the register for something else.
        """
        own = self.containing(ip)
        start = ip - _CLEARING if own is None else max(own.start, ip - PAGE_SIZE)
        code = self.code(start, max(ip - start, 0))
        cleared = [match.end() for match in clues_x86.CLEAR_EBP.finditer(code)]
        if not cleared or clues_x86.saves_ebp(code[: cleared[-1]]):
            return False
        return own is not None or not clues_x86.has_border(code[cleared[-1] :])

    def calls(self, address: int) -> List[int]:
        """Returns the possible addresses of the call before a return address."""
        addresses = []
        for length in lengths(self.code(address - LONGEST_CALL, LONGEST_CALL)):
            code, offset = self._code.window(address - length)
            call = instruction(code, offset)
            if call is not None and call.end - offset == length:
                addresses.append(address - length)
        return addresses

    def behind_set_up(self, address: int) -> bool:
        """Returns whether an address is behind the call that sets up the frame, where there is a frame."""
        return any(self._sets_up(target) is not None for target in self.targets(address))

    def pops(self, start: int) -> Optional[int]:
        """Returns the bytes of arguments that a function pops, None if unknown."""
        return self._popped[start]

    def targets(self, address: int) -> List[int]:
        """Returns the target of the call before a return address, and the target of a jump there."""
        before = self.code(address - LONGEST_CALL, LONGEST_CALL)
        target = direct_target(before, address)
        if target is None and before[1:3] == b"\xff\x15":
            target = self._code.pointer(int.from_bytes(before[3:], "little"))
        if target is None:
            return []
        jump_target = self._led(target & _MASK)
        return [target & _MASK] if jump_target is None else [target & _MASK, jump_target]

    def code(self, address: int, length: int) -> bytes:
        """Returns `length` bytes of code; the bytes up to the page border if not all can be read, or none."""
        return self._code.ahead(address, length)

    def _find_own(self, ip: int) -> Optional[OwnFunction]:
        returned_to = bool(self.calls(ip))
        own: Optional[OwnFunction] = None
        for start, surely, bare in self._candidates(ip):
            if own is not None and (bare or not self._covers(start, own.start)):
                continue
            place = self.place(start, ip)
            # Calls do not return to the start of a function: a call before it is one that never returns.
            if place is None or (start == ip and returned_to):
                continue
            even = self.flow(start).proves(ip, bare)
            if even or (even is None and surely and not self.has_border(start, ip)):
                own = OwnFunction(start, place)
                if surely:
                    break
        if own is not None:
            return own
        for back in self._jumps(ip):
            for start, _, bare in self._candidates(back):
                place = self.place(start, ip)
                if place is not None and self.flow(start).proves(ip, bare):
                    return OwnFunction(start, place)
        return None

    def _covers(self, start: int, inside: int) -> bool:
        """Returns whether the function that starts at an address has an instruction at or across another
        address: then that is no start of a function, but lies within this one."""
        places = self.flow(start).places
        if inside in places:
            return True
        for address in range(inside - 1, inside - _LONGEST_INSTRUCTION, -1):
            if address in places:
                code, offset = self._code.window(address)
                found = instruction(code, offset)
                return found is not None and address - offset + found.end > inside
        return False

    def _candidates(self, ip: int) -> List[_Candidate]:
        """Returns the possible starts of an instruction's function, the nearest first."""
        before = self._code.before(ip, PAGE_SIZE)
        low = ip - len(before)
        code = before + self.code(ip, clues_x86.LONGEST)
        starts = dict.fromkeys(clues_x86.bare_starts(code, low), False)
        starts.update(clues_x86.find_starts(code))
        for match in _SET_UP_START.finditer(code):
            behind = match.end(1) + 4
            if behind <= len(code) and clues_x86.ends(code[: match.start()]):
                distance = int.from_bytes(code[match.end(1) : behind], "little")
                if self._sets_up(low + behind + distance) is not None:
                    starts[match.start()] = True
        nearest = sorted((offset for offset in starts if offset <= len(before)), reverse=True)[:_CANDIDATES]
        bare = [
            offset for offset in clues_x86.ends_before(code) if offset not in starts and offset <= len(before)
        ]
        candidates = [_Candidate(low + offset, starts[offset], False) for offset in nearest]
        candidates += [_Candidate(low + offset, False, True) for offset in bare[::-1][:_BARE_CANDIDATES]]
        return sorted(candidates, reverse=True)

    def _jumps(self, ip: int) -> List[int]:
        """Returns the targets of the jumps from an instruction on, up to the first unconditional jump."""
        targets: List[int] = []
        for _ in range(_MOST_OF_A_PART):
            code, offset = self._code.window(ip)
            decoded = instruction(code, offset)
            if decoded is None or decoded.opcode in _ENDS:
                break
            if decoded.opcode in _JUMPS:
                behind = ip - offset + decoded.end
                target = (
                    behind + int.from_bytes(code[decoded.operand : decoded.end], "little", signed=True)
                    & _MASK
                )
                if not 0 <= target - ip < NEAR:
                    targets.append(target)
                if decoded.opcode in (0xE9, 0xEB):
                    break
            ip += decoded.end - offset
        return list(dict.fromkeys(targets[::-1]))[:_CANDIDATES]

    def _find_pops(self, start: int) -> Optional[int]:
        jump_target = self._led(start)
        function = start if jump_target is None else jump_target
        for _ in range(_MOST_TAILS):
            flow = self._follow(function, _unknown, False)
            popped, tails = set(flow.returns.values()), set(flow.tails.values())
            if popped or len(tails) != 1:
                return popped.pop() if len(popped) == 1 else None
            # All that the function does ends with one jump, as in what forwards to another module.
            function = tails.pop()
        return None

    def _follow(self, start: int, pops: Callable[[int], Optional[int]], evens_out: bool = True) -> Flow:
        helpers = self._sets_up, self._takes_down, self._makes_room, self._keeps_size
        flow = Flow(self._code, start, pops, *helpers, self._budget.left, evens_out)
        self._budget.left -= flow.count
        return flow

    def _sets_up(self, target: int) -> Optional[int]:
        return self._set_up[target & _MASK]

    def _takes_down(self, target: int) -> bool:
        return self._taken_down[target & _MASK]

    def _makes_room(self, target: int) -> bool:
        return self._room[target & _MASK]

    def _keeps_size(self, target: int) -> bool:
        return self._size_kept[target & _MASK]

    def _led(self, target: int) -> Optional[int]:
        """Returns the target of a function that is only a jump, None for any other function."""
        jump = self.code(target, 6)
        if jump[:1] == b"\xe9" and len(jump) >= 5:
            return target + 5 + int.from_bytes(jump[1:5], "little") & _MASK
        return self._code.pointer(int.from_bytes(jump[2:], "little")) if jump[:2] == b"\xff\x25" else None


def _unknown(_start: int) -> Optional[int]:
    return None
