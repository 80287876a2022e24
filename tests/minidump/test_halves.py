# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps of x86 and of WoW64 processes: both halves, or the lower one."""

from __future__ import annotations

import functools
import pathlib
import struct
from typing import Any, List

import pytest
from volatility3.plugins.minidump import callstacks, gflags, info, locks, stacktracedb, tracefindings
from volatility3.plugins.windows import callstacks as image_callstacks
from volatility3.plugins.windows import gflags as image_gflags
from volatility3.plugins.windows import locks as image_locks
from volatility3.plugins.windows import stacktracedb as image_stacktracedb

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.golden import images
from tests.minidump.test_plugins import LEGACY, OF_A_KERNEL, shown, user_rows
from tests.support.changeddumps import MODULES, ChangedDump
from tests.support.only import only
from tests.support.processdumps import OpenedDump, dump_of
from winstacks.minidump.decode.dumpfile import Minidump
from winstacks.minidump.decode.memory import memory_ranges
from winstacks.minidump.decode.modules import MODULE
from winstacks.minidump.decode.threads import thread_list

IN_32_BIT_CODE = 932


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("halves")


@pytest.fixture(scope="module")
def clean(folder: pathlib.Path) -> Any:
    """Opens images with processes of many kinds, each once."""

    @functools.lru_cache(maxsize=None)
    def opened(name: str) -> Opened:
        return context.open_image(images.clean(name)(), folder, f"{name}.dmp")

    return opened


@pytest.mark.parametrize(
    ("name", "pid", "arches"),
    [
        ("win7-x86", 524, {"x86"}),
        ("win7-x86", 528, {"x86"}),
        ("win10-x64", 516, {"x64"}),
        ("win10-x64", 912, {"x64", "x86"}),
        ("win10-x64", IN_32_BIT_CODE, {"x64", "x86"}),
        ("win10-x64", 940, {"x64", "x86"}),
    ],
)
def test_call_stacks(clean: Any, folder: pathlib.Path, name: str, pid: int, arches: Any) -> None:
    opened, path = clean(name), folder / f"{name}-{pid}.dmp"
    path.write_bytes(dump_of(opened, pid))
    expected = user_rows(shown(opened.rows(image_callstacks.CallStacks, pid=[pid]), *OF_A_KERNEL))
    found = shown(OpenedDump(path).rows(callstacks.CallStacks), *OF_A_KERNEL)
    assert found == expected
    assert {row["Arch"] for _, row in found} == arches


@pytest.mark.parametrize("pid", [912, IN_32_BIT_CODE, 940])
def test_wow_teb_offset_leads_to_the_32_bit_stack(clean: Any, folder: pathlib.Path, pid: int) -> None:
    """As in dumps of Wine, in which TEB.ExceptionList is 0."""
    data = bytearray(dump_of(clean("win10-x64"), pid))
    path = folder / f"offset-{pid}.dmp"
    path.write_bytes(data)
    expected = shown(OpenedDump(path).rows(callstacks.CallStacks))
    dump = Minidump(lambda offset, length: bytes(data[offset : offset + length]), len(data))
    for thread in thread_list(dump)[0]:
        teb = only(
            memory.offset + thread.Teb - memory.start
            for memory in memory_ranges(dump)[0]
            if memory.start <= thread.Teb < memory.start + memory.length
        )
        (narrow,) = struct.unpack_from("<Q", data, teb)
        assert narrow
        struct.pack_into("<Q", data, teb, 0)
        struct.pack_into("<i", data, teb + 0x180C, narrow - thread.Teb)
    path.write_bytes(data)
    assert shown(OpenedDump(path).rows(callstacks.CallStacks)) == expected
    assert any(row["Part"] == "wow64" for _, row in expected)


def test_without_full_memory_32_bit_code_is_not_taken_for_64_bit_code(
    clean: Any, folder: pathlib.Path
) -> None:
    path = folder / "small.dmp"
    path.write_bytes(dump_of(clean("win10-x64"), IN_32_BIT_CODE, full=False))
    rows = [row for _, row in OpenedDump(path).rows(callstacks.CallStacks)]
    assert [(row["Part"], row["Status"]) for row in rows[:1]] == [("user", "in 32-bit code")]
    assert {row["Part"] for row in rows[1:]} == {"wow64"}
    assert all("unsure" in row["Status"] for row in rows[3:])


@pytest.mark.parametrize(
    ("of_dump", "of_image"),
    [
        (gflags.GFlags, image_gflags.GFlags),
        (stacktracedb.StackTraceDb, image_stacktracedb.StackTraceDb),
        (locks.Locks, image_locks.Locks),
    ],
)
def test_a_32_bit_dump_has_the_lower_half(folder: pathlib.Path, of_dump: Any, of_image: Any) -> None:
    opened = context.open_image(sample.build().image(), folder, "sample.dmp")
    path = folder / "narrow.dmp"
    path.write_bytes(dump_of(opened, LEGACY, narrow=True))
    expected = [frame for frame in shown(opened.rows(of_image, pid=[LEGACY])) if frame[1]["Arch"] == "x86"]
    assert shown(OpenedDump(path).rows(of_dump)) == expected
    assert expected


@pytest.mark.parametrize("narrow", [False, True])
def test_no_dump_shows_all_of_what_made_a_system_call(folder: pathlib.Path, narrow: bool) -> None:
    """The kernel of a 32-bit dump may have 64 bits."""
    opened = context.open_image(sample.build().image(), folder, "sample.dmp")
    path = folder / f"calls-{narrow}.dmp"
    path.write_bytes(dump_of(opened, LEGACY, narrow=narrow))
    rows = [row for _, row in OpenedDump(path).rows(tracefindings.TraceFindings, check=["syscall_outside"])]
    row = only(row for row in rows if row["Finding"] == "syscall_outside")
    assert row["Status"] == "not checked"
    assert row["Evidence"] == (
        "the dump of a process has a CONTEXT in place of a thread's newest trap frame: only the instruction "
        "before Rip shows a system call"
    )


def test_a_program_on_the_lists_of_both_halves_is_one_module(folder: pathlib.Path) -> None:
    """The loader has the program of a WoW64 process on both of its lists, and a 64-bit writer takes both."""
    path = folder / "twice.dmp"
    opened = context.open_image(sample.build().image(), folder, "sample.dmp")
    changed = ChangedDump(dump_of(opened, LEGACY))
    listed = changed.stream(MODULES)
    program = listed[4 + MODULE.size :][: MODULE.size]
    plugins = callstacks.CallStacks, info.Info, tracefindings.TraceFindings
    told = []
    for modules in (listed, struct.pack("<I", listed[0] + 1) + program + listed[4:]):
        changed.replace(MODULES, modules)
        path.write_bytes(changed.bytes())
        told.append([status_words(path, plugin) for plugin in plugins])
    assert told[0] == told[1]


def test_modules_at_one_place_that_are_not_alike_overlap(folder: pathlib.Path) -> None:
    path = folder / "other.dmp"
    opened = context.open_image(sample.build().image(), folder, "sample.dmp")
    changed = ChangedDump(dump_of(opened, LEGACY))
    listed = changed.stream(MODULES)
    program = bytearray(listed[4 + MODULE.size :][: MODULE.size])
    program[16] ^= 1
    changed.replace(MODULES, struct.pack("<I", listed[0] + 1) + program + listed[4:])
    path.write_bytes(changed.bytes())
    assert "contradicted: BaseOfImage SizeOfImage" in status_words(path, info.Info)


def status_words(path: pathlib.Path, plugin: Any) -> List[str]:
    return [row["Status"] for _, row in OpenedDump(path).rows(plugin)]
