# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A thread of a forged image as the small kernel dump that Windows would have written of it.

made = small_dump_of(opened, tid)
(folder / "small.dmp").write_bytes(made.file())

The registers are those with which the thread's own walk begins, within the call that it waits in; the memory
is that of the kernel's modules and of the thread's stack. So a walk up the dump's stack must find what it
finds in the image.
"""

from __future__ import annotations

import pathlib
import struct
from typing import Dict, Mapping

from tests.forge.context import Opened
from tests.forge.pe import TIMESTAMP
from tests.forge.smalldump import Driver, SmallDump
from winstacks.memory.decode.machine import Machine
from winstacks.memory.image import Image
from winstacks.names.kernelmodules import KernelModules
from winstacks.process.thread import Thread
from winstacks.process.threads import Threads
from winstacks.stacks.decode.registers import GENERAL
from winstacks.stacks.walkers import Cpus
from winstacks.traps.state import register_types

CODE = 0xD1
_SEGMENTS: Dict[Machine, Mapping[str, int]] = {
    Machine.AMD64: {"ContextFlags": 0x10001F, "SegCs": 0x10, "SegSs": 0x18, "EFlags": 0x246, "MxCsr": 0x1F80},
    Machine.I386: {"ContextFlags": 0x1003F, "SegCs": 8, "SegSs": 0x10, "EFlags": 0x246},
}


SAMPLE = "crash.dmp"
"""The small kernel dump of the sample that the documentation reads."""
_SAMPLE_THREAD = 4316


def write_of_sample(opened: Opened, path: pathlib.Path) -> None:
    """Writes the small dump of the sample: a thread of updater.exe met the bug check D1 where it waited."""
    dump = small_dump_of(opened, _SAMPLE_THREAD)
    base = opened.image.base
    dump.unloaded([Driver("gone.sys", base + 0x4000000, 0x8000)])
    path.write_bytes(dump.file())


def context_of(image: Image, registers: Mapping[str, int]) -> bytes:
    """Returns a CONTEXT of kernel mode with some registers."""
    structure = register_types(image, image.machine)["_CONTEXT"]
    data = bytearray(structure.size)
    for name, value in {**_SEGMENTS[image.machine], **registers}.items():
        field = structure.field(name)
        data[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
    return bytes(data)


def thread_of(image: Image, tid: int) -> Thread:
    """Returns a thread of an image."""
    return next(iter(Threads.list_threads(image, tids=[tid])))


def registers_of(image: Image, thread: Thread) -> Dict[str, int]:
    """Returns the registers with which the walk of a thread that waits begins."""
    low = next(
        module for module in image.service(KernelModules).list_modules(0)[0] if module.base == image.base
    )
    cpu = image.service(Cpus).for_machine(image.machine)
    memory = image.memory(image.kernel)
    for start in cpu.switched_out(memory, thread.kernel_stack or 0):
        found = start.registers
        if low.base < found.ip < low.end:
            if image.machine is Machine.I386:
                return {"Eip": found.ip - 1, "Esp": found.sp, "Ebp": found.bp or 0}
            general = zip(GENERAL, found.general)
            known = {name: value for name, value in general if value is not None}
            return {**known, "Rip": found.ip - 1, "Rsp": found.sp}
    raise AssertionError("the thread does not wait")


def small_dump_of(
    opened: Opened, tid: int, code: int = CODE, with_code: bool = True, **options: object
) -> SmallDump:
    """Returns the dump.

    Args:
        opened: the image
        tid: a thread that waits
        code: the bug check
        with_code: whether the dump has the memory of the drivers
        options: of SmallDump
    """
    image = opened.image
    thread, wide = thread_of(image, tid), image.machine is Machine.AMD64
    registers = registers_of(image, thread)
    memory = image.memory(image.kernel)
    dump = SmallDump(wide=wide, **options)  # type: ignore[arg-type]
    dump.crash(code, (0x10, 2, 0, registers["Rip" if wide else "Eip"]), context_of(image, registers))
    low, high = thread.kernel_stack or 0, thread.stack_base or 0
    dump.stack(low, bytes(memory.read(low, high - low) or b""))
    _structures(image, thread, dump)
    modules, _ = image.service(KernelModules).list_modules(0)
    ordered = sorted(modules, key=lambda module: module.base != image.base)
    dump.drivers(
        [
            Driver(f"\\SystemRoot\\{module.file}", module.base, module.size, stamp=TIMESTAMP)
            for module in ordered
        ]
    )
    for module in modules if with_code else ():
        for start, data in memory.pages(module.base, module.end):
            dump.block(start, bytes(data))
    symbols = ("PsLoadedModuleList", "PsActiveProcessHead", "KdDebuggerDataBlock")
    known = {name: image.symbol(name) for name in symbols}
    dump.variables.update((name, value - image.base) for name, value in known.items() if value)
    return dump


_PLACES = {
    "OffsetKThreadTeb": ("_ETHREAD", "Tcb.Teb"),
    "OffsetKThreadKernelStack": ("_ETHREAD", "Tcb.KernelStack"),
    "OffsetKThreadInitialStack": ("_ETHREAD", "Tcb.InitialStack"),
    "OffsetKThreadApcProcess": ("_ETHREAD", "Tcb.ApcState.Process"),
    "OffsetKThreadState": ("_ETHREAD", "Tcb.State"),
    "OffsetEprocessPeb": ("_EPROCESS", "Peb"),
    "OffsetPrcbCurrentThread": ("_KPRCB", "CurrentThread"),
    "OffsetPrcbNumber": ("_KPRCB", "Number"),
}
_SIZES = {"SizeEThread": "_ETHREAD", "SizeEProcess": "_EPROCESS", "SizePrcb": "_KPRCB"}


def _structures(image: Image, thread: Thread, dump: SmallDump) -> None:
    """Adds the thread, its process and the processor as the image has them."""
    types, memory = image.types, image.memory(image.kernel)
    for name, (structure, path) in _PLACES.items():
        field = types[structure].first_member(path)
        if field is not None:
            dump.offsets[name] = field.offset
    dump.offsets.update({name: types[structure].size for name, structure in _SIZES.items()})
    stack = thread.initial_stack or 0, thread.kernel_stack or 0
    dump.thread(thread.ethread, thread.space.eprocess, *stack, 0, thread.teb or 0)
    for name, structure, address in (
        ("Thread", "_ETHREAD", thread.ethread),
        ("Process", "_EPROCESS", thread.space.eprocess),
    ):
        data = memory.read(address, types[structure].size)
        if data is not None:
            dump.put(f"{name}Offset", bytes(data))


def exception_record(wide: bool, code: int, address: int) -> bytes:
    """Returns an EXCEPTION_RECORD without parameters."""
    data = struct.pack("<IIQQI4x" if wide else "<IIIII", code, 0, 0, address, 0)
    return data.ljust(0x98 if wide else 0x50, b"\0")
