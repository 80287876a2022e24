# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Waits in user mode: locks of ntdll, by chains and tables of wait blocks and by sections."""

from __future__ import annotations

import functools
import pathlib
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tests.conftest import SHARED
from tests.support import bare, waitsets
from tests.support.waitsets import Snapshot
from winstacks.columns import words
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import text
from winstacks.memory.decode.structure import integers
from winstacks.waits.decode.addresswaits import bucket_of
from winstacks.waits.decode.answer import Answer
from winstacks.waits.decode.processview import ProcessView, ThreadView
from winstacks.waits.decode.userwaits import UserWaits

from .target import Target, Template

_NTDLL, _PEB, _HEAP, _STACKS = (0x77000000, 0x77200000), 0x100000, 0x200000, 0x10000000
_STACK, _DEPTH, _COUNT = 0x600, 0x400, 7
_MOST_READS = 40_000
_WORDS = 0x100
_ENOUGH = 3
"""Waiting threads of a real snapshot."""


class _Process(NamedTuple):
    """A process: its memory, and the threads as its kernel shows them."""

    size: int
    template: Template
    threads: Sequence[ThreadView]
    ntdll: Tuple[int, int]
    peb: int


class _Forge:
    """Memory that is filled word by word."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pages = {_PEB: bytearray(0xA00), _HEAP: bytearray(0x600)}
        self.threads: List[ThreadView] = []
        for number in range(_COUNT):
            low = _STACKS + 0x10000 * number
            self.pages[low] = bytearray(_STACK)
            sp = low + _STACK - _DEPTH
            self.put(sp, _NTDLL[0] + 0x1000, _NTDLL[0] + 0x1040)
            stack, teb = (low, low + _STACK), (_PEB + 0x2000 * (number + 1), _PEB + 0x2000 * (number + 2))
            self.threads.append(
                ThreadView(100 + 4 * number, (stack,), teb, _NTDLL[0] + 0x500, sp, {"Rbx": _HEAP + 0x300})
            )

    def put(self, address: int, *values: int) -> None:
        start, page = next((s, p) for s, p in self.pages.items() if s <= address < s + len(p))
        mask, code = (1 << 8 * self.size) - 1, "Q" if self.size == 8 else "I"
        struct.pack_into(f"<{len(values)}{code}", page, address - start, *(value & mask for value in values))

    def at(self, number: int, offset: int) -> int:
        return (self.threads[number].sp or 0) + offset

    def members(self, address: int, structure: str, values: Dict[str, int]) -> None:
        """Writes members of one of our structures."""
        types = bare.image(self.size).process_types(bare.MACHINES[self.size])
        start, page = next((s, p) for s, p in self.pages.items() if s <= address < s + len(p))
        for name, value in values.items():
            field = types[structure].field(name)
            place = address - start + field.offset
            page[place : place + field.size] = (value & (1 << 8 * field.size) - 1).to_bytes(
                field.size, "little"
            )

    def block(self, address: int, structure: str, generation: int, values: Dict[str, int]) -> None:
        layouts = bare.image(self.size).our_generations("waits", bare.MACHINES[self.size])
        layout = layouts[generation][structure]
        start, page = next((s, p) for s, p in self.pages.items() if s <= address < s + len(p))
        for name, value in values.items():
            field = layout.field(name)
            place = address - start + field.offset
            page[place : place + field.size] = (value & (1 << 8 * field.size) - 1).to_bytes(
                field.size, "little"
            )


@functools.lru_cache(maxsize=None)
def _forged(size: int, generation: int) -> _Process:
    """Threads that wait on an address, for an SRW lock, a condition variable, a section, a resource and a
    run-once variable."""
    forge = _Forge(size)
    types = bare.image(size).process_types(bare.MACHINES[size])
    table = types["_PEB"].offset("WaitOnAddressHashTable")
    address, first = _HEAP + 0x40, forge.at(0, 0x60)
    values = {"Address": address, "ThreadId": 100, "Older": 0, "Newer": 0, "Oldest": first}
    forge.block(first, "_RTLP_ADDRESS_WAIT_BLOCK", 0, values)
    forge.put(_PEB + table + size * bucket_of(address), first)
    for members, word, bits in (((1, 2), _HEAP + 0x80, 3), ((2, 3), _HEAP + 0x90, 0)):
        blocks = [forge.at(number, 0x100 + 0x80 * (bits == 0)) for number in members]
        for place, (number, block) in enumerate(zip(members, blocks)):
            back = 0 if place else blocks[1]
            values = {"Back": back, "Notify": block if place else 0, "Next": 0, "ShareCount": -1, "Flags": 1}
            values["SRWLock"] = word
            if generation == 0:
                values["ThreadId"] = forge.threads[number].tid
            forge.block(block, "_RTLP_SRWLOCK_WAIT_BLOCK", generation, values)
            forge.put(forge.at(number, 0x30 + size * (bits == 0)), word)
        forge.put(word, blocks[0] | bits)
    section, resource, once = _HEAP + 0x100, _HEAP + 0x300, _HEAP + 0x500
    held = {"DebugInfo": -1, "LockCount": ~(1 << 2 | 1), "RecursionCount": 1, "OwningThread": 100}
    held["LockSemaphore"] = 0x1C
    forge.members(section, "_RTL_CRITICAL_SECTION", held)
    forge.put(forge.at(4, 0x80), section)
    values = {"SharedSemaphore": 0x20, "ExclusiveSemaphore": 0x24, "NumberOfWaitingShared": 1}
    values.update(NumberOfActive=-1, ExclusiveOwnerThread=104)
    forge.members(resource, "_RTL_RESOURCE", values)
    forge.members(
        resource, "_RTL_CRITICAL_SECTION", {**held, "OwningThread": 0, "RecursionCount": 0, "LockCount": -1}
    )
    forge.put(forge.at(5, 0x80), resource)
    forge.put(forge.at(6, 0x48), once)
    forge.put(once, forge.at(6, 0x90) | 1)
    threads = [
        thread._replace(arguments=({4: 0x1C, 5: 0x20}.get(number),), registers={"Rbx": section})
        for number, thread in enumerate(forge.threads)
    ]
    pages = Template((start, bytes(page)) for start, page in forge.pages.items())
    return _Process(size, pages, threads, _NTDLL, _PEB)


@functools.lru_cache(maxsize=None)
def _real(label: str) -> _Process:
    """Threads that wait in Microsoft's ntdll: the inner parts of their stacks, and other data."""
    snapshot = next(each for each in waitsets.snapshots(_path(label)) if _waiters(each) >= _ENOUGH)
    view = waitsets.view_of(snapshot, True)
    inner = [(thread.sp or 0, data) for thread in view.threads if (data := _inner(view, thread))]
    stacks = [stack for thread in view.threads for stack in thread.stacks]
    others = [part for part in _used(snapshot) if not any(low <= part[0] < high for low, high in stacks)]
    template = Template([*inner, *others])
    return _Process(view.pointer_size, template, view.threads, view.ntdll or (0, 0), snapshot.truth["peb"])


