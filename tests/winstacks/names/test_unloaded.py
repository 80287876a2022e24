# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel's ring of unloaded drivers: each of its 50 elements counts."""

from __future__ import annotations

import pathlib
from typing import Tuple

import pytest

from tests.forge import context
from tests.forge.kernel import Kernel
from tests.support.tracedkernels import new_kernel
from winstacks.memory.decode.status import Status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.unloaded import DRIVERS, DRIVERS_CONTRADICTED, RememberedModules

NAMES = ["win7-x86", "win10-x64"]
AWAY = 0x9000000


def full_ring(name: str) -> Kernel:
    """A kernel that has unloaded as many drivers as it remembers."""
    kernel = new_kernel(name)
    for number in range(DRIVERS):
        start = kernel.base + AWAY + number * 0x10000
        kernel.unloaded(f"gone{number}.sys", start, start + 0x4000)
    return kernel


def drivers(kernel: Kernel, folder: pathlib.Path) -> Tuple[list, Status]:
    """Names of the unloaded drivers in the order of their ranges, and why some may be missing."""
    image = context.open_image(kernel.image(), folder).image
    found, status = RememberedModules(image).drivers(0xFFFF800000000000 if kernel.bits == 64 else 1 << 31)
    return [driver.name for driver in sorted(found, key=lambda driver: driver.start)], status


@pytest.mark.parametrize("name", NAMES)
def test_all_of_a_full_ring_are_listed(name: str, tmp_path: pathlib.Path) -> None:
    listed, status = drivers(full_ring(name), tmp_path)
    assert (listed, status) == ([f"gone{number}.sys" for number in range(DRIVERS)], ())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [0, DRIVERS - 1])
def test_an_impossible_value_in_one_used_element(name: str, number: int, tmp_path: pathlib.Path) -> None:
    kernel = full_ring(name)
    width = kernel.bits // 8
    element = kernel.space.read_int(kernel.symbol("MmUnloadedDrivers"), width)
    element += number * (0x28 if width == 8 else 0x18)
    # StartAddress follows Name, a UNICODE_STRING.
    kernel.space.write_int(element + 2 * width, 0x1000, width)
    listed, status = drivers(kernel, tmp_path)
    assert listed == [f"gone{other}.sys" for other in range(DRIVERS) if other != number]
    assert status == DRIVERS_CONTRADICTED
    assert StatusCode.CONTRADICTED in [item.code for item in status]
