# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stubs of system calls (x64): the number that a stub calls, and the patched stubs of a process.

A stub loads the number into Eax and enters the kernel by `syscall`; since Windows 10 it may use `int 2Eh`
instead. The stubs of ntdll and win32u lie in the order of their numbers. Sandboxes write a jump over a stub,
and store a copy of the stub in private memory, which their own code calls (described: Chromium's sandbox,
"service resolver").
"""

from __future__ import annotations

import functools
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ...memory.decode.machine import Machine
from ...memory.decode.ranges import span_at
from ...memory.decode.records import NamedTuple
from ...memory.image import AddressSpace
from ...names.decode.pe import MEM_WRITE
from ...names.symbolizer import KnownModule
from ...stacks.decode.frames import ENTERING
from ..facts import CheckFacts
from .jumps import hops

LONGEST = 0x17
"""Length of a stub up to the end of its int 2Eh."""

_LOAD = b"\x4c\x8b\xd1\xb8"
"""mov r10, rcx; mov eax, imm32."""
LOADED = len(_LOAD) + 4
_DISTANCES = (0x0A, 0x14, LONGEST)
"""Distances from the start of a stub to its return address: Windows 7 to 8.1, and 10 by syscall and by int
2Eh."""

_MODULES = ("ntdll", "win32u")
_PREFIX = "Zw", "Nt"
_MOST_STUBS = 1 << 13
_MOST_DATA = 1 << 22
"""The most bytes of a module's data that are searched."""
MOST_SEARCHES = 64
"""The most searches in a process: a sandbox stores some twenty copies."""
_SIZE = 0x20


def number_before(code: bytes) -> Optional[int]:
    """Returns the number that a stub calls, from the bytes before the stub's return address; None if the
    bytes are not the end of a complete stub."""
    for distance in _DISTANCES:
        if code[-2:] in ENTERING and len(code) >= distance:
            start = len(code) - distance
            if code[start : start + len(_LOAD)] == _LOAD:
                return int.from_bytes(code[start + len(_LOAD) : start + LOADED], "little")
    return None


def start_of(code: bytes, address: int) -> int:
    """Returns the start of the stub with a return address; `code` as for `number_before`."""
    before = (
        distance for distance in _DISTANCES if code[-distance:].startswith(_LOAD) and len(code) >= distance
    )
    return address - next(before, 0)


def patched_stubs(space: AddressSpace, facts: CheckFacts) -> PatchedStubs:
    """Returns the patched stubs of a process (cached)."""
    return facts.find_once(__name__, space, 0, lambda: PatchedStubs(space, facts))


class _Patched(NamedTuple):
    """A stub that jumps elsewhere: its name, and the targets of its jumps in order."""

    name: str
    way: Tuple[int, ...]


class PatchedStubs:
    """The patched stubs of a process, and the copies of stubs that they explain."""

    def __init__(self, space: AddressSpace, facts: CheckFacts) -> None:
        self._memory = facts.image.memory(space)
        self._read = functools.partial(facts.copies.read, space)
        self._names = names = facts.namer(space)
        self._found: Dict[int, _Patched] = {}
        self._seen: Set[int] = set()
        self._lost = False
        self._searches = 0
        for module in _MODULES:
            for known_module in names.modules(module):
                self._found.update(self._of_module(known_module))

    def explains(self, start: int, number: int) -> Optional[str]:
        """Returns the explanation of a stub's copy in private memory, or None."""
        patched = self._found.get(number)
        vads = self._names.process.vads
        if patched is None or not vads:
            return None
        target = patched.way[-1]
        explanation = f"a sandbox: {patched.name} was patched and leads to {target:#x}, "
        known_module = self._names.module_at(target)
        # A thunk next to the copy jumps on into the sandbox's module. Code that ends there is no sandbox's.
        led_on = known_module is not None or self._memory.read(target, 1) is None
        if led_on and any(span_at(vads, start) == span_at(vads, item) for item in patched.way):
            return explanation + "through code beside this copy of the stub"
        if known_module is not None and self._keeps(known_module, start):
            return explanation + f"in {known_module.module.file}, which has the address of this copy"
        return None

    def may_lack(self, number: int) -> bool:
        """Returns whether the stub with a number may be one of those that are not in the image."""
        return self._lost and number not in self._seen and number not in self._found

    def _keeps(self, known_module: KnownModule, address: int) -> bool:
        """Returns whether the data of a module contains an address."""
        pattern, remaining = address.to_bytes(8, "little"), _MOST_DATA
        for section in known_module.image.sections:
            length = min(section.end - section.start, remaining)
            if not section.characteristics & MEM_WRITE or self._searches >= MOST_SEARCHES or length <= 0:
                continue
            remaining -= length
            extents = self._memory.load(known_module.module.base + section.start, length)
            if any(pattern in data for _, data in extents.runs):
                return True
        self._searches += 1
        return False

    def _of_module(self, known_module: KnownModule) -> Iterator[Tuple[int, _Patched]]:
        """Yields (number, stub); the number of a patched stub follows from its neighbours."""
        base = known_module.module.base
        stubs = known_module.image.names.labels_with_prefix(*_PREFIX)[:_MOST_STUBS]
        self._lost = self._lost or not stubs
        stubs = stubs or self._unnamed(known_module)
        codes = [self._read(base + rva, _SIZE) for rva, _ in stubs]
        numbers = [_number(code) for code in codes]
        self._lost = self._lost or None in codes
        self._seen.update(number for number in numbers if number is not None)
        for place, ((rva, name), code) in enumerate(zip(stubs, codes)):
            if code is None:
                continue
            loaded = numbers[place]
            skipped = 0 if loaded is None else LOADED
            way = hops(self._memory.read, base + rva + skipped, Machine.AMD64)
            number = _between(numbers, place) if loaded is None else loaded
            if way and number is not None:
                named = name if name.startswith(_PREFIX) else f"{name} of {known_module.module.name}"
                yield number, _Patched(named if " " in named else f"{known_module.module.name}!{named}", way)

    def _unnamed(self, known_module: KnownModule) -> List[Tuple[int, str]]:
        """Returns the code of a module that loads numbers as stubs do; its exports are not in the image."""
        base = known_module.module.base
        found: List[Tuple[int, str]] = []
        for start, data in self._memory.load(base, min(known_module.module.size, _MOST_DATA)).runs:
            at = data.find(_LOAD)
            while at >= 0 and len(found) < _MOST_STUBS:
                found.append((start + at - base, f"the stub at {start + at:#x}"))
                at = data.find(_LOAD, at + LOADED)
        return found


def keeps_number(code: bytes) -> bool:
    """Returns whether a stub still loads its number, in the bytes from its start on."""
    return code.startswith(_LOAD)


def _number(code: Optional[bytes]) -> Optional[int]:
    """Returns the number that code loads first; None if it loads none, or cannot be read."""
    if code is None or not code.startswith(_LOAD):
        return None
    return int.from_bytes(code[len(_LOAD) : LOADED], "little")


def _between(numbers: Sequence[Optional[int]], place: int) -> Optional[int]:
    """Returns the number of a stub from its neighbours, None if they do not agree."""
    guesses: List[int] = []
    for step in (-1, 1):
        at = place + step
        while 0 <= at < len(numbers):
            number = numbers[at]
            if number is not None:
                guesses.append(number + place - at)
                break
            at += step
    return guesses[0] if guesses and len(set(guesses)) == 1 else None
