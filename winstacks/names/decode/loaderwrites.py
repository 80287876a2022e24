# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the bytes that Windows writes into an image besides relocations: imports, Control Flow Guard's
pointers, code.

These bytes differ between memory and file although no program changed them. All locations are RVAs. Every
count is bounded: if a table exceeds its bound, the list is marked as incomplete (`whole`), and memory is not
compared with the file.

Source: Microsoft, "PE Format" (imports, delay-load imports, load configuration); winnt.h of the public SDK
(IMAGE_LOAD_CONFIG_DIRECTORY32 and 64, IMAGE_DYNAMIC_RELOCATION_TABLE and its entries).
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, Optional, Tuple

from ...memory.decode.records import NamedTuple
from .pe import Headers
from .unwindinfo import ReadRva

MAX_DESCRIPTORS = 1 << 12
"""Maximum number of descriptors of imports, or of kinds of dynamic relocations."""
MAX_THUNKS = 1 << 17
"""Maximum number of imports of all descriptors together."""

MAX_DYNAMIC = 1 << 18
"""Maximum number of sites of dynamic relocations."""

_IMPORT, _LOAD_CONFIG, _IAT, _DELAY_IMPORT = 1, 10, 12, 13
_MAX_DIRECTORY = 1 << 20

_DESCRIPTOR = struct.Struct("<5I")
_DELAY_DESCRIPTOR = struct.Struct("<8I")
_RVA_BASED = 1
"""Bit in Attributes of a delay-load descriptor: its members are RVAs. Older linkers stored addresses."""

_COOKIE = {4: 60, 8: 88}
"""Offset of SecurityCookie in the load configuration, by pointer size."""

_POINTERS = {
    4: (72, 76, 132, 144, 172, 176, 180, 184, 188),
    8: (112, 120, 216, 232, 280, 288, 296, 304, 312),
}
"""Offsets in the load configuration of members that point to a pointer or value that the loader writes:
GuardCFCheckFunctionPointer, GuardCFDispatchFunctionPointer, GuardRFFailureRoutineFunctionPointer,
GuardRFVerifyStackPointerFunctionPointer, GuardXFGCheckFunctionPointer, GuardXFGDispatchFunctionPointer,
GuardXFGTableDispatchFunctionPointer, CastGuardOsDeterminedFailureMode, GuardMemcpyFunctionPointer."""

_DYNAMIC = {4: (136, 140), 8: (224, 228)}
"""Offsets of DynamicValueRelocTableOffset and DynamicValueRelocTableSection, by pointer size."""

_TABLE = struct.Struct("<II")
_BLOCK = struct.Struct("<II")
_SITE_SIZES = {3: 4, 4: 2, 5: 2}
"""Bytes of an entry by the kind of dynamic relocation: import calls, indirect calls, branches of switches."""

_SITE = 16
"""Bytes of code that count as written at a site, more than Windows replaces: a call through a pointer and the
padding behind it."""

_FIRST_SYMBOL = 0x100
"""Smaller values of Symbol are kinds of dynamic relocations. Larger ones are addresses that the kernel moves:
their entries have the form of base relocations."""


class LoaderWrites(NamedTuple):
    """The ranges of an image that Windows writes.

    Attributes:
        ranges: (start, end) by RVA, ascending
        whole: whether the list is complete
    """

    ranges: Tuple[Tuple[int, int], ...]
    whole: bool


class _TooManyError(Exception):
    """A table is longer than its limit, cannot be decoded, or is missing in part."""


def find_writes(read: ReadRva, headers: Headers, image_base: int) -> LoaderWrites:
    """Returns the ranges of an image that Windows writes."""
    pointer = 8 if headers.machine == 0x8664 else 4
    written: List[Tuple[int, int]] = []
    rva, size = headers.directory(_IAT)
    written += [(rva, rva + size)] if size else []
    whole = True
    parts = (
        _imports(read, headers, pointer),
        _delay_imports(read, headers, pointer, image_base),
        _load_config(read, headers, pointer, image_base),
    )
    for part in parts:
        try:
            written.extend(part)
        except _TooManyError:
            whole = False
    return LoaderWrites(tuple(sorted(written)), whole)


def _imports(read: ReadRva, headers: Headers, pointer: int) -> Iterator[Tuple[int, int]]:
    """Yields (start, end) of the import address tables."""
    rva, size = headers.directory(_IMPORT)
    budget = [MAX_THUNKS]
    for number in range(MAX_DESCRIPTORS if size else 0):
        data = _need(read, rva + number * _DESCRIPTOR.size, _DESCRIPTOR.size)
        names, _, _, name, thunks = _DESCRIPTOR.unpack(data)
        if not (name and thunks):
            return
        yield thunks, thunks + _table_length(read, names or thunks, pointer, budget)
    if size:
        raise _TooManyError


