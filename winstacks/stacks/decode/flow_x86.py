# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What x86 code has done to the stack where it has come to: proven along every way that leads there.

A function is followed from its first instruction over its jumps. At each instruction is known how far below
the return address Esp is, and whether Ebp is the frame pointer that the function has set up. Where two ways
disagree nothing is known; what no way reaches (a neighbour without padding, a `__finally`) is not in
the function.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, appendix A (opcode maps).
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import clues_x86

MAX_INSTRUCTIONS = 2000
MAX_ROUNDS = 4
MAX_CODE = 0x4000
"""Instructions of one function that are looked at, how often, and its bytes."""

_PREFIXES = frozenset((0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0xF0, 0xF2, 0xF3))
_NO, _MODRM, _IMM8, _IMM, _MODRM_IMM8, _MODRM_IMM, _IMM16, _BAD = range(8)


def _one_byte() -> List[int]:
    """Returns what follows each opcode of one byte."""
    form = [_NO] * 256
    for row in range(0, 0x40, 8):
        form[row : row + 6] = [_MODRM] * 4 + [_IMM8, _IMM]
    spans = (
        ((0x62, 0x63), _MODRM),
        ((0x67, 0x67), _BAD),
        ((0x68, 0x68), _IMM),
        ((0x69, 0x69), _MODRM_IMM),
        ((0x6A, 0x6A), _IMM8),
        ((0x6B, 0x6B), _MODRM_IMM8),
        ((0x70, 0x7F), _IMM8),
        ((0x80, 0x83), _MODRM_IMM8),
        ((0x81, 0x81), _MODRM_IMM),
        ((0x84, 0x8F), _MODRM),
        ((0x9A, 0x9A), _BAD),
        ((0xA0, 0xA3), _IMM),
        ((0xA8, 0xA8), _IMM8),
        ((0xA9, 0xA9), _IMM),
        ((0xB0, 0xB7), _IMM8),
        ((0xB8, 0xBF), _IMM),
        ((0xC0, 0xC1), _MODRM_IMM8),
        ((0xC2, 0xC2), _IMM16),
        ((0xC4, 0xC5), _BAD),
        ((0xC6, 0xC6), _MODRM_IMM8),
        ((0xC7, 0xC7), _MODRM_IMM),
        ((0xC8, 0xC8), _BAD),
        ((0xCA, 0xCB), _BAD),
        ((0xCD, 0xCD), _IMM8),
        ((0xD0, 0xD3), _MODRM),
        ((0xD4, 0xD5), _IMM8),
        ((0xD8, 0xDF), _MODRM),
        ((0xE0, 0xE7), _IMM8),
        ((0xE8, 0xE9), _IMM),
        ((0xEA, 0xEA), _BAD),
        ((0xEB, 0xEB), _IMM8),
        ((0xF6, 0xF7), _MODRM),
        ((0xFE, 0xFF), _MODRM),
    )
    for (low, high), what in spans:
        form[low : high + 1] = [what] * (high - low + 1)
    return form


def _two_bytes() -> List[int]:
    """Returns what follows each opcode of two bytes, the first of which is 0F."""
    form = [_MODRM] * 256
    for low, high in ((0x05, 0x0C), (0x30, 0x37), (0x77, 0x77), (0xA0, 0xA2), (0xA8, 0xAA), (0xC8, 0xCF)):
        form[low : high + 1] = [_NO] * (high - low + 1)
    form[0x80:0x90] = [_IMM] * 16
    for each in (0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6):
        form[each] = _MODRM_IMM8
    return form


_ONE, _TWO = _one_byte(), _two_bytes()


class Instruction(NamedTuple):
    """An instruction: its opcode (0F and a second byte: 0F00h + that), where ModRM and the operand lie."""

    opcode: int
    modrm: int
    operand: int
    end: int
    prefixed: bool


def instruction(code: bytes, at: int) -> Optional[Instruction]:
    """Decodes the instruction at a place in code; None if it is none that compilers make, or cut off."""
    try:
        return _instruction(code, at)
    except IndexError:
        return None


def _instruction(code: bytes, at: int) -> Optional[Instruction]:
    start, wide = at, 4
    while code[at] in _PREFIXES:
        if code[at] == 0x66:
            wide = 2
        at += 1
        if at - start > 4:
            return None
    prefixed = at > start
    opcode = code[at]
    at += 1
    if opcode == 0x0F:
        second = code[at]
        at += 1
        opcode = 0x0F00 | second
        form = _TWO[second]
        if second in (0x38, 0x3A):
            at += 1
            form = _MODRM if second == 0x38 else _MODRM_IMM8
    else:
        form = _ONE[opcode]
    modrm = at
    if form == _BAD:
        return None
    if form in (_MODRM, _MODRM_IMM8, _MODRM_IMM):
        byte = code[at]
        mode, base = byte >> 6, byte & 7
        at += 1
        if mode != 3:
            if base == 4:
                base = code[at] & 7
                at += 1
            if mode == 1:
                at += 1
            elif mode == 2 or base == 5:
                at += 4
        if opcode in (0xF6, 0xF7) and byte & 0x30 == 0:
            form = _MODRM_IMM8 if opcode == 0xF6 else _MODRM_IMM
    operand = at
    if form in (_IMM8, _MODRM_IMM8):
        at += 1
    elif form in (_IMM, _MODRM_IMM):
        at += 4 if 0xA0 <= opcode <= 0xA3 else wide
    elif form == _IMM16:
        at += 2
    return Instruction(opcode, modrm, operand, at, prefixed) if at <= len(code) else None


CALLERS, OURS, OTHER = 0, 1, 2
"""What Ebp is: the caller's, the frame pointer that the function has set up, or something else."""


class StackPlace(NamedTuple):
    """What is known at an instruction.

    Attributes:
        depth: how far below the return address Esp is, None if that is not known
        ebp: what Ebp is
        saved: the depth at which the caller's Ebp lies, None if it was not pushed
    """

    depth: Optional[int]
    ebp: int
    saved: Optional[int]


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
        popped = None if target is None or place.depth is None else self._pops(target)
        depth = None if popped is None or place.depth is None else place.depth - popped
        return place._replace(depth=depth)

    def _changed(self, found: Instruction, place: StackPlace) -> StackPlace:
        """Returns what is known behind an instruction that neither jumps nor calls."""
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
