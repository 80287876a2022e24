# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Heaps that ntdll filled, compared with the calls: every block, who allocated it, and who freed it."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.plugins.windows.stacktraces.base.decode.extents import Extents
from volatility3.plugins.windows.stacktraces.base.decode.memory import Memory
from volatility3.plugins.windows.stacktraces.base.decode.status import NOTHING, Word, says
from volatility3.plugins.windows.stacktraces.heaps.decode.block import Block
from volatility3.plugins.windows.stacktraces.heaps.decode.blocks import HeapWalker
from volatility3.plugins.windows.stacktraces.heaps.decode.find import find
from volatility3.plugins.windows.stacktraces.heaps.decode.trace import BlockTrace, Traces

from tests.forge import real_sets
from tests.support import heaptypes

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


@functools.lru_cache(maxsize=None)
def _read(name: str, path: pathlib.Path) -> Tuple[Block, ...]:
    real = real_sets.load(path)
    arch = real.truth["arch"]
    memory = Memory.over(Extents((region.va, region.data) for region in real.regions), real.pointer_size)
    entries = real.truth["entries"]
    stored = [BlockTrace("std", each["va"], each["index"], tuple(each["frames"])) for each in entries]
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch], lambda: stored)
    types = heaptypes.heap_types(arch)
    private = [(start, start + size) for start, size in real.truth["vads"]]
    found = find(memory, types, [heap["heap"] for heap in real.truth["heap"]["heaps"]], private)
    walker = HeapWalker(memory, traces, types.page)
    items = [item for heap in found.nt for item in walker.blocks(heap)]
    assert all(isinstance(item, Block) for item in items), "a header was lost in an undamaged heap"
    return tuple(item for item in items if isinstance(item, Block))


@pytest.fixture
def blocks(real: real_sets.RealSet, shared_dir: pathlib.Path) -> Tuple[Block, ...]:
    return _read(real.name, shared_dir / "real_std" / f"{real.name}.tar.xz")


def test_every_block_is_exact_and_there_is_no_other(
    real: real_sets.RealSet, blocks: Tuple[Block, ...]
) -> None:
    heap = real.truth["heap"]
    busy = {block.user: block for block in blocks if not block.freed}
    assert len(busy) == sum(not block.freed for block in blocks)
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
    untraced = {each["user"]: each["size"] for each in heap.get("ntdll_untraced", [])}
    assert {user: block.trace for user, block in busy.items() if user not in untraced} == {}


def test_freed_blocks_name_who_freed_them(real: real_sets.RealSet, blocks: Tuple[Block, ...]) -> None:
    freed: Dict[int, List[List[int]]] = {
        each["user"]: each["freed_by"] for each in real.truth["heap"]["freed_blocks"]
    }
    for block in blocks:
        if block.freed:
            assert says(block.status, Word.STACK_OF_THE_FREE)
            assert block.trace is not None
            assert list(block.trace.frames) in freed[block.user]
