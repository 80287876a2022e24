# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.trapframes` on what an adversary may write: it says what is wrong, and it ends."""

from __future__ import annotations

import pathlib
import random
import struct
from typing import Optional, Tuple

import pytest

from tests.forge import kernels
from tests.forge import trapentries as entries
from tests.forge.kernel import Kernel
from tests.forge.thread import Thread
from tests.forge.trapentries import Entry
from tests.support.trapforge import TrapImage
from tests.support.trapimages import LiveImage
from tests.support.trapsets import registers_64
from tests.support.trapthreads import in_system_call, make_kernel, put
from winstacks.traps.lister import MAX_CHAIN

EVERYTHING = {"scan_stacks": True, "processors": True, "members": True}


def noise(generator: random.Random, size: int) -> bytes:
    return bytes(generator.getrandbits(8) for _ in range(size))


@pytest.fixture(scope="module", params=["win10-x64", "xp-x86"])
def live_thread(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tuple[LiveImage, Kernel, Thread]:
    image = TrapImage(kernels.load(request.param))
    thread = image.kernel.processes[1].threads[3]
    return LiveImage(image.kernel, tmp_path_factory.mktemp("hostile")), image.kernel, thread


@pytest.mark.parametrize("seed", range(12))
def test_a_thread_of_random_bytes(live_thread: Tuple[LiveImage, Kernel, Thread], seed: int) -> None:
    live, kernel, thread = live_thread
    generator = random.Random(seed)
    size = kernel.isf.size("_KTHREAD")
    field = kernel.isf.offset("_KTHREAD", "StackBase")
    start = thread.kthread.address
    # A few members at random, or everything but the type.
    if seed % 2:
        live.poke(start + 8, noise(generator, size - 8))
    else:
        for offset in (field, *(generator.randrange(8, size - 8, 4) for _ in range(4))):
            live.poke(start + offset, noise(generator, 8))
    rows = live.rows(**EVERYTHING)
    assert len(rows) > 20


@pytest.mark.parametrize("seed", range(8))
def test_a_stack_of_random_bytes(live_thread: Tuple[LiveImage, Kernel, Thread], seed: int) -> None:
    live, _, thread = live_thread
    generator = random.Random(seed)
    size = thread.stack_base - thread.stack_limit
    words = [b"\x10\0\0\0\0\0\0\0", b"\x33\0\0\0\0\0\0\0", b"\x2b\0\0\0\0\0\0\0", b"\x02\x02\0\0\0\0\0\0"]
    words += [struct.pack("<Q", thread.stack_limit + 8 * number) for number in range(20)]
    words += [bytes(8), b"\x00\x0d\xdb\xba\x08\0\0\0", noise(generator, 8)]
    live.poke(thread.stack_limit, b"".join(generator.choice(words) for _ in range(size // 8)))
    frames = [row["TrapFrame"] for row in live.rows(**EVERYTHING) if row["TID"] == thread.tid]
    assert len(frames) == len(set(frames))


def test_a_pointer_that_is_not_canonical(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    address = in_system_call(kernel, thread)
    thread.kthread["TrapFrame"] = address ^ 1 << 50
    rows = LiveImage(kernel, tmp_path).rows()
    assert [(row["Origin"], row["Status"], row["Rip"] is None) for row in rows] == [
        ("thread", "not canonical, outside the stack", True),
        ("top", "", False),
    ]
    assert rows[0]["TrapFrame"] == rows[1]["TrapFrame"]


@pytest.mark.parametrize(
    ("length", "back", "word"),
    [(2, 0, "cycle"), (2, 1, "cycle"), (MAX_CHAIN + 2, None, "limit"), (MAX_CHAIN, None, "")],
)
def test_a_chain_that_does_not_end_says_so(
    tmp_path: pathlib.Path, length: int, back: Optional[int], word: str
) -> None:
    """The last frame leads back to one of the chain, or the chain has too many frames."""
    kernel = make_kernel()
    thread = kernel.process("app.exe", pid=1000).thread(1004, stack_size=0x1A000)
    thread.kthread["KernelStack"] = thread.stack_limit
    places = [thread.stack_limit + 0x600 * number for number in range(1, length + 1)]
    linkage = kernel.symbol("KiServiceLinkage")
    for place, older in zip(places, (*places[1:], 0 if back is None else places[back])):
        registers = registers_64("kernel")
        registers["rsp"] = place + kernel.isf.size("_KTRAP_FRAME") + 8
        put(kernel, thread, Entry(entries.ZW, "kernel", linkage=linkage, previous=older), registers, place)
    thread.kthread["TrapFrame"] = places[0]
    rows = [
        row for row in LiveImage(kernel, tmp_path).rows() if row["TID"] == 1004 and row["Origin"] == "thread"
    ]
    assert len(rows) == min(length, MAX_CHAIN) + bool(word)
    assert [row["Status"] for row in rows if row["Status"]] == [word] * bool(word)
