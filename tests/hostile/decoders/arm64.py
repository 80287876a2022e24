# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ARM64: unwind data, function tables, code maps, walks up stacks, trap frames and switch frames."""

from __future__ import annotations

import functools
import struct
from typing import Iterator, List, Optional, Tuple

from tests.support.armtruth import reader
from tests.support.plainstructures import structures
from tests.winstacks.names.decode import test_hybrid
from tests.winstacks.stacks.decode import test_walk_arm64 as walks
from tests.winstacks.traps.decode import test_trapframe_arm64 as traps
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import status, text
from winstacks.memory.decode.structure import Field, Structures
from winstacks.names.decode.functiontable_arm64 import FunctionTableArm64
from winstacks.names.decode.hybrid import MAX_RANGES, read_code_map
from winstacks.names.decode.unwind_arm64 import FLAG_MASK, INSTRUCTION, MAX_CODES, MAX_SCOPES, read_record
from winstacks.names.decode.unwindinfo import UnwindDataError
from winstacks.stacks.decode import rule_arm64
from winstacks.stacks.decode.frames import MAX_FRAMES, CodeImage, StackWalk
from winstacks.stacks.decode.registers_arm64 import RegistersArm64
from winstacks.stacks.decode.walk_arm64 import WalkerArm64
from winstacks.traps.decode.context import ContextLayout
from winstacks.traps.decode.exceptionframe_arm64 import ExceptionFramesArm64, SwitchFrames

from .target import Target

_PDATA, _RECORDS, _ENTRIES = 0x7800, 0x6000, 24
_SP = walks.SP
_TOP = _SP + 0x1000
_ANY_CALL = (0xFC000000, 0x94000000), (0xFFFFFC1F, 0xD63F0000), (0xFEFFF800, 0xD63F0800)
"""bl, blr, and authenticated forms of blr: mask and value."""


def _record(data: bytes, whole: bytes) -> None:
    """The first record of the bytes, and each word as a packed one: every place leads to codes that end."""
    read = reader(data)
    words = struct.unpack_from(f"<{len(data) // 4}I", data)
    for word in (0, *(word & ~FLAG_MASK | flag for word in words[:64] for flag in (1, 2))):
        try:
            record = read_record(read, word)
        except UnwindDataError:
            continue
        assert 0 < len(record.codes) <= MAX_CODES
        assert record.prolog <= len(record.codes) and len(record.epilogs) <= MAX_SCOPES + 1
        starts = {record.at_instruction(number) for number in range(record.prolog + 1)}
        starts.update(scope.code for scope in record.epilogs)
        starts.update(scope.code + scope.length for scope in record.epilogs)
        for first in starts:
            assert 0 <= first < len(record.codes)
        for first in sorted(starts)[:64]:
            try:
                rule = rule_arm64.of_codes(record.codes, first)
            except UnwindDataError:
                continue
            effect = rule_arm64.single_read(rule)
            assert effect is None or 0 < effect.size <= 0x1000 + 8


