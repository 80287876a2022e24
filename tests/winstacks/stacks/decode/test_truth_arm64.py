# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ARM64 walker at every recorded point of real code: no frame is wrong and sure."""

from __future__ import annotations

import collections
import pathlib
import struct
from typing import Counter, List, Optional, Tuple

import pytest

from tests.conftest import SHARED
from tests.support.armtruth import Point, Truth
from winstacks.memory.decode.structure import Structures
from winstacks.stacks.decode.frames import Frame
from winstacks.stacks.decode.walk_arm64 import WalkerArm64

FILES = sorted((SHARED / "arm64" / "truth").glob("*.jsonl.xz"))

PLAIN = (1 << 47) - 1
"""The bits of an address that no authentication code changes."""

pytestmark = pytest.mark.shared


def walked(truth: Truth, point: Point) -> List[Frame]:
    """Walks from a point, and returns the callers."""

    def read(address: int, length: int) -> Optional[bytes]:
        if truth.low <= address <= truth.high - length:
            return point.stack[address - truth.low : address - truth.low + length]
        image = truth.find_image(address)
        data = None if image is None else image.read_rva(address - image.base, length)
        return None if data is None else bytes(data)

    walker = WalkerArm64(truth.find_image, read, Structures(lambda name: None), None, lambda address: False)
    walk = walker.walk(point.registers, True, [(truth.low, truth.high)])
    return list(walk.frames[1:])


def outcome(truth: Truth, point: Point, found: List[Frame]) -> Tuple[bool, bool]:
    """Whether every caller is right, and whether every caller is sure."""
    right = [frame.registers for frame in found] == [truth.caller(row) for row in point.frames]
    return right, all(frame.sure for frame in found)


def holders(truth: Truth, point: Point) -> Tuple[Optional[str], ...]:
    """The places that hold the return address at a point: `Lr`, None for the stack of the function, or both.

    Both: the prologue has stored it, and no call has changed the register yet.
    """
    caller = truth.caller(point.frames[0])
    own = point.stack[point.registers.sp - truth.low : caller.sp - truth.low]
    stored = struct.unpack(f"<{len(own) // 8}Q", own)
    in_register = not ((point.registers.lr or 0) ^ caller.ip) & PLAIN
    on_stack = any(not (value ^ caller.ip) & PLAIN for value in stored)
    return (*("Lr",) * in_register, *(None,) * on_stack)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_walker_is_right_and_sure_at_each_point(path: pathlib.Path, shared_dir: pathlib.Path) -> None:
    truth = Truth(shared_dir, path)
    found: Counter[Tuple[bool, bool]] = collections.Counter()
    held: Counter[Tuple[Optional[str], ...]] = collections.Counter()
    for point in truth.points():
        frames = walked(truth, point)
        found[outcome(truth, point, frames)] += 1
        places = holders(truth, point)
        held[places] += 1
        assert frames[0].return_register in places, (point.position, hex(point.pc))
        assert not any(frame.return_register for frame in frames[1:])
    if path.name.startswith("limits"):
        # Hand-written code without unwind data moves the stack pointer: no caller is sure.
        assert set(found) == {(False, False)}, found
    else:
        assert set(found) == {(True, True)}, found
        assert held["Lr",] and held[None,], held
