# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Kernel pool: blocks with headers that scanners find, and executive objects in them."""

from __future__ import annotations

from .isf import Isf
from .obj import Obj
from .phys import PAGE
from .space import Space

_COOKIE = 0x5A
# Where the type table of Windows 7 and later begins to hold types.
_FIRST_TYPE = 2
_RESERVED_TYPE = 0xBAD0B0B0
# NonPagedPool; the header holds this plus one before Vista, plus two from Windows 7 on.
_POOL_TYPE_MODERN, _POOL_TYPE_OLD = 2, 1
_FREE = 1
"""Va of an entry of the list of big blocks that is free."""
_TAGS = {
    "_EPROCESS": b"Pro\xe3",
    "_ETHREAD": b"Thr\xe5",
    "_FILE_OBJECT": b"Fil\xe5",
    "_OBJECT_TYPE": b"ObjT",
}


def _key_of(object_type: str) -> bytes:
    return b"ObjT" if object_type == "Type" else object_type[:4].encode().ljust(4)


def tag_of(object_type: str) -> bytes:
    """The tag of the blocks of a type's objects: its Key, marked as protected."""
    key = _key_of(object_type)
    return key[:3] + bytes([key[3] | 0x80])


class Pool:
    """Allocates from the kernel's space.

    Args:
        space, isf: the kernel's.
        base: the kernel's base, for the type table.

    Attributes:
        big_blocks: (address, bytes, tag) of the blocks that are longer than a page.
    """

    def __init__(self, space: Space, isf: Isf, base: int) -> None:
        self._space = space
        self._isf = isf
        self._base = base
        self._unit = space.pointer_size * 2
        self._types: dict[str, int] = {}
        self.big_blocks: list[tuple[int, int, bytes]] = []
        if isf.first_symbol("ObHeaderCookie"):
            space.write_int(base + isf.symbol("ObHeaderCookie"), _COOKIE, 1)
        table = isf.first_symbol("ObTypeIndexTable")
        if table is not None:
            space.write_int(base + isf.symbol(table), 0)
            space.write_int(base + isf.symbol(table) + space.pointer_size, _RESERVED_TYPE)

    def allocate(self, size: int, tag: bytes = b"Frge") -> int:
        """A zeroed block's body."""
        header = self._isf.size("_POOL_HEADER")
        unit = self._unit
        total = -(-(header + size) // unit) * unit
        # Small blocks do not cross a page: scanners of physical memory rely on it.
        block = self._space.allocate(total, unit, one_page=total <= PAGE)
        pool_header = Obj(self._space, self._isf, "_POOL_HEADER", block)
        pool_header["BlockSize"] = total // unit
        modern = self._isf.has("_OBJECT_HEADER", "TypeIndex")
        pool_header["PoolType"] = _POOL_TYPE_MODERN if modern else _POOL_TYPE_OLD
        # "Protected" tags have the high bit of their last character set.
        pool_header["PoolTag"] = int.from_bytes(tag, "little")
        return block + header

    def big(self, size: int, tag: bytes) -> int:
        """A zeroed block in pages of its own; the kernel lists those that are longer than a page."""
        address = self._space.allocate(size, PAGE)
        if size > PAGE:
            self.big_blocks.append((address, size, tag))
        return address

    def finish(self) -> None:
        """Writes the list of big blocks, and free entries behind them."""
        if not self.big_blocks or not self._isf.has_type("_POOL_TRACKER_BIG_PAGES"):
            return
        count = 1 << len(self.big_blocks).bit_length()
        entry_size = self._isf.size("_POOL_TRACKER_BIG_PAGES")
        table = self._space.allocate(count * entry_size, PAGE)
        for place in range(count):
            entry = Obj(self._space, self._isf, "_POOL_TRACKER_BIG_PAGES", table + place * entry_size)
            entry["Va"] = _FREE
            if place < len(self.big_blocks):
                address, size, tag = self.big_blocks[place]
                entry["Va"], entry["Key"] = address, int.from_bytes(tag, "little")
                if not entry.maybe("NumberOfBytes", size):
                    entry["NumberOfPages"] = -(-size // PAGE)
        for name, value in (("PoolBigPageTable", table), ("PoolBigPageTableSize", count)):
            self._space.write_int(self._base + self._isf.symbol(name), value)

    def obj(self, type_name: str, tag: bytes = b"Frge", extra: int = 0) -> Obj:
        """A structure in a block of its own, `extra` bytes after it."""
        return Obj(
            self._space,
            self._isf,
            type_name,
            self.allocate(self._isf.size(type_name) + extra, tag),
        )

    def executive(self, type_name: str, object_type: str) -> Obj:
        """An object behind an object header: `executive("_FILE_OBJECT", "File")`."""
        header_size = self._isf.offset("_OBJECT_HEADER", "Body")
        tag = _TAGS.get(type_name, tag_of(object_type))
        block = self.allocate(header_size + self._isf.size(type_name), tag)
        header = Obj(self._space, self._isf, "_OBJECT_HEADER", block)
        header.put(PointerCount=1, HandleCount=0)
        self.set_type(header, object_type)
        return Obj(self._space, self._isf, type_name, block + header_size)

    def set_type(self, header: Obj, object_type: str) -> None:
        """Makes an `_OBJECT_HEADER` that of an object of a type."""
        if header.has("TypeIndex"):
            header["TypeIndex"] = self._encoded(self.type_index(object_type), header.address)
        else:
            header["Type"] = self.type_object(object_type)

    def type_object(self, object_type: str) -> int:
        """Address of the `_OBJECT_TYPE` of that name, made on first use."""
        if object_type not in self._types:
            self._types[object_type] = 0  # the type of types is its own
            entry = self.obj("_OBJECT_TYPE", _TAGS["_OBJECT_TYPE"])
            entry.text("Name", object_type)
            entry.maybe("Key", int.from_bytes(_key_of(object_type), "little"))
            self._types[object_type] = entry.address
            index = self.type_index(object_type)
            entry.maybe("Index", index)
            table = self._isf.first_symbol("ObTypeIndexTable")
            if table is not None:
                slot = self._isf.symbol(table) + index * self._space.pointer_size
                self._space.write_int(self._base + slot, entry.address)
        return self._types[object_type]

    def type_index(self, object_type: str) -> int:
        """The type's index in ObTypeIndexTable."""
        if object_type not in self._types:
            self.type_object(object_type)
        return _FIRST_TYPE + list(self._types).index(object_type)

    def _encoded(self, index: int, header: int) -> int:
        # Windows 10 mixes the header's address and a cookie into the index.
        if self._isf.first_symbol("ObHeaderCookie") is None:
            return index
        return index ^ _COOKIE ^ (header >> 8 & 0xFF)
