# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the bytes of a page for which most other processes have other values, operand by operand."""

from __future__ import annotations

from typing import Iterator, Sequence, Set, Tuple

from ...memory.decode.pagetable import PAGE_SIZE

_CHUNK = 64
_TO_MEMORY = ((0x81, 0xF8), (0x80, 0xB8), (0xC6, 0x80))
"""cmp register, imm32; cmp byte ptr [register+disp32], imm8; mov byte ptr [register+disp32], imm8: opcode,
and ModRM byte without the register."""
_OPERANDS = (
    *((bytes((rex, 0xB8 | register)), 8) for rex in (0x48, 0x49) for register in range(8)),
    *((b"\xff\x25\0\0\0\0", 8), (b"\xff\x25", 4), (b"\xff\x15", 4), (b"\xc7\x44\x24\x04", 4)),
    *((b"\xe9", 4), (b"\xe8", 4), (b"\x68", 4), (b"\x3d", 4)),
    *((bytes((opcode, mode | register)), 4) for opcode, mode in _TO_MEMORY for register in range(8)),
    *((bytes((0xB8 | register,)), 4) for register in range(8)),
)
"""Opcodes of jumps, calls, loads, stores and comparisons, and the bytes of their operands: mov register,
imm64; jmp through the 8 bytes behind it; jmp and call through memory; mov [rsp+4], imm32, which completes a
pushed address; jmp and call rel32; push imm32; cmp eax, imm32; the forms in _TO_MEMORY; mov register, imm32
(Intel's manual, volume 2)."""
LONGEST_OPERAND = max(length for _, length in _OPERANDS)

Ranges = Tuple[Tuple[int, int], ...]
"""(start, end) of addresses, ascending and disjoint; `end` exclusive."""


def differing(page: int, mine: bytes, others: Sequence[bytes]) -> Tuple[Ranges, Ranges]:
    """Returns the addresses of the bytes for which more than half of the other pages have other values: first
    the addresses where more than half agree on one other value; then the addresses where more than half have
    another value, but not the same one. In the second case each process has its own value, such as the
    distance to memory of its own, or an address that a runtime writes into its code."""
    agreed: Set[int] = set()
    split: Set[int] = set()
    for first in range(0, PAGE_SIZE, _CHUNK):
        part = mine[first : first + _CHUNK]
        theirs = [other[first : first + _CHUNK] for other in others]
        if all(item == part for item in theirs):
            continue
        for offset, (byte, *rest) in enumerate(zip(part, *theirs), first):
            if any(item != byte for item in rest) and offset not in agreed and offset not in split:
                low, high = _operand(mine, others, offset)
                own, *rest_of_it = (item[low:high] for item in (mine, *others))
                value = max(set(rest_of_it), key=rest_of_it.count)
                if value != own and 2 * rest_of_it.count(value) > len(others):
                    agreed.update(at for at in range(low, high) if mine[at] != value[at - low])
                elif 2 * rest_of_it.count(own) < len(others):
                    split.update(
                        at for at in range(low, high) if any(item[at] != mine[at] for item in others)
                    )
    return _joined(sorted(page + item for item in agreed)), _joined(sorted(page + item for item in split))


def _operand(mine: bytes, others: Sequence[bytes], offset: int) -> Tuple[int, int]:
    """Returns start and end of the operand that holds a byte, in a jump or load that most pages have there.

    Relays of one product lie at another distance in each process, and some bytes of these distances are
    alike. A byte in no such operand is a range of its own.
    """
    for opcode, length in _OPERANDS:
        for start in range(offset, max(offset - length, len(opcode) - 1), -1):
            place = start - len(opcode)
            if mine.startswith(opcode, place) and 2 * sum(
                other.startswith(opcode, place) for other in others
            ) > len(others):
                return start, min(start + length, PAGE_SIZE)
    return offset, offset + 1


def _joined(addresses: Sequence[int]) -> Ranges:
    """Returns ascending addresses as ranges."""
    starts = [address for address, before in zip(addresses, (None, *addresses)) if before != address - 1]
    ends = [address + 1 for address, after in zip(addresses, (*addresses[1:], None)) if after != address + 1]
    return tuple(zip(starts, ends))


def without(ranges: Sequence[Tuple[int, int]], others: Sequence[Tuple[int, int]]) -> Ranges:
    """Returns the parts of ranges of addresses that none of some others covers."""
    covered = {at for low, high in others for at in range(low, high)}
    return _joined(sorted({at for low, high in ranges for at in range(low, high)} - covered))


def within(ranges: Ranges, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Yields the parts of ranges that lie within one range."""
    for low, high in ranges:
        if max(low, start) < min(high, end):
            yield max(low, start), min(high, end)
