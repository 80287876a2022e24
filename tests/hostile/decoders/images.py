# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Page tables of an image of memory, and the content that identifies the image."""

from __future__ import annotations

import functools
import struct
from typing import Iterator, List

from tests.winstacks.memory.decode import test_pagetable
from tests.winstacks.stacklist.decode import test_imageid
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
    yield Target("imageid", lambda: [bytes(range(256)) * 33], _identity)
