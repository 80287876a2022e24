# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps of ARM64 Windows: forged process dumps of recorded points, and a real crash."""

from __future__ import annotations

import itertools
import lzma
import pathlib
import random
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from volatility3.framework import exceptions, renderers
from volatility3.plugins.minidump import callstacks, tracefindings, traceframes, traces, trapframes

import winstacks
from tests.conftest import SHARED
from tests.forge.smalldump import Driver, SmallDump
from tests.support.armdumps import FULL, STACKS, TID, context, emulated_dump, process_dump, small_dump
from tests.support.armtruth import Point, Truth
from tests.support.changeddumps import EXCEPTION, ChangedDump
from tests.support.deep import rounds
from tests.support.only import only
from tests.support.processdumps import OpenedDump

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


def test_small_dump_shows_trap_frames(tmp_path: pathlib.Path) -> None:
    """Forged only: no real dump has one."""
    stack, place, user = bytearray(0x1000), 0x400, 0x7FF612340000
    frame = bytearray(0x150)
    struct.pack_into("<B2xB", frame, 0, 2, 1)
    struct.pack_into("<II", frame, 0x90, 0x60000000, 0)
    struct.pack_into("<Q", frame, 0x98, 0xC500001000)
    struct.pack_into("<19Q", frame, 0xA0, *range(100, 119))
    struct.pack_into("<3Q", frame, 0x138, user + 8, 0xC500001020, user)
    stack[place : place + 0x150] = frame
    saved = bytearray(0x390)
    struct.pack_into("<II", saved, 0, 0x400007, 4)
    struct.pack_into("<QQ", saved, 0x100, STACK[0], NT + CRASH[0])
    made = SmallDump(build=22000, machine=0xAA64)
    made.crash(0xD1, (1, 2, 0, NT + CRASH[0]), bytes(saved))
    made.stack(STACK[0], bytes(stack))
    made.drivers([Driver("ntoskrnl.exe", NT, 0x103E000)])
    (tmp_path / "small.dmp").write_bytes(made.file())
    rows = [row for _, row in OpenedDump(tmp_path / "small.dmp").rows(trapframes.TrapFrames)]
    row = only(row for row in rows if row["Origin"] == "stack")
    assert (row["TrapFrame"], row["TrapKind"], row["Mode"]) == (STACK[0] + place & MASK, "syscall", "user")
    assert (row["Pc"], row["Sp"], row["Lr"], row["X8"]) == (user, 0xC500001000, user + 8, 108)
    assert row["Unsure"].split() == [f"X{number}" for number in range(19)]
    assert set(row["NotSaved"].split()) >= {f"X{number}" for number in range(19, 29)}


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
    saved, *processors = rows
    assert (saved["Origin"], saved["Pc"], saved["Sp"], saved["Lr"]) == ("saved", NT + CRASH[0], STACK[0], 0)
    assert (saved["X18"], saved["X25"], saved["Cpsr"]) == (0xFFFFF803EFD00000, 0x1B58, 0x80000144)
    assert (saved["Mode"], saved["Fp"]) == ("kernel", STACK[0])
    assert [row["Processor"] for row in processors] == [f"CPU {number}" for number in range(8)]
    symbols = [row["Symbol"] for row in processors]
    assert symbols.count("nt+0x38d180") == 6
    assert symbols.count("qcdxkm7180+0x17c3c") == 1
    assert processors[0]["Pc"] == saved["Pc"]
    assert {row["Unsure"] for row in rows} == {""}


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
