# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Heaps that ntdll filled, compared with the calls: every block, who allocated it, and who freed it."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Dict, List, Optional, Tuple

import pytest

from tests.forge import real_sets
from tests.support import heaptypes, stddata
from winstacks.columns.words import CONTAINER, VIRTUAL
from winstacks.heaps.decode.block import Block
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.contents import find_heaps
from winstacks.heaps.decode.ntblocks import heap_blocks
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING, has_status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.tracedb.decode.recorded import RecordedStack

pytestmark = pytest.mark.shared

NAMES = [
    "16299.15-x86-heap",
    "7601.17514-x64-heap-lfh",
    "19044.1766-x64-heap-lfh",
    "7601.17514-x64-heap-inline",
    "2600.5512-x86-heap",
]


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest, shared_dir: pathlib.Path) -> real_sets.RealSet:
    return real_sets.load(shared_dir / "real_std" / f"{request.param}.tar.xz")


def _memory(real: real_sets.RealSet) -> Memory:
    return Memory.over(Extents((region.va, region.data) for region in real.regions), real.pointer_size)


@functools.lru_cache(maxsize=None)
def _read(name: str, path: pathlib.Path) -> Tuple[Block, ...]:
    real = real_sets.load(path)
    arch = real.truth["arch"]
    memory = _memory(real)
    entries = real.truth["entries"]
    stored = [RecordedStack("std", entry["va"], entry["index"], tuple(entry["frames"])) for entry in entries]
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch], lambda: stored)
    types = heaptypes.layouts(arch)
    private = [(start, start + size) for start, size in real.truth["vads"]]
    found = find_heaps(memory, types, [heap["heap"] for heap in real.truth["heap"]["heaps"]], private)
    items = [block for heap in found.nt for block in heap_blocks(memory, heap, traces, types.page)]
    assert all(isinstance(block, Block) for block in items), "a header was lost in an undamaged heap"
    return tuple(block for block in items if isinstance(block, Block))


@pytest.fixture
def blocks(real: real_sets.RealSet, shared_dir: pathlib.Path) -> Tuple[Block, ...]:
    return _read(real.name, shared_dir / "real_std" / f"{real.name}.tar.xz")


def test_every_block_is_exact_and_there_is_no_other(
    real: real_sets.RealSet, blocks: Tuple[Block, ...]
) -> None:
    heap = real.truth["heap"]
    busy = {block.user: block for block in blocks if not block.freed and block.form != CONTAINER}
    assert len(busy) == sum(not block.freed and block.form != CONTAINER for block in blocks)
    wrong: List[Any] = []
    for truth in [*heap["blocks"], *heap["ntdll_blocks"]]:
        block = busy.pop(truth["user"], None)
        frames = block.trace.frames if block is not None and block.trace is not None else ()
        if block is None or (block.heap, block.size, list(frames)) != (
            truth["heap"],
            truth["size"],
            truth["frames"],
        ):
            wrong.append((hex(truth["user"]), truth["size"], block))
        elif (block.status, block.trace and block.trace.status) != (NOTHING, NOTHING):
            wrong.append(block)
    assert not wrong, (len(wrong), wrong[:3])
    untraced = {block["user"]: block["size"] for block in heap.get("ntdll_untraced", [])}
    assert {user: block.trace for user, block in busy.items() if user not in untraced} == {}


def test_containers_have_their_makers(real: real_sets.RealSet, blocks: Tuple[Block, ...]) -> None:
    found = [
        (block.heap, block.user, block.size, block.trace and list(block.trace.frames), block.status)
        for block in blocks
        if block.form == CONTAINER
    ]
    assert sorted(found) == sorted(
        (container["heap"], container["user"], container["size"], container["frames"], NOTHING)
        for container in real.truth["heap"]["containers"]
    )


def test_freed_blocks_name_who_freed_them(real: real_sets.RealSet, blocks: Tuple[Block, ...]) -> None:
    freed: Dict[int, List[List[int]]] = {
        freed_block["user"]: freed_block["freed_by"] for freed_block in real.truth["heap"]["freed_blocks"]
    }
    for block in blocks:
        if block.freed:
            assert has_status(block.status, StatusCode.STACK_OF_THE_FREE)
            assert block.trace is not None
            assert list(block.trace.frames) in freed[block.user]


def test_every_freed_block_that_still_names_a_record_is_there(
    real: real_sets.RealSet, blocks: Tuple[Block, ...]
) -> None:
    """Such are those whose second header and pointer nothing lies over: neither links nor another block."""
    log = stddata.log_address(real)
    records = {trace.address for trace in stddata.open_log(real, log).traces()} if log else set()
    memory = _memory(real)
    extents = [
        _extent(memory, block)
        for block in blocks
        if not block.freed and block.form not in (CONTAINER, VIRTUAL)
    ]
    containers = {block.user for block in blocks if block.form == CONTAINER}
    there = set()
    for freed_block in real.truth["heap"]["freed_blocks"]:
        user, header = freed_block["user"], _header(memory, freed_block["user"])
        if header is not None and memory.pointer(header + 2 * real.pointer_size) in records:
            if user not in containers and not any(user - 1 in extent for extent in extents):
                there.add(user)
    assert there == {block.user for block in blocks if block.freed}
    assert bool(there) == real.name.endswith("-lfh")


def _header(memory: Memory, user: int) -> Optional[int]:
    """The real header of an extended block, None where there is no second one."""
    unit = 2 * memory.pointer_size
    second = memory.read(user - unit, unit)
    return user - (second[-2] + 1) * unit if second is not None and second[-1] == 5 else None


def _extent(memory: Memory, block: Block) -> range:
    start = _header(memory, block.user) or block.user - 2 * memory.pointer_size
    return range(start, start + block.size + block.overhead)
