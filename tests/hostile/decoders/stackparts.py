# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Shadow stacks, calls that may lead to a leaf, prologues, exception records; walks meet them all."""

from __future__ import annotations

import struct
from typing import Iterator, List, Optional

from tests.winstacks.stacks.decode import test_shadow
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.decode.functiontable import FunctionTable
from winstacks.names.decode.unwindinfo import UnwindDataError, read_unwind_info
from winstacks.stacks.decode import leaf_x64, prologue_x64
from winstacks.stacks.decode.frames import MAX_FRAMES, CodeImage, Frame, StackWalk
from winstacks.stacks.decode.shadow import proven_walk
from winstacks.traps.decode import record, xstate

from .target import Target

_SLOTS = 64
_SURE = 3
"""Frames of the walk that a shadow stack may continue."""


def _shadow(data: bytes, whole: bytes) -> None:
    """The values of a shadow stack, then the stack: a proven caller is in both, each above the one before."""
    values = struct.unpack_from(f"<{len(data) // 8}Q", data)
    shadow, stack = values[:_SLOTS], values[_SLOTS:]
    slots = {test_shadow.SP + 8 * number: value for number, value in enumerate(stack)}
    trap, guess = test_shadow.TRAP, Frame(1, test_shadow.SP, "scan", True, False)
    kept = [Frame(value, trap.sp + 8 * number, "unwind", True) for number, value in enumerate(shadow[:_SURE])]
    for frames in ((trap,), (trap, *kept), (trap, guess)):
        walk = StackWalk(frames, StatusCode.STACK_UNREADABLE, (StatusCode.NO_FUNCTION_TABLE,))
        found = proven_walk(walk, shadow, slots.get)
        assert len(found.frames) <= MAX_FRAMES
        proven = [frame for frame in found.frames if frame.how == "shadow"]
        assert all(slots.get(frame.sp - 8) == frame.address and frame.address in shadow for frame in proven)
        assert [frame.sp for frame in proven] == sorted({frame.sp for frame in proven})
        sure = [frame for frame in walk.frames if frame.sure]
        assert list(found.frames[: len(sure)]) == sure, "a sure frame is gone"


def _shadows() -> List[bytes]:
    values = [0x7100 + 0x10 * number for number in range(_SLOTS)]
    stack = [value if place % 2 else 0 for value in values for place in range(2)]
    return [struct.pack(f"<{3 * _SLOTS}Q", *values, *stack)]


_BASE, _SIZE, _PDATA, _FUNCTIONS = 0x140000000, 0x3000, 0x2E00, 12


def _leaf(data: bytes, whole: bytes) -> None:
    """Code of a module whose calls and jumps lead to code that no unwind data covers, or elsewhere."""
    memory = Extents([(_BASE, data)])
    reads = 0

    def read(address: int, length: int) -> Optional[memoryview]:
        nonlocal reads
        reads += 1
        assert 0 <= length <= leaf_x64._LONGEST
        return memory.read(address, length)

    def read_rva(rva: int, length: int) -> Optional[memoryview]:
        return read(_BASE + rva, length) if 0 <= rva < _SIZE else None

    table = FunctionTable.from_bytes(data[_PDATA : _PDATA + 12 * _FUNCTIONS], read_rva)
    image = CodeImage(_BASE, _SIZE, read_rva, table)

    def find(address: int) -> Optional[CodeImage]:
        return image if _BASE <= address < _BASE + _SIZE else None

    for leaf in (_BASE + 0x1010, _BASE + 0x2800, _BASE + 0x10, 0x7000):
        for number in range(_FUNCTIONS + 1):
            before = reads
            to = _BASE + 0x1000 + 0x100 * number + 0x25
            leaf_x64.may_have_called(find, read, to, leaf)
            target = leaf_x64.jump_target(find, read, to)
            assert target is None or abs(target - to) < 1 << 32
            assert reads - before <= 2 + leaf_x64._MOST_FUNCTIONS + 1


