# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every measured frame in a forged image, at the address of its real stack, through the plugin's columns."""

from __future__ import annotations

import pathlib
import re
from typing import Dict, List, Tuple

import pytest

from tests.forge import isf, kernels
from tests.forge.kernel import Kernel
from tests.forge.kernels import KnownKernel
from tests.support import real_trapframes, traplayouts
from tests.support.only import only
from tests.support.real_trapframes import RealFrame
from tests.support.trapimages import LiveImage, Row, with_functions
from tests.winstacks.traps.decode.test_frame import X86_TO_COLUMN
from winstacks.columns.registers import REGISTERS

pytestmark = pytest.mark.shared

X64_STACK = (0xFFFFFADFE4C2A000, 0x6000, 0xFFFFFADFE4C2FFC0)
X64_IST = (0xFFFFFADFF0040000, 0x8000)
X86_STACK = (0xF8A3A000, 0x3000, 0xF8A3D000)
X86_TASK = (0x80400000, 0x1000)
NONVOLATILE = {"Rbx", "Rsi", "Rdi", "R12", "R13", "R14", "R15"}
# Cells of the grid, over all frames of a build.
COUNTS = {
    "5.2.3790.3959up-x64": (2664, 32, 0, 171, 27, 2053),
    "5.1.2600.5512up-x86": (1328, 63, 21, 0, 0, 557),
    "5.2.3790.3959pa-x86": (1412, 68, 23, 0, 0, 504),
}
LABELS = (
    "saved, shown",
    "saved, unsure",
    "computed, shown",
    "of the exception frame",
    "not saved, unsure",
    "not saved, absent",
)
NEVER_MADE = {("trap2b-kernel", "Rcx")}
"""KiCallbackReturn stores Ecx, but nothing in the kernel calls it: Windows never makes that frame."""
NO_MARK = {"trap02", "trap06-v86", "trap0d-v86", "trap2a-v86"}


def five_two(known: KnownKernel) -> KnownKernel:
    """Gives a table the exception frame of 5.2, which no table at hand has."""
    structure = traplayouts.EXCEPTION_FRAME_5_2
    number = {"kind": "base", "name": "unsigned long long"}
    record = {"kind": "array", "count": 64, "subtype": {"kind": "base", "name": "unsigned char"}}
    fields = {
        name: {"offset": structure.offset(name), "type": record if name == "ExceptionRecord" else number}
        for name in structure.names
    }
    frame = {"kind": "struct", "size": structure.size, "fields": fields}
    types = dict(known.table.types, _KEXCEPTION_FRAME=frame)
    return KnownKernel(known.identity, isf.Isf(dict(known.table.data, user_types=types)))


def kernel_of(build: str, frames: List[RealFrame]) -> Tuple[Kernel, int, int]:
    """A kernel at the real one's address with one thread; where this has TrapFrame and DebugActive."""
    wide = build.endswith("x64")
    known = kernels.load("2003-x64" if wide else "xp-x86")
    # int 2C has one name in 5.2 and another one in 5.1.
    names = {frame.entry.split("/")[-build.startswith("5.1")]: frame.entry_rva for frame in frames}
    functions = {name: rva for name, rva in names.items() if re.match(r"Ki\w+$", name)}
    if wide:
        service = next(frame for frame in frames if frame.kind == "service_internal")
        functions["KiServiceLinkage"] = service.members["Rip"].value - service.kernel_base
        known = five_two(known)
    known = with_functions(known, f"real-{build}", functions.items())
    kernel = Kernel(known.table, **dict(known.options(), base=frames[0].kernel_base))
    stack, size, initial = X64_STACK if wide else X86_STACK
    kernel.space.map(stack, size)
    process = kernel.process("real.exe", pid=1000)
    thread = process.thread(1004, stack_size=0, initial_stack=initial, kernel_stack=stack)
    thread.kthread.put(StackBase=stack + size, StackLimit=stack)
    if wide:
        kernel.space.map(*X64_IST)
        for index in (1, 2, 3):
            kernel.cpus[0].stack(f"ist{index}", 0x1000)
        tss = kernel.obj("_KTSS64", kernel.cpus[0].kpcr["TssBase"])
        for index in (1, 2, 3):
            tss[f"Ist[{index}]"] = X64_IST[0] + 0x2000 * index
    else:
        kernel.space.map(*X86_TASK)
    active = "Header.DebugActive" if wide else "DebugActive"
    return kernel, thread.kthread.at("TrapFrame"), thread.kthread.at(active)


