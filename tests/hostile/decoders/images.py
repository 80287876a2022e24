# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Page tables of an image of memory, and the content that identifies the image."""

from __future__ import annotations

import functools
import struct
from typing import Dict, Iterator, List, Optional, Tuple, Type

from volatility3.framework import contexts, interfaces
from volatility3.framework.layers import intel, physical

from tests.winstacks.memory.decode import test_pagetable
from tests.winstacks.stacklist.decode import test_imageid
from winstacks.memory import pagetables
from winstacks.memory.decode import pagetable
from winstacks.stacklist.decode import imageid

from .target import Target

_PROTECTIONS = 32


def _table(size: int, data: bytes, whole: bytes) -> None:
    """Each page is in one run; a run says of its pages what their entries say; pages lie below 2^52."""
    entries = pagetable.entries(data, size)
    assert len(entries) == len(data) // size
    told: List[int] = []
    for length, start in pagetable.runs(data, size, 0, len(entries)):
        assert length > 0
        told += [-1 if start is None else start + number * pagetable.PAGE_SIZE for number in range(length)]
    present = [pagetable.target(entry, size) if entry & pagetable.PRESENT else -1 for entry in entries]
    assert told == present
    for entry in entries:
        page = pagetable.in_section(entry, size)
        assert page is None or (0 <= page < 1 << 52 and not page % pagetable.PAGE_SIZE)
        if page is not None:
            assert pagetable.leads(entry)
            pagetable.writable(entry)
        protection = pagetable.protection(entry)
        assert (protection is None) == (not pagetable.leads(entry))
        assert protection is None or 0 <= protection < _PROTECTIONS
        pagetable.executable(entry, size)
        for pointer_size in (size, 4):
            own = pagetable.leads_to_section(entry, size, pointer_size, test_pagetable.PROTOTYPE_PTE)
            assert not (own and entry & pagetable.PRESENT), "a page that is there is the process's own"


def _tables(size: int) -> List[bytes]:
    """Pages in a row, written, copied when written, in transition, prototypes, and in the page file."""
    entries = [0x5063, 0x6063, 0x7867, 0x9221, 0x5C00, 0x5800 | 3 << 5, 7 << 12 | 7 << 5]
    entries += [0x123458E0, 0x122000A1, 0]
    if size == 8:
        entries += [test_pagetable.PRESENT_WITH_FLAGS | 0x1F000, test_pagetable.LOOK_IN_THE_VAD]
        entries += [(test_pagetable.PROTOTYPE_PTE & (1 << 48) - 1) << 16 | 0x4E0, 1 << 63 | 0x5821]
    return [test_pagetable.table(entries, size)]


_LAYERS: Dict[str, Type[intel.Intel]] = {
    "x64": intel.WindowsIntel32e,
    "pae": intel.WindowsIntelPAE,
    "x86": intel.WindowsIntel,
}
_PAGE, _FRAMES, _RECORD = 0x1000, 12, struct.Struct("<BHQ")
"""A record of an input sets an entry: number of the page, number of the entry in it, and the entry."""


