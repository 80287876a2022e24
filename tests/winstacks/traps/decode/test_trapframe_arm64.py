# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames and CONTEXT of ARM64: forged from the public declarations."""

from __future__ import annotations

import random
import struct
from typing import Dict

import pytest

from tests.conftest import ROOT
from tests.forge import isf
from tests.support import traplayouts
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.ranges import Extents
from winstacks.traps.decode.context import ContextLayout
from winstacks.traps.decode.frame import TrapBounds
from winstacks.traps.decode.trapframe_arm64 import TrapFrameLayoutArm64

_TABLES = ROOT / "symbols" / "windows" / "stacktraces"
STRUCTURE = traplayouts.structures(isf.load(_TABLES / "trapframe-10.0.16299-arm64.json"))["_KTRAP_FRAME"]
CONTEXT = traplayouts.structures(isf.load(_TABLES / "context-10.0.16299-arm64.json"))["_CONTEXT"]
LAYOUT = TrapFrameLayoutArm64(STRUCTURE)
KERNEL = 0xFFFF800000000000
BOUNDS = TrapBounds(0x7FFFFFFF0000, KERNEL)
STACK = 0xFFFFE00E0E4BC000
PC, SP = 0x7FF612340000, 0xC500001000


def frame(active: int, spsr: int, pc: int, sp: int, **more: int) -> bytes:
    """A trap frame whose volatile registers hold their numbers."""
    data = bytearray(b"\xa5" * STRUCTURE.size)
    members: Dict[str, int] = {
        **{f"X{number}": number for number in range(19)},
        "ExceptionActive": active,
        "DebugRegistersValid": 0,
        "ContextFromKFramesUnwound": 0,
        "PreviousMode": 1,
        "Spsr": spsr,
        "Esr": 0x92000007,
        "FaultAddress": 0x1234,
        "Lr": pc + 4,
        "Fp": sp + 0x20,
        "Pc": pc,
        "Sp": sp,
        **more,
    }
    for name, value in members.items():
        field = STRUCTURE.field(name)
        data[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
    return bytes(data)


def test_sizes_are_those_of_the_declarations() -> None:
    assert (STRUCTURE.size, CONTEXT.size) == (0x150, 0x390)
    assert [STRUCTURE.offset(name) for name in ("Spsr", "Sp", "X0", "X18", "Lr", "Fp", "Pc")] == [
        *(0x90, 0x98, 0xA0, 0x130, 0x138, 0x140, 0x148)
    ]
    assert [CONTEXT.offset(name) for name in ("X0", "X28", "Fp", "Lr", "Sp", "Pc")] == [
        *(8, 0xE8, 0xF0, 0xF8, 0x100, 0x108)
    ]


@pytest.mark.parametrize(
    ("active", "spsr", "kind", "mode"),
    [
        (0, 0x80000000, "interrupt", "user"),
        (1, 0x60000000, "exception", "user"),
        (2, 0x40000000, "syscall", "user"),
        (0, 0x80000144, "interrupt", "kernel"),
        (1, 0x80000005, "exception", "kernel"),
        (2, 0x80000004, "service", "kernel"),
    ],
)
def test_frame_has_its_kind_and_registers(active: int, spsr: int, kind: str, mode: str) -> None:
    user = mode == "user"
    pc, sp = (PC, SP) if user else (KERNEL + 0x1000, STACK + 0x300)
    data = frame(active, spsr, pc, sp)
    assert LAYOUT.accepts(STACK + 0x100, data, BOUNDS)
    found = LAYOUT.decode(STACK + 0x100, data)
    assert (found.kind, found.mode) == (kind, mode)
    registers = found.registers
    assert (registers["Pc"], registers["Sp"], registers["Lr"], registers["Fp"]) == (pc, sp, pc + 4, sp + 0x20)
    assert registers["Cpsr"] == spsr
    assert [registers[f"X{number}"] for number in range(19)] == list(range(19))
    assert not {f"X{number}" for number in range(19, 29)} & set(registers)
    # What a service entry stores of the volatile registers was not measured.
    unsure = {f"X{number}" for number in range(19)} if active == 2 else set()
    assert set(found.unsure) == unsure
    assert ("FaultAddress" in registers) == (active == 1)
    assert ("PreviousIrql" in registers) == (active == 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"active": 3},
        {"spsr": 0x10},
        {"spsr": 9},
        {"pc": 0},
        {"pc": PC + 2},
        {"sp": SP + 8},
        {"pc": KERNEL + 0x1000},
        {"sp": STACK},
        {"spsr": 4},
    ],
)
def test_other_bytes_are_no_frame(changes: Dict[str, int]) -> None:
    data = frame(**{"active": 1, "spsr": 0, "pc": PC, "sp": SP, **changes})
    assert not LAYOUT.accepts(STACK + 0x100, data, BOUNDS)
    assert not LAYOUT.accepts(STACK + 0x108, frame(1, 0, PC, SP), BOUNDS)


@pytest.mark.parametrize("seed", range(4))
def test_search_of_a_stack_finds_the_frames(seed: int) -> None:
    drawn = random.Random(seed)
    stack = bytearray(0x4000)
    for place in range(0, len(stack), 8):
        value = drawn.choice((0, STACK + drawn.randrange(0x4000), KERNEL + drawn.getrandbits(30)))
        struct.pack_into("<Q", stack, place, value)
    places = [0x400, 0x1230, 0x3000]
    for place in places:
        user = drawn.random() < 0.5
        pc, sp = (PC, SP) if user else (KERNEL + 0x1000, STACK + place + 0x400)
        stack[place : place + 0x150] = frame(drawn.randrange(3), 0 if user else 4, pc, sp)
    memory = Extents([(STACK, bytes(stack))])
    found = list(LAYOUT.scan(memory, STACK, STACK + len(stack), BOUNDS))
    assert {STACK + place for place in places} <= set(found)


def test_context_counts_by_its_flags() -> None:
    layout = ContextLayout(CONTEXT, Machine.ARM64)
    data = bytearray(0x390)
    struct.pack_into("<29Q", data, 8, *range(29))
    struct.pack_into("<4Q", data, 0xF0, 29, 30, SP, PC)
    for flags, names in ((0x400001, 5), (0x400002, 29), (0x400007, 34)):
        struct.pack_into("<II", data, 0, flags, 4)
        found = layout.decode(bytes(data))
        assert found is not None
        assert len(found.registers) == names
    assert found is not None and not found.user
    struct.pack_into("<I", data, 4, 0x60000000)
    user = layout.decode(bytes(data))
    assert user is not None and user.user and user.registers["X28"] == 28
    for flags in (0, 0x400000, 0x100007, 0x1400007):
        struct.pack_into("<I", data, 0, flags)
        assert layout.decode(bytes(data)) is None
    assert layout.decode(bytes(data[:-1])) is None