@pytest.fixture(scope="module", params=real_trapframes.BUILDS)
def image(
    request: pytest.FixtureRequest, shared_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Tuple[LiveImage, List[RealFrame], int, int]:
    frames = real_trapframes.load(shared_dir, request.param)
    kernel, *places = kernel_of(request.param, frames)
    return LiveImage(kernel, tmp_path_factory.mktemp("real")), frames, places[0], places[1]


def check(real: RealFrame, row: Row, count: Dict[str, int]) -> None:
    unsure = row["Unsure"].split()
    for name, member in real.members.items():
        column = X86_TO_COLUMN.get(name, name)
        if column not in REGISTERS:
            continue
        where = f"{real.label} {column} {member.status}"
        value = row[column]
        if (real.name, column) in NEVER_MADE:
            assert value is None, where
        elif member.status == "saved":
            truth = real.registers[member.source] & (0xFFFF if column.startswith("Seg") else -1)
            assert value == truth, where
            count["saved, unsure" if column in unsure else "saved, shown"] += 1
        elif member.status == "unwritten":
            if column in NONVOLATILE and value is not None and real.dispatcher == "KiExceptionDispatch":
                assert value == real.registers[column.lower()], where
                count["of the exception frame"] += 1
            elif real.arch == "x86" and column == "Rsp":
                assert value == real.registers["esp"], where
                count["computed, shown"] += 1
            else:
                assert value is None or column in unsure, where
                count["not saved, absent" if value is None else "not saved, unsure"] += 1
    for column in ("R12", "R13", "R14", "R15"):
        built = real.dispatcher == "KiExceptionDispatch"
        assert row[column] == (real.registers[column.lower()] if built else None)


def frames_of(rows: List[Row]) -> List[Row]:
    """Returns the rows with a frame. The thread has a TEB, which a frame of kernel mode does not explain."""
    without = [row for row in rows if row["TrapFrame"] is None]
    assert {(row["Origin"], row["Status"]) for row in without} <= {("top", "no saved registers")}
    return [row for row in rows if row["TrapFrame"] is not None]


def test_every_frame(image: Tuple[LiveImage, List[RealFrame], int, int]) -> None:
    live, frames, pointer, active = image
    count = dict.fromkeys(LABELS, 0)
    missed = set()
    width = 8 if frames[0].arch == "x64" else 4
    mask = live.opened.layer.address_mask
    for real in frames:
        live.poke(real.stack_address, real.stack)
        live.poke(active, bytes([real.debug_active]))
        live.poke(pointer, bytes(width))
        found = frames_of(live.rows(scan_stacks=True))
        assert [row["TrapFrame"] for row in found] in ([], [real.address & mask]), real.label
        if not found:
            missed.add(real.name)
            # The thread itself may point there: that is believed also without a mark.
            inside = X86_STACK[0] <= real.address < sum(X86_STACK[:2])
            if not inside:
                continue
            live.poke(pointer, real.address.to_bytes(width, "little"))
            found = frames_of(live.rows())
        row = only(found)
        expected = {"kernel": "kernel"}.get(real.mode, "user")
        assert row["Mode"] == expected, real.label
        check(real, row, count)
        # Back to poison, for stacks of another place.
        live.poke(real.stack_address, bytes(len(real.stack)))
    print(f"{frames[0].build}: {len(frames)} frames; missed by the scan {sorted(missed)}; {count}")
    assert tuple(count[label] for label in LABELS) == COUNTS[frames[0].build]
    x86 = frames[0].arch == "x86"
    assert missed == ({f.name for f in frames if x86 and (f.kind in NO_MARK or f.name in NO_MARK)})


@pytest.mark.parametrize(
    ("name", "instruction", "shown"),
    [
        ("trap2b-user", b"\xcd\x2b", "sure"),
        ("trap2b-user", b"\xcd\x2e", "absent"),
        ("trap2b-user", b"", "unsure"),
        ("service_int2e-user", b"\xcd\x2e", "absent"),
    ],
)
def test_the_callers_instruction_tells_whether_ecx_was_stored(
    name: str, instruction: bytes, shown: str, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """5.2 x86: of all services KiCallbackReturn alone stores Ecx, and int 2B alone calls that."""
    frames = real_trapframes.load(shared_dir, "5.2.3790.3959pa-x86")
    real = next(frame for frame in frames if frame.name == name)
    kernel, *_ = kernel_of(real.build, frames)
    if instruction:
        eip = real.members["Eip"].value
        base = (eip & ~0xFFF) - 0x1000
        kernel.processes[-1].module("code.dll", base, contents={eip - len(instruction) - base: instruction})
    live = LiveImage(kernel, tmp_path)
    live.poke(real.stack_address, real.stack)
    row = only(live.rows(scan_stacks=True))
    assert row["Rcx"] in (None, real.registers["ecx"]) or shown == "unsure"
    assert (row["Rcx"] is None) == (shown == "absent")
    assert ("Rcx" in row["Unsure"].split()) == (shown == "unsure")


def test_nested_stacks(shared_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for stack in real_trapframes.load_nested(shared_dir):
        frames = real_trapframes.load(shared_dir, stack.build)
        kernel, *_ = kernel_of(stack.build, frames)
        live = LiveImage(kernel, tmp_path)
        live.poke(stack.stack_address, stack.stack)
        mask = live.opened.layer.address_mask
        rows = live.rows(scan_stacks=True)
        assert sorted(row["TrapFrame"] for row in rows) == sorted(
            address & mask for address, _ in stack.frames
        )


def test_the_real_crash(shared_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    crash = real_trapframes.load_crash(shared_dir)
    table = shared_dir / "isf/symbols/windows/ntkrnlmp.pdb" / crash.truth["isf"]
    known = kernels.real(table.with_name(table.name + ".xz") if not table.exists() else table)
    modules = {m["name"].rsplit("\\", 1)[-1]: int(m["base"], 16) for m in crash.truth["modules"]}
    kernel = Kernel(known.table, **dict(known.options(), base=modules["ntoskrnl.exe"]))
    kernel.module("amdppm.sys", base=modules["amdppm.sys"], size=0x40000)
    facts = {name: int(value, 16) for name, value in crash.truth["kthread"].items()}
    thread = kernel.system.thread(8, stack_size=0)
    base, limit = facts["StackBase"], facts["StackLimit"]
    kernel.space.map(limit, base - limit)
    kernel.space.write(crash.stack_address, crash.stack)
    thread.kthread.put(StackBase=base, StackLimit=limit, TrapFrame=facts["TrapFrame"])
    thread.kthread.put(InitialStack=facts["InitialStack"], KernelStack=facts["KernelStack"])
    kernel.cpus[0].current(thread)
    row = only(LiveImage(kernel, tmp_path).rows(scan_stacks=True))
    context = {name: int(value, 16) for name, value in crash.truth["context"].items()}
    general = [
        "Rip",
        "Rsp",
        "Rbp",
        "Rax",
        "Rcx",
        "Rdx",
        "Rbx",
        "Rsi",
        "Rdi",
        "R8",
        "R9",
        "R10",
        "R11",
        "R12",
        "R13",
        "R14",
        "R15",
        "EFlags",
        "MxCsr",
    ]
    assert {name: row[name] for name in general} == {name: context[name.lower()] for name in general}
    assert (row["SegCs"], row["SegSs"], row["ErrorCode"]) == (context["cs"], context["ss"], 4)
    # The return addresses on the stack say which handler it was, and that it was dispatched.
    assert (row["Unsure"], row["Status"], row["TrapKind"]) == ("", "running", "exception")
    assert row["Symbol"] == "amdppm+0x334c"
    assert row["FaultAddress"] is None
