# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The choice among the values on a stack that may be return addresses.

Old calls leave return addresses in unused parts of frames, so the first value that a scan finds is often
none that is in use. A walk from each value shows more: from a return address in use, unwind data leads to the
function in which the thread began. The innermost value from which a walk gets there is taken, if need be with
further scans between. If there is none, the innermost value that no walk contradicts is taken.
"""

from __future__ import annotations

import bisect
from typing import Dict, Generic, List, Optional, Protocol, Tuple

from ...memory.decode.machine import KERNEL_HALF
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.statuscodes import StatusCode
from .budget import WalkBudget
from .frames import MAX_SCANNED, Frame, ReturnCandidate, StackRanges, UnwindError
from .walkstep import R, WalkStep

MAX_AHEAD = 4 * MAX_SCANNED
"""Bytes of stack that one walk reads in total for candidates: also those above the one that it takes."""

MAX_CANDIDATES = 512
"""Candidates of one walk; higher ones are not looked at."""

MAX_TRIED = 1 << 15
"""Frames that the walks from the candidates of one walk take in total."""

REACHED, STUCK, WRONG = "reached", "stuck", "wrong"
"""Ends of a walk from a candidate: in a function where threads begin; where unwind data leads no further;
at a contradiction."""

_LEADS_ON = (None, StatusCode.CODE_UNREADABLE, StatusCode.CODE_AND_UNWIND_DATA_DIFFER)
"""Doubts of a step whose caller may be right all the same: where few bytes of a function were changed, it
calls and returns as before."""

_NOWHERE = 1 << 64
"""A stack pointer above all stacks."""


class Stepping(Protocol[R]):
    """The parts of a walker that a scan needs; `walk` has their meaning."""

    slot_size: int
    budget: WalkBudget

    def is_first(self, address: int) -> bool: ...

    def is_absent(self, slot: int, value: int) -> bool: ...

    def leads_to_stack(self, registers: R) -> bool: ...

    def read_slots(self, address: int, count: int) -> Optional[Tuple[int, ...]]: ...

    def take_slot(self, slot: int, value: int) -> Optional[WalkStep[R]]: ...

    def follow(self, registers: R, frames: List[Frame], sure: bool) -> Optional[R]: ...

    def step(self, registers: R, interrupted: bool) -> WalkStep[R]: ...


class _Slot(Generic[R]):
    """A candidate; `step` is None if its code is not in the image."""

    # A named tuple of an open type is refused before Python 3.11.
    __slots__ = ("step", "value")

    def __init__(self, value: int, step: Optional[WalkStep[R]]) -> None:
        self.value = value
        self.step: Optional[WalkStep[R]] = step


class Scan(Generic[R]):
    """The scans of one walk. `unreadable` says whether a scan met a part of the stack that is not in the
    image."""

    def __init__(self, walker: Stepping[R], stacks: StackRanges) -> None:
        self._walker: Stepping[R] = walker
        self._stacks = stacks
        self._places: List[int] = []
        """Addresses of the candidates, ascending."""
        self._found: Dict[int, _Slot[R]] = {}
        self._seen: Dict[int, Tuple[int, int]] = {}
        """For each upper end of a stack: the part below it that was read."""
        self._left, self._left_ahead, self._tries = MAX_SCANNED, MAX_AHEAD, MAX_TRIED
        self._ends: Dict[int, Tuple[str, int]] = {}
        self._gaps: List[Tuple[int, int]] = []
        self.unreadable = False

    def find(self, sp: int) -> Optional[WalkStep[R]]:
        """Returns the step to the best candidate above a stack pointer, None if there is none."""
        places = self._above(sp)
        number = self._choose(places)
        if number is None:
            self._gaps.append((sp, places[-1] + 1 if places else sp))
            return None
        chosen = places[number]
        self._gaps.append((sp, chosen))
        self._left -= chosen - sp
        return self._found[chosen].step

    def candidates(self) -> Tuple[ReturnCandidate, ...]:
        """Returns the values that the scans passed over, and those behind the last one that found nothing."""
        passed = (place for place in self._places if any(low <= place < high for low, high in self._gaps))
        return tuple(
            ReturnCandidate(self._found[place].value, place, self._found[place].step is None)
            for place in passed
        )

    def _choose(self, places: List[int]) -> Optional[int]:
        """Returns the index of the candidate to take, None if none is good enough."""
        highest = -1
        """The outermost candidate from which a walk reaches its end."""
        reaching: Optional[int] = None
        plausible: Optional[int] = None
        first: Optional[int] = None
        for number in range(len(places) - 1, -1, -1):
            step = self._found[places[number]].step
            if step is None:
                continue
            first = number
            end, sp = self._end_of(places[number], step)
            if end == REACHED or (end == STUCK and sp <= highest):
                highest = max(highest, places[number])
                reaching = number
            if end != WRONG:
                plausible = number
        if reaching is not None:
            return reaching
        taken = first if plausible is None else plausible
        # A dump of a process has code around registers only: where the code of earlier values is absent, the
        # value whose code happens to be there is no better. A small kernel dump has memory to which its stack
        # points.
        earlier = places[:taken]
        absent = any(self._found[place].step is None and not place & KERNEL_HALF for place in earlier)
        return None if absent else taken

    def _end_of(self, slot: int, step: WalkStep[R]) -> Tuple[str, int]:
        """Returns how a walk from a candidate ends, and its last stack pointer."""
        if slot not in self._ends:
            frames = [Frame(step.registers.ip, step.registers.sp, "", False)]
            self._ends[slot] = self._walk(step, frames) if self._tries > 0 else (STUCK, step.registers.sp)
            self._tries -= len(frames)
        return self._ends[slot]

    def _walk(self, taken: WalkStep[R], frames: List[Frame]) -> Tuple[str, int]:
        """Walks from a candidate without scans; `frames` receives the frames."""
        walker = self._walker
        while len(frames) < self._tries:
            registers = taken.registers
            looked_up = registers.ip - (not taken.interrupted)
            if taken.border is not None or taken.trap or walker.is_first(looked_up):
                return REACHED, registers.sp
            if not taken.interrupted:
                last = walker.follow(registers, frames, False)
                if walker.is_first(frames[-1].address - 1):
                    return REACHED, frames[-1].sp
                if last is None:
                    break
                registers = last
            try:
                taken = walker.step(registers, taken.interrupted)
            except UnwindError as error:
                return (WRONG if error.code is StatusCode.RETURNS_NOWHERE else STUCK), registers.sp
            sp = taken.registers.sp
            if taken.border is None and not taken.registers.ip:
                break
            if taken.doubt not in _LEADS_ON:
                return WRONG, sp
            if taken.border is None and not self._stacks.joins(registers.sp, sp):
                elsewhere = taken.doubt is None and walker.leads_to_stack(taken.registers)
                return (STUCK if elsewhere else WRONG), registers.sp
            if taken.border is None and sp <= registers.sp:
                return WRONG, sp
            frames.append(Frame(taken.registers.ip, sp, "", False))
            if self._ends.get(sp - walker.slot_size, ("", 0))[0] == REACHED:
                return REACHED, sp
        # Whatever lies above, this walk does not lead there.
        return STUCK, _NOWHERE

    def _above(self, sp: int) -> List[int]:
        """Returns the places of candidates above a stack pointer, as far as the scan may go."""
        limit, size = self._stacks.limit(sp), self._walker.slot_size
        start = sp + -sp % size
        if limit is None or self._left <= 0:
            return []
        end = min(limit - limit % size, start + self._left)
        low, high = self._seen.get(limit, (start, start))
        if not low <= start <= high:
            low, high = start, start
        self._seen[limit] = low, self._read(high, end)
        return self._places[bisect.bisect_left(self._places, start) : bisect.bisect_left(self._places, end)]

    def _read(self, start: int, end: int) -> int:
        """Reads the slots of a part of the stack; returns the address up to which they were read."""
        walker, size = self._walker, self._walker.slot_size
        slot = start
        while slot < end and self._may_read and len(self._found) < MAX_CANDIDATES:
            count = min(end - slot, PAGE_SIZE - slot % PAGE_SIZE) // size
            values = walker.read_slots(slot, count)
            if values is None:
                values = walker.read_slots(slot, 1)
            if values is None:
                self.unreadable = True
                return slot
            for value in values:
                step = walker.take_slot(slot, value)
                if step is not None or walker.is_absent(slot, value):
                    bisect.insort(self._places, slot)
                    self._found[slot] = _Slot(value, step)
                slot += size
                if step is not None and step.trap:
                    return slot
            self._left_ahead -= len(values) * size
            walker.budget.scanned -= len(values) * size
        return slot

    @property
    def _may_read(self) -> bool:
        return self._left_ahead > 0 and self._walker.budget.scanned > 0
