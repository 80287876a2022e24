# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Frames on kernel stacks: every real one is found, and nothing else."""

from __future__ import annotations

import pathlib
from typing import List, Set

import pytest

from tests.support import real_trapframes, traplayouts
from tests.support.real_trapframes import RealFrame
from winstacks.memory.decode.ranges import Extents
from winstacks.traps.decode.frame import TrapBounds

X64 = TrapBounds(user_end=0x7FFFFFF0000, kernel_start=0xFFFF800000000000)
X86 = TrapBounds(user_end=0x7FFF0000, kernel_start=0x80000000)
KERNEL_SIZES = {"5.2.3790.3959up-x64": 4714496}

# The entries of x86 that store no mark: the NMI's task gate, fast paths of virtual-8086 mode.
UNMARKED = {"trap02-kernel", "trap02-user", "trap06-v86", "trap0d-v86", "trap2a-v86"}


def bounds_of(real: RealFrame) -> TrapBounds:
    if real.arch == "x86":
        return X86
    tops = {real.address + len(real.data)} if real.ist else set()
    image = (real.kernel_base, real.kernel_base + KERNEL_SIZES[real.build])
    return X64._replace(kernel_image=image, ist_tops=frozenset(tops))


def found_on(real: RealFrame, bounds: TrapBounds) -> List[int]:
    memory = Extents([(real.stack_address, real.stack)])
    end = real.stack_address + len(real.stack)
    return list(traplayouts.of_real(real).scan(memory, real.stack_address, end, bounds))


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_every_real_stack(shared_dir: pathlib.Path, build: str) -> None:
    missed: Set[str] = set()
    for real in real_trapframes.load(shared_dir, build):
        found = found_on(real, bounds_of(real))
        assert found in ([real.address], []), real.label
        if not found:
            missed.add(real.name)
    known = {name for name in UNMARKED if build.endswith("x86")}
    print(f"{build}: missed {sorted(missed)}, none false")
    assert missed == known


@pytest.mark.shared
def test_frames_of_the_interrupt_stack_table_need_its_tops(shared_dir: pathlib.Path) -> None:
    missed = {
        real.name
        for real in real_trapframes.load(shared_dir, real_trapframes.BUILDS[0])
        if not found_on(real, bounds_of(real)._replace(ist_tops=frozenset()))
    }
    assert missed == {"trap02-kernel", "trap08-kernel", "trap12-kernel"}


@pytest.mark.shared
def test_nested_frames(shared_dir: pathlib.Path) -> None:
    for stack in real_trapframes.load_nested(shared_dir):
        like = real_trapframes.load(shared_dir, stack.build)[0]
        memory = Extents([(stack.stack_address, stack.stack)])
        end = stack.stack_address + len(stack.stack)
        found = list(traplayouts.of_real(like).scan(memory, stack.stack_address, end, bounds_of(like)))
        assert found == sorted(address for address, _ in stack.frames)


@pytest.mark.shared
def test_the_real_crash_among_every_block_of_its_dump(shared_dir: pathlib.Path) -> None:
    crash = real_trapframes.load_crash(shared_dir)
    form = traplayouts.of_real(real_trapframes.load(shared_dir, real_trapframes.BUILDS[0])[0])
    modules = [(int(m["base"], 16), int(m["size"], 16)) for m in crash.truth["modules"]]
    kernel = (modules[0][0], modules[0][0] + modules[0][1])
    bounds = TrapBounds(0x7FFFFFFF0000, 0xFFFF800000000000, kernel)
    memory = Extents([*crash.blocks, (crash.stack_address, crash.stack)])
    found = [
        address
        for start, data in memory.runs
        for address in form.scan(memory, start, start + len(data), bounds)
    ]
    assert found == [crash.address]
