# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Plugins on small kernel dumps whose members and bytes lie: rows or a sentence, and no traceback."""

from __future__ import annotations

import pathlib
import random
import struct
from typing import Any, List, Tuple

import pytest
from volatility3.framework import exceptions
from volatility3.plugins.minidump import callstacks, info, tracefindings, traceimage, traces, trapframes

from tests.forge import smalldump
from tests.forge.smalldump import Driver, SmallDump
from tests.support.processdumps import OpenedDump, whole_faults

PLUGINS = (info.Info, callstacks.CallStacks, trapframes.TrapFrames, tracefindings.TraceFindings)
FLAT = (traces.StackTraces, traceimage.TraceImage)
WRITES = 16
VALUES = (0, 1, 0x2000, 0x7FFFFFFF, 0xFFFFFFFF)
KERNEL = {True: 0xFFFFF80312200000, False: 0x82800000}
STACK = {True: 0xFFFFD00012345000, False: 0x8F345000}


def dump(wide: bool) -> bytes:
    kernel, stack = KERNEL[wide], STACK[wide]
    forged_dump = SmallDump(wide=wide)
    forged_dump.crash(0x7E, (0, 0, stack, stack + 8), smalldump.context(wide, kernel + 0x1234, stack + 0x20))
    forged_dump.stack(stack, struct.pack("<Q" if wide else "<I", kernel + 0x2345) * 0x80)
    forged_dump.thread(stack - 0x8000, stack - 0x7000, stack + 0x100, stack, 0, 0)
    forged_dump.drivers(
        [Driver("ntoskrnl.exe", kernel, 0x800000), Driver("a.sys", kernel + 0x1000000, 0x1000)]
    )
    forged_dump.unloaded([Driver("gone.sys", kernel + 0x2000000, 0x1000)])
    forged_dump.block(kernel + 0x2300, bytes(0x40) + b"\xe8\0\0\0\0" + bytes(0x40))
    return forged_dump.file()


def altered(wide: bool, number: int) -> bytes:
    """A dump with some words of its header, its parts or its bytes overwritten, or cut."""
    chance = random.Random(number)
    data = bytearray(dump(wide))
    base = 0x2000 if wide else 0x1000
    for _ in range(1 + number % 3):
        place = chance.choice([base + 4 * chance.randrange(32), 4 * chance.randrange(len(data) // 4)])
        if place >= 8:
            struct.pack_into("<I", data, place, chance.choice([*VALUES, chance.getrandbits(32)]))
    return bytes(data if number % 4 else data[: base + 0x80 + chance.randrange(len(data) - base - 0x80)])


def cases() -> List[Tuple[bool, int]]:
    return [(bool(number % 2), number) for number in range(WRITES)]


@pytest.mark.parametrize(("wide", "number"), cases())
def test_a_write_costs_no_run(tmp_path: pathlib.Path, wide: bool, number: int) -> None:
    file = tmp_path / "small.dmp"
    file.write_bytes(altered(wide, number))
    for plugin in (*PLUGINS, *(FLAT if not number % 4 else ())):
        try:
            rows = OpenedDump(file).rows(plugin)
        except (exceptions.RenderException, exceptions.UnsatisfiedException):
            continue
        assert len(rows) < 1000, plugin
    assert [path.name for path in tmp_path.iterdir()] == ["small.dmp"]


def first(file: pathlib.Path, plugin: Any) -> Any:
    return OpenedDump(file).rows(plugin)[0][1]


@pytest.mark.parametrize("wide", [True, False])
def test_a_dump_without_a_stack_says_so(tmp_path: pathlib.Path, wide: bool) -> None:
    data = bytearray(dump(wide))
    base = 0x2000 if wide else 0x1000
    struct.pack_into("<II", data, base + 0x28, 0, 0)
    (tmp_path / "small.dmp").write_bytes(data)
    assert "not in the dump: CallStack" in first(tmp_path / "small.dmp", callstacks.CallStacks)["Status"]


@pytest.mark.parametrize("wide", [True, False])
def test_a_context_that_is_none_says_so(tmp_path: pathlib.Path, wide: bool) -> None:
    data = dump(wide)
    context = smalldump.context(wide, KERNEL[wide] + 0x1234, STACK[wide] + 0x20)
    (tmp_path / "small.dmp").write_bytes(data.replace(context, bytes(len(context))))
    status = first(tmp_path / "small.dmp", callstacks.CallStacks)["Status"]
    assert "not a context" in status and "no saved registers" in status


def test_a_list_of_drivers_that_is_damaged_doubts_the_names(tmp_path: pathlib.Path) -> None:
    data = bytearray(dump(True))
    struct.pack_into("<I", data, 0x2000 + 0x34, 0x7FFFFFFF)
    (tmp_path / "small.dmp").write_bytes(data)
    rows = OpenedDump(tmp_path / "small.dmp").rows(callstacks.CallStacks)
    frame = next(row for depth, row in rows if depth)
    assert (frame["Symbol"], frame["Status"]) == ("<no-module>", "module list incomplete")


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("brief", [False, True])
def test_a_machine_that_is_not_supported_is_named(tmp_path: pathlib.Path, plugin: Any, brief: bool) -> None:
    """Each plugin says it in a sentence: a small dump has no streams that minidump.info could list."""
    data = bytearray(dump(True))
    struct.pack_into("<I", data, 0x30, 0x200)
    (tmp_path / "small.dmp").write_bytes(data)
    with pytest.raises(exceptions.RenderException, match="machine of type Itanium"):
        OpenedDump(tmp_path / "small.dmp").rows(plugin, brief=brief)


@pytest.mark.parametrize("wide", [True, False])
def test_registers_outside_the_stack_of_the_dump_say_so(tmp_path: pathlib.Path, wide: bool) -> None:
    """SizeOfCallStack ends the stack before the stack pointer: no frame can follow."""
    data = bytearray(dump(wide))
    assert "outside" not in first_of(bytes(data), tmp_path)
    struct.pack_into("<I", data, (0x2000 if wide else 0x1000) + 0x2C, 8)
    assert "outside the stack" in first_of(bytes(data), tmp_path)


def first_of(data: bytes, tmp_path: pathlib.Path) -> str:
    (tmp_path / "small.dmp").write_bytes(data)
    return str(first(tmp_path / "small.dmp", callstacks.CallStacks)["Status"])


@pytest.mark.parametrize("plugin", [*PLUGINS, *FLAT])
def test_each_plugin_tells_what_is_wrong_with_the_whole_dump(
    plugin: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows that need the memory would be gone without a word."""
    file = tmp_path / "small.dmp"
    for place, told in ((None, []), (0x2000 + 0x78, ["header: DataBlocksOffset"])):
        data = bytearray(dump(True))
        if place is not None:
            struct.pack_into("<I", data, place, 0x7FFF0000)
        file.write_bytes(data)
        caplog.clear()
        OpenedDump(file).rows(plugin)
        where = "" if plugin is info.Info else " (see minidump.info)"
        assert whole_faults(caplog) == [f"Rows may be missing or wrong: {word}{where}" for word in told]
