# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names of executive objects, in the words of Volatility's `windows.handles`."""

from __future__ import annotations

from typing import Optional

from volatility3.framework import constants, exceptions, interfaces

from ..base import bulk, members
from ..base.decode import text
from ..base.peek import Peek

_HEADER = "_OBJECT_HEADER"
_NAME = "_OBJECT_HEADER_NAME_INFO"
_CREATOR_MASK, _NAME_MASK = 1, 2
"""Bits of _OBJECT_HEADER.InfoMask, since 7. What has the lower bit lies nearer to the header."""

MAX_NAME = 0x1000


class ObjectNames:
    """Reads the names of objects.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module
    """

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        kernel = context.modules[kernel_module_name]
        self._context = context
        self._table = table = kernel.symbol_table_name
        self._layer = context.layers[kernel.layer_name]
        self._pointer_size = 8 if self._layer.bits_per_register == 64 else 4
        self._peek = Peek(context, kernel.layer_name, self._pointer_size)
        self._body = members.need(context, table, _HEADER, "Body").offset
        self._info_mask = members.find(context, table, _HEADER, "InfoMask")
        self._name_offset = members.find(context, table, _HEADER, "NameInfoOffset")
        self._name_size = members.size_of(context, table, _NAME)
        self._name = members.need(context, table, _NAME, "Name.Length").offset
        self._creator_size = members.size_of(context, table, "_OBJECT_HEADER_CREATOR_INFO")
        self._file_name = members.need(context, table, "_FILE_OBJECT", "FileName.Length").offset
        self._device = members.need(context, table, "_FILE_OBJECT", "DeviceObject")
        self._image_name = members.need(context, table, "_EPROCESS", "ImageFileName")
        self._pid = members.need(context, table, "_EPROCESS", "UniqueProcessId")
        self._cid_process = members.need(context, table, "_ETHREAD", "Cid.UniqueProcess")
        self._cid_thread = members.need(context, table, "_ETHREAD", "Cid.UniqueThread")

    def name(self, kind: str, body: int, info_mask: Optional[int] = None) -> Optional[str]:
        """Returns the name of an object, None if it has none or it cannot be read.

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
        return text.printable(found, MAX_NAME) if found else None

    def _process(self, body: int) -> Optional[str]:
        name = self._peek.read(body + self._image_name.offset, self._image_name.size)
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
        type_name = self._table + constants.BANG + "_CM_KEY_BODY"
        key = self._context.object(type_name, self._layer.name, bulk.masked(self._layer, body))
        try:
            name = key.get_full_key_name()
        except (exceptions.InvalidAddressException, AttributeError):
            # The members differ between versions, and Volatility reads them by name.
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

    def _integer(self, base: int, field: Optional[members.Field]) -> Optional[int]:
        if field is None:
            return None
        data = self._peek.read(base + field.offset, field.size)
        return None if data is None else int.from_bytes(data, "little")

    def _string(self, address: int) -> Optional[str]:
        data = self._peek.read(address, 2 * self._pointer_size)
        return None if data is None else self._peek.unicode_string(data, MAX_NAME)
