# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Bulk reads through Volatility's layers.

Volatility addresses a 64-bit layer by the low 48 bits; Windows stores canonical (sign-extended) addresses.
All modules of this package use canonical addresses (`decode/machine` has both forms); this module converts an
address to the form that a layer takes.
"""

from __future__ import annotations

import io
from typing import Callable, Dict, Iterable, Iterator, Optional, Tuple

from volatility3.framework import exceptions, interfaces
from volatility3.framework.layers import crash, intel, linear

from . import pagetables
from .decode.machine import Machine, UnsupportedMachineError
from .decode.memo import Memo
from .decode.pagetable import PAGE_SIZE
from .decode.ranges import Claims, Extents
from .decode.records import NamedTuple

_CHUNK = 0x100000

Mapping = Callable[
    [interfaces.context.ContextInterface, linear.LinearlyMappedLayer, int, int], Iterator[pagetables.Piece]
]
"""The type of `pagetables.mapping`: returns the present pieces of a range of a layer."""

MAX_COPIES = 256
"""If a range maps one physical page more often than this, only the first mappings count as present, unless
the page is all zeros. Windows maps a page so often only where it combined pages of zeros; forged page tables
map other pages often, to make a small image look huge."""


def machine_of(layer: interfaces.layers.DataLayerInterface) -> Machine:
    """Returns the machine whose page tables a layer reads. Raises UnsupportedMachineError if the layer's
    machine is not supported."""
    if not isinstance(layer, intel.Intel):
        raise UnsupportedMachineError(str(layer.metadata.get("architecture", "unknown")))
    return Machine.AMD64 if layer.bits_per_register == 64 else Machine.I386


class CrashDump(NamedTuple):
    """The header of a crash dump: DumpType, BugCheckCode and its four parameters."""

    dump_type: int
    bug_check: int
    parameters: Tuple[int, ...]


def crash_dump(
    context: interfaces.context.ContextInterface, layer: interfaces.layers.DataLayerInterface
) -> Optional[CrashDump]:
    """Returns the header of the crash dump on which a layer rests, None if it rests on none."""
    layers = [layer]
    while layers:
        current = layers.pop()
        if isinstance(current, crash.WindowsCrashDump32Layer):
            header = current.get_header()
            parameters = tuple(int(parameter) for parameter in header.BugCheckCodeParameter)
            return CrashDump(int(current.dump_type), int(header.BugCheckCode), parameters)
        layers += [context.layers[name] for name in current.dependencies]
    return None


def masked(layer: interfaces.layers.DataLayerInterface, address: int) -> int:
    """Returns the form of an address that a layer takes.

    Volatility's layers of page tables take the low bits of an address; the others take it as it is.
    """
    return address & layer.address_mask if isinstance(layer, intel.Intel) else address


def file_reader(layer: interfaces.layers.DataLayerInterface) -> Callable[[int, int], bytes]:
    """Returns a reader of the layer of a file, which takes offset and length; it returns b"" if it fails."""

    def read(offset: int, length: int) -> bytes:
        try:
            return bytes(layer.read(offset, length))
        except (exceptions.InvalidAddressException, OSError, EOFError):
            return b""

    return read


def physical(layer: interfaces.layers.DataLayerInterface, address: int) -> int:
    """Returns the address in the layer below that an address maps to, or the address itself if unknown."""
    if not isinstance(layer, linear.LinearlyMappedLayer):
        return address
    try:
        return int(layer.translate(masked(layer, address))[0])
    except exceptions.InvalidAddressException:
        return address


class PhysicalClaims:
    """Claims ranges of virtual addresses by their physical memory: page tables may map a page many times."""

    def __init__(self, layer: interfaces.layers.DataLayerInterface) -> None:
        self._pages: Memo[int, int] = Memo(lambda page: physical(layer, page * PAGE_SIZE))
        self._claims = Claims()

    def claim(self, start: int, end: int) -> int:
        """Claims a range up to the first byte whose physical memory was claimed before, at whatever address.
        Returns the end of the part that is now claimed; `start` if the first byte was claimed before."""
        position = start
        while position < end:
            page, offset = divmod(position, PAGE_SIZE)
            size = min(end - position, PAGE_SIZE - offset)
            at = self._pages[page] + offset
            free = self._claims.claim(at, at + size) - at
            position += free
            if free < size:
                break
        return position


def read_extents(
    context: interfaces.context.ContextInterface,
    layer_name: str,
    start: int,
    length: int,
    mapping: Mapping = pagetables.mapping,
    tables: Optional[pagetables.PageTables] = None,
) -> Extents:
    """Reads the present parts of a range of virtual memory, in as few reads as its physical runs allow.

    Pages that are not in the image raise no error. The read does not fill Volatility's read cache. Returns
    the bytes present, at canonical addresses.

    Args:
        start: first address, canonical or masked
        length: bytes; the part beyond the layer's end is not present
    """
    layer = context.layers[layer_name]
    first = masked(layer, start)
    length = max(min(length, layer.maximum_address + 1 - first), 0)
    base = machine_of(layer).canonical(first) - first if isinstance(layer, intel.Intel) else 0
    if 0 < length <= PAGE_SIZE - first % PAGE_SIZE and mapping is pagetables.mapping:
        data = _within_a_page(context, layer, first, length, tables)
        if data is not None:
            return Extents(((base + first, data),))
    runs = _joined(_runs(context, layer_name, first, length, mapping))
    return Extents((base + offset, data) for offset, data in runs)


def _within_a_page(
    context: interfaces.context.ContextInterface,
    layer: interfaces.layers.DataLayerInterface,
    start: int,
    length: int,
    tables: Optional[pagetables.PageTables] = None,
) -> Optional[bytes]:
    """Reads a range that crosses no page border, as most structures do; None if it is not in one piece."""
    target = None if tables is None else tables.place(start)
    if tables is not None and target is not None:
        start, layer = target, tables.below
    while isinstance(layer, linear.LinearlyMappedLayer):
        pieces = tuple(layer.mapping(start, length, ignore_errors=True))
        if len(pieces) != 1 or pieces[0][1] != length:
            return None
        start, layer = pieces[0][2], context.layers[pieces[0][4]]
    try:
        return layer.read(start, length)
    except exceptions.InvalidAddressException:
        return None


def of_pieces(context: interfaces.context.ContextInterface, pieces: Iterable[pagetables.Piece]) -> Extents:
    """Reads pieces of a range whose addresses in the layer below are known."""
    return Extents(_joined(_of_pieces(context, pieces)))


def _joined(pieces: Iterable[Tuple[int, bytes]]) -> Iterator[Tuple[int, bytes]]:
    """Joins adjacent pieces one by one, so that the pieces and the whole are never in memory together."""
    start, joined = 0, io.BytesIO()
    for offset, data in pieces:
        if joined.tell() and offset == start + joined.tell():
            joined.write(data)
            continue
        if joined.tell():
            yield start, joined.getvalue()
        start, joined = offset, io.BytesIO(data)
        joined.seek(len(data))
    if joined.tell():
        yield start, joined.getvalue()


def _runs(
    context: interfaces.context.ContextInterface,
    layer_name: str,
    start: int,
    length: int,
    mapping: Mapping = pagetables.mapping,
) -> Iterator[Tuple[int, bytes]]:
    """Returns (offset in the layer, bytes) of the readable parts of a range, through all layers below."""
    layer = context.layers[layer_name]
    if not isinstance(layer, linear.LinearlyMappedLayer):
        return _read(layer, start, length)
    return _of_pieces(context, mapping(context, layer, start, length))


def _of_pieces(
    context: interfaces.context.ContextInterface, pieces: Iterable[pagetables.Piece]
) -> Iterator[Tuple[int, bytes]]:
    """Yields (offset, bytes) of the readable parts of pieces."""
    copies = _Copies()
    for offset, size, mapped, below in pieces:
        for low, high, repeated in copies.count(mapped, mapped + size):
            for position, data in _runs(context, below, low, high - low):
                if not repeated or data.count(0) == len(data):
                    yield offset + position - mapped, data


class _Copies:
    """Counts how often a range maps each page of the layer below."""

    def __init__(self) -> None:
        self._counts: Dict[int, int] = {}

    def count(self, start: int, end: int) -> Iterator[Tuple[int, int, bool]]:
        """Adds one to the count of each page that a piece maps. Yields (start, end, whether it was mapped too
        often) of the piece, or of each page if one page was."""
        counts, most = self._counts, 0
        numbers = range(start // PAGE_SIZE, (end - 1) // PAGE_SIZE + 1)
        for page in numbers:
            count = counts[page] = counts.get(page, 0) + 1
            most = max(most, count)
        if most <= MAX_COPIES:
            yield start, end, False
            return
        for page in numbers:
            low, high = max(page * PAGE_SIZE, start), min((page + 1) * PAGE_SIZE, end)
            yield low, high, counts[page] > MAX_COPIES


def _read(
    layer: interfaces.layers.DataLayerInterface, start: int, length: int
) -> Iterator[Tuple[int, bytes]]:
    """Reads a layer that maps to no other layer, in bounded pieces."""
    for offset in range(start, start + length, _CHUNK):
        size = min(_CHUNK, start + length - offset)
        try:
            yield offset, layer.read(offset, size)
        except exceptions.InvalidAddressException:
            continue
