# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Opens minidumps through Volatility's layers.

dump = minidump(file_layer)          # the content for the layer of a process
image = image_of(context, layer_name)    # with the services that the dump provides
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from volatility3.framework import interfaces

from ..handles.events import handle_events
from ..memory import bulk
from ..memory.decode.machine import Machine, UnsupportedMachineError
from ..memory.decode.machine import machine_of as machine_of_number
from ..memory.decode.status import Status, numbers_of, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from ..memory.tables import KernelSymbolsError
from ..names.loaderlists import module_lists
from ..names.unloaded import unloaded_modules
from ..process.dynamictables import dynamic_tables
from ..process.processlist import process_list
from ..process.refusedplaces import refused_places
from ..process.spaces import spaces
from ..process.threads import threads
from ..process.vads import regions
from ..stacklist.machine import machine_facts
from ..waits.handlenames import handle_objects
from .decode.dumpfile import Minidump, NotAMinidumpError, OtherSystemError
from .decode.memory import MemoryRange, memory_ranges, with_ranges
from .decode.platform import dump_machine, refuse_other_systems
from .decode.system import system_info
from .decode.threads import listed_threads
from .decode.threadstates import trap_frames
from .facts import WITH_FULL_MEMORY, DumpFacts
from .functions import DumpFunctions
from .handles import DumpHandles
from .modules import DumpModules
from .process import DumpProcess
from .regions import DumpRegions

__all__ = ["NotAMinidumpError", "OtherSystemError", "image_of", "machine_of", "memory", "minidump"]

_EXPECTED = ("ThreadListStream", "ModuleListStream", "SystemInfoStream")
"""Streams that every writer puts into a dump."""


def minidump(layer: interfaces.layers.DataLayerInterface) -> Minidump:
    """Returns the dump in the layer of a file. Raises NotAMinidumpError if the layer has no minidump; the
    text is a sentence for users."""
    return Minidump(bulk.file_reader(layer), int(layer.maximum_address) + 1)


def memory(dump: Minidump) -> Tuple[List[MemoryRange], Status]:
    """Returns the memory ranges of the dump, sorted and disjoint, and the status of its lists.

    They include the trap frames of the kernel's memory in this project's own stream.
    """
    listed, _ = listed_threads(dump)
    stacks = [
        MemoryRange(thread.StartOfMemoryRange, thread.Stack.Rva, thread.Stack.DataSize) for thread in listed
    ]
    found, faults = memory_ranges(dump, stacks)
    ours = [
        MemoryRange(frame.Address, frame.Location.Rva, frame.Location.DataSize)
        for frame in trap_frames(dump)[0]
    ]
    return with_ranges(dump, found, ours), faults


def lacks(dump: Minidump) -> List[str]:
    """Returns what a dump lacks, in words."""
    words = [] if dump.flags & WITH_FULL_MEMORY else ["full memory: heaps, data and most code"]
    streams = {stream.name for stream in dump.streams}
    words += [name for name in _EXPECTED if name not in streams]
    faults = memory(dump)[1]
    # The list of memory is a stream, too.
    cut = max(dump.missing, numbers_of(faults, StatusCode.BEYOND_THE_FILE))
    return words + ([f"{cut} bytes at its end"] if cut else [])


def machine_of(dump: Minidump) -> Machine:
    """Returns the machine of a dump.

    Raises:
        UnsupportedMachineError: the machine is not supported, or nothing in the dump shows it
        OtherSystemError: the dump is of another system than Windows
    """
    refuse_other_systems(dump)
    system, found = system_info(dump), dump_machine(dump)
    if system is not None:
        return system.machine
    if found.number is None:
        raise UnsupportedMachineError("unknown (SystemInfoStream, contexts and modules do not tell it)")
    return machine_of_number(found.number)


def image_of(
    context: interfaces.context.ContextInterface,
    layer_name: str,
    config_path: str,
    kernel_symbols: Optional[str] = None,
) -> Image:
    """Returns the image of a dump: one process without a kernel.

    Args:
        config_path: path for the configuration of this project's symbol tables
        kernel_symbols: the file that the user named, for which such a dump has no use

    Raises:
        KernelSymbolsError: the user named a table of a kernel; the text is a sentence for users
        UnsupportedMachineError: the machine is not supported, or nothing in the dump shows it; the text is a
            sentence for users
        OtherSystemError: the dump is of another system than Windows; likewise
    """
    if kernel_symbols:
        raise KernelSymbolsError("--kernel-symbols: the dump of a process has no kernel")
    layer: Any = context.layers[layer_name]
    dump: Minidump = layer.dump
    image = Image.of_layer(context, layer_name, machine_of(dump), config_path)
    process, modules, handles = DumpProcess(image, dump), DumpModules(image, dump), DumpHandles(image, dump)
    image.providing(process_list)(process)
    image.providing(spaces)(process)
    image.providing(threads)(process)
    image.providing(refused_places)(process.refused_places())
    image.providing(module_lists)(modules)
    image.providing(unloaded_modules)(modules)
    image.providing(regions)(DumpRegions(image, dump, lambda: memory(dump)[0]))
    image.providing(machine_facts)(DumpFacts(dump, system_info(dump), image.machine))
    image.providing(dynamic_tables)(DumpFunctions(image, dump))
    image.providing(handle_events)(lambda _databases: handles)
    image.providing(handle_objects)(handles)
    return image


def faults(dump: Minidump, of_memory: Status) -> Status:
    """Returns the faults of a dump as a whole. `of_memory` is the status of its lists of memory."""
    return status(dump.status, *(stream.status for stream in dump.streams), of_memory)
