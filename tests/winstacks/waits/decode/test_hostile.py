# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Wait blocks, tables and chains that no Windows makes: they end, and prove nothing."""

from __future__ import annotations

import random
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from tests.support import bare
from tests.support.only import only
from winstacks.columns import words
from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.waits.decode import slimlocks
from winstacks.waits.decode.addresswaits import BUCKETS, bucket_of
from winstacks.waits.decode.processview import ProcessView, ThreadView
from winstacks.waits.decode.userwaits import UserWaits

NTDLL = (0x7FF800000000, 0x7FF800200000)
PEB, HEAP = 0x100000, 0x200000
STACKS = 0x10000000
SIZE = 0x4000
TABLE = 0x3A0


class Forged:
    """An x64 process whose threads stand behind a system call that ntdll made."""

    def __init__(self, count: int) -> None:
        self.pages: Dict[int, bytearray] = {PEB: bytearray(0x1000), HEAP: bytearray(0x1000)}
        self.threads: List[ThreadView] = []
        self.read_calls = 0
        for number in range(count):
            low = STACKS + number * SIZE * 2
            self.pages[low] = bytearray(SIZE)
            sp = low + SIZE - 0x1000
            self.put(sp, NTDLL[0] + 0x1000)
            self.threads.append(
                ThreadView(4 * number + 100, ((low, low + SIZE),), ip=NTDLL[0] + 0x500, sp=sp)
            )

    def put(self, address: int, *values: int) -> None:
        start, page = next((s, p) for s, p in self.pages.items() if s <= address < s + len(p))
        struct.pack_into(f"<{len(values)}Q", page, address - start, *values)

    def read(self, address: int, length: int) -> Optional[bytes]:
        self.read_calls += 1
        start = address // SIZE * SIZE
        data = self.pages.get(start, b"")[address - start : address - start + length]
        return bytes(data) if len(data) == length else None

    def waits(self) -> UserWaits:
        image, machine = bare.image(8), bare.MACHINES[8]
        view = ProcessView(self.read, 8, self.threads, NTDLL)
        layouts = image.our_generations("waits", machine)
        return UserWaits(view, image.process_types(machine), layouts, PEB, TABLE)

    def answers(self) -> List[Tuple[str, int]]:
        waits = self.waits()
        return [(answer.kind, answer.address) for thread in self.threads for answer in waits.find(thread)]

    def block(self, number: int, at: int = 0x58) -> int:
        sp = self.threads[number].sp
        assert sp is not None
        return sp + at


def test_a_table_that_is_sound() -> None:
    forged = Forged(2)
    address = HEAP + 0x40
    first, second = forged.block(0), forged.block(1)
    forged.put(first, address, 100, 0, second, first)
    forged.put(second, address, 104, first, 0, first)
    forged.put(PEB + TABLE + 8 * bucket_of(address), second)
    assert forged.answers() == [(words.ON_ADDRESS, address)] * 2


@pytest.mark.parametrize("fault", ["loop", "bucket", "stack of another", "tid", "below"])
def test_a_table_that_lies(fault: str) -> None:
    forged = Forged(2)
    address, first = HEAP + 0x40, forged.block(0)
    bucket = bucket_of(address) + (fault == "bucket")
    tid = {"tid": 1 << 40, "stack of another": 104}.get(fault, 100)
    if fault == "below":
        first -= 0x100
    forged.put(first, address, tid, first, first, first)
    forged.put(PEB + TABLE + 8 * bucket, first)
    expected = [(words.ON_ADDRESS, address)] if fault == "loop" else []
    assert forged.answers() == expected


def test_every_bucket_leads_to_the_same_block() -> None:
    forged = Forged(50)
    at = forged.block(7)
    forged.put(PEB + TABLE, *(at,) * BUCKETS)
    forged.answers()
    assert forged.read_calls < 50 * 2000


def test_workers_of_the_thread_pool_are_no_chain() -> None:
    """They are in a list on their stacks, with their IDs where a wait block has them (a real dump)."""
    forged = Forged(3)
    head = HEAP + 0x90
    entries = [forged.block(number, 0x160) for number in range(3)]
    ring = [head, *entries]
    for number, entry in enumerate(ring):
        following, before = ring[(number + 1) % len(ring)], ring[number - 1]
        forged.put(entry, following, before)
        if number:
            forged.put(entry + 16, 0, 100 + 4 * (number - 1), HEAP + 0x30)
            forged.put(forged.block(number - 1, 0x40), head)
    assert forged.answers() == []


