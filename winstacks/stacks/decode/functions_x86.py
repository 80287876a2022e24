# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The x86 functions of one address space, each followed when a walk first comes through it."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Optional, Tuple, TypeVar

from ...memory.decode.pagetable import PAGE_SIZE
from . import clues_x86
from .flow_x86 import MAX_CODE, SEH_PROLOG, Flow, StackPlace
from .frames import LONGEST_CALL, Read, direct_target

MAX_FOLLOWED = 5_000_000
"""Instructions that are followed in one address space, in all."""

MAX_KEPT = 1 << 16
"""Answers that are kept: many threads wait in the same places."""

_BEHIND = 0x800
"""Bytes of code behind an address that a way to it may lead through."""

K = TypeVar("K")
V = TypeVar("V")

_CANDIDATES = 4
"""Starts of functions before an address that are tried."""

_MASK = 0xFFFFFFFF
_PROLOG_BYTES = 0x30
_SEH_START = re.compile(rb"(?:\x6a.|\x68.{4})\x68.{4}\xe8", re.DOTALL)


class Functions:
    """Tells what functions have done to the stack.

    Args:
        read: reads memory
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._places: Dict[Tuple[int, int], Optional[StackPlace]] = {}
        self._popped: Dict[int, Optional[int]] = {}
        self._own: Dict[int, Optional[StackPlace]] = {}
        self._left = MAX_FOLLOWED

    def place(self, start: int, ip: int) -> Optional[StackPlace]:
        """Returns what is known at an instruction of the function that starts at an address.

        Returns:
            None if no way from that start to the instruction was found.
        """
        return _kept(self._places, (start, ip), lambda: self._flow(start, ip, self.pops).places.get(ip))

    def own(self, ip: int) -> Optional[StackPlace]:
        """Returns what is known at an instruction if the code before it shows where its function starts."""
        return _kept(self._own, ip, lambda: self._find_own(ip))

    def behind_set_up(self, address: int) -> bool:
        """Tells whether an address is behind the call that sets up the frame, which is not there before."""
        return any(self._sets_up(target) for target in self.targets(address))

    def pops(self, start: int) -> Optional[int]:
        """Returns how many bytes of arguments a function pops, None if that is not known."""
        return _kept(self._popped, start, lambda: self._find_pops(start))

    def targets(self, address: int) -> List[int]:
        """Returns where the call before a return address goes, and where a jump there leads on to."""
        before = self.code(address - LONGEST_CALL, LONGEST_CALL)
        target = direct_target(before, address)
        if target is None and before[1:3] == b"\xff\x15":
            target = self._pointer(int.from_bytes(before[3:], "little"))
        if target is None:
            return []
        led = self._led(target & _MASK)
        return [target & _MASK] if led is None else [target & _MASK, led]

    def code(self, address: int, length: int) -> bytes:
        """Returns bytes of code: as many as wanted, or those up to a page border, or none."""
        for wanted in (length, min(length, PAGE_SIZE - address % PAGE_SIZE)):
            data = self._read(address & _MASK, wanted)
            if data is not None:
                return bytes(data)
        return b""

    def before(self, address: int, length: int) -> bytes:
        """Returns bytes of code before an address: as many as wanted, or those of its page."""
        for wanted in (min(length, address), min(length, address % PAGE_SIZE)):
            data = self._read(address - wanted, wanted) if wanted else None
            if data is not None:
                return bytes(data)
        return b""

    def _find_own(self, ip: int) -> Optional[StackPlace]:
        before = self.before(ip, PAGE_SIZE)
        low = ip - len(before)
        starts = list(clues_x86.starts(before))
        for found in _SEH_START.finditer(before):
            if found.end() + 4 <= len(before) and clues_x86.ends(before[: found.start()]):
                operand = before[found.end() : found.end() + 4]
                if self._sets_up(low + found.end() + 4 + int.from_bytes(operand, "little")):
                    starts.append(found.start())
        for at in sorted(starts, reverse=True)[:_CANDIDATES]:
            place = self.place(low + at, ip)
            if place is not None:
                return place
        return None

    def _find_pops(self, start: int) -> Optional[int]:
        led = self._led(start)
        start = start if led is None else led
        returns = self._flow(start, start, _unknown).returns
        return returns[0] if returns and len(set(returns)) == 1 else None

    def _flow(self, start: int, ip: int, pops: Callable[[int], Optional[int]]) -> Flow:
        length = min(max(ip - start, 0) + _BEHIND, MAX_CODE) if self._left > 0 else 0
        code = b""
        while len(code) < length:
            wanted = min(length - len(code), PAGE_SIZE - (start + len(code)) % PAGE_SIZE)
            data = self._read(start + len(code) & _MASK, wanted)
            if data is None:
                break
            code += data
        flow = Flow(code, start, self._pointer, pops, self._sets_up)
        self._left -= flow.count
        return flow

    def _sets_up(self, target: int) -> bool:
        return SEH_PROLOG.search(self.code(target & _MASK, _PROLOG_BYTES)) is not None

    def _led(self, target: int) -> Optional[int]:
        """Returns where a jump that a function consists of leads to, None if it is none."""
        jump = self.code(target, 6)
        if jump[:1] == b"\xe9" and len(jump) >= 5:
            return target + 5 + int.from_bytes(jump[1:5], "little") & _MASK
        return self._pointer(int.from_bytes(jump[2:], "little")) if jump[:2] == b"\xff\x25" else None

    def _pointer(self, address: int) -> Optional[int]:
        data = self._read(address, 4)
        return None if data is None else int.from_bytes(data, "little")


def _unknown(_start: int) -> Optional[int]:
    return None


def _kept(memo: Dict[K, V], key: K, find: Callable[[], V]) -> V:
    if key not in memo:
        if len(memo) >= MAX_KEPT:
            memo.clear()
        memo[key] = find()
    return memo[key]
