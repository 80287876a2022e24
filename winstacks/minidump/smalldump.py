# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Opens small kernel dumps through Volatility's layers.

dump = small_dump(file_layer)            # what the layer of the dump is made of
image = image_of(context, layer_name, config_path)    # its services are what the dump gives

The image has the kernel stack of one thread and a list of drivers. No kernel can be walked in it: it has no
symbol table of its own, and `image.threads_only` says so. Structures are read by the kernel's symbols where
these are found or given. Else our tables have the trap frames, and KDDEBUGGER_DATA64 of the dump tells what
is known of the others.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple

from volatility3.framework import exceptions, interfaces

from ..flat.machine import MachineFacts, machine_facts
from ..handles.lister import HandleEvents, handle_events
from ..memory import tables
from ..memory.decode.machine import Machine
from ..memory.decode.status import Status
from ..memory.image import Image
from ..names.loaderlists import ModuleLists, module_lists
from ..names.unloaded import UnloadedModules, unloaded_modules
from ..process import processors
from ..process.processlist import ProcessList
from ..process.regions import Regions
from ..process.spaces import Spaces, spaces
from ..process.thread import ThreadLists
from ..process.threads import threads
from ..process.vads import regions
from ..tracedb.finder import Databases
from .crash import CrashedProcess
from .decode.crashed import crashed_thread, structure_memory
from .decode.kernelheader import NotAKernelDumpError
from .decode.memory import MemoryRange
from .decode.triage import TriageDump, memory_ranges
from .drivers import DumpDrivers, kernel_base
from .kernelsymbols import kernel_table
from .smallfacts import NoHandles, NoRegions, SmallDumpFacts

__all__ = [
    "NotAKernelDumpError",
    "dump_of",
    "image_of",
    "machine_of",
    "memory",
    "small_dump",
]

_TRAP_FRAMES = "trapframe"
"""The kind of our tables that has the structures of kernel stacks."""


def small_dump(layer: interfaces.layers.DataLayerInterface) -> TriageDump:
    """Returns the dump that a layer of a file has.

    Raises:
        NotAKernelDumpError: it has none; the text is a sentence for users
    """

    def read(offset: int, length: int) -> bytes:
        try:
            return bytes(layer.read(offset, length))
        except (exceptions.InvalidAddressException, OSError, EOFError):
            return b""

    def available(offset: int, length: int) -> bytes:
        return read(offset, min(length, size - offset)) if 0 <= offset < size else b""

    size = int(layer.maximum_address) + 1
    return TriageDump(available, size)


def memory(dump: TriageDump) -> Tuple[List[MemoryRange], Status]:
    """Returns the memory of a dump, sorted and disjoint, and what is wrong with it.

    That of a machine that is not supported is empty.
    """
    try:
        crashed = crashed_thread(dump)
    except ValueError:
        return [], dump.status
    return memory_ranges(dump, structure_memory(dump, crashed))


def dump_of(context: interfaces.context.ContextInterface, layer_name: str) -> TriageDump:
    """Returns the file of a dump.

    Args:
        context: the context that holds the layer
        layer_name: the layer over the dump
    """
    return small_dump(context.layers[context.layers[layer_name].dependencies[0]])


def machine_of(context: interfaces.context.ContextInterface, layer_name: str) -> Machine:
    """Returns the machine of a dump.

    Args:
        context: the context that holds the layer
        layer_name: the layer over the dump

    Raises:
        UnsupportedMachineError: it is not supported; the text is a sentence for users
    """
    return dump_of(context, layer_name).machine


def image_of(
    context: interfaces.context.ContextInterface,
    layer_name: str,
    config_path: str,
    kernel_symbols: Optional[str] = None,
) -> Image:
    """Returns the image of a dump.

    Args:
        context: the context that holds the layer
        layer_name: the layer over the dump
        config_path: where the configuration of our symbol tables goes
        kernel_symbols: the file of the kernel's symbol table; None: the symbol path is searched

    Raises:
        UnsupportedMachineError: the dump is of a machine that is not supported; the text is a sentence
        KernelSymbolsError: the table that the user named is not of this kernel; the text is a sentence
    """
    dump = dump_of(context, layer_name)
    image = Image.of_layer(context, layer_name, dump.machine, config_path)
    image.threads_only = True
    image.base = kernel_base(dump)
    image.types = image.our_types(_table_of(dump))
    table_name = kernel_table(context, config_path, dump, image.base, kernel_symbols)
    if table_name:
        image.take_symbols(table_name)
    process, drivers = CrashedProcess(image, dump, bool(table_name)), DumpDrivers(image, dump)
    handles: Callable[[Databases], HandleEvents] = _no_handles
    listers: Tuple[Spaces, ThreadLists, ModuleLists, UnloadedModules, Regions, MachineFacts] = (
        *(process, process),
        *(drivers, drivers),
        *(NoRegions(), SmallDumpFacts(image, dump)),
    )
    services = spaces, threads, module_lists, unloaded_modules, regions, machine_facts
    for make, service in zip(services, listers):
        image.provide(make, service)
    known: object = process
    image.provide(ProcessList, known)
    image.provide(handle_events, handles)
    image.provide(processors.of, process.processors())
    return image


def _no_handles(_databases: Databases) -> HandleEvents:
    return NoHandles()


def _table_of(dump: TriageDump) -> str:
    """Returns our table of trap frames of the dump's own build, or of the one before it."""
    arch, build = dump.machine.arch, (dump.header.MinorVersion or 0) & 0xFFFF
    versions = tables.generations(_TRAP_FRAMES, arch)
    since = {version: (*tables.version(version)[2:3], 0)[0] for version in versions}
    chosen = next((version for version in versions if since[version] <= build), versions[-1])
    return f"{_TRAP_FRAMES}-{chosen}-{arch}"
