# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Waits in the kernel: wait blocks, cycles of threads and locks, system calls, timer tables."""

from __future__ import annotations

import functools
import struct
from typing import Dict, Iterator, List, Optional, Tuple

from tests.forge import callbacks, kernels
from tests.forge.isf import Isf
from tests.support import heaptypes
from tests.winstacks.callbacks.decode import test_timertables
from winstacks.callbacks.decode import timertables
from winstacks.columns import words
from winstacks.memory.decode.memory import ReadMemory
from winstacks.memory.decode.ranges import Extents
from winstacks.waits.decode import calls, waitblocks, waitgraph

from .target import Target, Template
from .waits import Counted

_KERNELS = ("xp-x86", "win7-x64", "win10-x64")
_KTHREAD, _BLOCKS, _OBJECTS, _OTHER = 0x1000, 0x2000, 0x3000, 0x4000


def _reader(table: Isf, read: ReadMemory) -> waitblocks.WaitBlockReader:
    types = heaptypes.structures(table)
    thread, block, header = (types[name] for name in ("_KTHREAD", "_KWAIT_BLOCK", "_DISPATCHER_HEADER"))
    return waitblocks.WaitBlockReader(read, thread, block, header, table.pointer_size, bool)


@functools.lru_cache(maxsize=None)
def _waiting(name: str) -> Template:
    """A thread that waits for three objects; the list of the last one has a block of another thread, too."""
    table = kernels.load(name).table
    types = heaptypes.structures(table)
    thread, block, header = (types[each] for each in ("_KTHREAD", "_KWAIT_BLOCK", "_DISPATCHER_HEADER"))
    size = table.pointer_size
    pages = {_KTHREAD: bytearray(thread.size), _BLOCKS: bytearray(4 * block.size), _OBJECTS: bytearray(0x200)}

    def put(address: int, value: int, length: int = size) -> None:
        start = address & ~0xFFF
        pages[start][address - start : address - start + length] = value.to_bytes(length, "little")

    def member(base: int, structure: str, value: int, *names: str) -> int:
        field = types[structure].first_member(*names)
        if field is None:
            return 0
        put(base + field.offset, value, field.size)
        return base + field.offset

    member(_KTHREAD, "_KTHREAD", _BLOCKS, "WaitBlockList")
    member(_KTHREAD, "_KTHREAD", 3, "WaitBlockCount")
    links = block.first_member("WaitListEntry.Flink", "WaitListEntry")
    head = header.first_member("WaitListHead.Flink", "WaitListHead")
    assert links is not None and head is not None
    for number in range(4):
        at, target = _BLOCKS + number * block.size, _OBJECTS + 0x80 * min(number, 2)
        member(at, "_KWAIT_BLOCK", target, "Object")
        member(at, "_KWAIT_BLOCK", _KTHREAD if number < 3 else _OTHER, "Thread")
        member(at, "_KWAIT_BLOCK", _BLOCKS + (number + 1) % 3 * block.size, "NextWaitBlock")
        put(target, number + 1, 1)
    for target, members in ((0, (0,)), (1, (1,)), (2, (2, 3))):
        ring = [_OBJECTS + 0x80 * target + head.offset]
        ring += [_BLOCKS + number * block.size + links.offset for number in members]
        for place, node in enumerate(ring):
            put(node, ring[(place + 1) % len(ring)])
            put(node + size, ring[place - 1])
    return Template((start, bytes(page)) for start, page in pages.items())


def _kernel(name: str, data: bytes, whole: bytes) -> None:
    template = _waiting(name)
    counted = Counted(template.extents(data))
    found = _reader(kernels.load(name).table, counted.read).blocks(_KTHREAD)
    assert len(found.blocks) <= waitblocks.MAX_OBJECTS
    assert len({block.address for block in found.blocks}) == len(found.blocks)
    assert counted.calls <= 2 + (waitblocks.MAX_OBJECTS + 1) * (1 + 2 * waitblocks.MAX_LISTED)
    for block in found.blocks:
        assert block.object
    for number in data[:64]:
        assert waitblocks.kind_of(number) in words.WAIT_KINDS
    if whole and data == whole:
        assert found.whole and [block.listed for block in found.blocks] == [True] * 3


