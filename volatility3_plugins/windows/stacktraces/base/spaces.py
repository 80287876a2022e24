# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the address spaces of an image: the kernel, each process, and the 32-bit half of a WoW64 process."""

from __future__ import annotations

import logging
from typing import Collection, Iterator, Optional

from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.objects import utility
from volatility3.plugins.windows import pslist, psscan

from . import bulk
from .decode import text
from .decode.status import NOTHING, Word, status
from .image import Image
from .space import ARCHES, KERNEL_PID, AddressSpace

__all__ = ["KERNEL_PID", "AddressSpace", "AddressSpaces"]

vollog = logging.getLogger(__name__)


class AddressSpaces(interfaces.configuration.VersionableInterface):
    """Lists the address spaces of a Windows image."""

    _version = (2, 0, 0)
    _required_framework_version = (2, 0, 0)

    @classmethod
    def list_spaces(
        cls,
        image: Image,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
    ) -> Iterator[AddressSpace]:
        """Yields the kernel, then each process; a WoW64 process is followed by its 32-bit half.

        Args:
            image: the image
            pids: the process IDs wanted, 0 for the kernel; all when None or empty
            offset: virtual or physical address of an _EPROCESS that no list holds; then only this process is
                yielded

        Yields:
            The address spaces. One whose page tables cannot be read says so in its `status`.
        """
        if offset is None and (not pids or KERNEL_PID in pids):
            yield image.kernel
        for eprocess in cls._list_eprocesses(image, offset):
            try:
                pid = int(eprocess.UniqueProcessId)
                if not pids or pid in pids:
                    yield from cls._process_spaces(image, eprocess, pid)
            except exceptions.InvalidAddressException as fault:
                vollog.warning(
                    f"Process at {eprocess.vol.offset:#x} cannot be read at {fault.invalid_address:#x}"
                )

    @classmethod
    def _list_eprocesses(
        cls, image: Image, offset: Optional[int] = None
    ) -> Iterator[interfaces.objects.ObjectInterface]:
        """Yields the _EPROCESS objects on the active list, or the one at a virtual or physical offset."""
        name = image.kernel_module_name
        if not name:
            return
        if offset is None:
            yield from pslist.PsList.list_processes(image.context, name)
            return
        layer = image.layer
        size = image.types["_EPROCESS"].size
        if layer.is_valid(bulk.masked(layer, offset), size):
            yield image.object_at("_EPROCESS", offset)
            return
        below = layer.config["memory_layer"]
        if not image.context.layers[below].is_valid(offset, size):
            vollog.warning(f"There is no _EPROCESS at {offset:#x}, virtual or physical")
            return
        type_name = image.table_name + constants.BANG + "_EPROCESS"
        physical = image.context.object(type_name, below, offset, native_layer_name=layer.name)
        try:
            eprocess = psscan.PsScan.virtual_process_from_physical(image.context, name, physical)
        except exceptions.InvalidAddressException:
            eprocess = None
        if eprocess is None:
            vollog.warning(f"The physical offset {offset:#x} leads to no _EPROCESS")
        else:
            yield eprocess

    @classmethod
    def _process_spaces(
        cls, image: Image, eprocess: interfaces.objects.ObjectInterface, pid: int
    ) -> Iterator[AddressSpace]:
        """Yields the native space of a process and, if it is a WoW64 process, its 32-bit half."""
        name = text.printable(utility.array_to_string(eprocess.ImageFileName))
        try:
            layer_name = cls._process_layer(image, eprocess)
            said = NOTHING
        except exceptions.InvalidAddressException:
            layer_name, said = "", status(Word.PAGE_TABLES_UNREADABLE)
        native = AddressSpace(
            pid=pid,
            process=name,
            arch=image.arch,
            layer_name=layer_name,
            pointer_size=image.pointer_size,
            eprocess=bulk.canonical(image.layer, int(eprocess.vol.offset)),
            peb=int(eprocess.Peb),
            status=said,
        )
        yield native
        if image.pointer_size == 8 and eprocess.get_is_wow64():
            try:
                peb = cls._wow64_peb(image, eprocess)
            except exceptions.InvalidAddressException:
                peb, said = 0, said or status(Word.WOW64_PROCESS_STRUCTURE_UNREADABLE)
            yield native._replace(arch=ARCHES[4], pointer_size=4, wow64=True, peb=peb, status=said)

    @classmethod
    def _process_layer(cls, image: Image, eprocess: interfaces.objects.ObjectInterface) -> str:
        """Returns the layer of a process, made once per context (Volatility makes a new one each time)."""
        name = f"{eprocess.vol.layer_name}_stacktraces_{eprocess.vol.offset:x}"
        if name in image.context.layers:
            return name
        return str(eprocess.add_process_layer(preferred_name=name))

    @classmethod
    def _wow64_peb(cls, image: Image, eprocess: interfaces.objects.ObjectInterface) -> int:
        """Returns the address of PEB32.

        EPROCESS.WoW64Process points to an _EWOW64PROCESS since Windows 10, whose Peb it is; to a
        _WOW64_PROCESS on 2003 and Vista, whose Wow64 it is; and to PEB32 itself on 7 and 8.
        """
        wow64 = int(eprocess.get_wow_64_process())
        for type_name, member in (("_EWOW64PROCESS", "Peb"), ("_WOW64_PROCESS", "Wow64")):
            if image.types.has(type_name):
                return int(image.object_at(type_name, wow64).member(member))
        return wow64
