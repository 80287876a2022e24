# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Process dumps of ARM64 Windows, forged from recorded points: none that Windows wrote is to be had.

`full`: all memory in Memory64ListStream, and an exception; `stacks`: the stack and the modules in
MemoryListStream, a TEB, and a CONTEXT that is followed by extended state.
"""

from __future__ import annotations

import pathlib
import struct
from typing import List, Optional, Tuple

from tests.forge.minidump import Module, Writer, WrittenThread
from tests.forge.smalldump import Driver, SmallDump
from tests.support.armtruth import Point, Truth
from winstacks.stacks.decode.registers_arm64 import PLACES, RegistersArm64

FULL, STACKS = "full", "stacks"
TID, TEB, PEB = 0x1234, 0xC5D4600000, 0xC5D4500000
_ARM64, _AMD64, _BUILD = 12, 9, 22631
_FLAGS, _EXTENDED = 0x400007, 0x400020
PRIVATE = 0x1F0000000
READWRITE, EXECUTE_READWRITE = 4, 0x40
_EXECUTE_READ, _EXECUTE_COPY = 0x20, 0x80
_COMMIT, _OF_PROCESS, _OF_IMAGE = 0x1000, 0x20000, 0x1000000


def context(point: Point, flags: int = _FLAGS) -> bytes:
    """A CONTEXT of ARM64."""
    data = bytearray(0x390)
    struct.pack_into("<II", data, 0, flags, 0x60000000)
    for number, place in PLACES.items():
        value = point.registers.values[place] or 0
        if number < 31:
            struct.pack_into("<Q", data, 8 + 8 * number, value)
        elif number > 31:
            struct.pack_into("<Q", data, 0x110 + 16 * (number - 32), value)
    struct.pack_into("<QQ", data, 0x100, point.registers.sp, point.pc)
    return bytes(data)


def small_dump(truth: Truth, point: Point, seed: Optional[int], folder: pathlib.Path) -> bytes:
    """A small kernel dump of a thread that stands at a point of kernel-mode code; the files of its drivers
    go into a folder. The dump has the stack alone, as Windows writes it."""
    low = point.registers.sp & ~0xFFF
    saved = bytearray(context(point))
    struct.pack_into("<I", saved, 4, 0x60000004)
    made = SmallDump(build=_BUILD, machine=0xAA64, seed=seed)
    made.crash(0xD1, (1, 2, 0, point.pc), bytes(saved))
    made.stack(low, point.stack[low - truth.low :])
    nt, listed = Driver("ntoskrnl.exe", 0xFFFFF80200000000, 0x1000000), []
    for image, name in zip(truth.images, (truth.name, "app.sys")):
        data = bytearray(image.read_rva(0, image.size) or b"")
        if name == truth.name:
            data = bytearray(truth.file.read_bytes())
        header = int.from_bytes(data[0x3C:0x40], "little")
        stamp = int.from_bytes(data[header + 8 : header + 12], "little") or 0x5F000000
        struct.pack_into("<I", data, header + 8, stamp)
        (folder / name).write_bytes(data)
        listed.append(Driver(name, image.base, image.size, stamp=stamp))
    made.drivers([nt, *listed])
    return made.file()


def x64_context(point: Point) -> bytes:
    """A CONTEXT of AMD64 that holds the registers of ARM64EC code under their x64 names."""
    data = bytearray(0x4D0)
    struct.pack_into("<I", data, 0x30, 0x10000F)
    struct.pack_into("<HHHHHHI", data, 0x38, 0x33, 0x2B, 0x2B, 0x53, 0x2B, 0x2B, 0x246)
    struct.pack_into("<QQ", data, 0x98, point.registers.sp, point.registers.fp or 0)
    struct.pack_into("<Q", data, 0xF8, point.pc)
    return bytes(data)


X64_BASE = 0x7FF7A0000000
X64_STOOD, X64_RETURN = X64_BASE + 0x1004, X64_BASE + 0x1109
"""Where a thread stands in code of x64, and the return address in its caller."""


def _x64_program() -> bytes:
    """An image for x64 with two functions: `sub rsp,28h; nop…` and `sub rsp,28h; call first; nop…`."""
    image = bytearray(0x4000)
    image[:2] = b"MZ"
    struct.pack_into("<I", image, 0x3C, 0x80)
    struct.pack_into("<4sHHIIIHH", image, 0x80, b"PE\0\0", 0x8664, 1, 0x60000000, 0, 0, 0xF0, 0x22)
    struct.pack_into("<H", image, 0x98, 0x20B)
    struct.pack_into("<QII", image, 0x98 + 24, X64_BASE, 0x1000, 0x1000)
    struct.pack_into("<II", image, 0x98 + 56, len(image), 0x1000)
    struct.pack_into("<I", image, 0x98 + 108, 16)
    struct.pack_into("<II", image, 0x98 + 112 + 24, 0x3000, 24)
    code = b".text\0\0\0", 0x1000, 0x1000, 0x1000, 0x1000, 0, 0, 0, 0, 0x60000020
    struct.pack_into("<8sIIIIIIHHI", image, 0x98 + 0xF0, *code)
    allocate = b"\x48\x83\xec\x28"
    image[0x1000:0x1020] = allocate.ljust(0x20, b"\x90")
    call = b"\xe8" + struct.pack("<i", 0x1000 - 0x1109)
    image[0x1100:0x1120] = (allocate + call).ljust(0x20, b"\x90")
    image[0x2000:0x2006] = bytes((1, 4, 1, 0, 4, 0x42))
    struct.pack_into("<6I", image, 0x3000, 0x1000, 0x1020, 0x2000, 0x1100, 0x1120, 0x2000)
    return bytes(image)


def emulated_dump(truth: Truth, point: Point, called: bool = False) -> bytes:
    """A dump of an x64 process on ARM64 whose only thread stands at a point of its ntdll.

    Args:
        truth: the module that is taken for ntdll
        point: where the thread stands, or where it called code of x64
        called: whether that code called functions of x64, in which the thread stands
    """
    low = point.registers.sp & ~0xFFF
    stack = bytearray(point.stack[low - truth.low :])
    if called:
        sp = point.registers.sp - 0x60
        caller, stood = point.pc, RegistersArm64.from_known(X64_STOOD, sp, {"Fp": 0})
        point = point._replace(pc=X64_STOOD, registers=stood)
        if sp < low:
            low, stack = low - 0x1000, bytearray(0x1000) + stack
        struct.pack_into("<Q", stack, sp - low + 0x28, X64_RETURN)
        struct.pack_into("<Q", stack, sp - low + 0x58, caller)
    module = truth.images[0]
    image = bytearray(module.read_rva(0, module.size) or b"")
    # The loader of an x64 process shows the view of the file for AMD64.
    struct.pack_into("<H", image, int.from_bytes(image[0x3C:0x40], "little") + 4, 0x8664)
    writer = Writer()
    writer.system_info(_AMD64, _BUILD)
    program = _x64_program()
    writer.threads([WrittenThread(TID, 0, (low, bytes(stack)), x64_context(point))])
    writer.modules(
        [
            Module(module.base, module.size, 0, r"C:\Windows\System32\ntdll.dll"),
            Module(X64_BASE, len(program), 0, r"C:\x\app.exe"),
        ]
    )
    writer.memory64([(low, bytes(stack)), (module.base, bytes(image)), (X64_BASE, program)])
    return writer.bytes()


def process_dump(truth: Truth, point: Point, layout: str) -> bytes:
    """A dump of a process whose only thread stands at a point."""
    names = [truth.name, "app.exe"]
    low = point.registers.sp & ~0xFFF
    stack = point.stack[low - truth.low :]
    ranges: List[Tuple[int, bytes]] = [
        (image.base, bytes(image.read_rva(0, image.size) or b"")) for image in truth.images
    ]
    writer = Writer()
    writer.system_info(_ARM64, _BUILD)
    if layout == FULL:
        saved = context(point)
        writer.threads([WrittenThread(TID, TEB, (low, stack), saved)])
    else:
        saved = context(point, _FLAGS | _EXTENDED) + bytes(0x120)
        writer.threads([WrittenThread(TID, TEB, (low, stack), saved)])
        teb = bytearray(0x1838)
        struct.pack_into("<QQ", teb, 8, truth.high, truth.low)
        struct.pack_into("<Q", teb, 0x30, TEB)
        struct.pack_into("<QQ", teb, 0x40, 0x1000, TID)
        struct.pack_into("<Q", teb, 0x60, PEB)
        ranges += [(TEB, bytes(teb)), (PEB, bytes(0x1000))]
    writer.modules(
        [
            Module(image.base, image.size, 0, rf"C:\x\{name}", None, (1, 0, 0, 0))
            for image, name in zip(truth.images, names)
        ]
    )
    if layout == FULL:
        writer.exception(TID, 0xC0000005, point.pc, (), saved)
        writer.memory64([(low, stack), *ranges])
    else:
        writer.memory([(low, stack), *ranges])
    return writer.bytes()


def injected_dump(truth: Truth, point: Point, protection: int) -> bytes:
    """A dump of a process whose only thread began in private memory, and stands there.

    Args:
        truth: the module
        point: a point with callers: its innermost caller called the private memory
        protection: PAGE_* of the private memory
    """
    caller = truth.caller(point.frames[0])
    values = list(caller.values)
    values[PLACES[30]] = caller.ip
    stood = point._replace(pc=PRIVATE + 0x100, registers=RegistersArm64(PRIVATE + 0x100, tuple(values)))
    low = caller.sp & ~0xFFF
    stack = point.stack[low - truth.low :]
    ranges = [(image.base, bytes(image.read_rva(0, image.size) or b"")) for image in truth.images]
    writer = Writer()
    writer.system_info(_ARM64, _BUILD)
    writer.threads([WrittenThread(TID, TEB, (low, stack), context(stood))])
    writer.thread_infos([(TID, 0, 0, 259, 1, 0, 0, 0, PRIVATE, 1)])
    writer.modules(
        [
            Module(image.base, image.size, 0, rf"C:\x\{name}", None, (1, 0, 0, 0))
            for image, name in zip(truth.images, (truth.name, "app.exe"))
        ]
    )
    regions = [(low, low, READWRITE, len(stack), READWRITE, _OF_PROCESS)]
    regions += [(base, base, _EXECUTE_COPY, len(data), _EXECUTE_READ, _OF_IMAGE) for base, data in ranges]
    regions.append((PRIVATE, PRIVATE, protection, 0x1000, protection, _OF_PROCESS))
    writer.memory_infos(
        [
            (start, base, was, size, _COMMIT, now, kind)
            for start, base, was, size, now, kind in sorted(regions)
        ]
    )
    code = struct.pack("<I", 0xD503201F) * 0x400
    writer.memory64([(low, stack), *ranges, (PRIVATE, code)])
    return writer.bytes()