def _graph(data: bytes, whole: bytes) -> None:
    """Each byte pair is a thread and its lock, each third byte an owner; all cycles are cycles."""
    waits = {place // 3: data[place] for place in range(0, len(data) - 2, 3)}
    holders: Dict[int, List[int]] = {}
    for place in range(0, len(data) - 2, 3):
        holders.setdefault(data[place + 1], []).append(data[place + 2])
    found = waitgraph.cycles(waits, holders)
    members = [step.thread for cycle in found for step in cycle]
    assert len(set(members)) == len(members) <= len(waits)
    for cycle in found:
        for step, following in zip(cycle, (*cycle[1:], cycle[0])):
            assert waits[step.thread] == step.lock
            assert following.thread in holders[step.lock]
    ways = waitgraph.ways_into(found, waits, holders)
    assert ways.keys() >= set(members)
    for thread, after in ways.items():
        assert after in ways and after in holders[waits[thread]]


def _graphs() -> List[bytes]:
    """Two rings, a thread that waits for itself, a chain."""
    waits = [
        (1, 0, 1),
        (2, 1, 2),
        (0, 2, 0),
        (3, 3, 3),
        (5, 4, 5),
        (4, 5, 4),
        (7, 6, 6),
        (8, 7, 7),
        (9, 8, 8),
    ]
    return [bytes(value for wait in waits for value in wait)]


def _calls(data: bytes, whole: bytes) -> None:
    for name in data.decode("latin-1").split("\n"):
        assert calls.kind_of(name) in ("", *words.WAIT_KINDS)


def _timers(data: bytes, whole: bytes) -> None:
    """The form of the seed is found while most of its heads are heads; pointers are addresses."""
    memory = Extents([(test_timertables.START, data)])

    def read(address: int) -> Optional[Tuple[int, int]]:
        found = memory.read(address, 16)
        return None if found is None else struct.unpack("<QQ", found)

    found = timertables.likeliest(test_timertables.FORMS, read)
    assert found is None or found in test_timertables.FORMS
    if found is not None:
        links = [(head, read(head)) for head in found.heads]
        assert sum(link is not None for _, link in links) * 2 > found.length
    for place in range(0, min(len(data), 0x200) - 32, 8):
        stored, timer, never, always = struct.unpack_from("<4Q", data, place)
        assert 0 <= timertables.decoded_dpc(stored, timer, never, always) < 1 << 64
    if whole and len(data) == len(whole) and sum(map(int.__ne__, data, whole)) <= 8:
        assert found is not None, "one wrong word hides a table of 256 heads"


def _timer_seeds() -> List[bytes]:
    """Tables of empty lists; behind each is a word of a timer."""
    seeds = []
    for form in test_timertables.FORMS[1::2]:
        words_of = test_timertables.table_of(form)
        end = max(words_of) + 8
        data = b"".join(
            struct.pack("<Q", words_of.get(place, callbacks.NEVER ^ place))
            for place in range(test_timertables.START, end, 8)
        )
        seeds.append(data)
    return seeds


def targets() -> Iterator[Target]:
    for kernel in _KERNELS:
        seeds = functools.partial(lambda kernel: [_waiting(kernel).bytes], kernel)
        yield Target(f"waitblocks-{kernel}", seeds, functools.partial(_kernel, kernel))
    yield Target("waitgraph", _graphs, _graph)
    yield Target("waitcalls", lambda: [b"ntdll!NtWaitForSingleObject\nzwReadFile\nNtUserGetMessage"], _calls)
    yield Target("timertables", _timer_seeds, _timers)
