# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ARM64 walker at every recorded point of real code: no frame is wrong and sure."""

from __future__ import annotations

import collections
import pathlib
from typing import Counter, Optional, Tuple

import pytest

from tests.conftest import SHARED
from tests.support.armtruth import Point, Truth
from winstacks.memory.decode.structure import Structures
from winstacks.stacks.decode.walk_arm64 import WalkerArm64

FILES = sorted((SHARED / "arm64" / "truth").glob("*.jsonl.xz"))

pytestmark = pytest.mark.shared


def outcome(truth: Truth, point: Point) -> Tuple[bool, bool]:
    """Walks from a point: whether every caller is right, and whether every caller is sure."""

    def read(address: int, length: int) -> Optional[bytes]:
        if truth.low <= address <= truth.high - length:
            return point.stack[address - truth.low : address - truth.low + length]
        image = truth.find_image(address)
        data = None if image is None else image.read_rva(address - image.base, length)
        return None if data is None else bytes(data)

    walker = WalkerArm64(truth.find_image, read, Structures(lambda name: None), None, lambda address: False)
    walk = walker.walk(point.registers, True, [(truth.low, truth.high)])
    found, wanted = walk.frames[1:], [truth.caller(row) for row in point.frames]
    right = [frame.registers for frame in found] == wanted
    return right, all(frame.sure for frame in found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_walker_is_right_and_sure_at_each_point(path: pathlib.Path, shared_dir: pathlib.Path) -> None:
    truth = Truth(shared_dir, path)
    found: Counter[Tuple[bool, bool]] = collections.Counter()
    for point in truth.points():
        found[outcome(truth, point)] += 1
    if path.name.startswith("limits"):
        # Hand-written code without unwind data moves the stack pointer: no caller is sure.
        assert set(found) == {(False, False)}, found
    else:
        assert set(found) == {(True, True)}, found
