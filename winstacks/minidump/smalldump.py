# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Opens small kernel dumps through Volatility's layers.

dump = small_dump(file_layer)            # the content for the layer of the dump
image = image_of(context, layer_name, config_path)    # with the services that the dump provides

The image has the kernel stack of one thread and a list of drivers. It has no list of processes to walk, and
`image.threads_only` is set. Structures are read with the kernel's symbols if these are found or given.
Without them, trap frames are read with this project's tables, and other structures as far as the dump's
KDDEBUGGER_DATA64 has their offsets.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from volatility3.framework import interfaces

from ..memory import bulk
from ..memory.decode.status import NOTHING, Status, numbers_of, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from ..names.loaderlists import module_lists
from ..names.unloaded import unloaded_modules
from ..process import processors
from ..process.functionstarts import function_starts
from ..process.processlist import process_list
from ..process.spaces import spaces
from ..process.threads import threads
from ..process.vads import regions
from ..stacklist.machine import machine_facts
from .crash import CrashedProcess, table_of_build
from .decode.crashed import crashed_thread, structure_memory
from .decode.kernelheader import NotAKernelDumpError
from .decode.memory import MemoryRange
from .decode.triage import TriageDump, memory_ranges
from .drivers import DumpDrivers
from .kernelsymbols import kernel_table
from .smallfacts import NoRegions, SmallDumpFacts

__all__ = [
    "NotAKernelDumpError",
    "image_of",
    "memory",
    "small_dump",
]

_TRAP_FRAMES = "trapframe"
"""Kind of this project's tables with the structures of kernel stacks."""
_MAX_WHOLE = 1 << 22
"""The most bytes of a file that is read at once: its texts alone are some hundred reads of a few bytes."""


def small_dump(layer: interfaces.layers.DataLayerInterface) -> TriageDump:
    """Returns the dump in the layer of a file. Raises NotAKernelDumpError if the layer has no such dump; the
    text is a sentence for users."""

    def available(offset: int, length: int) -> bytes:
        if not 0 <= offset < size:
            return b""
        return whole[offset : offset + length] if whole else read(offset, min(length, size - offset))

    read, size = bulk.file_reader(layer), int(layer.maximum_address) + 1
    whole = read(0, size) if size <= _MAX_WHOLE else b""
    return TriageDump(available, size)


def memory(dump: TriageDump) -> Tuple[List[MemoryRange], Status]:
    """Returns the memory of a dump, sorted and disjoint, and its status.

    The memory is empty if the machine is not supported.
    """
    try:
        crashed = crashed_thread(dump)
    except ValueError:
        return [], dump.status
    return memory_ranges(dump, structure_memory(dump, crashed))


def lacks(dump: TriageDump) -> List[str]:
    """Returns what a dump lacks, in words."""
    if dump.header_only:
        return ["the stack", "drivers", "process and thread", "all memory"]
    words = ["other threads", "the memory of processes", "the code of most drivers"]
    wanting = [name for name in ("CallStack", "Process", "Thread") if not dump.part(name).data]
    cut = numbers_of(dump.status, StatusCode.BEYOND_THE_FILE)
    return words + wanting + ([f"{cut} bytes at its end"] if cut else [])


def image_of(
    context: interfaces.context.ContextInterface,
    layer_name: str,
    config_path: str,
    kernel_symbols: Optional[str] = None,
) -> Image:
    """Returns the image of a dump.

    Raises:
        UnsupportedMachineError: the machine is not supported; the text is a sentence for users
        KernelSymbolsError: the table that the user named belongs to another kernel; the text is a sentence
            for users
    """
    layer: Any = context.layers[layer_name]
    dump: TriageDump = layer.dump
    image = Image.of_layer(context, layer_name, dump.machine, config_path)
    image.threads_only = True
    drivers = DumpDrivers(image, dump)
    image.base = drivers.kernel_base()
    image.types = image.our_types(_table_of(dump))
    table_name = kernel_table(context, config_path, dump, image.base, kernel_symbols)
    if table_name:
        image.take_symbols(table_name)
    process = CrashedProcess(image, dump, bool(table_name))
    image.providing(process_list)(process)
    image.providing(spaces)(process)
    image.providing(threads)(process)
    image.providing(processors.processors_of)(process.processors())
    image.providing(function_starts)(process.function_starts())
    image.providing(module_lists)(drivers)
    image.providing(unloaded_modules)(drivers)
    image.providing(regions)(NoRegions())
    image.providing(machine_facts)(SmallDumpFacts(image, dump))
    return image


def faults(dump: TriageDump, of_memory: Status) -> Status:
    """Returns the faults of a dump as a whole; a header alone has none. `of_memory` is the status of
    its memory."""
    return NOTHING if dump.header_only else status(dump.status, of_memory)


def _table_of(dump: TriageDump) -> str:
    """Returns this project's table of trap frames for the dump's build, or for the nearest earlier build."""
    arch, build = dump.machine.arch, (dump.header.MinorVersion or 0) & 0xFFFF
    return f"{_TRAP_FRAMES}-{table_of_build(_TRAP_FRAMES, arch, build)}-{arch}"
