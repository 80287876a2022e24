# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What x86 code has done to the stack where it has come to: proven along every way that leads there.

A function is followed from its first instruction over its jumps. At each instruction is known how far below
the return address Esp is, and whether Ebp is the frame pointer that the function has set up. Where two ways
disagree nothing is known; what no way reaches (a neighbour without padding, a `__finally`) is not in
the function. A call through Ebx, Esi or Edi goes where the pointer in it leads, if the function loaded it.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import clues_x86
from .instructions_x86 import Instruction, instruction

MAX_INSTRUCTIONS = 2000
MAX_ROUNDS = 4
MAX_CODE = 0x4000
"""Instructions of one function that are looked at, how often, and its bytes."""

CALLERS, OURS, OTHER = 0, 1, 2
"""What Ebp is: the caller's, the frame pointer that the function has set up, or something else."""


class StackPlace(NamedTuple):
    """What is known at an instruction.

    Attributes:
        depth: how far below the return address Esp is, None if that is not known
        ebp: what Ebp is
        saved: the depth at which the caller's Ebp lies, None if it was not pushed
        loaded: of Ebx, Esi and Edi, which calls keep: the address of the pointer that was loaded into it last
            (of an import, say), None for anything else
    """

    depth: Optional[int]
    ebp: int
    saved: Optional[int]
    loaded: Tuple[Optional[int], ...] = (None, None, None)


ENTRY = StackPlace(0, CALLERS, None)
_UNKNOWN = StackPlace(None, OTHER, None)

Resolve = Callable[[int], Optional[int]]
"""address of a pointer -> what it holds"""

Pops = Callable[[int], Optional[int]]
"""address of a function -> how many bytes of arguments it pops, None if that is not known"""

SetsUp = Callable[[int], bool]
"""address of a function -> whether it sets up the frame of its caller, as _SEH_prolog does"""


