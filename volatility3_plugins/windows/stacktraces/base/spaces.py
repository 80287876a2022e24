# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The address spaces of an image that may hold traces: the kernel, each process, each WoW64 half."""

from __future__ import annotations

import logging
from typing import Collection, Iterator, NamedTuple, Optional

from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.objects import utility
from volatility3.plugins.windows import pslist, psscan

from . import bulk
from .decode import text

vollog = logging.getLogger(__name__)

KERNEL_PID = 0
KERNEL_PROCESS = "nt"


class AddressSpace(NamedTuple):
    """One bitness of one address space. Addresses are canonical.

    A WoW64 process is two of them over the same layer: the 64-bit one and the 32-bit one (`wow64`).
    `status` is empty, or says in fixed words why the space cannot be read (`layer_name` is then empty).
    """

    pid: int
    process: str
    arch: str
    layer_name: str
    pointer_size: int
    wow64: bool
    kernel: bool
    eprocess: Optional[interfaces.objects.ObjectInterface]
    peb: int
    status: str


class AddressSpaces(interfaces.configuration.VersionableInterface):
    """Lists the address spaces of a Windows image."""

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    @classmethod
    def list_spaces(
        cls,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
    ) -> Iterator[AddressSpace]:
        """Yields the kernel, then each process; a WoW64 process is followed by its 32-bit half.

        Args:
            context: the context that holds the image
            kernel_module_name: the name of the kernel's module in the context
            pids: the process IDs wanted, 0 for the kernel; all when None or empty
            offset: an _EPROCESS that no list holds, by its virtual or physical address: only this
                process is yielded

        Yields:
            The address spaces; one whose page tables cannot be read has a `status`.
        """
        kernel = context.modules[kernel_module_name]
        arch = "x64" if context.layers[kernel.layer_name].bits_per_register == 64 else "x86"
        if offset is None and (not pids or KERNEL_PID in pids):
            yield AddressSpace(
                KERNEL_PID,
                KERNEL_PROCESS,
                arch,
                kernel.layer_name,
                8 if arch == "x64" else 4,
                False,
                True,
                None,
                0,
                "",
            )
        for eprocess in cls.list_eprocesses(context, kernel_module_name, offset):
            try:
                pid = int(eprocess.UniqueProcessId)
                if not pids or pid in pids:
                    yield from cls._process_spaces(context, eprocess, pid, arch)
            except exceptions.InvalidAddressException as fault:
                vollog.warning(
                    f"Process at {eprocess.vol.offset:#x} cannot be read at {fault.invalid_address:#x}"
                )

    @classmethod
    def list_eprocesses(
        cls,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        offset: Optional[int] = None,
    ) -> Iterator[interfaces.objects.ObjectInterface]:
        """Yields the _EPROCESS objects on the active list, or the one at a virtual or physical offset."""
        if offset is None:
            yield from pslist.PsList.list_processes(context, kernel_module_name)
            return
        kernel = context.modules[kernel_module_name]
        layer = context.layers[kernel.layer_name]
        size = kernel.get_type("_EPROCESS").size
        if layer.is_valid(bulk.masked(layer, offset), size):
            yield kernel.object("_EPROCESS", offset=bulk.masked(layer, offset), absolute=True)
            return
        below = layer.config["memory_layer"]
        if not context.layers[below].is_valid(offset, size):
            vollog.warning(f"There is no _EPROCESS at {offset:#x}, virtual or physical")
            return
        type_name = kernel.symbol_table_name + constants.BANG + "_EPROCESS"
        physical = context.object(type_name, below, offset, native_layer_name=layer.name)
        try:
            eprocess = psscan.PsScan.virtual_process_from_physical(context, kernel_module_name, physical)
        except exceptions.InvalidAddressException:
            eprocess = None
        if eprocess is None:
            vollog.warning(f"The physical offset {offset:#x} leads to no _EPROCESS")
        else:
            yield eprocess

    @classmethod
    def _process_spaces(
        cls,
        context: interfaces.context.ContextInterface,
        eprocess: interfaces.objects.ObjectInterface,
        pid: int,
        arch: str,
    ) -> Iterator[AddressSpace]:
        """Yields the native space of a process and, if it is a WoW64 process, its 32-bit half."""
        name = text.printable(utility.array_to_string(eprocess.ImageFileName))
        try:
            layer_name = cls._process_layer(context, eprocess)
            status = ""
        except exceptions.InvalidAddressException:
            layer_name, status = "", "page tables unreadable"
        native = AddressSpace(
            pid,
            name,
            arch,
            layer_name,
            8 if arch == "x64" else 4,
            False,
            False,
            eprocess,
            int(eprocess.Peb),
            status,
        )
        yield native
        if arch == "x64" and eprocess.get_is_wow64():
            try:
                peb = cls._wow64_peb(context, eprocess)
            except exceptions.InvalidAddressException:
                peb, status = 0, status or "WoW64 process structure unreadable"
            yield native._replace(arch="x86", pointer_size=4, wow64=True, peb=peb, status=status)

    @classmethod
    def _process_layer(
        cls,
        context: interfaces.context.ContextInterface,
        eprocess: interfaces.objects.ObjectInterface,
    ) -> str:
        """Returns the layer of a process, made once per context (Volatility makes a new one each time)."""
        name = f"{eprocess.vol.layer_name}_stacktraces_{eprocess.vol.offset:x}"
        return name if name in context.layers else eprocess.add_process_layer(preferred_name=name)

    @classmethod
    def _wow64_peb(
        cls,
        context: interfaces.context.ContextInterface,
        eprocess: interfaces.objects.ObjectInterface,
    ) -> int:
        """Returns the address of PEB32.

        EPROCESS.WoW64Process is an _EWOW64PROCESS (whose Peb it is) from Windows 10, a _WOW64_PROCESS
        (Wow64) on 2003 and Vista, and PEB32 itself between them.
        """
        wow64 = eprocess.get_wow_64_process()
        table = eprocess.get_symbol_table_name()
        for type_name, member in (("_EWOW64PROCESS", "Peb"), ("_WOW64_PROCESS", "Wow64")):
            full_name = table + constants.BANG + type_name
            if context.symbol_space.has_type(full_name):
                holder = context.object(full_name, eprocess.vol.layer_name, int(wow64))
                return int(holder.member(member))
        return int(wow64)
