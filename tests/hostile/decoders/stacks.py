# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames and exception frames on stacks, CONTEXTs, and walks up stacks of both bitnesses."""

from __future__ import annotations

import functools
import struct
from typing import Iterator, List, Optional, Tuple

from tests.forge import kernels, trapentries, trapframes
from tests.forge.trapentries import X64, X86_BLUE, X86_OLD
from tests.support import traplayouts
from tests.support.trapsets import every_entry, filled, registers_64, registers_86
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import status, text
from winstacks.names.decode.functiontable import FunctionTable
from winstacks.stacks.decode.frames import MAX_FRAMES, CodeImage, StackWalk
from winstacks.stacks.decode.registers import Registers, Registers32
from winstacks.stacks.decode.walk_x64 import Walker64
from winstacks.stacks.decode.walk_x86 import TRAP_MARK, Walker32
from winstacks.traps.decode.frame import TrapBounds, TrapFrameLayout

from .target import Target

KERNELS = {X64: "win10-x64", X86_OLD: "xp-x86", X86_BLUE: "win10-x86"}
_BOUNDS = {
    "x64": TrapBounds(1 << 47, 0xFFFF800000000000, (0xFFFFF80001000000, 0xFFFFF80001800000)),
    "x86": TrapBounds(0x7FFF0000, 0x80000000, (0x80400000, 0x80800000)),
}
_STACK = {"x64": 0xFFFFADFE4C2C000, "x86": 0xF8A3C000}
_DEPTH = 0xE00
_POISON = filled(b"\x60\xde\xc2\xe4\xdf\xfa\xff\xff")


@functools.lru_cache(maxsize=None)
def _form(architecture: str) -> TrapFrameLayout:
    return traplayouts.trap_frame_layout(kernels.load(KERNELS[architecture]).table)


def _stack_seeds(architecture: str) -> List[bytes]:
    """Stacks of a page, each with one frame 0E00h bytes up."""
    wide = architecture == X64
    address = _STACK["x64" if wide else "x86"] + _DEPTH
    seeds = []
    for entry in every_entry(architecture):
        if entry.kind == trapentries.NMI:
            continue
        registers = registers_64(entry.mode) if wide else registers_86(entry.mode)
        frame = trapframes.forge(architecture, entry, registers, address, _POISON).data
        seeds.append(_POISON(0, _DEPTH) + frame)
    return seeds


def _stack(architecture: str, data: bytes, whole: bytes) -> None:
    form, arch = _form(architecture), "x64" if architecture == X64 else "x86"
    start = _STACK[arch]
    memory = Extents([(start, data)])
    places = list(form.scan(memory, start, start + len(data), _BOUNDS[arch]))
    assert len(places) <= len(data) // 16 + 1
    for address in {*places, start + _DEPTH}:
        held = bytes(memory.read(address, form.size) or b"")
        form.plausible(address, held)
        frame = form.decode(address, held)
        listed = {member.name: member for member in form.list_members(frame, held)}
        assert set(listed) == set(form.members)
        assert all(0 <= value < 1 << 64 for value in frame.registers.values())
        assert set(frame.unsure) <= set(frame.registers)
        if architecture == X64:
            table = kernels.load(KERNELS[architecture]).table
            exceptions = traplayouts.exceptions(traplayouts.structure(table, "_KEXCEPTION_FRAME"))
            exceptions.find_frame(address, frame.registers.get("Rip", 0), memory, "KiExceptionDispatch")


def _context(arch: str, data: bytes, whole: bytes) -> None:
    found = traplayouts.context(arch).decode(data)
    if found is not None:
        assert all(0 <= value < 1 << 64 for value in found.registers.values())


def _context_seeds(arch: str) -> List[bytes]:
    form = traplayouts.context(arch)
    offset = form.fields["ContextFlags"].offset
    flags = 0x10001F if arch == "x64" else 0x1003F
    data = bytearray(b"\x5a" * form.size)
    struct.pack_into("<I", data, offset, flags)
    return [bytes(data)]


_CODE, _IMAGE_SIZE = 0x1000, 0x4000
_PDATA, _INFOS = 0x3800, 0x3000
_INFO = (
    "01000000",
    "010401000402",
    "010401050403",
    "01000100000a",
    "0108030008320430025",
    "0106020006320230",
)