class Flow:
    """A function, followed from its start.

    Args:
        code: what can be read from its start on
        start: the address of its first instruction
        resolve: reads pointers
        pops: tells what functions pop
        sets_up: tells which functions set up a frame for their caller

    Attributes:
        places: what is known before each instruction that it can come to, by address
        returns: bytes of arguments that its returns pop
        complete: every way was followed to its end
    """

    def __init__(self, code: bytes, start: int, resolve: Resolve, pops: Pops, sets_up: SetsUp) -> None:
        self._code = code
        self._start = start
        self._resolve = resolve
        self._pops = pops
        self._sets_up = sets_up
        self.places: Dict[int, StackPlace] = {}
        self.returns: List[int] = []
        self.complete = True
        self.count = 0
        self._first = clues_x86.LONGEST_PATCHING if code.startswith(clues_x86.PATCHABLE) else 0
        self._called_inside: Set[int] = set()
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
        left: List[Tuple[int, StackPlace]] = [(self._start, ENTRY)]
        while left:
            address, place = left.pop()
            known = self.places.get(address)
            if known is not None:
                place = _both(known, place)
                if place == known:
                    continue
            if address in borders or self._is_border(address):
                self.complete = False
                continue
            if self.count >= MAX_INSTRUCTIONS:
                self.places.clear()
                self.complete = False
                return
            self.count += 1
            self.places[address] = place
            left.extend(self._next(address, place))

    def _is_border(self, address: int) -> bool:
        """Tells whether an address lies beyond the code, or another function starts there."""
        at = address - self._start
        return not 0 <= at < len(self._code) or (at > self._first and clues_x86.at_border(self._code, at))

    def _next(self, address: int, place: StackPlace) -> Iterator[Tuple[int, StackPlace]]:
        """Yields where execution may go from an instruction, and what is known there."""
        at = address - self._start
        found = instruction(self._code, at)
        if found is None:
            self.complete = False
            return
        opcode, behind = found.opcode, self._start + found.end
        if opcode in (0xC3, 0xC2):
            self.returns.append(self._immediate(found) if opcode == 0xC2 else 0)
        elif opcode in (0xCC, 0xF4, 0x0F0B):
            pass
        elif opcode in (0xE9, 0xEB):
            yield from self._jumped(behind + self._immediate(found), place)
        elif 0x70 <= opcode <= 0x7F or 0xE0 <= opcode <= 0xE3 or 0x0F80 <= opcode <= 0x0F8F:
            yield from self._jumped(behind + self._immediate(found), place)
            yield behind, place
        elif opcode == 0xFF and self._code[found.modrm] & 0x38 in (0x20, 0x28):
            self.complete = False
        elif opcode == 0xE8 or (opcode == 0xFF and self._code[found.modrm] & 0x38 == 0x10):
            yield behind, self._called(found, behind, place)
        else:
            yield behind, self._changed(found, place)

    def _jumped(self, target: int, place: StackPlace) -> Iterator[Tuple[int, StackPlace]]:
        """Yields the target of a jump. With the caller's frame back it is another function's start."""
        target &= 0xFFFFFFFF
        if target < self._start:
            self.complete = False
        elif place.depth != 0 or place.ebp != CALLERS or target - self._start < len(self._code):
            yield target, place

    def _called(self, found: Instruction, behind: int, place: StackPlace) -> StackPlace:
        """Returns what is known behind a call."""
        target: Optional[int] = None
        if found.opcode == 0xE8:
            target = behind + self._immediate(found) & 0xFFFFFFFF
            if target == behind:
                # Pushes where it is.
                return place._replace(depth=None if place.depth is None else place.depth + 4)
            if self._start < target < self._start + len(self._code):
                self._called_inside.add(target)
            if place.depth == 8 and place.ebp == CALLERS and place.saved is None and self._sets_up(target):
                return StackPlace(None, OURS, 4)
        elif self._code[found.modrm] == 0x15:
            target = self._resolve(int.from_bytes(self._code[found.modrm + 1 : found.modrm + 5], "little"))
        elif self._code[found.modrm] & 0xF8 == 0xD0 and self._code[found.modrm] & 7 in _KEPT:
            slot = place.loaded[_KEPT.index(self._code[found.modrm] & 7)]
            target = None if slot is None else self._resolve(slot)
        popped = None if target is None or place.depth is None else self._pops(target)
        depth = None if popped is None or place.depth is None else place.depth - popped
        return place._replace(depth=depth)

    def _changed(self, found: Instruction, place: StackPlace) -> StackPlace:
        """Returns what is known behind an instruction that neither jumps nor calls."""
        byte = self._code[found.modrm] if found.modrm < found.operand else None
        if place.loaded != _NONE_LOADED or (found.opcode == 0x8B and byte in _LOADS):
            place = place._replace(loaded=self._loaded(found, byte, place.loaded))
        return self._stack_changed(found, place)

    def _loaded(
        self, found: Instruction, byte: Optional[int], loaded: Tuple[Optional[int], ...]
    ) -> Tuple[Optional[int], ...]:
        """Returns which pointers Ebx, Esi and Edi hold behind an instruction."""
        if found.opcode == 0x8B and byte in _LOADS and not found.prefixed:
            slot = int.from_bytes(self._code[found.modrm + 1 : found.modrm + 5], "little")
            return tuple(slot if number == byte >> 3 else known for number, known in zip(_KEPT, loaded))
        written = _kept_written(found.opcode, byte)
        return tuple(None if number in written else known for number, known in zip(_KEPT, loaded))

    def _stack_changed(self, found: Instruction, place: StackPlace) -> StackPlace:
        """Returns what is known of Esp and Ebp behind an instruction that neither jumps nor calls."""
        opcode, code = found.opcode, self._code
        if found.prefixed and opcode not in (0x89, 0x8B, 0xFF, 0x8F, 0x8D) and opcode < 0xF00:
            # A segment or a lock changes nothing here, a push of 16 bits is made by no compiler.
            if 0x50 <= opcode <= 0x61 or opcode in (0x68, 0x6A, 0x9C, 0x9D):
                return _UNKNOWN
        if opcode == 0x55:
            if place.ebp == CALLERS and place.saved is None and place.depth is not None:
                return place._replace(depth=place.depth + 4, saved=place.depth + 4)
            return _moved(place, 4)
        if 0x50 <= opcode <= 0x57 or opcode in (0x68, 0x6A, 0x9C, 0x06, 0x0E, 0x16, 0x1E, 0xFA0, 0xFA8):
            return _moved(place, 4)
        if opcode == 0x5D:
            back = place.saved is not None and place.depth in (None, place.saved)
            after = _moved(place, -4)
            return after._replace(ebp=CALLERS if back and place.depth else OTHER, saved=None)
        if opcode == 0x5C:
            return place._replace(depth=None)
        if 0x58 <= opcode <= 0x5F or opcode in (0x9D, 0x07, 0x17, 0x1F, 0xFA1, 0xFA9):
            return _moved(place, -4)
        if opcode == 0xC9:
            return ENTRY if place.ebp == OURS else _UNKNOWN
        if opcode == 0x60:
            return _moved(place, 32)
        if opcode in (0x61, 0x94, 0x95):
            return _UNKNOWN
        if found.modrm == found.operand:
            # Without a ModRM byte the opcode's low bits may name a register that is written.
            return _written_by_opcode(opcode, place)
        return self._with_modrm(found, place, code[found.modrm])

    def _with_modrm(self, found: Instruction, place: StackPlace, byte: int) -> StackPlace:
        """Returns what is known behind an instruction with a ModRM byte, as far as it names Esp or Ebp."""
        opcode, mode, register, base = found.opcode, byte >> 6, byte >> 3 & 7, byte & 7
        if opcode == 0xFF and register == 6:
            return _moved(place, 4)
        if opcode == 0x8F:
            return _moved(place, -4) if mode != 3 or base not in (4, 5) else _UNKNOWN
        if opcode in (0x81, 0x83) and byte in (0xEC, 0xC4):
            size = self._immediate(found)
            return _moved(place, size if byte == 0xEC else -size)
        if (opcode, byte) in ((0x8B, 0xEC), (0x89, 0xE5)):
            ours = place.depth == place.saved == 4
            return place._replace(ebp=OURS if ours else OTHER)
        if (opcode, byte) in ((0x8B, 0xE5), (0x89, 0xEC)):
            return place._replace(depth=4 if place.ebp == OURS else None)
        if opcode == 0x8D and register == 4:
            return place._replace(depth=self._leads(found, byte, place))
        written = _written(opcode, mode, register, base)
        if 4 in written:
            place = place._replace(depth=None)
        if 5 in written:
            place = place._replace(ebp=OTHER)
        return place

    def _leads(self, found: Instruction, byte: int, place: StackPlace) -> Optional[int]:
        """Returns the depth behind `lea esp, ...`."""
        at = found.modrm + 1
        sib = byte & 7 == 4
        if sib and self._code[at] != 0x24:
            return None
        at += sib
        size = {0: 0, 1: 1, 2: 4}[byte >> 6] if byte >> 6 < 3 else 0
        moved = int.from_bytes(self._code[at : at + size], "little", signed=True)
        if sib:
            return None if place.depth is None else place.depth - moved
        return 4 - moved if byte & 7 == 5 and byte >> 6 in (1, 2) and place.ebp == OURS else None

    def _immediate(self, found: Instruction) -> int:
        data = self._code[found.operand : found.end]
        return int.from_bytes(data, "little", signed=found.opcode != 0xC2)


