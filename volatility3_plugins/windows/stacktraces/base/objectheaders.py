# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the header of an executive object says: its type, its name, and who made it."""

from __future__ import annotations

from typing import Dict, Optional

from .decode.record import Record
from .decode.status import NOTHING, Status, Word, status
from .image import Image
from .objectnames import ObjectNames

_HEADER = "_OBJECT_HEADER"
_CREATOR = "_OBJECT_HEADER_CREATOR_INFO"
_CREATOR_FLAG = 0x04
"""OB_FLAG_CREATOR_INFO of _OBJECT_HEADER.Flags up to Vista (ReactOS, NDK)."""
_CREATOR_MASK = 0x01
"""A bit of _OBJECT_HEADER.InfoMask since 7 (CodeMachine, "Windows kernel object header")."""
_TRACED = 0x01
"""DbgRefTrace, a bit of _OBJECT_HEADER.TraceFlags since 7."""

_MAX_KNOWN = 1 << 16
_MAX_TYPE_NAME = 128


class ObjectInfo(Record):
    """An object. `body` is the address by which Windows refers to it; its header lies before that. `type` and
    `name` are None if the object has none, or if they cannot be read; `status` says so then."""

    body: int
    type: Optional[str]
    name: Optional[str]
    status: Status


class ObjectCreator(Record):
    """Who made an object: the process, and the index of the stack in the kernel's database (0: none)."""

    pid: int
    back_trace_index: int


class Objects:
    """Describes objects by the addresses of their headers; made as `image.part(Objects)`."""

    def __init__(self, image: Image) -> None:
        header, creator = image.types[_HEADER], image.types[_CREATOR]
        self._memory = image.memory(image.kernel)
        self._names = ObjectNames(image)
        self._body = header.offset("Body")
        self._type = header.find("Type")
        self._type_index = header.find("TypeIndex")
        self._info_mask = header.find("InfoMask")
        self._flags = header.field("Flags")
        self._trace_flags = header.find("TraceFlags")
        self._type_name = image.types["_OBJECT_TYPE"].offset("Name.Length")
        self._creator_size = creator.size
        self._creator_pid = creator.field("CreatorUniqueProcess")
        self._creator_index = creator.field("CreatorBackTraceIndex")
        self._types = image.symbol("ObTypeIndexTable", "ObpObjectTypes")
        cookie = image.symbol("ObHeaderCookie")
        self._has_cookie = cookie is not None
        self._cookie = 0 if cookie is None else self._memory.number(cookie, 1) or 0
        self._type_names: Dict[int, Optional[str]] = {}
        self._known: Dict[int, ObjectInfo] = {}

    def describe(self, header: int) -> ObjectInfo:
        """Returns the description of the object whose header is at a canonical address."""
        if header not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[header] = self._describe(header)
        return self._known[header]

    def creator(self, header: int) -> Optional[ObjectCreator]:
        """Returns who made an object, with index 0 if its header does not keep that; None if unreadable."""
        data = self._read(header)
        if data is None:
            return None
        has = (
            self._flags.of(data) & _CREATOR_FLAG
            if self._info_mask is None
            else self._info_mask.of(data) & _CREATOR_MASK
        )
        # The creator's information lies directly before the header, before all other optional headers.
        if not has:
            return ObjectCreator(0, 0)
        info = self._memory.read(header - self._creator_size, self._creator_size)
        if info is None:
            return None
        return ObjectCreator(self._creator_pid.of(info), self._creator_index.of(info))

    def traced(self, header: int) -> Optional[bool]:
        """Tells whether the header marks the object as traced; None before 7, which has no such mark."""
        data = self._read(header)
        if data is None or self._trace_flags is None:
            return None
        return bool(self._trace_flags.of(data) & _TRACED)

    def _describe(self, header: int) -> ObjectInfo:
        body = header + self._body
        data = self._read(header)
        if data is None:
            return ObjectInfo(body, None, None, status(Word.OBJECT_UNREADABLE))
        kind = self._type_of(header, data)
        if kind is None:
            return ObjectInfo(body, None, None, status(Word.OBJECT_TYPE_UNKNOWN))
        mask = self._info_mask.of(data) if self._info_mask else None
        return ObjectInfo(body, kind, self._names.name(kind, body, mask), NOTHING)

    def _read(self, header: int) -> Optional[bytes]:
        return self._memory.read(header, self._body)

    def _type_of(self, header: int, data: bytes) -> Optional[str]:
        """Returns the name of an object's type: by pointer up to Vista, by index since 7.

        Windows 10 mixes the index with a cookie and a byte of the header's address.
        """
        if self._type is not None:
            return self._type_at(self._type.of(data))
        if self._type_index is None or self._types is None:
            return None
        number = self._type_index.of(data)
        if self._has_cookie:
            number = (number ^ self._cookie ^ header >> 8) & 0xFF
        address = self._memory.pointer(self._types + number * self._memory.pointer_size)
        return self._type_at(address) if address else None

    def _type_at(self, address: int) -> Optional[str]:
        if address not in self._type_names:
            data = self._memory.read(address + self._type_name, 2 * self._memory.pointer_size)
            name = self._memory.unicode_string(data, _MAX_TYPE_NAME) if data else None
            self._type_names[address] = name if name and name.isprintable() else None
        return self._type_names[address]
