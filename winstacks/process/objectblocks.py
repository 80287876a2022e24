# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pool block of an object, as second source of the optional headers that its header announces.

The object manager allocates the optional headers, the header and the object in one block, whose tag is the
Key of the object's type (public symbols of _OBJECT_TYPE and _POOL_HEADER; ReactOS, ObpAllocateObject;
CodeMachine, "Windows kernel object header"). So the block's header lies before all optional headers. Only
objects of a page and more have none.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from ..memory.decode.memory import string_lengths
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.structure import Structures
from ..memory.image import Image

OBJECT_HEADER = "_OBJECT_HEADER"
NAME_INFO = "_OBJECT_HEADER_NAME_INFO"
CREATOR_INFO = "_OBJECT_HEADER_CREATOR_INFO"
_PADDING = 0x80
"""The bit of InfoMask for _OBJECT_HEADER_PADDING_INFO, whose size is a value in it."""
CREATOR_MASK, NAME_MASK = 0x01, 0x02
"""Bits of _OBJECT_HEADER.InfoMask, since 7 (CodeMachine, "Windows kernel object header"). The part for the
lower bit lies nearer to the header."""
_PARTS = (
    (CREATOR_MASK, (CREATOR_INFO,)),
    (NAME_MASK, (NAME_INFO,)),
    (0x04, ("_OBJECT_HEADER_HANDLE_INFO",)),
    (0x08, ("_OBJECT_HEADER_QUOTA_INFO",)),
    (0x10, ("_OBJECT_HEADER_PROCESS_INFO",)),
    (0x20, ("_OBJECT_HEADER_AUDIT_INFO",)),
    (0x40, ("_OBJECT_HEADER_EXTENDED_INFO", "_OBJECT_HEADER_HANDLE_REVOCATION_INFO")),
)
"""The optional headers by their bit of InfoMask."""
_OFFSETS = ("NameInfoOffset", "HandleInfoOffset", "QuotaInfoOffset")
"""The distances of optional headers, up to Vista."""
CREATOR_FLAG = 0x04
"""OB_FLAG_CREATOR_INFO of _OBJECT_HEADER.Flags up to Vista (ReactOS, NDK)."""
_MOST = 0x100
"""Bytes of optional headers that are looked at; all of them together have less."""
_TAG = 0x7FFFFFFF
"""The bits of a tag: up to 7 the highest bit marks a protected block."""


class ObjectBlocks:
    """Compares headers of objects with their pool blocks."""

    def __init__(self, image: Image) -> None:
        types: Structures = image.types
        header, pool = types[OBJECT_HEADER], types.find("_POOL_HEADER")
        self._memory = image.memory(image.kernel)
        self._unit = 2 * image.pointer_size
        self._mask = header.first_member("InfoMask")
        self._flags = header.first_member("Flags")
        self._offsets = [header.first_member(name) for name in _OFFSETS]
        self._tag, self._pool_size = pool.first_member("PoolTag"), pool.size
        structures = [(bit, [types.first_structure(name) for name in names]) for bit, names in _PARTS]
        known = [(bit, [item.size for item in found if item is not None]) for bit, found in structures]
        self._sizes = {bit: sizes[0] for bit, sizes in known if sizes}
        name, creator = types.find(NAME_INFO), types.find(CREATOR_INFO)
        self._name_size, self._name = name.size, name.first_member("Name.Length")
        self._creator_size, self._links = creator.size, creator.first_member("TypeList")

    def wrong(self, header: int, data: bytes, key: int) -> Tuple[str, ...]:
        """Returns the members of an object's header that its pool block contradicts. `key` is the Key of the
        object's type, 0 if unknown."""
        if self._tag is None or not key:
            return ()
        if self._mask is None:
            return self._wrong_offsets(header, data, key)
        mask = self._mask.value_in(data)
        sizes = [self._sizes.get(bit) for bit, _ in _PARTS if mask & bit]
        size = sum(filter(None, sizes))
        start = self._start(header, key)
        if start is None:
            return ()
        if mask & _PADDING:
            # The amount of padding stands at the start of the block.
            amount = self._memory.number(header - start, 4) or 0
            right = 0 < amount <= start - size
        else:
            # The kernel's symbols may lack an optional header.
            right = start >= size if None in sizes else start == size
        hidden = (not mask & CREATOR_MASK and self._has_creator(header, start)) or (
            not mask & NAME_MASK and self._has_name(header, start)
        )
        return () if right and not hidden else ("InfoMask",)

    def _wrong_offsets(self, header: int, data: bytes, key: int) -> Tuple[str, ...]:
        """Returns the contradicted members of a header up to Vista: Flags and the distances."""
        if self._flags is None or None in self._offsets or not (self._creator_size and self._name_size):
            return ()
        creator = self._creator_size if self._flags.value_in(data) & CREATOR_FLAG else 0
        name, handle, quota = (0 if field is None else field.value_in(data) for field in self._offsets)
        start = self._start(header, key)
        if start is None:
            return ()
        right = start == max(creator, name, handle, quota) and name in (0, creator + self._name_size)
        hidden = (not creator and self._has_creator(header, start)) or (
            not name and self._has_name(header, start)
        )
        return () if right and not hidden else ("Flags", "NameInfoOffset")

    def _start(self, header: int, key: int) -> Optional[int]:
        """Returns the distance of the block's first byte before the header, None if the block has no header.

        The nearest tag counts: what lies before a block belongs to another one.
        """
        if self._tag is None:
            return None
        first = header - self._pool_size + self._tag.offset
        room = min(first % PAGE_SIZE, _MOST)
        page = self._memory.read(first - room, room + 4)
        for distance in range(0, _MOST + 1, self._unit):
            if page is None or distance > room:
                data = self._memory.read(first - distance, 4)
            else:
                data = page[room - distance : room - distance + 4]
            if data is not None and (int.from_bytes(data, "little") ^ key) & _TAG == 0:
                return distance
        return None

    def _has_creator(self, header: int, start: int) -> bool:
        """Returns whether a node of the type's list of objects lies where a creator's information would."""
        if self._links is None or start < self._creator_size:
            return False
        node = header - self._creator_size + self._links.offset
        data = self._memory.read(node, self._unit)
        # These may be the bytes of anything: only a link that a node returns proves a list.
        after = (
            None if data is None else self._memory.links(int.from_bytes(data[: self._unit // 2], "little"))
        )
        return after is not None and after[1] == node

    def _has_name(self, header: int, start: int) -> bool:
        """Returns whether a UNICODE_STRING with a text lies where the name's information would."""
        places: List[int] = [self._name_size, self._name_size + self._creator_size]
        if self._name is None:
            return False
        for place in places:
            data = None
            if place <= start:
                data = self._memory.read(header - place + self._name.offset, self._unit)
            if data is None:
                continue
            length, room = string_lengths(data) or (0, 0)
            if not length or room > length + 2:
                continue
            text = self._memory.unicode_string(data)
            if text and text.isprintable():
                return True
        return False