def _layer(name: str, data: bytes) -> Tuple[contexts.Context, intel.Intel]:
    """Returns a layer whose page tables are at the second page of a memory of twelve."""
    kind, context, memory = _LAYERS[name], contexts.Context(), bytearray(_PAGE * _FRAMES)
    size = _PAGE >> kind._structure[-1][1]
    for frame, number, entry in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        place = frame % _FRAMES * _PAGE + number % (_PAGE // size) * size
        memory[place : place + size] = (entry & (1 << 8 * size) - 1).to_bytes(size, "little")
    context.add_layer(physical.BufferDataLayer(context, "memory", "memory", bytes(memory)))
    for option, value in (("memory_layer", "memory"), ("page_map_offset", _PAGE)):
        context.config[interfaces.configuration.path_join("layer", option)] = value
    layer = kind(context, "layer", "layer")
    context.add_layer(layer)
    return context, layer


def _translated(layer: intel.Intel, page: int) -> Optional[int]:
    """Returns where Volatility finds a page alone."""
    found = list(layer.mapping(page, _PAGE, ignore_errors=True))
    return found[0][2] if found else None


def _mapping(name: str, data: bytes, whole: bytes) -> None:
    """A page is where Volatility finds it alone; in a walk over all memory each table is met once."""
    context, layer = _layer(name, data)
    tables = pagetables.PageTables(context, layer)
    last, highest = layer.maximum_address + 1, (1 << layer._maxphyaddr) - 1
    parts, repeated = pagetables.mapped(context, layer, [(0, last // 2), (last // 2, last)])
    assert repeated >= 0 and all(low < high for low, high in parts)
    assert all(before[1] <= after[0] for before, after in zip(parts, parts[1:]))
    assert sum(high - low for low, high in parts) <= _FRAMES * (_PAGE << 9) * _PAGE
    for first in (0, tables.span - 5 * _PAGE, last - 12 * _PAGE):
        together: Dict[int, int] = {}
        for offset, size, mapped, below in pagetables.mapping(context, layer, first, 12 * _PAGE):
            assert below == "memory" and not size % _PAGE
            pieces = {offset + place: mapped + place for place in range(0, size, _PAGE)}
            assert not together.keys() & pieces
            together.update(pieces)
        for page in range(first, first + 12 * _PAGE, _PAGE):
            table, _ = tables.entries(page)
            assert table is None or len(table) in (0, _PAGE)
            pagetables.may_execute(context, layer, page)
            places = tables.place(page), tables.physical(page)
            # Of a large page whose address is none for its size, Volatility says two things.
            if tables.find_table(page) is not None:
                alone = _translated(layer, page)
                assert together.get(page) == alone
                assert all(place is None or alone in (None, place & highest) for place in places)


def _mappings(name: str) -> List[bytes]:
    """Tables for the low pages and for the last, two of them for the low ones; a large page behind."""
    bits = [bits for _, bits, _ in _LAYERS[name]._structure]
    records, frame, free = [], 1, 2
    for level in bits[:-1]:
        last = (1 << level) - 1
        records += [(frame, 0, free << 12 | 0x63), (frame, last, free << 12 | 0x63)]
        frame, free = free, free + 1
    records += [(frame - 1 if len(bits) > 1 else 1, 1, free << 12 | 0x63), (frame, 2, 0xE3)]
    entries = 1 << bits[-1]
    for table in (frame, free):
        records += [(table, number, (8 + number % 4) << 12 | 0x63) for number in (0, 1, 2, 5, 8, 9)]
        records += [(table, entries - number, (6 + number) << 12 | 0x63) for number in (1, 2, 4)]
        records += [(table, 3, 0x9880), (table, 4, 0x123400000480), (table, 6, 0xFFF << 12 | 0x63)]
    return [b"".join(_RECORD.pack(*record) for record in records)]


def _identity(data: bytes, whole: bytes) -> None:
    """Sizes of two files and two times, then the first file's content: each content has one identity."""
    first, second = data[16:], data[:16]
    times = struct.unpack("<QQ", second.ljust(16, b"\0"))
    files = [test_imageid.content(first), test_imageid.content(second)]
    found = imageid.identify(files, *times)
    assert found == imageid.identify(files, *times) and not found.unread
    assert len(found.image_id) == 33 and found.image_id.isalnum()
    if first:
        assert found.image_id != imageid.identify([files[1], files[0]], *times).image_id
    cut = files[0]._replace(size=len(first) + imageid.BLOCK_SIZE)
    assert len(list(imageid.blocks(0, cut.size, cut.size))) <= imageid.BLOCKS
    assert imageid.identify([cut], *times).image_id != imageid.identify([files[0]], *times).image_id


def targets() -> Iterator[Target]:
    for size in (4, 8):
        seeds = functools.partial(_tables, size)
        yield Target(f"pagetable-{8 * size}", seeds, functools.partial(_table, size))
    for name in _LAYERS:
        mappings = functools.partial(_mappings, name)
        yield Target(f"pagetables-{name}", mappings, functools.partial(_mapping, name))
    yield Target("imageid", lambda: [bytes(range(256)) * 33], _identity)
