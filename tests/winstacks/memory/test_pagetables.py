# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Long ranges, looked up table by table: the same pages as Volatility finds one by one."""

from __future__ import annotations

import pathlib
import random
from typing import Dict, Iterable, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.support.only import only
from winstacks.memory import bulk, pagetables

PAGE = 0x1000
PAGES = 96
START = {64: 0xFFFFAB80001D0000, 32: 0x911D0000}
"""Below the end of a page table, so that a range goes on in the next one."""
STATES = [*State]
STATES.remove(State.LARGE)


class Sample:
    """A range with pages in every state, in runs of all lengths; its layer."""

    def __init__(self, kernel_name: str, folder: pathlib.Path, file_name: str, shuffled: bool) -> None:
        identity = kernels.load(kernel_name)
        kernel = Kernel(identity.table, **{**identity.options(), "shuffle": 1 if shuffled else None})
        generator = random.Random(kernel_name)
        self.start = START[kernel.bits]
        self.data = generator.randbytes(PAGES * PAGE)
        kernel.space.write(self.start, self.data)
        self.states: List[State] = []
        while len(self.states) < PAGES:
            self.states += [generator.choice([State.VALID, *STATES])] * generator.randint(1, 6)
        for number, state in enumerate(self.states[:PAGES]):
            kernel.space.set_state(self.start + number * PAGE, PAGE, state)
        opened = context.open_image(kernel.image(), folder, file_name)
        self.context, self.layer = opened.context, opened.layer

    def ours(self, start: int, length: int) -> Dict[int, Tuple[int, str]]:
        found = pagetables.mapping(self.context, self.layer, start, length)
        return by_page((offset, size, mapped, below) for offset, size, mapped, below in found)

    def theirs(self, start: int, length: int) -> Dict[int, Tuple[int, str]]:
        found = self.layer.mapping(start, length, ignore_errors=True)
        return by_page((offset, size, mapped, below) for offset, size, mapped, _, below in found)


def by_page(found: Iterable[Tuple[int, int, int, str]]) -> Dict[int, Tuple[int, str]]:
    """What is at each page (or part of one): where, and in which layer."""
    pieces: Dict[int, Tuple[int, str]] = {}
    for offset, size, mapped, below in found:
        end = offset + size
        while offset < end:
            assert offset not in pieces
            pieces[offset] = (mapped, below)
            step = min(PAGE - offset % PAGE, end - offset)
            offset, mapped = offset + step, mapped + step
    return pieces


IMAGES = [
    ("win10-x64", "a.raw", False),
    ("win10-x64", "b.raw", True),
    ("win10-x64", "a.dmp", True),
    ("win10-x86", "a.dmp", False),
]


@pytest.fixture(scope="module", params=IMAGES, ids=str)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    kernel_name, file_name, shuffled = request.param
    return Sample(kernel_name, tmp_path_factory.mktemp("pages"), file_name, shuffled)


def test_all_that_is_present_is_read(sample: Sample) -> None:
    extents = bulk.read_extents(sample.context, sample.layer.name, sample.start, PAGES * PAGE)
    for number, state in enumerate(sample.states[:PAGES]):
        page = extents.read(sample.start + number * PAGE, PAGE)
        expected = sample.data[number * PAGE : (number + 1) * PAGE] if state.readable else None
        assert (None if page is None else bytes(page)) == expected, (number, state)


@given(offset=st.integers(-40 * PAGE, PAGES * PAGE), length=st.integers(0, 1 << 23))
def test_any_range_is_mapped_as_volatility_maps_it(sample: Sample, offset: int, length: int) -> None:
    start = bulk.masked(sample.layer, sample.start) + offset
    assert sample.ours(start, length) == sample.theirs(start, length)


