# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Real dumps whose lists contradict themselves: one list is no second witness against itself."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.minidump import callstacks, tracefindings

from tests.forge.pe import Pe, Section
from tests.support.changeddumps import MEMORY, MODULES, ChangedDump
from tests.support.only import only
from tests.support.processdumps import OpenedDump

MODULE_SIZE, NOT_CHECKED = 108, "not checked"
THREAD_SIZE, CONTEXT = 48, 40
"""Size of MINIDUMP_THREAD, and the offset of ThreadContext in it."""
WITHOUT_REGIONS, WITH_REGIONS = "tiny-exe-fastfail.dmp", "tiny-exe-with-cet-xsave.dmp"
ABSENT = interfaces.renderers.BaseAbsentValue

pytestmark = pytest.mark.shared


def opened(dump: ChangedDump, path: pathlib.Path) -> OpenedDump:
    path.write_bytes(dump.bytes())
    return OpenedDump(path)


def frames(dump: OpenedDump) -> List[Dict[str, Any]]:
    return [row for depth, row in dump.rows(callstacks.CallStacks) if depth]


def user_stacks(dump: OpenedDump) -> List[Dict[str, Any]]:
    rows = [row for depth, row in dump.rows(callstacks.CallStacks) if not depth]
    return [row for row in rows if row["Part"] == "user" and isinstance(row["TID"], int)]


def findings(dump: OpenedDump, name: str) -> List[Dict[str, Any]]:
    rows = [row for _, row in dump.rows(tracefindings.TraceFindings)]
    return [row for row in rows if row["Finding"] == name]


def move_second_module(dump: ChangedDump, by: int) -> None:
    """Gives the second module, which is ntdll, a base within the first."""
    modules = bytearray(dump.stream(MODULES))
    (base,) = struct.unpack_from("<Q", modules, 4)
    struct.pack_into("<Q", modules, 4 + MODULE_SIZE, base + by)
    dump.write(dump.place(MODULES), bytes(modules))


@pytest.mark.parametrize("by", [0, 0x10000])
@pytest.mark.parametrize("name", [WITHOUT_REGIONS, WITH_REGIONS])
def test_modules_that_lie_over_each_other(name: str, by: int, tmp_path: pathlib.Path) -> None:
    dump = ChangedDump.named(name)
    move_second_module(dump, by)
    changed = opened(dump, tmp_path / name)
    doubted = [row["Status"] for row in frames(changed) if row["Symbol"].startswith("tiny")]
    assert doubted and all("overlaps another module" in each for each in doubted)
    assert not [each for each in doubted if "VAD" in each]
    found = findings(changed, "module_mismatch")
    assert not [row for row in found if row["Status"] != NOT_CHECKED]
    reasons = [row["Evidence"] for row in found]
    assert any("contradicts itself" in reason for reason in reasons) == (name == WITHOUT_REGIONS)


def test_two_threads_with_the_same_registers(tmp_path: pathlib.Path) -> None:
    """The second thread gets the third's registers: its stack pointer is not in its own stack."""
    dump = ChangedDump.named(WITHOUT_REGIONS)
    _, second, third, *_ = dump.thread_rows()
    tids = [struct.unpack("<I", dump.read(row, 4))[0] for row in (second, third)]
    dump.write(second + CONTEXT, dump.read(third + CONTEXT, 8))
    changed = opened(dump, tmp_path / "process.dmp")
    stacks = user_stacks(changed)
    doubted = [row["TID"] for row in stacks if "contradicted: ThreadContext" in row["Status"]]
    assert doubted == tids
    found = only(findings(changed, "stack_pivot"))
    assert (found["TID"], found["Severity"], found["Confidence"]) == (tids[0], "low", "possible")
    assert "contradicted: ThreadContext" in found["Status"]
    assert "those of another thread" in found["Innocent"]


@pytest.mark.parametrize("given", [0, 1])
def test_a_thread_id_that_is_listed_twice(given: int, tmp_path: pathlib.Path) -> None:
    """Only the thread on whose stack the exception was has raised it, in either order of the list."""
    dump = ChangedDump.named(WITHOUT_REGIONS)
    before = [row["Status"] for row in user_stacks(opened(dump, tmp_path / "before.dmp"))]
    first, second, *_ = dump.thread_rows()
    rows = [dump.read(row, THREAD_SIZE) for row in (first, second)]
    rows[1] = rows[0][:4] + rows[1][4:]
    for row, data in zip((first, second), rows if given == 0 else reversed(rows)):
        dump.write(row, data)
    stacks = user_stacks(opened(dump, tmp_path / "process.dmp"))
    assert len(stacks) == len(before)
    twice = [row["Status"] for row in stacks if row["TID"] == stacks[0]["TID"]]
    assert len(twice) == 2 and all("contradicted: ThreadId" in each for each in twice)
    assert ["exception" in each for each in twice] == [given == 0, given == 1]


def without_sizes(name: str) -> ChangedDump:
    """A real dump whose modules all have SizeOfImage 0."""
    dump = ChangedDump.named(name)
    modules = bytearray(dump.stream(MODULES))
    (count,) = struct.unpack_from("<I", modules)
    for number in range(count):
        struct.pack_into("<I", modules, 4 + MODULE_SIZE * number + 8, 0)
    dump.write(dump.place(MODULES), bytes(modules))
    return dump


@pytest.mark.parametrize("name", [WITHOUT_REGIONS, "null_write_av.dmp"])
def test_modules_without_a_size(name: str, tmp_path: pathlib.Path) -> None:
    """0 is no size: any address behind the base of a module may be in it, and no finding is made of it."""
    real = [row["Symbol"] for row in frames(opened(ChangedDump.named(name), tmp_path / "real.dmp"))]
    assert real[0].startswith(("tiny", "crashme"))
    changed = opened(without_sizes(name), tmp_path / name)
    frame = frames(changed)[0]
    names = frame["Symbol"], frame["Backing"], frame["Status"]
    assert names == ("<unknown>", "unknown", "module list incomplete")
    stacks = user_stacks(changed)
    assert all(isinstance(row["Unbacked"], ABSENT) for row in stacks)
    for finding in ("unbacked", "module_mismatch", "stack_pivot"):
        assert not [row for row in findings(changed, finding) if row["Status"] != NOT_CHECKED]


def test_the_headers_give_a_size_that_the_list_lacks(tmp_path: pathlib.Path) -> None:
    dump = without_sizes(WITHOUT_REGIONS)
    base, size = struct.unpack_from("<QI", ChangedDump.named(WITHOUT_REGIONS).stream(MODULES), 4)
    headers = Pe("tiny.exe", 64, base, size, [Section(".text", 0x1000, 0x1000, 0x60000020)]).pieces()[0]
    listed = dump.stream(MEMORY)
    (count,) = struct.unpack_from("<I", listed)
    added = struct.pack("<QII", base, len(headers), dump.append(headers))
    dump.replace(MEMORY, struct.pack("<I", count + 1) + listed[4:] + added)
    frame = frames(opened(dump, tmp_path / "process.dmp"))[0]
    assert (frame["Symbol"], frame["Backing"]) == ("tiny+0x1af42", "image")