def _leaves() -> List[bytes]:
    """Functions that call the next one, or jump to the one after it; the last jumps into the gap."""
    data = bytearray(b"\xcc" * _SIZE)
    for number in range(_FUNCTIONS):
        begin = 0x1000 + 0x100 * number
        data[begin + 0x20 : begin + 0x25] = b"\xe8" + struct.pack("<i", 0xDB)
        data[begin + 0x40 : begin + 0x45] = b"\xe9" + struct.pack("<i", 0x1BB)
        if number == _FUNCTIONS - 2:
            data[begin + 0x40 : begin + 0x46] = b"\x0f\x84" + struct.pack("<i", 0x2800 - begin - 0x46)
        struct.pack_into("<III", data, _PDATA + 12 * number, begin, begin + 0x80, 0x2F00)
    indirect = bytearray(data)
    indirect[0x1140:0x1146] = b"\xff\x25" + bytes(4)
    return [bytes(data), bytes(indirect)]


_INFO = 0x20
"""Bytes of UNWIND_INFO, before the code that it describes."""


def _prologue(data: bytes, whole: bytes) -> None:
    """Unwind data, then code that may begin with a jump, and may end within an instruction."""
    info, code = data[:_INFO].ljust(_INFO, b"\0"), data[_INFO:]
    assert 0 <= prologue_x64.detour(code) <= len(code)
    try:
        parsed = read_unwind_info(lambda rva, length: info[rva : rva + length].ljust(length, b"\0"), 0)
    except UnwindDataError:
        return
    for end in range(len(code) + 1):
        agrees = prologue_x64.agrees(code[:end], parsed)
        assert agrees or parsed.codes, "code disagrees with nothing"


def _prologues() -> List[bytes]:
    infos = ("0105020005320130", "0107020007011000", "010a04000a72063005500320")
    codes = ("40534883ec20", "4881ec80000000", "55534154ff2500000000", "cc534883ec20")
    return [bytes.fromhex(info).ljust(_INFO, b"\0") + bytes.fromhex(code) for info in infos for code in codes]


def _xstate(data: bytes, whole: bytes) -> None:
    found = list(xstate.shadow_pointers(data))
    assert len(found) <= 2 and all(0 < pointer < 1 << 64 and not pointer % 8 for pointer in found)
    head = data[:0x60].ljust(0x60, b"\0")
    known = xstate.ComponentSizes(struct.unpack_from("<12I", head, 0x10), head[0x50])
    place = xstate.component(head[:16], xstate.CET_U, known)
    assert place is None or place >= xstate.LEGACY


def _xstates() -> List[bytes]:
    cet, packed = test_shadow.CET, test_shadow.PACKED
    pointer = struct.pack("<QQ", 1, 0x5000)
    return [
        test_shadow.area((cet, packed | cet), pointer),
        test_shadow.area((cet | 4, packed | cet | 4), bytes(0x100) + pointer),
        test_shadow.area((cet, packed | cet | 1 << 9), bytes(8) + pointer + bytes(0x80)),
    ]


def _record(data: bytes, whole: bytes) -> None:
    for wide in (True, False):
        found = record.exception_record(data, wide)
        if found is None:
            assert len(data) < record.RECORDS[wide].size
            continue
        names = [name for name, _ in found]
        assert len(set(names)) == len(names) <= 5 + record.MAX_PARAMETERS
        assert all(0 <= value < 1 << 8 * (8 if wide else 4) for _, value in found)


def _records() -> List[bytes]:
    return [
        struct.pack("<IIQQI4x15Q", 0xC0000005, 1, 0, 0x7FF612345678, 2, 1, 0x10, *bytes(13)),
        struct.pack("<5I15I", 0xE06D7363, 1, 0, 0x77001234, 3, 0x19930520, *bytes(14)),
    ]


def targets() -> Iterator[Target]:
    yield Target("shadowstack", _shadows, _shadow)
    yield Target("leaf-x64", _leaves, _leaf)
    yield Target("prologue-x64", _prologues, _prologue)
    yield Target("xstate", _xstates, _xstate)
    yield Target("exceptionrecord", _records, _record)
