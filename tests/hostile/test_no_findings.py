# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""No false alarm: in images that nobody altered `windows.tracefindings` finds nothing above `low`."""

from __future__ import annotations

import pathlib
import random
from typing import List, Union

import pytest
from volatility3.plugins.windows import tracefindings

from tests.forge import context, kernels, real_sets
from tests.forge.dump import Image
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.hostile import undamaged
from tests.hostile.test_undamaged import REAL
from tests.support import grid, real_trapframes, realtruth
from tests.support.callstackimages import StackImage
from tests.support.callstackimages86 import StackImage86
from winstacks.findings.finding import LOW

IMPLANTED = tuple(name for name in undamaged.BUILDERS if name.startswith("sample"))
"""The sample has an implant."""

DRIVERS = (0xBF800000, 0xF8500000, 0xF86A0000)
"""Where the drivers lie, 0x40000 bytes each, whose calls the kernel of a real set recorded; it has none."""

SHARED_DATA = 0x7FFE0000
"""A page of the kernel's, which is in each process, too."""


def alarms(image: Image, folder: pathlib.Path) -> List[str]:
    """What is found above `low`."""
    opened = context.open_image(image, folder)
    rows = [node.row for node in grid.run(opened, tracefindings.TraceFindings)]
    found = [row for row in rows if row["Severity"] not in (LOW, None)]
    return [
        f"{row['Finding']} {row['Kind']} {row['Symbol']} {row['How']}: {row['Evidence']}" for row in found
    ]


@pytest.mark.parametrize("name", [name for name in undamaged.BUILDERS if name not in IMPLANTED])
def test_of_a_forged_image(name: str, tmp_path: pathlib.Path) -> None:
    assert not alarms(undamaged.BUILDERS[name](), tmp_path)


@pytest.mark.parametrize("name", IMPLANTED)
def test_the_sample_is_no_clean_image(name: str, tmp_path: pathlib.Path) -> None:
    """The tests above can fail."""
    assert alarms(undamaged.BUILDERS[name](), tmp_path)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*undamaged.X64, *undamaged.X86])
def test_where_pages_are_missing(name: str, seed: int, tmp_path: pathlib.Path) -> None:
    """Of a process and of the stacks of its threads three pages of ten: headers, code, stacks, TEBs."""
    forged: Union[StackImage, StackImage86]
    if name in undamaged.X64:
        forged = StackImage(name)
        threads = [forged.waiting(1004), forged.waiting(1008), forged.faulted(1012)]
    else:
        forged = StackImage86(name)
        threads = [forged.waiting(1004, interrupted=False), forged.waiting(1008, interrupted=True)]
    image, chance = forged.kernel.image(), random.Random(f"{name} {seed}")
    missing = 0
    stacks = [range(thread.stack_limit, thread.stack_base, PAGE) for thread in threads]
    for space, addresses in (
        (
            forged.app.space,
            [own_page for own_page in forged.app.space.own_pages() if own_page != SHARED_DATA],
        ),
        (forged.kernel.space, [address for stack in stacks for address in stack]),
    ):
        for address in addresses:
            if chance.random() < 0.3 and space.holds(address):
                space.set_state(address, PAGE, State.MISSING)
                missing += 1
    assert missing >= 3
    assert not alarms(image, tmp_path)


@pytest.mark.shared
@pytest.mark.parametrize(("path", "kernel"), REAL)
def test_of_a_real_set(path: pathlib.Path, kernel: str, tmp_path: pathlib.Path) -> None:
    real = real_sets.load(path)
    if real.truth["kind"] != "kernel":
        assert not alarms(realtruth.image_of(real, kernel, symbols=True), tmp_path)
        return
    identity = kernels.load(kernel)
    options = {**identity.options(), **real.kernel_options(), "nt_global_flag": 0x2000}
    options.pop("base", None)
    new_kernel = real_sets.kernel_of(real, identity.table, **options)
    for number, base in enumerate(DRIVERS):
        new_kernel.module(f"driver{number}.sys", base, text=0x40000)
    assert not alarms(new_kernel.image(), tmp_path)


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_of_real_trap_frames(build: str, shared_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for number, (label, kernel) in enumerate(undamaged.real_trap_frames(build, shared_dir)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not alarms(kernel.image(), folder), label
