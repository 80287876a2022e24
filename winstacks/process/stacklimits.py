# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Restores the borders of a thread's kernel stack if one of them contradicts the others.

StackBase, StackLimit, InitialStack and KernelStack of a `_KTHREAD` describe one stack, with an unmapped page
at each end. So one wrong value among them, or two, can be recognised and replaced.
"""

from __future__ import annotations

import functools
import itertools
from typing import Dict, List, Optional, Tuple

from ..memory import bulk
from ..memory.decode.memo import Memo
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.image import Image
from .cidtable import CidTable
from .kernelobjects import thread_type
from .thread import has_ended

MAX_STACK = 1 << 18
"""Bytes: the largest kernel stacks of Windows have 0x24000 (x64, after expansion)."""

FEW_THREADS = 64
"""Threads that are read for the distance of InitialStack below StackBase, which is the same for all
threads."""


Values = Dict[str, Optional[int]]
"""Members of a thread: stack_base, stack_limit, initial_stack and kernel_stack among them."""
Borders = Tuple[Optional[int], Optional[int]]
"""StackBase and StackLimit of a thread."""


class StackLimits:
    """Checks and restores the borders of kernel stacks."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._layer = image.layer
        self._start = image.machine.kernel_start
        self._machine = image.machine
        self._memory = image.memory(image.kernel)
        thread = thread_type(image)
        self._borders = [thread.first_member(f"Tcb.{name}") for name in ("StackBase", "StackLimit")]
        self._initial = thread.first_member("Tcb.InitialStack")
        self._states = [thread.first_member(f"Tcb.{name}") for name in ("State", "Header.SignalState")]
        self._claimants: Memo[Borders, List[int]] = Memo(self._live_claimants)

    def of_another(self, ethread: int, values: Values) -> bool:
        """Returns whether another live thread of PspCidTable has the same StackBase and StackLimit, and its
        InitialStack between them: borders written to one thread make no other one doubtful.

        Windows gives the stack of a thread that has ended to a new one: of the first the image may have an
        earlier state.
        """
        borders = values["stack_base"], values["stack_limit"]
        return any(other != ethread for other in self._claimants[borders])

    def _live_claimants(self, borders: Borders) -> List[int]:
        """Returns at most two live threads with these borders: enough to find one beside a given thread."""
        live = (ethread for ethread in self._claims.get(borders, ()) if self._is_live(ethread))
        return list(itertools.islice(live, 2))

    def _is_live(self, ethread: int) -> bool:
        state, signalled = (self._memory.member(ethread, field) for field in self._states)
        return state is not None and not has_ended(state, signalled)

    @functools.cached_property
    def _claims(self) -> Dict[Borders, List[int]]:
        """The threads of PspCidTable by the borders of their stacks."""
        claims: Dict[Borders, List[int]] = {}
        for ethread in self._image.service(CidTable).threads:
            base, limit = (self._memory.member(ethread, field) for field in self._borders)
            initial = self._memory.member(ethread, self._initial)
            if base and limit and initial and limit < initial <= base:
                claims.setdefault((base, limit), []).append(ethread)
        return claims

    def restore(self, values: Values) -> List[str]:
        """Replaces the borders that contradict the others. Returns the wrong members, by their names in
        `_KTHREAD`. Empty if all agree, if one is not in the image, or if too few are left to decide which is
        wrong."""
        base, limit, initial, stack = (
            values[name] for name in ("stack_base", "stack_limit", "initial_stack", "kernel_stack")
        )
        if base is None or limit is None or initial is None or stack is None:
            return []
        if self._is_stack(limit, base) and limit < initial <= base:
            return []
        if not any((base, limit, initial, stack)):
            return []  # the stack of a thread that has ended
        wrong = []
        if not self._is_stack(limit, base):
            inside = [address for address in (initial, stack) if self._mapped(address - 1)]
            if self._mapped(limit) and any(0 < address - limit <= MAX_STACK for address in inside):
                base, wrong = self._end(limit), ["StackBase"]
            elif self._mapped(base - 1) and any(0 <= base - address <= MAX_STACK for address in inside):
                limit, wrong = self._beginning(base), ["StackLimit"]
            elif inside:
                limit, base = self._beginning(inside[0]), self._end(inside[0] - 1)
                wrong = ["StackBase", "StackLimit"]
            else:
                return []
        if not limit < initial <= base:
            initial = base - self._control()
            wrong.append("InitialStack")
        values.update(stack_base=base, stack_limit=limit, initial_stack=initial)
        return wrong

    def _control(self) -> int:
        """Returns the most frequent number of bytes between StackBase and InitialStack."""
        counts: Dict[int, int] = {0: 0}
        for ethread in list(self._image.service(CidTable).threads)[:FEW_THREADS]:
            base, initial = (
                self._memory.member(ethread, field) for field in (self._borders[0], self._initial)
            )
            if base and initial and 0 <= base - initial < PAGE_SIZE:
                counts[base - initial] = counts.get(base - initial, 0) + 1
        return max(counts, key=lambda distance: counts[distance])

    def _is_stack(self, limit: int, base: int) -> bool:
        return self._start <= limit < base <= limit + MAX_STACK

    def _mapped(self, address: int) -> bool:
        valid = self._start <= address and self._machine.is_canonical(address)
        return valid and bool(self._layer.is_valid(bulk.masked(self._layer, address)))

    def _end(self, address: int) -> int:
        """Returns the first unmapped address above an address."""
        end = address // PAGE_SIZE * PAGE_SIZE
        while self._mapped(end) and end - address < MAX_STACK:
            end += PAGE_SIZE
        return end

    def _beginning(self, address: int) -> int:
        """Returns the start of the mapped pages below an address."""
        start = (address + PAGE_SIZE - 1) // PAGE_SIZE * PAGE_SIZE
        while self._mapped(start - PAGE_SIZE) and address - start < MAX_STACK:
            start -= PAGE_SIZE
        return start
