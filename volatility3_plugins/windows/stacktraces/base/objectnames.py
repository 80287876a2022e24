# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names of executive objects, written as Volatility's `windows.handles` writes them."""

from __future__ import annotations

from typing import Optional

from volatility3.framework import exceptions

from .decode import text
from .decode.structure import Field
from .image import Image

_HEADER = "_OBJECT_HEADER"
_NAME = "_OBJECT_HEADER_NAME_INFO"
_CREATOR_MASK, _NAME_MASK = 1, 2
"""Bits of _OBJECT_HEADER.InfoMask, since 7. The part with the lower bit lies nearer to the header."""

MAX_NAME = 0x1000


class ObjectNames:
    """Reads the names of objects."""

    def __init__(self, image: Image) -> None:
        types = image.types
        self._image = image
        self._memory = image.memory(image.kernel)
        self._body = types[_HEADER].offset("Body")
        self._info_mask = types[_HEADER].find("InfoMask")
        self._name_offset = types[_HEADER].find("NameInfoOffset")
        self._name_size = types[_NAME].size
        self._name = types[_NAME].offset("Name.Length")
        self._creator_size = types["_OBJECT_HEADER_CREATOR_INFO"].size
        self._file_name = types["_FILE_OBJECT"].offset("FileName.Length")
        self._device = types["_FILE_OBJECT"].field("DeviceObject")
        self._image_name = types["_EPROCESS"].field("ImageFileName")
        self._pid = types["_EPROCESS"].field("UniqueProcessId")
        self._cid_process = types["_ETHREAD"].field("Cid.UniqueProcess")
        self._cid_thread = types["_ETHREAD"].field("Cid.UniqueThread")

    def name(self, kind: str, body: int, info_mask: Optional[int] = None) -> Optional[str]:
        """Returns the name of an object, None if the object has none or the name cannot be read.

        Args:
            kind: the name of its type
            body: its address, canonical
            info_mask: the header's InfoMask, None to have it read
        """
        if kind == "Process":
            found = self._process(body)
        elif kind == "Thread":
            found = self._thread(body)
        elif kind == "File":
            found = self._file(body)
        elif kind == "Key":
            found = self._key(body)
        else:
            found = self._named(body, info_mask)
        return text.cell(found, MAX_NAME) if found else None

    def _process(self, body: int) -> Optional[str]:
        name = self._memory.read(body + self._image_name.offset, self._image_name.size)
        pid = self._integer(body, self._pid)
        if name is None or pid is None:
            return None
        return f"{name.split(bytes(1))[0].decode('latin-1')} Pid {pid}"

    def _thread(self, body: int) -> Optional[str]:
        tid, pid = self._integer(body, self._cid_thread), self._integer(body, self._cid_process)
        return None if tid is None or pid is None else f"Tid {tid} Pid {pid}"

    def _file(self, body: int) -> Optional[str]:
        device = self._integer(body, self._device)
        on = self._named(device, None) if device else None
        path = self._string(body + self._file_name) or ""
        return (f"\\Device\\{on}" if on else "") + path

    def _key(self, body: int) -> Optional[str]:
        key = self._image.object_at("_CM_KEY_BODY", body)
        try:
            name = key.get_full_key_name()
        except (exceptions.InvalidAddressException, AttributeError):
            # Volatility reads members by names that some versions of Windows do not have.
            return None
        return str(name) if name else None

    def _named(self, body: int, info_mask: Optional[int]) -> Optional[str]:
        """Returns the name that the object manager keeps before the header."""
        header = body - self._body
        if self._name_offset is not None:
            distance = self._integer(header, self._name_offset)
        else:
            mask = self._integer(header, self._info_mask) if info_mask is None else info_mask
            distance = self._distance(mask or 0)
        if not distance:
            return None
        return self._string(header - distance + self._name)

    def _distance(self, info_mask: int) -> int:
        """Returns how far before the header its name information is, 0 if there is none."""
        if not info_mask & _NAME_MASK:
            return 0
        return self._name_size + (self._creator_size if info_mask & _CREATOR_MASK else 0)

    def _integer(self, base: int, field: Optional[Field]) -> Optional[int]:
        return None if field is None else self._memory.member(base, field)

    def _string(self, address: int) -> Optional[str]:
        data = self._memory.read(address, 2 * self._memory.pointer_size)
        return None if data is None else self._memory.unicode_string(data, MAX_NAME)