@given(
    offset=st.integers(-40 * PAGE, PAGES * PAGE),
    lengths=st.lists(st.integers(1, 1 << 22), min_size=1, max_size=3),
)
def test_what_page_tables_map_of_long_ranges(sample: Sample, offset: int, lengths: List[int]) -> None:
    place = bulk.masked(sample.layer, sample.start) + offset
    ranges, theirs = [], set()
    for length in lengths:
        ranges.append((place, place + length))
        theirs |= {page // PAGE for page in sample.theirs(place, length)}
        place += length + 5 * PAGE
    found, repeated = pagetables.mapped(sample.context, sample.layer, ranges)
    assert {page for low, high in found for page in range(low // PAGE, (high - 1) // PAGE + 1)} == theirs
    assert all(low < high for low, high in found)
    assert repeated == 0


def test_a_frame_beyond_the_image_is_not_read(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    below = sample.context.layers[sample.layer.config["memory_layer"]]
    start = bulk.masked(sample.layer, sample.start)
    whole = sample.ours(start, PAGES * PAGE)
    lost = sorted(whole)[len(whole) // 2]
    hole, valid = whole[lost][0], below.is_valid

    def without_hole(offset: int, length: int = 1) -> bool:
        return not (offset < hole + PAGE and hole < offset + length) and valid(offset, length)

    monkeypatch.setattr(below, "is_valid", without_hole)
    assert sample.ours(start, PAGES * PAGE) == {page: at for page, at in whole.items() if page != lost}


def test_a_table_whose_entries_are_all_the_same_counts_as_none(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Volatility says so: Windows 10 maps a lot of unused memory that way."""
    below = sample.context.layers[sample.layer.config["memory_layer"]]
    frame = sample.ours(bulk.masked(sample.layer, sample.start), PAGES * PAGE)
    entry = (min(at for at, _ in frame.values()) | 0x63).to_bytes(8, "little")
    monkeypatch.setattr(below, "read", lambda offset, length, pad=False: entry * (length // 8))
    assert not list(pagetables.mapping(sample.context, sample.layer, 0x10000000, PAGES * PAGE))


def test_a_large_page_is_found(tmp_path: pathlib.Path) -> None:
    identity = kernels.load("win10-x64")
    kernel = Kernel(identity.table, **identity.options())
    large = 0xFFFFAB8040000000
    kernel.space.map_large(large)
    kernel.space.write(large - 0x10000, b"before".ljust(0x10000))
    kernel.space.write(large, b"within")
    kernel.space.write(large + 0x200000, b"after")
    opened = context.open_image(kernel.image(), tmp_path)
    extents = bulk.read_extents(opened.context, opened.layer.name, large - 0x10000, 0x220000)
    start, data = only(extents.runs)
    assert (start, len(data)) == (large - 0x10000, 0x211000)
    assert data[0x10000:0x10006] == b"within"


def test_page_tables_that_repeat_are_followed_once(tmp_path: pathlib.Path) -> None:
    identity = kernels.load("win10-x64")
    kernel = Kernel(identity.table, **identity.options())
    start, gigabyte = 0xFFFFA10000000000, 1 << 30
    kernel.space.write(start + 0x5000, bytes(PAGE))
    kernel.space.map_large(start + 0x400000)
    kernel.space.write(start + gigabyte, bytes(PAGE))
    tables = kernel.space.tables
    entry = tables._get(tables.root >> 12, start >> 39 & 0x1FF)
    directories = entry >> 12 & 0xFFFFFFFFF
    for number in range(2, 512):
        tables._put(directories, number, tables._get(directories, 0))
    opened = context.open_image(kernel.image(), tmp_path)
    first = bulk.masked(opened.layer, start)
    found, repeated = pagetables.mapped(opened.context, opened.layer, [(first, first + (1 << 39))])
    assert repeated == 510
    assert found == [
        (first + 0x5000, first + 0x6000),
        (first + 0x400000, first + 0x600000),
        (first + gigabyte, first + gigabyte + PAGE),
    ]


@pytest.mark.parametrize("name", ["win10-x64", "win10-x86"])
def test_pages_that_are_not_for_execution(name: str, tmp_path: pathlib.Path) -> None:
    identity = kernels.load(name)
    kernel = Kernel(identity.table, **identity.options())
    start = START[kernel.bits]
    kernel.space.write(start, b"\xc3" * 3 * PAGE)
    kernel.space.tables.forbid_execution(start + PAGE)
    kernel.space.set_state(start + 2 * PAGE, PAGE, State.TRANSITION)
    opened = context.open_image(kernel.image(), tmp_path)
    requests = [bulk.masked(opened.layer, start + offset) for offset in (0x123, PAGE + 0x123, 2 * PAGE)]
    found = [pagetables.may_execute(opened.context, opened.layer, address) for address in requests]
    assert found == [True, False, False]
