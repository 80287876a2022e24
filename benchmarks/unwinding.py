# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The walkers of x64 and ARM64 on stacks of the same depth: `python3 -m benchmarks.unwinding`.

Each stack has 30 frames of functions that save none to four registers, drawn by a seed. Both walkers go up
the same number of stacks in turns. The figure is the ratio of their processor times, ARM64 by x64, for each
seed: its median and its extremes.
"""

from __future__ import annotations

import random
import statistics
import struct
import time
from typing import Callable, List, Optional, Tuple

from winstacks.memory.decode.memo import Kept
from winstacks.memory.decode.structure import Structures
from winstacks.names.decode.functiontable import MOST_DERIVED, FunctionTable
from winstacks.names.decode.functiontable_arm64 import FunctionTableArm64
from winstacks.stacks.decode.calls_x64 import Site
from winstacks.stacks.decode.frames import CodeImage, StackWalk
from winstacks.stacks.decode.registers import Registers
from winstacks.stacks.decode.registers_arm64 import RegistersArm64
from winstacks.stacks.decode.walk_arm64 import SiteArm64, WalkerArm64
from winstacks.stacks.decode.walk_x64 import Walker64

FRAMES, STACKS, ROUNDS, SEEDS = 30, 100, 5, 9
BASE, SIZE = 0x7FF600000000, 0x10000
LOW, HIGH = 0xC500000000, 0xC500008000
_FUNCTION, _FUNCTIONS, _RECORDS = 0x100, 64, 0x8000
_CALLED = 0x80
_NONVOLATILE = (3, 5, 6, 7)

Walk = Callable[[], StackWalk]
Saves = List[int]
"""How many registers each function saves."""


class _Program:
    """A module and a stack.

    Args:
        call: the bytes of a call
    """

    def __init__(self, call: bytes) -> None:
        self.image = bytearray(SIZE)
        self.stack = bytearray(HIGH - LOW)
        for number in range(_FUNCTIONS):
            end = 0x1000 + number * _FUNCTION + _CALLED
            self.image[end - len(call) : end] = call

    def ip(self, function: int) -> int:
        return BASE + 0x1000 + function * _FUNCTION + _CALLED

    def put(self, address: int, value: int) -> None:
        struct.pack_into("<Q", self.stack, address - LOW, value)

    def read_rva(self, rva: int, length: int) -> Optional[bytes]:
        return bytes(self.image[rva : rva + length]) if 0 <= rva <= SIZE - length else None

    def read(self, address: int, length: int) -> Optional[bytes]:
        start = address - LOW
        return bytes(self.stack[start : start + length]) if 0 <= start <= HIGH - LOW - length else None


def _x64(saves: Saves, calls: List[int]) -> Walk:
    """A stack of functions that push registers and allocate 28h bytes."""
    program = _Program(b"\xe8\0\0\0\0")
    entries = []
    for number, count in enumerate(saves):
        codes = [struct.pack("<BB", 8, 0x42)]
        codes += [struct.pack("<BB", 1, _NONVOLATILE[place] << 4) for place in range(count)]
        place = _RECORDS + 0x40 * number
        record = struct.pack("<BBBB", 1, 8, len(codes), 0) + b"".join(codes)
        program.image[place : place + len(record)] = record
        begin = 0x1000 + number * _FUNCTION
        entries.append(struct.pack("<III", begin, begin + _FUNCTION, place))
    sp = top = LOW + 0x1000
    for function, caller in zip(calls, [*calls[1:], None]):
        sp += 0x28 + 8 * saves[function]
        program.put(sp, 0 if caller is None else program.ip(caller))
        sp += 8
    image = _image(program, FunctionTable.from_bytes(b"".join(entries), program.read_rva))
    sites: Kept[int, Site] = Kept(MOST_DERIVED)
    start = Registers.from_known(program.ip(calls[0]), top, {"Rbp": 5, "Rbx": 3})
    return lambda: Walker64(image, program.read, sites=sites).walk(start, False, [(LOW, HIGH)])


def _arm64(saves: Saves, calls: List[int]) -> Walk:
    """A stack of functions with packed unwind data: saved registers, then the pair {fp, lr}."""
    program = _Program(struct.pack("<I", 0x94000000))
    entries = []
    for number, count in enumerate(saves):
        saved = 8 * count + 15 & ~15
        frame = saved + 0x20
        word = 1 | _FUNCTION // 4 << 2 | count << 16 | 3 << 21 | frame // 16 << 23
        entries.append(struct.pack("<II", 0x1000 + number * _FUNCTION, word))
    sp = top = LOW + 0x1000
    for function, caller in zip(calls, [*calls[1:], None]):
        following = sp + 0x20 + (8 * saves[function] + 15 & ~15)
        program.put(sp, following)
        program.put(sp + 8, 0 if caller is None else program.ip(caller))
        sp = following
    image = _image(program, FunctionTableArm64.from_bytes(b"".join(entries), program.read_rva))
    sites: Kept[int, SiteArm64] = Kept(MOST_DERIVED)
    start = RegistersArm64.from_known(program.ip(calls[0]), top, {"Fp": top, "X19": 19})
    types = Structures(lambda name: None)
    return lambda: WalkerArm64(image, program.read, types, sites=sites).walk(start, False, [(LOW, HIGH)])


def _image(program: _Program, table: FunctionTable) -> Callable[[int], Optional[CodeImage]]:
    found = CodeImage(BASE, SIZE, program.read_rva, table)
    return lambda address: found if BASE <= address < BASE + SIZE else None


def _seconds(walks: List[Walk]) -> float:
    start = time.process_time()
    frames = sum(len(walk().frames) for walk in walks)
    assert frames == len(walks) * FRAMES, frames
    return time.process_time() - start


def ratio(seed: int) -> Tuple[float, float]:
    """Returns the time of ARM64 by that of x64, and the microseconds of an ARM64 frame."""
    drawn = random.Random(seed)
    saves = [drawn.randrange(5) for _ in range(_FUNCTIONS)]
    stacks = [[drawn.randrange(_FUNCTIONS) for _ in range(FRAMES)] for _ in range(STACKS)]
    walks = [[make(saves, calls) for calls in stacks] for make in (_x64, _arm64)]
    for half in walks:
        _seconds(half)
    pairs = [[_seconds(half) for half in walks] for _ in range(ROUNDS)]
    cheapest = min(arm64 for _, arm64 in pairs)
    return statistics.median(arm64 / x64 for x64, arm64 in pairs), cheapest / STACKS / FRAMES * 1e6


def main() -> None:
    """Prints the ratios."""
    measured = [ratio(seed) for seed in range(SEEDS)]
    ratios = [value for value, _ in measured]
    print(
        f"ARM64 by x64: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}; "
        f"an ARM64 frame takes {statistics.median(cost for _, cost in measured):.1f} us"
    )


if __name__ == "__main__":
    main()
