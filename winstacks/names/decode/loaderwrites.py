# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Bytes that Windows writes into an image besides relocations: imports, pointers of Control Flow Guard, code.

These bytes differ between memory and file although nobody changed them. All locations are RVAs. Every count
is bounded: if a table exceeds its bound, the list is marked incomplete (`whole`), and nothing is compared.

Source: Microsoft, "PE Format" (imports, delay-load imports, load configuration); winnt.h of the public SDK
(IMAGE_LOAD_CONFIG_DIRECTORY32 and 64, IMAGE_DYNAMIC_RELOCATION_TABLE and its entries).
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from .pe import Headers
from .unwindinfo import ReadRva

MAX_DESCRIPTORS = 1 << 12
MAX_THUNKS = 1 << 17
"""Maximum number of imports of all descriptors together."""

MAX_DYNAMIC = 1 << 18
"""Maximum number of sites of dynamic relocations."""

_IMPORT, _LOAD_CONFIG, _IAT, _DELAY_IMPORT = 1, 10, 12, 13
_MAX_DIRECTORY = 1 << 20

_DESCRIPTOR = struct.Struct("<5I")
_DELAY_DESCRIPTOR = struct.Struct("<8I")
_RVA_BASED = 1
"""Attributes of a delay-load descriptor of current linkers: its locations are RVAs; older ones are
addresses."""

_COOKIE = {4: 60, 8: 88}
"""Offset of SecurityCookie in the load configuration, by pointer size."""

_POINTERS = {
    4: (72, 76, 132, 144, 172, 176, 180, 184, 188),
    8: (112, 120, 216, 232, 280, 288, 296, 304, 312),
}
"""Offsets of the members with the address of a pointer, or value, that the loader writes: GuardCFCheck- and
DispatchFunctionPointer, GuardRFFailureRoutine- and VerifyStackPointerFunctionPointer, GuardXFGCheck-,
Dispatch- and TableDispatchFunctionPointer, CastGuardOsDeterminedFailureMode, GuardMemcpyFunctionPointer."""

_DYNAMIC = {4: (136, 140), 8: (224, 228)}
"""Offsets of DynamicValueRelocTableOffset and DynamicValueRelocTableSection."""

_TABLE = struct.Struct("<II")
_BLOCK = struct.Struct("<II")
_SITE_SIZES = {3: 4, 4: 2, 5: 2}
"""Bytes of an entry by the kind of dynamic relocation: import calls, indirect calls, branches of switches."""

_SITE = 16
"""More bytes of code than Windows replaces at a site: a call through a pointer and the padding behind it."""

_FIRST_SYMBOL = 0x100
"""Larger symbols are addresses that the kernel moves: their entries have the form of base relocations."""


class LoaderWrites(NamedTuple):
    """The ranges of an image that Windows writes.

    Attributes:
        ranges: (start, end) by RVA, ascending
        whole: whether the list is complete
    """

    ranges: Tuple[Tuple[int, int], ...]
    whole: bool


class _TooManyError(Exception):
    """A table is longer than the limit, or breaks off."""


def find_writes(read: ReadRva, headers: Headers, image_base: int) -> LoaderWrites:
    """Returns the ranges of an image that Windows writes.

    Args:
        read: reads the image by RVA, not relocated
        headers: headers of the image
        image_base: preferred address of the image
    """
    pointer = 8 if headers.machine == 0x8664 else 4
    written: List[Tuple[int, int]] = []
    rva, size = headers.directory(_IAT)
    written += [(rva, rva + size)] if size else []
    whole = True
    parts = (
        _imports(read, headers, pointer),
        _delayed(read, headers, pointer, image_base),
        _configured(read, headers, pointer, image_base),
    )
    for part in parts:
        try:
            written.extend(part)
        except _TooManyError:
            whole = False
    return LoaderWrites(tuple(sorted(written)), whole)


def _imports(read: ReadRva, headers: Headers, pointer: int) -> Iterator[Tuple[int, int]]:
    """Yields the import address tables."""
    rva, size = headers.directory(_IMPORT)
    budget = [MAX_THUNKS]
    for number in range(MAX_DESCRIPTORS if size else 0):
        data = _need(read, rva + number * _DESCRIPTOR.size, _DESCRIPTOR.size)
        names, _, _, name, thunks = _DESCRIPTOR.unpack(data)
        if not (name and thunks):
            return
        yield thunks, thunks + _length(read, names or thunks, pointer, budget)
    if size:
        raise _TooManyError


def _delayed(read: ReadRva, headers: Headers, pointer: int, image_base: int) -> Iterator[Tuple[int, int]]:
    """Yields the tables of delay-load imports, and the module handles that belong to them."""
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
            yield thunks - base, thunks - base + _length(read, (names or thunks) - base, pointer, budget)
    if size:
        raise _TooManyError


def _length(read: ReadRva, rva: int, pointer: int, budget: List[int]) -> int:
    """Returns the bytes of a table of pointers that ends with 0, including the end."""
    count = 0
    while budget[0] > 0:
        budget[0] -= 1
        count += 1
        if not any(_need(read, rva + (count - 1) * pointer, pointer)):
            return count * pointer
    raise _TooManyError


def _configured(read: ReadRva, headers: Headers, pointer: int, image_base: int) -> Iterator[Tuple[int, int]]:
    """Yields the ranges from the load configuration: pointers that the loader writes, sites of code."""
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
    offset, section = (_member(data, at, size) for at, size in zip(_DYNAMIC[pointer], (4, 2)))
    if section:
        sections = headers.sections
        if section > len(sections):
            raise _TooManyError
        yield from _dynamic(read, _start_of(headers, section) + offset, pointer)


def _start_of(headers: Headers, number: int) -> int:
    """Returns the start of the section with a number: linkers write the table in the order of the RVAs."""
    return headers.sections[number - 1].start


def _dynamic(read: ReadRva, rva: int, pointer: int) -> Iterator[Tuple[int, int]]:
    """Yields the sites of dynamic relocations: code that Windows replaces when it loads the image.

    Tables of other versions and unknown kinds of relocations cannot be decoded: they raise _TooManyError.
    """
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
    """Yields the sites of blocks of entries whose lowest 12 bits are an offset in a page."""
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
    data: Optional[object] = None if rva < 0 else read(rva, length)
    if data is None:
        raise _TooManyError
    assert isinstance(data, (bytes, bytearray, memoryview))
    return bytes(data)