def _records() -> List[bytes]:
    """Codes of every length, with epilogues of their own and shared ones, and two without an end."""
    codes = b"\x42\x81\xc8\x44\xd2\x83\xd9\x02\xe1\xe6\xc8\x02\xe7\x33\x85\xe0\0\1\0\xe2\x04\xfc\xe4"
    codes += b"\x81\xe4\x42\xe1\xe3\xe3"
    codes = codes.ljust(-(-len(codes) // 4) * 4, b"\xe3")
    index = codes.index(b"\x42\xe1\xe3")
    scopes = [0x10 | 0 << 22, 0x20 | codes.index(b"\x81\xe4") << 22, 0x30 | index << 22, 0x38 | index << 22]
    head = 0x40 | len(scopes) << 22 | len(codes) // 4 << 27
    full = struct.pack(f"<I{len(scopes)}I", head, *scopes) + codes
    many = [0x38 | (number % 4) << 22 for number in range(200)]
    # No code is an end from byte 1 on.
    endless = b"\xe4" + b"\x81" * 1019
    extended = struct.pack("<II", 0x40, len(many) | len(endless) // 4 << 16)
    longest = extended + struct.pack(f"<{len(many)}I", *many) + endless
    single = struct.pack("<I", 0x40 | 1 << 21 | index << 22 | len(codes) // 4 << 27) + codes
    return [full, longest, single, struct.pack("<4I", 0x40 | 1 << 27, 0xE4E4E9E8, walks.CHAINED, 0x00F3_6105)]


def _map(data: bytes, whole: bytes) -> None:
    found = read_code_map(reader(data), test_hybrid.HEADERS, test_hybrid.BASE)
    if found is None:
        return
    assert len(found.starts) == len(found.ends) == len(found.kinds) <= MAX_RANGES
    assert found.starts == sorted(found.starts)
    for start, end, kind in zip(*found):
        assert {found.kind(place) for place in (0, start, end)} <= {None, *found.kinds}
        assert start <= end and kind in range(4)


def _module() -> bytes:
    """A module with every form of entry, in whose first page the code map of a hybrid image is."""
    program = walks.Program(*[walks.CHAINED] * 10, 0, 2 | walks.STEP // 4 << 2, 0)
    forms = (
        b"\xe1\x81\xe4",
        b"\xe8\xe4",
        b"\xe9\xe4",
        b"\xea\xe4",
        b"\xec\x42\x04\xe4",
        b"\xeb\xe4",
        b"\xfc\xe1\xc8\x02\x83\xe4",
    )
    for number, form in enumerate(forms):
        unwind = program.record(_RECORDS + 0x40 * number, form)
        program.entries.append((0x1000 + walks.STEP * (13 + number), unwind))
        program.put(0x1000 + walks.STEP * (13 + number) + 0x40, walks.BL)
    # adrp x16, +0; add x16, x16, #0x44; br x16
    program.put(0x2800, 0x90000010, 0x91011210, 0xD61F0200)
    program.data[0x6800:0x6804] = struct.pack("<I", 0x1000)
    program.entries.append((0x2800, 0x6800 | 3))
    pdata = b"".join(struct.pack("<II", *entry) for entry in sorted(program.entries))
    program.data[_PDATA : _PDATA + len(pdata)] = pdata
    program.data[:0x1000] = test_hybrid.image(walks.BASE + test_hybrid.METADATA)
    struct.pack_into("<4I", program.data, test_hybrid.RANGES, 0x1000, 0x2000, 0x3000 | 1, 0x1000)
    return bytes(program.data)


def _stack() -> bytes:
    """{fp, lr} pairs 20h bytes apart that lead through the functions, and frames of the kernel above."""
    stack = bytearray(_TOP - _SP)
    program = walks.Program()
    for number in range(40):
        returns = program.at(number % 20)
        struct.pack_into("<QQ", stack, 32 * number, _SP + 32 * (number + 1), returns)
    frame = traps.frame(1, 0, program.at(2), _SP + 0xC00)
    stack[0x600 : 0x600 + len(frame)] = frame
    struct.pack_into("<QQ", stack, 0x800, _SP + 0xA00, program.at(3))
    return bytes(stack)


def _walk_seeds() -> List[bytes]:
    return [_module() + _stack()]


def _walk(data: bytes, whole: bytes) -> None:
    image_bytes, stack = data[: walks.SIZE], data[walks.SIZE :]
    memory = Extents([(walks.BASE, image_bytes), (_SP, stack)])
    read_rva = reader(image_bytes)
    pdata = image_bytes[_PDATA : _PDATA + 8 * _ENTRIES]
    hybrid = read_code_map(read_rva, test_hybrid.HEADERS, walks.BASE)
    # A body, a leaf, a frame that the kernel made, and a branch island.
    for number in (0, 12, 14, 24):
        table = FunctionTableArm64.from_bytes(pdata, read_rva)
        _table(table)
        code: Optional[Tuple[Tuple[int, int], ...]] = ((0x1000, 0x4000),) if number != 12 else None
        # Of the second start the module has code of another machine.
        for offset, kinds in ((0x44, None), (4, hybrid), (walks.STEP, None)):
            image = CodeImage(walks.BASE, walks.SIZE, read_rva, table, code, hybrid=kinds)
            for interrupted in (False, True):
                _one_walk(image, memory, number, offset, interrupted)


def _table(table: FunctionTableArm64) -> None:
    begins, ends = table.ranges
    assert list(begins) == sorted(begins)
    assert all(begin <= end for begin, end in zip(begins, ends))
    for entry in table:
        table.primary(entry)
        table.gap_around(entry.end)
        table.record_length(entry.unwind)
    assert len(table.records) <= len(table)


def _one_walk(image: CodeImage, memory: Extents, number: int, offset: int, interrupted: bool) -> None:
    program = walks.Program()
    start = program.at(number, offset)
    state = RegistersArm64.from_known(start, _SP, {"Fp": _SP + 0x20, "Lr": program.at(1), "X19": _SP + 64})
    known = {_SP + 0x400: RegistersArm64.from_known(start, _SP + 0x500, {"Fp": _SP + 0x600})}

    def find(address: int) -> Optional[CodeImage]:
        return image if image.base <= address < image.base + image.size else None

    for stacks in (((walks.LOW, _TOP),), ()):
        walker = WalkerArm64(find, memory.read, walks.TYPES, known, lambda address: False)
        walk = walker.walk(state, interrupted, stacks)
        check(walk)
        for frame in walk.frames[1:]:
            called = memory.read(frame.address - INSTRUCTION, INSTRUCTION)
            if frame.sure and frame.returns and frame.address and called is not None:
                word = int.from_bytes(called, "little")
                assert any(word & mask == form for mask, form in _ANY_CALL), "a sure caller calls nothing"


def check(walk: StackWalk) -> None:
    """Raises AssertionError for a walk that no stack gives."""
    assert len(walk.frames) <= MAX_FRAMES
    assert text(status(*walk.gaps, walk.end)).isprintable()
    for frame in walk.frames:
        assert 0 <= frame.address < 1 << 64
        assert 0 <= frame.sp < 1 << 64
        for value in frame.registers.values if isinstance(frame.registers, RegistersArm64) else ():
            assert value is None or 0 <= value < 1 << 64


_KTHREAD = {"SwitchFrame": Field(0x100, 16)}
_BELOW = 0x400
"""Bytes of the seeds of frames below the trap frame."""


def _frames(data: bytes, whole: bytes) -> None:
    """A page of a stack with a trap frame, an exception frame below it, and a KTHREAD in front."""
    start, layout = traps.STACK, traps.LAYOUT
    memory = Extents([(start, data)])
    places = list(layout.scan(memory, start, start + len(data), traps.BOUNDS))
    assert len(places) <= len(data) // 16 + 1
    exceptions = ExceptionFramesArm64(walks.TYPES["_KEXCEPTION_FRAME"], layout.size)
    for address in {*places, start + _BELOW}:
        held = bytes(memory.read(address, layout.size) or b"")
        if len(held) < layout.size:
            assert not layout.plausible(address, held)
            continue
        frame = layout.decode(address, held)
        listed = {member.name: member for member in layout.list_members(frame, held)}
        assert set(listed) == set(layout.members)
        assert all(0 <= value < 1 << 64 for value in frame.registers.values())
        assert set(frame.unsure) <= set(frame.registers)
        found = exceptions.find_frame(address, frame.registers.get("Pc", 0), memory)
        assert found is None or all(0 <= value < 1 << 64 for value in found.registers.values())
        assert exceptions.dispatcher_slot(address) < address
    switched = _switch_frames().find(memory.read, start, start + _BELOW - _EXCEPTION)
    assert all(0 <= value < 1 << 64 for value in switched.registers.values())
    if switched.registers:
        assert switched.registers["Pc"] >> 47 == (1 << 17) - 1
    assert switched.registers or not whole or data != whole


@functools.lru_cache(maxsize=None)
def _switch_frames() -> SwitchFrames:
    thread = structures({"_KTHREAD": (0x200, _KTHREAD)})
    return SwitchFrames(Structures.chain([thread, walks.TYPES]), walks.TYPES)


_EXCEPTION = walks.TYPES["_KEXCEPTION_FRAME"].size


def _frame_seeds() -> List[bytes]:
    seeds = []
    exception = walks.TYPES["_KEXCEPTION_FRAME"]
    switch = walks.TYPES["_KSWITCH_FRAME"]
    address = traps.STACK + _BELOW
    for active, spsr, user in ((0, 0x80000000, True), (1, 5, False), (2, 0x40000000, True)):
        pc, sp = (traps.PC, traps.SP) if user else (traps.KERNEL + 0x1000, address + 0x200)
        data = bytearray(_BELOW) + traps.frame(active, spsr, pc, sp)
        below = _BELOW - _EXCEPTION
        for number in range(19, 29):
            struct.pack_into("<Q", data, below + exception.offset(f"X{number}"), number << 40)
        struct.pack_into("<Q", data, below + exception.offset("Fp"), address + 0x140)
        struct.pack_into("<Q", data, below + exception.offset("Return"), traps.KERNEL + 0x2000)
        struct.pack_into(
            "<Q", data, 0x100 + switch.offset("Fp"), traps.STACK + below + exception.offset("Fp")
        )
        struct.pack_into("<Q", data, 0x100 + switch.offset("Return"), traps.KERNEL + 0x3000)
        seeds.append(bytes(data))
    return seeds


def _context(data: bytes, whole: bytes) -> None:
    found = ContextLayout(traps.CONTEXT, Machine.ARM64).decode(data)
    assert found is None or all(0 <= value < 1 << 64 for value in found.registers.values())


def _context_seeds() -> List[bytes]:
    data = bytearray(b"\x5a" * traps.CONTEXT.size)
    struct.pack_into("<I", data, 0, 0x40001F)
    return [bytes(data)]


def targets() -> Iterator[Target]:
    yield Target("unwind-arm64", _records, _record)
    yield Target("hybrid", lambda: [test_hybrid.image()], _map)
    yield Target("walk-arm64", _walk_seeds, _walk)
    yield Target("trapframes-arm64", _frame_seeds, _frames)
    yield Target("context-arm64", _context_seeds, _context)
