# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which bytes of a page most other processes have otherwise, operand by operand."""

from __future__ import annotations

from typing import Sequence, Set, Tuple

from ..memory.decode.pagetable import PAGE_SIZE

_CHUNK = 64
_OPERANDS = (
    *((bytes((rex, 0xB8 | register)), 8) for rex in (0x48, 0x49) for register in range(8)),
    *((b"\xff\x25\0\0\0\0", 8), (b"\xe9", 4), (b"\xe8", 4), (b"\x68", 4)),
)
"""How jumps, calls and loads begin, and the bytes of their operands: mov register, imm64; jmp through the 8
bytes behind it; jmp and call rel32; push imm32 (Intel's manual, volume 2)."""

Ranges = Tuple[Tuple[int, int], ...]
"""(start, end) of addresses, ascending and disjoint; `end` exclusive."""


def differing(page: int, mine: bytes, others: Sequence[bytes]) -> Tuple[Ranges, Ranges]:
    """Returns the addresses of the bytes that more than half of several pages have otherwise.

    Returns:
        Those of which more than half have one other value; and those of which more than half have another
        one, but not the same. Then each process has its own, such as the distance to memory of its own, or an
        address that a runtime writes into its code.
    """
    agreed: Set[int] = set()
    split: Set[int] = set()
    for first in range(0, PAGE_SIZE, _CHUNK):
        part = mine[first : first + _CHUNK]
        theirs = [other[first : first + _CHUNK] for other in others]
        if all(each == part for each in theirs):
            continue
        for offset, (byte, *rest) in enumerate(zip(part, *theirs), first):
            if any(each != byte for each in rest) and offset not in agreed and offset not in split:
                low, high = _operand(mine, others, offset)
                own, *rest_of_it = (each[low:high] for each in (mine, *others))
                value = max(set(rest_of_it), key=rest_of_it.count)
                if value != own and 2 * rest_of_it.count(value) > len(others):
                    agreed.update(at for at in range(low, high) if mine[at] != value[at - low])
                elif 2 * rest_of_it.count(own) < len(others):
                    split.update(
                        at for at in range(low, high) if any(each[at] != mine[at] for each in others)
                    )
    return _joined(sorted(page + each for each in agreed)), _joined(sorted(page + each for each in split))


def _operand(mine: bytes, others: Sequence[bytes], offset: int) -> Tuple[int, int]:
    """Returns start and end of the operand that holds a byte: of a jump or load that most pages have there.

    Relays of one product lie at another distance in each process, and some bytes of these are alike. A byte
    in no such operand stands for itself.
    """
    for opcode, length in _OPERANDS:
        for start in range(offset, max(offset - length, len(opcode) - 1), -1):
            place = start - len(opcode)
            if mine.startswith(opcode, place) and 2 * sum(
                each.startswith(opcode, place) for each in others
            ) > len(others):
                return start, min(start + length, PAGE_SIZE)
    return offset, offset + 1


def _joined(addresses: Sequence[int]) -> Ranges:
    """Returns ascending addresses as ranges."""
    starts = [each for each, before in zip(addresses, (None, *addresses)) if before != each - 1]
    ends = [each + 1 for each, after in zip(addresses, (*addresses[1:], None)) if after != each + 1]
    return tuple(zip(starts, ends))
