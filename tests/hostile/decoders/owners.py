# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What keeps trace indices: resources, critical sections, handle tables and rings, object traces; lists."""

from __future__ import annotations

import functools
import struct
from typing import Iterator, List, Optional, Tuple

from tests.winstacks.handles.decode import test_handle_ring
from tests.winstacks.heaps.decode import test_umdh
from tests.winstacks.locks.decode import test_criticalsection, test_eresource
from tests.winstacks.objects.decode import test_objecttrace
from tests.winstacks.process.decode import test_handletable
from winstacks.handles.decode import handle_ring
from winstacks.heaps.decode import umdh
from winstacks.locks.decode import criticalsection, eresource
from winstacks.memory.decode import links
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.objects.decode import objecttrace
from winstacks.process.decode import handletable

from .target import Decode, Target

_RINGS = {"x64": test_handle_ring.X64, "xp": test_handle_ring.XP}
_RESOURCES = {"x64": test_eresource.WINDOWS_10, "xp": test_eresource.XP}
_TABLES = {
    "xp": test_handletable.XP,
    "7": test_handletable.SEVEN,
    "8": test_handletable.EIGHT,
    "10": test_handletable.TEN,
    "10-x86": test_handletable.TEN_X86,
}
_BASE = 0x10000


def _counting(length: int) -> bytes:
    return b"".join(struct.pack("<I", number) for number in range(-(-length // 4)))[:length]


def _resource(form: str, data: bytes, whole: bytes) -> None:
    layout = _RESOURCES[form]
    if len(data) < layout.size:
        return
    resource = eresource.decode_resource(data, layout)
    assert resource.embedded is not None and layout.owner is not None
    assert len(resource.embedded) <= layout.owner_count
    rest = data[layout.size :]
    if len(rest) >= layout.owner.size:
        eresource.table_size(rest, layout.owner)
        # Readers read no more of a table.
        owners = eresource.decode_owner_table(rest[: eresource.MAX_OWNERS * layout.owner.size], layout.owner)
        assert len(owners) <= min(len(rest) // layout.owner.size, eresource.MAX_OWNERS)


def _section(size: int, data: bytes, whole: bytes) -> None:
    layouts = test_criticalsection.LAYOUTS[size]
    layout = layouts[True]
    longest = max(layout.debug_size, layout.resource_size)
    for start in range(0, len(data) - longest + 1, 16):
        section = layout.section(data[start : start + layout.section_size])
        layout.resource(data[start : start + layout.resource_size])
        for variant in layouts.values():
            piece = data[start : start + variant.debug_size]
            criticalsection.is_pair(0x1000, variant.debug(piece), section)
        criticalsection.lock_state(section.lock_count, section.recursion_count)


def _locks(size: int, data: bytes, whole: bytes) -> None:
    try:
        records = criticalsection.decode(data, size)
    except criticalsection.TruncatedError:
        return
    assert criticalsection.decode(criticalsection.encode(records, size), size) == records


def _lock_seeds(size: int) -> List[bytes]:
    records = [
        criticalsection.LockRecord(0x1000 * number, 1, number, 4, -1, 5, 6, -1, 7, 8)
        for number in range(1, 9)
    ]
    return [criticalsection.encode(records, size)]


def _handles(form: str, data: bytes, whole: bytes) -> None:
    decoder = _TABLES[form]
    for entry in decoder.page(Extents([(0x7000, data)]), 0x7000, 0x800):
        assert 0 <= entry.object_header < 1 << 64
        assert entry.handle % 4 == 0
    list(handletable.decode_pointers(data[: len(data) // 8 * 8], decoder.pointer_size))


def _ring(form: str, data: bytes, whole: bytes) -> None:
    decoder = _RINGS[form]
    if len(data) < decoder.trace_db:
        return
    current, size, faults = decoder.header(data)
    assert 0 < size <= handle_ring.MAX_ENTRIES or faults
    if not size:
        return
    extents, start = Extents([(_BASE, data[decoder.trace_db :])]), _BASE - decoder.trace_db
    memory = Memory.over(Extents([(start, data)]), 4 if form == "xp" else 8)
    slots = decoder.slots(len(data))
    if slots:
        decoder.is_ring(memory, start, slots)
    true_size = decoder.true_size(memory, _BASE, current, size)
    assert size <= true_size <= 2 * handle_ring.MAX_ENTRIES
    decoder.is_ahead(extents, _BASE, current, true_size)
    found = list(decoder.events(extents, _BASE, current, size))
    assert len(found) <= 2 * (len(data) // decoder.entry_size + 1) + 1
    for trace in found:
        if isinstance(trace, handle_ring.HandleTrace):
            assert len(trace.frames) <= decoder.max_depth


def _ring_seeds(form: str) -> List[bytes]:
    decoder = _RINGS[form]
    head = bytearray(decoder.trace_db)
    size = 4096 if form == "xp" else 16
    struct.pack_into("<I", head, 0 if form == "xp" else 0x48, 20)
    if form != "xp":
        struct.pack_into("<I", head, 4, size)
    length = min(size, 64) * decoder.entry_size
    return [bytes(head) + _counting(length), bytes(head) + _events(form, length)]


def _events(form: str, length: int) -> bytes:
    """Events as Windows has them: IDs, a handle, a type, and frames of the kernel in front."""
    size, code = (8, "Q") if form == "x64" else (4, "I")
    inner = (1 << 8 * size) - 0x1000
    entries = []
    for number in range(length // _RINGS[form].entry_size):
        head = struct.pack(f"<3{code}I", 1000, 1004 + 4 * number, 0x84, number % 3 + 1).ljust(4 * size, b"\0")
        entries.append(head + struct.pack(f"<16{code}", inner, *range(1, 11), *bytes(5)))
    return b"".join(entries)


def _objects(wide: bool, data: bytes, whole: bytes) -> None:
    table = test_objecttrace.TABLE if wide else test_objecttrace.TABLE_X86
    for refs in (test_objecttrace.SEVEN, test_objecttrace.VISTA):
        if len(data) >= refs.stack_info:
            refs.info(data)
            events = list(refs.events(data[refs.stack_info :]))
            assert len(events) <= len(data) // refs.event_size
            assert all(event.tag is None or len(objecttrace.tag_text(event.tag)) <= 4 for event in events)
    if len(data) < table.header_size:
        return
    count, blocks = table.table(data)
    for number in (0, 1, 1023, 1024, 16380, 16381, 0x7FFF):
        table.locate(count, blocks, number)
    rest = data[table.header_size :]
    if len(rest) >= table.trace_size:
        assert len(table.trace(rest)) <= table.max_depth


def _list(data: bytes, whole: bytes) -> None:
    extents = Extents([(_BASE, data)])

    def read(address: int) -> Optional[Tuple[int, int]]:
        found = extents.read(address, 16)
        return None if found is None else struct.unpack("<QQ", found)

    walk = links.walk(_BASE, read, 1000)
    assert len(walk.nodes) <= 1000
    assert len(set(walk.nodes)) == len(walk.nodes)
    if whole and data == whole:
        assert walk.gap is None


def _list_seeds() -> List[bytes]:
    nodes = [_BASE + 0x20 * (number * 7 % 40) for number in range(40)]
    data = bytearray(0x20 * 40)
    for place, node in enumerate(nodes):
        struct.pack_into("<QQ", data, node - _BASE, nodes[(place + 1) % 40], nodes[place - 1])
    return [bytes(data)]


def _umdh(data: bytes, whole: bytes) -> None:
    try:
        log = umdh.parse(data.decode("utf-8", "replace").splitlines(keepends=True))
    except umdh.UmdhError:
        return
    assert umdh.parse("".join(umdh.write(log)).splitlines(keepends=True)).heaps == log.heaps


def targets() -> Iterator[Target]:
    for form, layout in _RESOURCES.items():
        assert layout.owner is not None
        length = layout.size + 8 * layout.owner.size
        yield _target(f"eresource-{form}", length, functools.partial(_resource, form))
    for size in (4, 8):
        bits = 8 * size
        yield _target(f"criticalsection-{bits}", 0x100, functools.partial(_section, size))
        yield _target(f"objecttrace-{bits}", 0x180, functools.partial(_objects, size == 8))
        yield Target(f"locks-{bits}", functools.partial(_lock_seeds, size), functools.partial(_locks, size))
    for form in _TABLES:
        yield _target(f"handletable-{form}", 0x1000, functools.partial(_handles, form))
    for form in _RINGS:
        ring = functools.partial(_ring, form)
        yield Target(f"handletrace-{form}", functools.partial(_ring_seeds, form), ring)
    yield Target("links", _list_seeds, _list)
    yield Target("umdh", lambda: [test_umdh.TEXT.encode()], _umdh)


def _target(name: str, length: int, decode: Decode) -> Target:
    return Target(name, lambda: [_counting(length)], decode)