def _image_64() -> bytes:
    """A module of 16 functions, their unwind data and its function table."""
    memory = bytearray(b"\xcc" * _IMAGE_SIZE)
    for number in range(16):
        begin, unwind = _CODE + 0x100 * number, _INFOS + 0x20 * number
        info = bytes.fromhex(_INFO[number % len(_INFO)].ljust(20, "0"))
        memory[unwind : unwind + len(info)] = info
        memory[begin + 0x1B : begin + 0x20] = b"\xe8\0\0\0\0"
        struct.pack_into("<III", memory, _PDATA + 12 * number, begin, begin + 0x100, unwind)
    return bytes(memory)


def _image_86() -> bytes:
    """A module of 16 functions that set up a frame and call the next."""
    memory = bytearray(b"\x90" * _IMAGE_SIZE)
    for number in range(16):
        begin = _CODE + 0x100 * number
        memory[begin : begin + 3] = b"\x55\x8b\xec"
        memory[begin + 0x1B : begin + 0x20] = b"\xe8" + struct.pack("<i", -0x120)
    return bytes(memory)


def _walk_seeds(arch: str) -> List[bytes]:
    """An image, then a stack of 1000h bytes that leads through its functions."""
    base, low, width = _places(arch)
    stack = bytearray(0x1000)
    code = "<Q" if width == 8 else "<I"
    for slot in range(0, 0x800 // width, 2):
        returns = base + _CODE + 0x20 + 0x100 * (slot // 2 % 16)
        struct.pack_into(code, stack, slot * width, returns)
        struct.pack_into(code, stack, (slot + 1) * width, low + (slot + 5) * width)
    if arch == "x86":
        for offset, value in (
            (8, TRAP_MARK),
            (0x60, low + 0x700),
            (0x68, base + 0x1140),
            (0x6C, 8),
            (0x70, 0x202),
        ):
            struct.pack_into("<I", stack, 0x600 + offset, value)
    return [(_image_64() if arch == "x64" else _image_86()) + bytes(stack)]


def _places(arch: str) -> Tuple[int, int, int]:
    return (0x140000000, 0x7F0000000000, 8) if arch == "x64" else (0x80400000, 0xF8000000, 4)


def _walk(arch: str, data: bytes, whole: bytes) -> None:
    base, low, width = _places(arch)
    image_bytes, stack = data[:_IMAGE_SIZE], data[_IMAGE_SIZE:]
    memory = Extents([(base, image_bytes), (low, stack)])

    def read_rva(rva: int, length: int) -> Optional[bytes]:
        found = memory.read(base + rva, length) if 0 <= rva < _IMAGE_SIZE else None
        return None if found is None else bytes(found)

    pdata = image_bytes[_PDATA : _PDATA + 16 * 12]
    table = FunctionTable.from_bytes(pdata, read_rva) if width == 8 else None
    image = CodeImage(base, _IMAGE_SIZE, read_rva, table, ((_CODE, _INFOS),))

    def find_image(address: int) -> Optional[CodeImage]:
        return image if base <= address < base + _IMAGE_SIZE else None

    for stacks in (((low, low + 0x1000),), ()):
        for interrupted in (False, True):
            start = base + _CODE + 0x20
            if width == 8:
                known = {low + 0x400: Registers.from_known(start, low + 0x500, {"Rbp": low + 0x300})}
                walk = Walker64(find_image, memory.read, known).walk(
                    Registers.from_known(start, low, {"Rbp": low + 0x200}), interrupted, stacks
                )
            else:
                walk = Walker32(find_image, memory.read, traplayouts.ours("x86"), [low + 0x600]).walk(
                    Registers32(start, low, low + 0x20), interrupted, stacks
                )
            _check(walk)


def _check(walk: StackWalk) -> None:
    assert len(walk.frames) <= MAX_FRAMES
    assert text(status(*walk.gaps, walk.end)).isprintable()
    for frame in walk.frames:
        assert 0 <= frame.address < 1 << 64
        assert 0 <= frame.sp < 1 << 64


def targets() -> Iterator[Target]:
    for architecture in KERNELS:
        yield Target(
            f"trapframes-{KERNELS[architecture]}",
            functools.partial(_stack_seeds, architecture),
            functools.partial(_stack, architecture),
        )
    for arch in ("x64", "x86"):
        context = functools.partial(_context, arch)
        yield Target(f"context-{arch}", functools.partial(_context_seeds, arch), context)
        yield Target(f"walk-{arch}", functools.partial(_walk_seeds, arch), functools.partial(_walk, arch))
