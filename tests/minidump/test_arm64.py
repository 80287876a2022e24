# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps of ARM64 Windows: forged process dumps of recorded points, and a real crash."""

from __future__ import annotations

import itertools
import json
import lzma
import pathlib
import random
import struct
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import pytest
from volatility3.framework import exceptions, renderers
from volatility3.plugins.minidump import callstacks, tracefindings, traceframes, traces, trapframes

import winstacks
from tests.conftest import SHARED
from tests.forge.smalldump import Driver, SmallDump
from tests.support.armdumps import (
    EXECUTE_READWRITE,
    FULL,
    READWRITE,
    STACKS,
    TID,
    X64_RETURN,
    X64_STOOD,
    context,
    emulated_dump,
    injected_dump,
    process_dump,
    small_dump,
)
from tests.support.armtruth import Point, Truth
from tests.support.changeddumps import EXCEPTION, ChangedDump
from tests.support.deep import rounds
from tests.support.only import only
from tests.support.processdumps import OpenedDump
from winstacks.findings.registry import check_named
from winstacks.names.decode.pointers_arm64 import strip
from winstacks.options import CHECKS
from winstacks.stacklist.tables import FlatTables
from winstacks.stacks.decode.walk_arm64 import WalkerArm64

ALL = sorted((SHARED / "arm64" / "truth").glob("dev-deep-*.jsonl.xz"))
FILES = [path for path in ALL if "kernel" not in path.name]
KERNEL = next((path for path in ALL if "kernel" in path.name), pathlib.Path())
"""Points of code at kernel addresses."""
POINTS = 4
"""Points of each file that become a dump."""

pytestmark = pytest.mark.shared

NT = 0xFFFFF803F2E00000
CRASH = [0x4DE014, 0x5442A0, 0x29FF1C, 0x373340, 0x207DE4]
"""RVAs of the frames of the crash; their functions are KeBugCheckEx's KeBugCheck2 (1C4h), then
PopPowerButtonWorkCallback, ExpWorkerThread, PspSystemThreadStartup, KiStartSystemThread."""
STACK = [0xFFFFE00E0E4BC4A0, 0xFFFFE00E0E4BCB10, 0xFFFFE00E0E4BCCD0, 0xFFFFE00E0E4BCD30]
"""Addresses of the pairs {fp, lr} in it."""
KERNEL_STACK = 0xFFFFE00E0E4BA360
"""KTHREAD.KernelStack in it."""
ETHREAD, EPROCESS = 0xFFFFB48000001080, 0xFFFFB48000003080
TRAP_PLACE, USER_PC = 0x400, 0x7FF612340000
MASK = (1 << 48) - 1


def spread(truth: Truth) -> Iterator[Point]:
    """Yields points that are spread over a file."""
    return itertools.islice(truth.points(), 150, 150 + 500 * POINTS, 500)


def frames_of(rows: List[Any]) -> List[Dict[str, Any]]:
    return [row for depth, row in rows if depth]