def _delay_imports(
    read: ReadRva, headers: Headers, pointer: int, image_base: int
) -> Iterator[Tuple[int, int]]:
    """Yields (start, end) of the address tables of delay-load imports, and of their module handles."""
    rva, size = headers.directory(_DELAY_IMPORT)
    budget = [MAX_THUNKS]
    for number in range(MAX_DESCRIPTORS if size else 0):
        data = _need(read, rva + number * _DELAY_DESCRIPTOR.size, _DELAY_DESCRIPTOR.size)
        attributes, name, handle, thunks, names = _DELAY_DESCRIPTOR.unpack(data)[:5]
        if not name:
            return
        base = 0 if attributes & _RVA_BASED else image_base
        if handle:
            yield handle - base, handle - base + pointer
        if thunks:
            yield (
                thunks - base,
                thunks - base + _table_length(read, (names or thunks) - base, pointer, budget),
            )
    if size:
        raise _TooManyError


def _table_length(read: ReadRva, rva: int, pointer: int, budget: List[int]) -> int:
    """Returns the bytes of a table of pointers that ends with 0, including the 0. `budget` has one number:
    the pointers that may still be read, reduced here."""
    count = 0
    while budget[0] > 0:
        budget[0] -= 1
        count += 1
        if not any(_need(read, rva + (count - 1) * pointer, pointer)):
            return count * pointer
    raise _TooManyError


def _load_config(read: ReadRva, headers: Headers, pointer: int, image_base: int) -> Iterator[Tuple[int, int]]:
    """Yields (start, end) of the ranges in the load configuration: pointers that the loader writes, and code
    that Windows replaces."""
    rva, size = headers.directory(_LOAD_CONFIG)
    if not size:
        return
    # The directory's size may be the size of an older structure; the structure has its own.
    (length,) = struct.unpack("<I", _need(read, rva, 4))
    data = _need(read, rva, min(length, 0x200))
    for offset in (_COOKIE[pointer], *_POINTERS[pointer]):
        address = _member(data, offset, pointer)
        if image_base < address < image_base + headers.size:
            yield address - image_base, address - image_base + pointer
    offset, number = (_member(data, at, size) for at, size in zip(_DYNAMIC[pointer], (4, 2)))
    if number:
        if number > len(headers.section_starts):
            raise _TooManyError
        yield from _dynamic(read, headers.section_starts[number - 1] + offset, pointer)


def _dynamic(read: ReadRva, rva: int, pointer: int) -> Iterator[Tuple[int, int]]:
    """Yields (start, end) of the sites of dynamic relocations: code that Windows replaces when it loads the
    image. Raises _TooManyError if the table has another version than 1 or an unknown kind of relocations, or
    is too long."""
    version, size = _TABLE.unpack(_need(read, rva, _TABLE.size))
    if version != 1 or size > _MAX_DIRECTORY:
        raise _TooManyError
    at, end = rva + _TABLE.size, rva + _TABLE.size + size
    kinds: Dict[int, None] = {}
    budget = MAX_DYNAMIC
    while at < end:
        head = _need(read, at, pointer + 4)
        symbol, length = int.from_bytes(head[:pointer], "little"), int.from_bytes(head[pointer:], "little")
        at += pointer + 4
        if length > end - at or len(kinds) > MAX_DESCRIPTORS:
            raise _TooManyError
        kinds[symbol] = None
        width = 2 if symbol >= _FIRST_SYMBOL else _SITE_SIZES.get(symbol)
        if width is None:
            raise _TooManyError
        for site in _sites(read, at, at + length, width):
            budget -= 1
            if budget < 0:
                raise _TooManyError
            yield site, site + _SITE
        at += length


def _sites(read: ReadRva, at: int, end: int, width: int) -> Iterator[int]:
    """Yields the RVAs of the sites in blocks of entries, whose lowest 12 bits are an offset in a page."""
    while at < end:
        page, length = _BLOCK.unpack(_need(read, at, _BLOCK.size))
        if not _BLOCK.size <= length <= end - at:
            raise _TooManyError
        entries = _need(read, at + _BLOCK.size, (length - _BLOCK.size) // width * width)
        for position in range(0, len(entries), width):
            yield page + (int.from_bytes(entries[position : position + 2], "little") & 0xFFF)
        at += length


def _member(data: bytes, offset: int, size: int) -> int:
    """Returns a member of a structure, 0 if the structure ends before it."""
    part = data[offset : offset + size]
    return int.from_bytes(part, "little") if len(part) == size else 0


def _need(read: ReadRva, rva: int, length: int) -> bytes:
    """Returns bytes of the image. Raises _TooManyError if some of them are missing."""
    data: Optional[object] = None if rva < 0 else read(rva, length)
    if data is None:
        raise _TooManyError
    assert isinstance(data, (bytes, bytearray, memoryview))
    return bytes(data)
