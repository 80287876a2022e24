# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.heaptraces --address`: the block that holds an address, and the blocks beside it."""

from __future__ import annotations

import pathlib
import random
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.plugins.windows.heaptraces import HeapTraces

from tests.forge import context, lfh, real_sets
from tests.support import grid, realtruth
from tests.support.heapimage import HEAP, HeapImage, blocks, groups, symbols
from tests.support.only import only
from winstacks.heaps.decode.around import around
from winstacks.heaps.decode.block import UNKNOWN_SIZE, Block, TraceGroups
from winstacks.memory.decode.status import NOTHING, text

COMMITTED = sorted((pathlib.Path(__file__).parents[1] / "data" / "real_std").glob("*-heap.tar.xz"))


def group_of(*given: Block) -> TraceGroups:
    found = TraceGroups(keep=True)
    for block in given:
        found.add(block)
    return found


def block_at(user: int, size: int) -> Block:
    return Block(0x1000, user, size, 8, "block", False, None, 0, NOTHING)


@pytest.mark.parametrize(
    ("kernel", "wow64"), [("win10-x64", False), ("win7-x86", False), ("win10-x64", True)]
)
def test_every_place_of_a_heap(kernel: str, wow64: bool, tmp_path: pathlib.Path) -> None:
    forged = HeapImage(kernel, wow64)
    heap = forged.heap()
    stacks = [forged.record(number) for number in range(1, 4)]
    users = [heap.extended(size, record) for size, record in zip((100, 200, 300), stacks)]
    inner = lfh.add(heap, forged.form, 0x60, [lfh.Wanted(10, stacks[0]), lfh.Wanted(20, stacks[1])])
    forged.put(heap.regions(), HEAP)

    def at(address: int) -> List[Tuple[int, str]]:
        found = forged.run(tmp_path, address=address)
        for node in groups(found):
            assert node.row["Count"] == 1
            if node.row["EntryAddress"]:
                number = stacks.index(node.row["EntryAddress"]) + 1
                assert symbols(node)[1:] == [f"app!open_store+{number:#x}", "app!main+0x5"]
        return [(at, row["Status"]) for at, row in blocks(found).items()]

    gap = users[2] - users[1] - 200
    assert at(users[1]) == [
        (users[1], "holds the address at 0"),
        (users[0], f"ends {users[1] - users[0] - 100} bytes below the address"),
        (users[2], f"begins {users[2] - users[1]} bytes above the address"),
    ]
    assert at(users[1] + 199)[0] == (users[1], "holds the address at 199")
    # One byte behind the caller's bytes: which block was overrun.
    assert at(users[1] + 200) == [
        (users[1], "ends 0 bytes below the address"),
        (users[2], f"begins {gap} bytes above the address"),
    ]
    # The block of the low-fragmentation heap, not the block that holds its user data.
    assert at(inner[1] + 19)[0] == (inner[1], "holds the address at 19")
    assert at(HEAP + 0x40000000) == []


@pytest.mark.parametrize("path", COMMITTED, ids=realtruth.case_name)
def test_blocks_that_windows_allocated(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Any byte of a block leads to it, and to its stack."""
    real = real_sets.load(path)
    image = realtruth.image_of(real, realtruth.kernels_of(real.name)[0], True)
    opened = context.open_image(image, tmp_path)
    records = {record["va"]: record["frames"] for record in real.truth["heap"]["heap_trace_records"]}
    random_ = random.Random(3)
    for block in random_.sample(real.truth["heap"]["blocks"], 6):
        offset = random_.randrange(max(block["size"], 1))
        first, *_ = groups(grid.run(opened, HeapTraces, address=block["user"] + offset))
        at, row = only(blocks([first]).items())
        assert (at, row["Size"]) == (block["user"], block["size"])
        assert row["Status"] == f"holds the address at {offset}"
        frames = [child["Address"] for child in first.children if child["Frame"] is not None]
        assert frames == [realtruth.masked(frame) for frame in records[block["trace_record"]]]


def test_random_blocks() -> None:
    """Against a search that looks at every block."""
    random_ = random.Random(7)
    for _ in range(300):
        given, start = [], 0x10000
        for _ in range(random_.randrange(1, 12)):
            start += random_.randrange(0, 64)
            given.append(block_at(start, random_.choice((UNKNOWN_SIZE, 0, 1, 16, 40))))
            start += max(given[-1].size, 0) + 1
        address = random_.randrange(0xFFF0, start + 32)
        found: Dict[str, Any] = {}
        for group in around(group_of(*given).groups(), address, None):
            block = only(group.blocks)
            found[text(block.status).split()[0]] = block.user
        holding = [block.user for block in given if block.user <= address < block.user + max(block.size, 1)]
        others = [block for block in given if block.user not in holding]
        below = [block for block in others if block.user < address]
        above = [block for block in others if block.user > address]
        expected: Dict[str, int] = {}
        if holding:
            expected["holds"] = only(holding)
        if above:
            word = "begins"
            expected[word] = above[0].user
        if below and below[-1].size != UNKNOWN_SIZE:
            expected["ends"] = below[-1].user
        elif below:
            expected.setdefault("begins", below[-1].user)
        assert found == expected