def _moved(place: StackPlace, by: int) -> StackPlace:
    return place if place.depth is None else place._replace(depth=place.depth + by)


def _both(first: StackPlace, second: StackPlace) -> StackPlace:
    """Returns what holds whichever way execution came."""
    return StackPlace(
        first.depth if first.depth == second.depth else None,
        first.ebp if first.ebp == second.ebp else OTHER,
        first.saved if first.saved == second.saved else None,
        tuple(one if one == other else None for one, other in zip(first.loaded, second.loaded)),
    )


_NAMED_BY_OPCODE = (0x40, 0x48, 0xB8, 0x0FC8)
"""inc, dec, mov with an immediate, bswap: the first of the eight opcodes of each."""


def _written_by_opcode(opcode: int, place: StackPlace) -> StackPlace:
    """Returns what is known behind an instruction without a ModRM byte."""
    if opcode & ~7 in _NAMED_BY_OPCODE:
        if opcode & 7 == 4:
            return place._replace(depth=None)
        if opcode & 7 == 5:
            return place._replace(ebp=OTHER)
    return place


_KEPT = (3, 6, 7)
"""Ebx, Esi and Edi, as the processor numbers them: a function keeps them for its caller."""
_NONE_LOADED = (None, None, None)
_LOADS = frozenset(number << 3 | 5 for number in _KEPT)
"""ModRM bytes of `mov` into one of them from an address that is in the instruction."""
_STRINGS = {
    **dict.fromkeys((0x6C, 0x6D, 0xAA, 0xAB, 0xAE, 0xAF), (7,)),
    **dict.fromkeys((0x6E, 0x6F, 0xAC, 0xAD), (6,)),
    **dict.fromkeys((0xA4, 0xA5, 0xA6, 0xA7), (6, 7)),
}
"""String instructions, and which of Esi and Edi they move."""
_OF_8_BITS = frozenset(
    (*range(0, 0x40, 8), *range(2, 0x40, 8), 0x80, 0x82, *range(0x84, 0x8C, 2), 0xC0, 0xC6)
)
_OF_8_BITS |= frozenset((0xD0, 0xD2, 0xF6, 0xFE, 0x0FB0, 0x0FC0, *range(0x0F90, 0x0FA0)))
"""Instructions with a ModRM byte whose registers have 8 bits: numbers 3 and 7 are Bl and Bh."""