def _waiters(snapshot: Snapshot) -> int:
    return sum(bool(thread["waits_for"]) for thread in snapshot.truth["threads"])


def _inner(view: ProcessView, thread: ThreadView) -> bytes:
    """Returns a thread's stack from its stack pointer on."""
    values = view.innermost(thread, 0x800)
    return b"".join(value.to_bytes(view.pointer_size, "little") for value in values)


def _used(snapshot: Snapshot) -> Iterator[Tuple[int, bytes]]:
    """Yields the parts of a snapshot's memory that hold something, and of each so much."""
    for start, data in snapshot.regions:
        filled = [place for place in range(0, len(data), 16) if any(data[place : place + 16])]
        if filled:
            yield start + filled[0], data[filled[0] : filled[-1] + 16][:0x1800]


def _path(label: str) -> pathlib.Path:
    return SHARED / "waits" / f"{label}.jsonl.xz"


class Counted:
    """Reads memory, and counts how often."""

    def __init__(self, memory: Extents) -> None:
        self._memory = memory
        self.calls = 0

    def read(self, address: int, length: int) -> Optional[memoryview]:
        self.calls += 1
        assert length >= 0
        return self._memory.read(address, length)


def _user(process: _Process, data: bytes, whole: bytes) -> None:
    """At most one lock is answered for sure, in bounded work; each answer names places of the process."""
    counted = Counted(process.template.extents(data))
    size = process.size
    image, machine = bare.image(size), bare.MACHINES[size]
    types, layouts = image.process_types(machine), image.our_generations("waits", machine)
    offset = types["_PEB"].offset("WaitOnAddressHashTable")
    bare_threads = [thread._replace(arguments=()) for thread in process.threads]
    # The table at its place; moved within the PEB; in ntdll's data, where any word may lead to a block.
    for threads, peb, place in (
        (process.threads, process.peb, offset),
        (bare_threads, process.peb, offset + 8 * size),
        (bare_threads, 0, 0),
    ):
        view = ProcessView(counted.read, size, threads, process.ntdll)
        heap = functools.partial(integers, data[-size * _WORDS :] if len(data) % size == 0 else b"", size)
        waits = UserWaits(view, types, layouts, peb, place, heap)
        for thread in threads:
            for answer in waits.find(thread):
                _check(answer, thread, size)
            for section in waits.held_on_stack(thread):
                assert section.members.owning_thread in view.by_tid
        assert len(waits.table.blocks) <= len(threads)
        assert text(waits.status).isprintable()
        if whole and data == whole:
            assert any(map(waits.find, threads))
    assert counted.calls < _MOST_READS, counted.calls


def _check(answer: Answer, thread: ThreadView, size: int) -> None:
    assert answer.tid == thread.tid
    assert answer.kind in words.WAIT_KINDS
    assert answer.evidence.isprintable()
    assert 0 <= answer.address < 1 << 8 * size and 0 <= answer.lock < 1 << 8 * size
    if answer.block:
        assert any(low <= answer.block < high for low, high in thread.stacks), "the block of another thread"


def _seeds(process: _Process) -> List[bytes]:
    return [process.template.bytes]


def _user_target(name: str, make: functools.partial[_Process]) -> Target:
    return Target(name, lambda: _seeds(make()), lambda data, whole: _user(make(), data, whole))


def targets() -> Iterator[Target]:
    for size in (8, 4):
        for generation in (0, 1):
            name = f"userwaits-{8 * size}-{generation}"
            yield _user_target(name, functools.partial(_forged, size, generation))
    for label in ("19044.1766", "2600x86", "7601.17514"):
        if _path(label).exists():
            yield _user_target(f"userwaits-{label}", functools.partial(_real, label))