def _chain(forged: Forged, members: List[int], word: int, bits: int) -> None:
    """Links the blocks of threads, the newest first, and makes a word lead to the newest."""
    blocks = [forged.block(number, 0x100) for number in members]
    for place, (number, block) in enumerate(zip(members, blocks)):
        back = blocks[place + 1] if place + 1 < len(blocks) else 0
        notify = block if not back else 0
        forged.put(block, back, notify, 0, forged.threads[number].tid, 0xFFFFFFFF | 1 << 32, word)
        forged.put(forged.block(number, 0x30), word)
    forged.put(word, blocks[0] | bits)


def test_a_chain_that_is_sound() -> None:
    forged = Forged(4)
    _chain(forged, [2, 0, 3], HEAP + 0x80, 3)
    assert forged.answers() == [(words.SRW_LOCK, HEAP + 0x80)] * 3


class _Walked(Tuple[Any, ...]):
    """The blocks of a chain, which count how often they are walked."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        _Walked.walks += 1
        return super().__iter__()


def test_a_chain_is_searched_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of threads may point to the words of chains with thousands of blocks."""
    make = slimlocks.SlimQueue
    monkeypatch.setattr(
        slimlocks, "SlimQueue", lambda word, value, blocks, *more: make(word, value, _Walked(blocks), *more)
    )
    forged, count = Forged(50), 40
    _chain(forged, list(range(count)), HEAP + 0x80, 3)
    for number in range(count, 50):
        forged.put(forged.block(number, 0x30), HEAP + 0x80)
    waits, _Walked.walks = forged.waits(), 0
    found = [[answer.block for answer in waits.find(thread)] for thread in forged.threads]
    assert found == [[forged.block(number, 0x100)] for number in range(count)] + [[]] * 10
    assert _Walked.walks <= 3


def test_a_loop_of_blocks_is_no_chain() -> None:
    forged = Forged(3)
    _chain(forged, [0, 1, 2], HEAP + 0x80, 3)
    forged.put(forged.block(2, 0x100), forged.block(0, 0x100), 0)
    assert forged.answers() == []


def test_a_chain_that_leaves_the_stacks_is_none() -> None:
    forged = Forged(2)
    _chain(forged, [0, 1], HEAP + 0x80, 3)
    forged.put(forged.block(0, 0x100), HEAP + 0x100)
    assert forged.answers() == []


def test_a_long_chain_ends() -> None:
    forged = Forged(60)
    _chain(forged, list(range(60)), HEAP + 0x80, 0)
    assert forged.answers() == [(words.CONDITION_VARIABLE, HEAP + 0x80)] * 60
    assert forged.read_calls < 60 * 2000


def test_words_that_lead_to_one_chain_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread has a hundred words, and each word leads to the blocks of all threads."""
    count, words_each = 20, 100
    forged = Forged(count)
    forged.pages[HEAP] = bytearray(8 * words_each * count)
    blocks = [forged.block(number, 0x400) for number in range(count)]
    for number, (thread, block) in enumerate(zip(forged.threads, blocks)):
        back = blocks[number + 1] if number + 1 < count else 0
        forged.put(block, back, 0 if back else block, 0, thread.tid, 0xFFFFFFFF | 1 << 32, 0)
        for place in range(words_each):
            word = HEAP + 8 * (number * words_each + place)
            forged.put(word, blocks[0] | 3)
            forged.put(forged.block(number, 0x10 + 8 * place), word)
    assert len(forged.answers()) == words_each * count
    forged.read_calls = 0
    monkeypatch.setattr(slimlocks, "MOST_BLOCKS", 10 * count)
    waits = forged.waits()
    found = [waits.find(thread) for thread in forged.threads]
    assert [len(answers) for answers in found] == [10] * count
    assert waits.missing == status(StatusCode.LIMIT)
    # Of each word that is left out only the word itself and its newest block are read.
    assert forged.read_calls < 4 * count * words_each


@pytest.mark.parametrize("seed", range(5))
def test_random_words_prove_nothing(seed: int) -> None:
    """Stacks full of addresses of stacks, of the heap and of IDs: at most bounded work, and no answer."""
    dice = random.Random(seed)
    forged = Forged(6)
    for thread in forged.threads:
        low, high = only(thread.stacks)
        places = [low + 8 * dice.randrange(SIZE // 8) for low in forged.pages if low >= STACKS]
        for place in range(low, high - 8, 8):
            if place != thread.sp:
                forged.put(place, dice.choice([*places, HEAP + 8 * dice.randrange(0x100), thread.tid, 0]))
    for place in range(HEAP, HEAP + 0x1000, 8):
        forged.put(place, dice.choice([0, STACKS + 8 * dice.randrange(SIZE // 8), dice.getrandbits(64)]))
    found = forged.answers()
    assert len(found) <= 1, found
    assert forged.read_calls < 100_000