def _kept_written(opcode: int, byte: Optional[int]) -> Tuple[int, ...]:
    """Returns which of Ebx, Esi and Edi an instruction may write, rather too many."""
    if byte is None:
        if opcode in (0xB3, 0xB7, 0x0FA2):
            return (3,)
        named = opcode & ~7 in (*_NAMED_BY_OPCODE, 0x58, 0x90)
        return (opcode & 7,) if named else _STRINGS.get(opcode, ())
    register, base = byte >> 3 & 7, byte & 7
    if opcode in _OF_8_BITS:
        return (3,) if 3 in (register, base) or 7 in (register, base) else ()
    return (base,) if opcode == 0x8F else _written(opcode, byte >> 6, register, base)


_READS_ONLY = frozenset((0x38, 0x39, 0x3A, 0x3B, 0x84, 0x85, 0x8E, 0xFA3))


def _written(opcode: int, mode: int, register: int, base: int) -> Tuple[int, ...]:
    """Returns which general registers an instruction with a ModRM byte may write, rather too many."""
    if opcode in _READS_ONLY or 0xD8 <= opcode <= 0xDF:
        return ()
    if opcode in (0x80, 0x82, 0xC0, 0xC6, 0xD0, 0xD2, 0xF6, 0xFE) or opcode in (0x00, 0x02, 0x88, 0x8A):
        # Of eight bits: numbers 4 and 5 are Ah and Ch.
        return ()
    if opcode in (0x81, 0x83) and register == 7:
        return ()
    if opcode in (0x81, 0x83, 0xC1, 0xC7, 0xD1, 0xD3, 0xFF, 0x89, 0x01, 0x09, 0x11, 0x19, 0x21, 0x29, 0x31):
        return (base,) if mode == 3 else ()
    if opcode == 0xF7:
        return (base,) if mode == 3 and register in (2, 3) else ()
    if opcode in (0x8B, 0x8D, 0x03, 0x0B, 0x13, 0x1B, 0x23, 0x2B, 0x33, 0x69, 0x6B):
        return (register,)
    if 0x0F90 <= opcode <= 0x0F9F or 0x0F10 <= opcode <= 0x0F17 or 0x0F28 <= opcode <= 0x0F2B:
        return ()
    return (register, base) if mode == 3 else (register,)


SEH_PROLOG = re.compile(rb"\x89\x6c\x24\x10\x8d\x6c\x24\x10")
"""mov [esp+10h], ebp; lea ebp, [esp+10h]: what _SEH_prolog and _SEH_prolog4 have."""
