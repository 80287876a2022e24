# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whether a process has other code in a module than the module's file: then its unwind data may be of code
that is no longer there."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from volatility3.framework import exceptions
from volatility3.framework.layers import intel

from ..memory import bulk
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.image import AddressSpace, Image
from ..names.decode.pe import MEM_WRITE
from ..names.decode.unwindinfo import RuntimeFunction, UnwindDataError
from ..names.imagereader import ImageReader
from ..names.symbolizer import AddressNamer, KnownModule
from .decode import prologue_arm64, prologue_x64

_AROUND = 0x20
"""Bytes compared on each side of an address where no function is known: more than a stub has."""
_FARTHEST = 0x1000
"""Bytes compared at most on each side of an address in a long function."""
_DETOUR = 16
"""Bytes of a function's entry that a hook replaces, at most."""
_MAX_COMPARED = 1 << 14
_MAX_PAGES = 1 << 14

_Place = Tuple[KnownModule, ImageReader]

_BREAKPOINT = 0xCC
"""int3, which debuggers write over the first byte of an instruction."""


class ChangedCode:
    """Compares the code of an address space, function by function.

    Only user-mode code is compared: the kernel patches its own while it starts.
    """

    def __init__(self, image: Image, space: AddressSpace, names: AddressNamer) -> None:
        self._layer = image.layer_of(space)
        self._detour = prologue_arm64.detour if space.machine is Machine.ARM64 else prologue_x64.detour
        self._wide = space.machine is Machine.AMD64
        self._names = names
        self._readers: Dict[int, ImageReader] = {}
        self._places: Memo[int, Optional[_Place]] = Memo(self._place, _MAX_PAGES)
        self._own: Memo[int, bool] = Memo(self._is_own, _MAX_PAGES)
        self._unchanged: Memo[int, bool] = Memo(self._is_unchanged, _MAX_COMPARED)
        self._replaced: Memo[int, bool] = Memo(self._is_replaced, _MAX_COMPARED)

    def own_copy(self, address: int) -> bool:
        """Returns whether a process has changed the code at a user-mode address, as far as the image shows.

        Changed code lies in a private copy of the page. There a function is unchanged if its bytes equal the
        image section: products that hook write to few functions of a page.
        """
        if address >> 63:
            return False
        changed = self._own[address // PAGE_SIZE] and not self._unchanged[address]
        return changed or self._replaced[address]

    def replaced(self, address: int) -> bool:
        """Returns whether the function at a user-mode address is known to be other code than its unwind data
        describes: its prologue shows it, the image section, or the module's file.

        A hook at the entry of a function replaces nothing behind the hook, and a breakpoint nothing at all.
        """
        return not address >> 63 and self._replaced[address]

    def reader_of(self, known_module: KnownModule) -> Optional[ImageReader]:
        """Returns the reader of a module, with which walks read its code, too; None for one of the kernel."""
        base = known_module.module.base
        if base not in self._readers and known_module.open_reader is not None:
            self._readers[base] = known_module.open_reader()
        return self._readers.get(base)

    def _place(self, page: int) -> Optional[_Place]:
        """Returns the module of a page and its reader; None outside user-mode modules."""
        known_module = self._names.module_at(page * PAGE_SIZE)
        reader = None if known_module is None else self.reader_of(known_module)
        return None if known_module is None or reader is None else (known_module, reader)

    def _is_own(self, page: int) -> bool:
        """Returns whether a process has a copy of a page for itself.

        A copy that Windows has trimmed and read again is clean (described: Windows Internals, 7th edition,
        part 1, chapter 5, "Page faults"): then the section has another physical page there.
        """
        place = self._places[page]
        if place is None:
            return self._is_dirty(page)
        reader = place[1]
        rva = page * PAGE_SIZE - reader.base
        if reader.shows_section(rva, rva + PAGE_SIZE):
            return False
        return self._is_dirty(page) or reader.has_other_pages(rva, PAGE_SIZE)

    def _is_dirty(self, page: int) -> bool:
        layer = self._layer
        if not isinstance(layer, intel.Intel):
            return False
        try:
            return bool(layer.is_dirty(bulk.masked(layer, page * PAGE_SIZE)))
        except exceptions.InvalidAddressException:
            return False

    def _is_unchanged(self, address: int) -> bool:
        """Returns whether the function at an address, or the bytes around it, equal the image section."""
        place = self._places[address // PAGE_SIZE]
        if place is None:
            return False
        known_module, reader = place
        rva = address - reader.base
        low, high = _extent(known_module.image.find_entry(rva), rva)
        pair = reader.with_section(low, high - low)
        return pair is not None and pair[0] == pair[1]

    def _is_replaced(self, address: int) -> bool:
        place = self._places[address // PAGE_SIZE]
        if place is None:
            return False
        known_module, reader = place
        rva = address - reader.base
        piece = known_module.image.find_entry(rva)
        if piece is None:
            return False
        low, high = _extent(piece, rva)
        shared = reader.shows_section(low, high)
        if self._wide and _contradicts(known_module, piece, reader, shared and low == piece.begin):
            return True
        pages = range((address - rva + low) // PAGE_SIZE, (address - rva + high - 1) // PAGE_SIZE + 1)
        own = not shared and any(map(self._own.__getitem__, pages))
        if not own and reader.file is None:
            return False
        own = own and not _writes_itself(known_module, reader, rva)
        written = self._detour(reader.read(piece.begin, _DETOUR) or b"")
        if written and rva >= piece.begin + written:
            low = max(low, piece.begin + _DETOUR)
        pair = reader.with_section(low, high - low) if own and low < high else None
        if pair is not None and pair[0] != pair[1]:
            if any(mine != theirs and mine != _BREAKPOINT for mine, theirs in zip(*pair)):
                return True
        return any(
            (reader.read(start, end - start) or b"").strip(bytes((_BREAKPOINT,)))
            for start, end in reader.differences(low, high - low)
        )


def _extent(piece: Optional[RuntimeFunction], rva: int) -> Tuple[int, int]:
    """Returns the range of RVAs that is compared for code: its function, or bytes around it."""
    low, high = (rva - _AROUND, rva + _AROUND) if piece is None else (piece.begin, piece.end)
    return max(low, rva - _FARTHEST, 0), min(high, rva + _FARTHEST)


def _writes_itself(known_module: KnownModule, reader: ImageReader, rva: int) -> bool:
    """Returns whether the section's own headers let a program write its code, as a packed program does: the
    section has its code before it was unpacked."""
    headers = known_module.image.headers
    if headers is None or not reader.same_pages(0, PAGE_SIZE):
        return False
    return any(part.start <= rva < part.end and part.characteristics & MEM_WRITE for part in headers.sections)


def _contradicts(
    known_module: KnownModule, piece: RuntimeFunction, reader: ImageReader, shared: bool
) -> bool:
    """Returns whether the prologue of the function that a piece belongs to contradicts its unwind data.

    `shared` says whether the piece up to the address is proven to be the section's: what is found of it is
    then true for all processes that share the table.
    """
    image = known_module.image
    table = image.functions
    if table is None or image.hybrid is not None:
        return False
    known = table.contradicted.get(piece.begin) if shared else None
    if known is not None:
        return known
    first = table.primary(piece)
    if first is None:
        return False
    try:
        info = table.unwind_info(first)
    except UnwindDataError:
        return False
    size = max([each.offset for each in info.codes], default=0)
    length = min(max(size, _DETOUR), first.end - first.begin)
    code = reader.read(first.begin, length) if 0 < size <= length else None
    contradicts = code is not None and not prologue_x64.agrees(code, info)
    if shared and first.begin == piece.begin and piece.begin not in table.contradicted:
        table.contradicted.keep(piece.begin, contradicts)
    return contradicts
