# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Bulk reads of forged images: whatever the pages are in, nothing readable is lost."""

from __future__ import annotations

import pathlib
import random
from typing import Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.space import Space
from winstacks.memory import bulk

PAGE = 0x1000
STATES = [
    State.VALID,
    State.TRANSITION,
    State.PAGEFILE,
    State.VALID,
    State.MISSING,
    State.DEMAND_ZERO,
    State.VALID,
    State.ABSENT,
]
HOLES = {number for number, state in enumerate(STATES) if not state.readable}
START = {64: 0xFFFFAB8000100000, 32: 0x91000000}
LARGE = {64: 0xFFFFAB8040000000, 32: 0x93000000}


class Sample:
    """An image with a range in every page state, the bytes that were put there, and its layer."""

    def __init__(self, kernel_name: str, folder: pathlib.Path, file_name: str) -> None:
        identity = kernels.load(kernel_name)
        kernel = Kernel(identity.table, **identity.options())
        bits = kernel.bits
        self.start, self.large = START[bits], LARGE[bits]
        self.data = random.Random(bits).randbytes(len(STATES) * PAGE)
        self._fill(kernel.space)
        kernel.space.map_large(self.large, 1)
        kernel.space.write(self.large + 0x1F0000, self.data)
        opened = context.open_image(kernel.image(), folder, file_name)
        self.context, self.layer = opened.context, opened.layer

    def _fill(self, space: Space) -> None:
        space.write(self.start, self.data)
        for number, state in enumerate(STATES):
            space.set_state(self.start + number * PAGE, PAGE, state)

    def read(self, start: int, length: int) -> Dict[int, int]:
        extents = bulk.read_extents(self.context, self.layer.name, start, length)
        return {
            address + offset: value for address, data in extents.runs for offset, value in enumerate(data)
        }

    def expected(self, start: int, length: int) -> Dict[int, int]:
        return {
            address: self.data[address - self.start]
            for address in range(max(start, self.start), min(start + length, self.start + len(self.data)))
            if (address - self.start) // PAGE not in HOLES
        }


IMAGES: List[Tuple[str, str]] = [("win10-x64", "a.raw"), ("win10-x64", "a.dmp"), ("win10-x86", "a.dmp")]


@pytest.fixture(scope="module", params=IMAGES, ids="-".join)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    kernel_name, file_name = request.param
    return Sample(kernel_name, tmp_path_factory.mktemp("memory"), file_name)


def test_reads_all_that_is_there_and_nothing_else(sample: Sample) -> None:
    length = len(sample.data)
    assert sample.read(sample.start, length) == sample.expected(sample.start, length)


def test_a_masked_address_reads_the_same(sample: Sample) -> None:
    masked = bulk.masked(sample.layer, sample.start)
    assert sample.read(masked, PAGE) == sample.expected(sample.start, PAGE)


@given(offset=st.integers(-PAGE, 9 * PAGE), length=st.integers(0, 3 * PAGE))
def test_any_part_reads_alike(sample: Sample, offset: int, length: int) -> None:
    start = sample.start + offset
    assert sample.read(start, length) == sample.expected(start, length)


def test_a_large_page_is_read(sample: Sample) -> None:
    found = sample.read(sample.large + 0x1F0000, len(sample.data))
    assert bytes(found.values()) == sample.data


def test_what_volatility_gives_up_of_a_large_page_is_read(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame of a large page is not in the file: its other pages are."""
    below = sample.context.layers[sample.layer.config["memory_layer"]]
    hole = sample.layer.translate(bulk.masked(sample.layer, sample.large + 0x1F2000))[0]
    valid = below.is_valid

    def without_hole(offset: int, length: int = 1) -> bool:
        return not (offset < hole + PAGE and hole < offset + length) and valid(offset, length)

    monkeypatch.setattr(below, "is_valid", without_hole)
    found = sample.read(sample.large + 0x1F0000, len(sample.data))
    assert len(found) == len(sample.data) - PAGE
    assert sample.large + 0x1F2000 not in found


def test_nothing_beyond_the_end_of_the_layer(sample: Sample) -> None:
    assert sample.read((1 << sample.layer.bits_per_register) - 1, 1 << 40).keys() <= {
        (1 << sample.layer.bits_per_register) - 1
    }


@given(address=st.integers(0, (1 << 64) - 1))
def test_canonical_form_is_stable(sample: Sample, address: int) -> None:
    machine = bulk.machine_of(sample.layer)
    canonical = machine.canonical(address)
    assert machine.canonical(canonical) == canonical
    assert bulk.masked(sample.layer, canonical) == bulk.masked(sample.layer, address)
    assert machine.is_canonical(canonical)


def test_the_upper_half_is_sign_extended(sample: Sample) -> None:
    machine = bulk.machine_of(sample.layer)
    assert machine.canonical(bulk.masked(sample.layer, sample.start)) == sample.start


def test_one_page_mapped_over_and_over(tmp_path: pathlib.Path) -> None:
    """A few page tables make gigabytes of two pages; pages of zeros may be combined."""
    identity = kernels.load("win10-x64")
    kernel = Kernel(identity.table, **identity.options())
    start, count = START[64], 3 * bulk.MAX_COPIES
    contents = (b"a" * PAGE, b"b" * PAGE, bytes(PAGE))
    for number, data in enumerate(contents):
        kernel.space.write(start + number * PAGE, data)
    for number in range(3, 3 * count):
        kernel.space.map_frame(start + number * PAGE, kernel.space, start + number % 3 * PAGE)
    opened = context.open_image(kernel.image(), tmp_path)
    found = bulk.read_extents(opened.context, opened.layer.name, start, 3 * count * PAGE)
    present = b"".join(data for _, data in found.runs)
    assert [present.count(data[:1]) // PAGE for data in contents] == [bulk.MAX_COPIES] * 2 + [count]