@pytest.mark.parametrize("layout", [FULL, STACKS])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_process_dump_has_the_stack_of_its_thread(
    path: pathlib.Path, layout: str, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    truth = Truth(shared_dir, path)
    for number, point in enumerate(spread(truth)):
        file = tmp_path / f"{number}.dmp"
        file.write_bytes(process_dump(truth, point, layout))
        frames = frames_of(OpenedDump(file).rows(callstacks.CallStacks))
        wanted = [(point.pc, point.registers.sp), *((row[1], row[2]) for row in point.frames)]
        assert [(frame["Address"], frame["Sp"]) for frame in frames] == wanted
        assert {frame["Arch"] for frame in frames} == {"arm64"}
        assert not any("unsure" in frame["Status"] for frame in frames)


@pytest.mark.parametrize("path", FILES[:1], ids=lambda path: path.name.split(".")[0])
def test_a_thread_that_only_the_exception_names_has_its_stack(
    path: pathlib.Path, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Its limits are those of the memory around the stack pointer."""
    truth = Truth(shared_dir, path)
    point = next(spread(truth))
    dump = ChangedDump(process_dump(truth, point, FULL))
    dump.replace(EXCEPTION, struct.pack("<I", TID + 4) + dump.stream(EXCEPTION)[4:])
    (tmp_path / "app.dmp").write_bytes(dump.bytes())
    with winstacks.open(tmp_path / "app.dmp") as opened:
        stacks = {thread.tid: thread.user_stack for thread in opened.threads()}
    limits = point.registers.sp & ~0xFFF, truth.high
    # The row without an ID says that the list of threads is damaged.
    assert stacks == {None: None, TID: limits, TID + 4: limits}


@pytest.mark.parametrize("flags", [0x400007, 0x20400007])
def test_context_of_a_call_is_walked_as_a_caller(
    flags: int, shared_dir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Software exceptions have CONTEXT_UNWOUND_TO_CALL: Pc is a return address (listing: Wine)."""
    began: List[bool] = []
    walk = WalkerArm64.walk

    def noted(self: Any, start: Any, interrupted: bool, *others: Any) -> Any:
        began.append(interrupted)
        return walk(self, start, interrupted, *others)

    monkeypatch.setattr(WalkerArm64, "walk", noted)
    truth = Truth(shared_dir, FILES[0])
    point = next(point for point in spread(truth) if len(point.frames) > 1)
    caller = truth.caller(point.frames[0])
    called = point._replace(pc=caller.ip, registers=caller, frames=point.frames[1:])
    data = process_dump(truth, called, STACKS)
    saved = context(called, 0x400027)
    assert data.count(saved) == 1
    (tmp_path / "app.dmp").write_bytes(data.replace(saved, context(called, flags | 0x20)))
    frames = frames_of(OpenedDump(tmp_path / "app.dmp").rows(callstacks.CallStacks))
    wanted = [(caller.ip, caller.sp), *((row[1], row[2]) for row in called.frames)]
    assert [(frame["Address"], frame["Sp"]) for frame in frames] == wanted
    assert began == [flags == 0x400007]


def test_process_dump_shows_the_registers_by_their_names(
    shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    truth = Truth(shared_dir, FILES[0])
    point = next(spread(truth))
    (tmp_path / "app.dmp").write_bytes(process_dump(truth, point, FULL))
    row = only(
        row for depth, row in OpenedDump(tmp_path / "app.dmp").rows(trapframes.TrapFrames) if not depth
    )
    assert (row["Pc"], row["Sp"], row["Mode"]) == (point.pc, point.registers.sp, "user")
    data = context(point)
    assert [row[f"X{number}"] for number in range(29)] == list(struct.unpack_from("<29Q", data, 8))
    assert (row["Fp"], row["Lr"]) == struct.unpack_from("<QQ", data, 0xF0)
    assert all(isinstance(row[name], renderers.NotApplicableValue) for name in ("Rip", "Rax", "EFlags"))
    assert not set(row["NotSaved"].split()) & {"Rip", "Rax", "EFlags", "SegCs"}


def test_flat_tables_and_findings_say_arm64(shared_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    truth = Truth(shared_dir, FILES[0])
    (tmp_path / "app.dmp").write_bytes(process_dump(truth, next(spread(truth)), STACKS))
    dump = OpenedDump(tmp_path / "app.dmp")
    for plugin in (traces.StackTraces, traceframes.TraceFrames):
        assert {row["Arch"] for _, row in dump.rows(plugin)} == {"arm64"}
    rows = [row for _, row in dump.rows(tracefindings.TraceFindings)]
    assert [row["Finding"] for row in rows if isinstance(row["Severity"], str)] == []


@pytest.mark.parametrize(
    ("position", "pushed", "register"),
    [("L", False, "Lr"), ("P", False, "Lr"), ("B", True, None)],
    ids=["leaf", "prologue", "body"],
)
def test_rows_of_frames_name_the_register_that_held_the_return_address(
    position: str, pushed: bool, register: Optional[str], shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A function that has pushed nothing has no return address on the stack; after a call it has none in
    Lr."""
    held: List[List[Optional[str]]] = []
    for path in FILES:
        truth = Truth(shared_dir, path)
        for point in truth.points():
            caller = truth.caller(point.frames[0])
            changed = strip(point.registers.lr or 0) != caller.ip
            if (point.position, caller.sp != point.registers.sp, changed) == (position, pushed, pushed):
                break
        else:
            continue
        file = tmp_path / f"{len(held)}.dmp"
        file.write_bytes(process_dump(truth, point, FULL))
        cells = [row["ReturnRegister"] for _, row in OpenedDump(file).rows(traceframes.TraceFrames)]
        held.append([cell if isinstance(cell, str) else None for cell in cells])
        assert len(cells) == 1 + len(point.frames)
        with winstacks.open(file) as opened:
            lines = [
                line for stack in opened.stacks() for line in FlatTables(opened.image).frame_lines(stack)
            ]
        assert [json.loads(line)["ReturnRegister"] for line in lines] == held[-1]
    assert held
    assert all(cells[:2] == [None, register] and not any(cells[2:]) for cells in held)


@pytest.mark.parametrize(
    ("protection", "expected"),
    [
        (EXECUTE_READWRITE, {"unbacked", "start_mismatch"}),
        (READWRITE, {"start_mismatch", "not_executable"}),
    ],
    ids=["executable", "data"],
)
def test_findings_that_read_no_code_work(
    protection: int, expected: Set[str], shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Those that read code or registers of Intel processors are `not checked`, by name."""
    truth = Truth(shared_dir, FILES[0])
    (tmp_path / "app.dmp").write_bytes(injected_dump(truth, next(spread(truth)), protection))
    rows = [row for _, row in OpenedDump(tmp_path / "app.dmp").rows(tracefindings.TraceFindings)]
    assert {row["Finding"] for row in rows if isinstance(row["Severity"], str)} == expected
    intel = {row["Finding"] for row in rows if "Intel processors" in str(row["Evidence"])}
    assert intel == {name for name in CHECKS if check_named(name).intel}
    assert not [row for row in rows if "32-bit process" in str(row["Evidence"])]


@pytest.mark.parametrize("seed", [None, 1])
def test_small_dump_is_unwound_with_the_files_of_its_drivers(
    seed: Optional[int], shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    truth = Truth(shared_dir, KERNEL)
    (tmp_path / "files").mkdir()
    for number, point in enumerate(spread(truth)):
        file = tmp_path / f"{number}.dmp"
        file.write_bytes(small_dump(truth, point, seed, tmp_path / "files"))
        wanted = [(point.pc, point.registers.sp), *((row[1], row[2]) for row in point.frames)]
        rows = OpenedDump(file).rows(callstacks.CallStacks, binaries=[str(tmp_path / "files")])
        frames = frames_of(rows)
        assert [(frame["Address"], frame["Sp"]) for frame in frames] == [
            (address & MASK, sp & MASK) for address, sp in wanted
        ]
        assert not any("unsure" in frame["Status"] for frame in frames)
        # Without the files no frame but the first is sure.
        assert all(
            "unsure" in frame["Status"]
            for frame in frames_of(OpenedDump(file).rows(callstacks.CallStacks))[1:]
        )


def trap_dump(active: int, below: bytes, path: pathlib.Path) -> Dict[str, Any]:
    """The row of a trap frame from user mode on the stack of a small dump; forged only: no real dump has one.

    Args:
        active: ExceptionActive
        below: bytes right below the trap frame
        path: where the dump is written
    """
    stack, place, user = bytearray(0x1000), TRAP_PLACE, USER_PC
    frame = bytearray(0x150)
    struct.pack_into("<B2xB", frame, 0, active, 1)
    struct.pack_into("<II", frame, 0x90, 0x60000000, 0)
    struct.pack_into("<Q", frame, 0x98, 0xC500001000)
    struct.pack_into("<19Q", frame, 0xA0, *range(100, 119))
    struct.pack_into("<3Q", frame, 0x138, user + 8, 0xC500001020, user)
    stack[place - len(below) : place] = below
    stack[place : place + 0x150] = frame
    saved = bytearray(0x390)
    struct.pack_into("<II", saved, 0, 0x400007, 4)
    struct.pack_into("<QQ", saved, 0x100, STACK[0], NT + CRASH[0])
    made = SmallDump(build=22000, machine=0xAA64)
    made.crash(0xD1, (1, 2, 0, NT + CRASH[0]), bytes(saved))
    made.stack(STACK[0], bytes(stack))
    made.drivers([Driver("ntoskrnl.exe", NT, 0x103E000)])
    path.write_bytes(made.file())
    rows = [row for _, row in OpenedDump(path).rows(trapframes.TrapFrames)]
    return only(row for row in rows if row["Origin"] == "stack")


def test_small_dump_shows_trap_frames(tmp_path: pathlib.Path) -> None:
    row, place, user = trap_dump(2, b"", tmp_path / "small.dmp"), TRAP_PLACE, USER_PC
    assert (row["TrapFrame"], row["TrapKind"], row["Mode"]) == (STACK[0] + place & MASK, "syscall", "user")
    assert (row["Pc"], row["Sp"], row["Lr"], row["X8"]) == (user, 0xC500001000, user + 8, 108)
    assert row["Unsure"].split() == [f"X{number}" for number in range(19)]
    assert set(row["NotSaved"].split()) >= {f"X{number}" for number in range(19, 29)}


@pytest.mark.parametrize(
    ("active", "fp", "returns", "shown"),
    [
        (1, 0x140, NT + 0x2000, True),
        (1, 0x140, NT + 0x2001, False),
        (1, 0x160, NT + 0x2000, False),
        (0, 0x140, NT + 0x2000, False),
    ],
    ids=["exception frame", "no return address", "frame pointer elsewhere", "interrupt"],
)
def test_the_exception_frame_below_a_trap_frame_is_unsure(
    active: int, fp: int, returns: int, shown: bool, tmp_path: pathlib.Path
) -> None:
    below = struct.pack("<12Q", *range(219, 229), STACK[0] + TRAP_PLACE + fp, returns)
    row = trap_dump(active, below, tmp_path / "small.dmp")
    kept = [f"X{number}" for number in range(19, 29)]
    assert [row[name] for name in kept if shown] == [*range(219, 229)][: 10 * shown]
    assert row["Unsure"].split() == kept * shown
    assert set(kept) & set(row["NotSaved"].split()) == set(kept * (not shown))


def test_x64_process_on_arm64_is_told_apart(shared_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Code of ARM64EC is no x64 code: the walk ends there, and says so."""
    truth = Truth(shared_dir, next(path for path in FILES if "vcruntime140" in path.name))
    for number, point in enumerate(spread(truth)):
        file = tmp_path / f"{number}.dmp"
        file.write_bytes(emulated_dump(truth, point))
        first, *frames = [row for _, row in OpenedDump(file).rows(callstacks.CallStacks)]
        assert (first["Arch"], [frame["Address"] for frame in frames]) == ("x64", [point.pc])
        assert "emulated on ARM64" in first["Status"]
        assert "other architecture" in first["Status"]


def test_x64_frames_of_an_emulated_process_walk_as_x64(
    shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The walk ends at code of ARM64EC, and does not guess beyond it."""
    truth = Truth(shared_dir, next(path for path in FILES if "vcruntime140" in path.name))
    point = next(point for point in truth.points() if len(point.frames) > 1)
    returned = point._replace(pc=point.frames[0][1])
    (tmp_path / "x64.dmp").write_bytes(emulated_dump(truth, returned, called=True))
    first, *frames = [row for _, row in OpenedDump(tmp_path / "x64.dmp").rows(callstacks.CallStacks)]
    assert [frame["Address"] for frame in frames] == [X64_STOOD, X64_RETURN, returned.pc]
    assert [frame["How"] for frame in frames] == ["trap", "unwind", "unwind"]
    assert ["unsure" in frame["Status"] for frame in frames[:2]] == [False, False]
    assert {"emulated on ARM64", "other architecture"} <= set(first["Status"].split(", "))


@pytest.fixture
def crash(tmp_path: pathlib.Path) -> OpenedDump:
    """A small dump of a bug check (1C8h) of 22000."""
    packed = SHARED / "real_trapframes" / "triage_arm64.dmp.xz"
    (tmp_path / "small.dmp").write_bytes(lzma.decompress(packed.read_bytes()))
    return OpenedDump(tmp_path / "small.dmp")


def test_real_crash_is_walked_by_the_chain_of_pairs(crash: OpenedDump) -> None:
    first, *frames = [row for _, row in crash.rows(callstacks.CallStacks)]
    assert (first["PID"], first["Process"], first["TID"], first["Arch"]) == (4, "System", 0x20, "arm64")
    assert "no function table" in first["Status"]
    assert [frame["Address"] for frame in frames] == [NT + rva & MASK for rva in CRASH]
    assert [frame["How"] for frame in frames] == ["trap", *["framepointer"] * 4]
    assert [frame["Sp"] for frame in frames] == [
        STACK[0] & MASK,
        *(pair + 16 & MASK for pair in STACK),
    ]
    assert ["unsure" in frame["Status"] for frame in frames] == [False, *[True] * 4]
    assert frames[1]["Symbol"] == "nt+0x5442a0"


def test_real_crash_has_the_registers_of_eight_processors(crash: OpenedDump) -> None:
    rows = [row for _, row in crash.rows(trapframes.TrapFrames)]
    saved, _, *processors = rows
    assert (saved["Origin"], saved["Pc"], saved["Sp"], saved["Lr"]) == ("saved", NT + CRASH[0], STACK[0], 0)
    assert (saved["X18"], saved["X25"], saved["Cpsr"]) == (0xFFFFF803EFD00000, 0x1B58, 0x80000144)
    assert (saved["Mode"], saved["Fp"]) == ("kernel", STACK[0])
    assert [row["Processor"] for row in processors] == [f"CPU {number}" for number in range(8)]
    symbols = [row["Symbol"] for row in processors]
    assert symbols.count("nt+0x38d180") == 6
    assert symbols.count("qcdxkm7180+0x17c3c") == 1
    assert processors[0]["Pc"] == saved["Pc"]
    assert {row["Unsure"] for row in rows} == {""}


def test_real_crash_shows_where_its_thread_was_switched_out(crash: OpenedDump) -> None:
    """The thread has run since: later calls have overwritten the exception frame at KTHREAD.KernelStack."""
    row = only(row for _, row in crash.rows(trapframes.TrapFrames) if row["Origin"] == "switched")
    assert (row["Symbol"], row["Sp"], row["Fp"]) == ("nt+0x2084d0", KERNEL_STACK, KERNEL_STACK + 0x50)
    assert {"running", "stale"} <= set(row["Status"].split(", "))
    assert set(row["NotSaved"].split()) >= {"Lr", *(f"X{number}" for number in range(29))}


def test_the_kernel_loads_the_registers_from_our_exception_frame(
    crash: OpenedDump, tmp_path: pathlib.Path
) -> None:
    """The code of a real kernel, where a thread goes on after a switch, decides the layout of the frame."""
    row = only(row for _, row in crash.rows(trapframes.TrapFrames) if row["Origin"] == "switched")
    with winstacks.open(tmp_path / "small.dmp") as opened:
        code = opened.image.memory(opened.image.kernel).read(row["Pc"], 32)
        structure = opened.image.types["_KEXCEPTION_FRAME"]
    assert code is not None
    nop, *loads, returns = struct.unpack("<8I", code)
    assert (nop, returns) == (0xD503201F, 0xD65F03C0)
    loaded, released = {}, 0
    for word in loads:
        # ldp Xt, Xt2, [sp, #offset], or its post-indexed form.
        assert word & 0xFE4003E0 == 0xA84003E0
        offset = 8 * (word >> 15 & 0x7F)
        if word >> 23 & 3 == 1:
            released, offset = offset, 0
        loaded.update({word & 31: offset, word >> 10 & 31: offset + 8})
    names = {**{number: f"X{number}" for number in range(19, 29)}, 29: "Fp", 30: "Return"}
    assert {names[number]: offset for number, offset in loaded.items()} == {
        name: structure.offset(name) for name in names.values()
    }
    assert released == structure.size


def switched_dump(seed: Optional[int], state: int, flags: int, authenticated: int = 0) -> bytes:
    """A small dump of a thread that was switched out; forged only, from the public declarations.

    Args:
        seed: draws a layout of the file; None for that of the real one
        state: KTHREAD.State
        flags: ContextFlags of the dump's CONTEXT
        authenticated: bits of the authentication code in the saved return addresses
    """
    stack, kernel_stack = bytearray(0x1000), KERNEL_STACK
    low = kernel_stack & ~0xFFF
    outer = kernel_stack + 0x100
    struct.pack_into("<12Q", stack, kernel_stack - low, *range(19, 29), outer, NT + 0x29FF1C ^ authenticated)
    struct.pack_into("<2Q", stack, outer - low, 0, NT + 0x373340)
    saved = bytearray(0x390)
    struct.pack_into("<II", saved, 0, flags, 4)
    struct.pack_into("<QQ", saved, 0x100, kernel_stack, NT + CRASH[0])
    made = SmallDump(build=22000, machine=0xAA64, seed=seed)
    made.crash(0x133, (1, 2, 0, 3), bytes(saved))
    made.stack(low, bytes(stack))
    made.thread(ETHREAD, EPROCESS, low + 0x1000, kernel_stack, 0, 0)
    switch = struct.pack("<4Q", 0, 0, kernel_stack + 0x50, NT + 0x2084D0 ^ authenticated)
    made.amend("Thread", 0x210, switch)
    made.amend("Thread", made.offsets["OffsetKThreadState"], bytes([state]))
    made.drivers([Driver("ntoskrnl.exe", NT, 0x103E000)])
    return made.file()


@pytest.mark.parametrize("authenticated", [0, 0x2A << 48])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_thread_that_was_switched_out_has_its_nonvolatile_registers(
    seed: Optional[int], authenticated: int, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "small.dmp").write_bytes(switched_dump(seed, 5, 0, authenticated))
    dump = OpenedDump(tmp_path / "small.dmp")
    row = only(row for _, row in dump.rows(trapframes.TrapFrames) if row["Origin"] == "switched")
    assert (row["Pc"], row["Sp"], row["Fp"]) == (NT + 0x29FF1C, KERNEL_STACK + 0x60, KERNEL_STACK + 0x100)
    assert [row[f"X{number}"] for number in range(19, 29)] == list(range(19, 29))
    assert (row["Lr"], row["Mode"], row["State"]) == (NT + 0x29FF1C ^ authenticated, "kernel", "Waiting")
    assert (row["TrapFrame"], row["Unsure"]) == (ETHREAD + 0x210 & MASK, "")
    assert "stale" not in row["Status"]
    # The CONTEXT of the dump is no CONTEXT: the walk begins with the exception frame.
    frames = frames_of(dump.rows(callstacks.CallStacks))
    assert [frame["Address"] for frame in frames] == [NT + 0x29FF1C & MASK, NT + 0x373340 & MASK]


def test_the_context_of_a_dump_goes_before_the_switch_frame(tmp_path: pathlib.Path) -> None:
    (tmp_path / "small.dmp").write_bytes(switched_dump(None, 2, 0x400007))
    dump = OpenedDump(tmp_path / "small.dmp")
    assert frames_of(dump.rows(callstacks.CallStacks))[0]["Address"] == NT + CRASH[0] & MASK
    row = only(row for _, row in dump.rows(trapframes.TrapFrames) if row["Origin"] == "switched")
    assert {"running", "stale"} <= set(row["Status"].split(", "))


def test_a_switch_frame_that_its_stack_contradicts_is_named(tmp_path: pathlib.Path) -> None:
    data = bytearray(switched_dump(None, 5, 0))
    place = data.index(struct.pack("<QQ", KERNEL_STACK + 0x50, NT + 0x2084D0))
    struct.pack_into("<Q", data, place, KERNEL_STACK + 0x58)
    (tmp_path / "small.dmp").write_bytes(data)
    dump = OpenedDump(tmp_path / "small.dmp")
    row = only(row for _, row in dump.rows(trapframes.TrapFrames) if row["Origin"] == "switched")
    assert "no switch frame" in row["Status"]
    assert not isinstance(row["Pc"], int)


def writes(size: int, seed: int) -> List[Tuple[int, int]]:
    """Offsets and values of some writes of eight bytes, drawn by a seed; half of them into the headers."""
    drawn = random.Random(seed)
    places = [drawn.randrange(0x10000 if drawn.random() < 0.5 else size - 8) for _ in range(40)]
    values = (0, 1, MASK, (1 << 64) - 1, 1 << 63, 0x00FF00FF00FF00FF)
    return [(place, drawn.choice((*values, drawn.getrandbits(64)))) for place in places]


@pytest.mark.parametrize("seed", range(rounds(24, 6)))
@pytest.mark.parametrize("kind", [FULL, STACKS, "crash"])
def test_any_write_into_a_dump_gives_rows_or_a_sentence(
    kind: str, seed: int, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    if kind == "crash":
        packed = SHARED / "real_trapframes" / "triage_arm64.dmp.xz"
        data = bytearray(lzma.decompress(packed.read_bytes()))
    else:
        truth = Truth(shared_dir, next(path for path in FILES if "vcruntime140" in path.name))
        data = bytearray(process_dump(truth, next(spread(truth)), kind))
    for place, value in writes(len(data), seed):
        struct.pack_into("<Q", data, place, value)
    (tmp_path / "written.dmp").write_bytes(data)
    for plugin in (callstacks.CallStacks, trapframes.TrapFrames, tracefindings.TraceFindings):
        try:
            OpenedDump(tmp_path / "written.dmp").rows(plugin)
        except exceptions.RenderException as error:
            assert str(error)
