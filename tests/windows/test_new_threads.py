# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads that have not run in user mode yet: the kernel wrote their first trap frame from a CONTEXT.

Bit 1 of EFlags is clear there, which no processor leaves clear. Such threads are created suspended.
"""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.plugins.windows import trapframes as plugin

from tests.forge import context, kernels, trapframes, trapframes64, trapframes86, vol
from tests.forge import trapentries as entries
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.thread import Thread
from tests.forge.trapentries import X64, X86_OLD, Entry
from tests.support.only import only
from tests.support.strangers import unpacked
from tests.support.trapforge import TOP_DISTANCE, architecture
from tests.support.trapsets import filled, registers_64, registers_86
from tests.windows.test_callstacks import Row, by_key, plain, stacks

PID, TID = 1000, 1004
STALE = filled(b"\x60\xde\xc2\xe4\xdf\xfa\xff\xff")
NAMES = ("2003-x64", "win7-x64", "win10-x64", "win11-x64", "xp-x86", "win7-x86", "win10-x86")


class NewThread:
    """An image with a thread that waits in the kernel before it has run in user mode.

    Args:
        name: a known kernel
        marked: whether an x86 kernel marks the frame for debuggers
        changes: registers of the CONTEXT
    """

    def __init__(self, name: str, marked: bool = True, **changes: int) -> None:
        known = kernels.load(name)
        self.kernel = Kernel(known.table, **known.options())
        self.thread: Thread = self.kernel.process("new.exe", pid=PID).thread(TID, stack_size=0x3000)
        self.architecture = architecture(known)
        wide = self.architecture == X64
        self.registers = dict(registers_64("user64") if wide else registers_86("user"), **changes)
        entry = Entry(entries.NEW, "user64" if wide else "user", debug=marked)
        self.address = self.thread.stack_base - TOP_DISTANCE[self.architecture]
        forged = trapframes.forge(self.architecture, entry, self.registers, self.address, STALE)
        self.expected = forged.expected
        size = self.thread.stack_base - self.thread.stack_limit
        self.kernel.space.write(self.thread.stack_limit, STALE(0, size))
        self.kernel.space.write(self.address, forged.data)
        self.thread.kthread["KernelStack"] = self.thread.stack_limit
        self.thread.kthread["TrapFrame"] = 0

    def write(self, member: str, value: int) -> None:
        """Changes a member of the frame."""
        wide = self.architecture == X64
        offset = (trapframes64.OFFSETS if wide else trapframes86.OFFSETS[self.architecture])[member]
        self.kernel.space.write_int(self.address + offset, value, 4)

    def open(self, folder: pathlib.Path) -> Opened:
        return context.open_image(self.kernel.image(), folder)


def rows(opened: Opened, **options: Any) -> List[Row]:
    return [plain(row) for _, row in opened.rows(plugin.TrapFrames, **options)]


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_the_first_frame_of_a_thread_is_read(name: str, marked: bool, tmp_path: pathlib.Path) -> None:
    image = NewThread(name, marked)
    opened = image.open(tmp_path)
    row = only(rows(opened))
    assert (row["Origin"], row["TrapKind"], row["Mode"], row["Status"]) == ("top", "written", "user", "")
    assert row["EFlags"] == 0x200
    for column, value in image.expected.items():
        assert row[column] == value, column
    _, frames = by_key(stacks(opened))[TID, "user"]
    start = image.registers["rip" if image.architecture == X64 else "eip"]
    assert (frames[0]["Address"], frames[0]["How"], frames[0]["Status"]) == (start, "trap", "")


@pytest.mark.parametrize("name", NAMES)
def test_a_scan_finds_no_such_frame_elsewhere(name: str, tmp_path: pathlib.Path) -> None:
    """Zeros and selectors lie in many places: only the top of a stack is the place of such a frame."""
    image = NewThread(name)
    data = image.kernel.space.read(image.address, 0x8C if image.architecture != X64 else 0x190)
    for lower in (0x800, 0x1200):
        image.kernel.space.write(image.address - lower, data)
    found = [row for row in rows(image.open(tmp_path), scan_stacks=True) if row["Origin"] != "thread"]
    assert [row["Origin"] for row in found] == ["top"]


@pytest.mark.parametrize("name", ["win10-x64", "xp-x86", "win10-x86"])
@pytest.mark.parametrize(
    ("member", "value"), [("EFlags", 0), ("EFlags", 0x208), ("SegCs", 0x77), ("EFlags", 0x3200)]
)
def test_bytes_that_no_context_gives_are_no_frame(
    name: str, member: str, value: int, tmp_path: pathlib.Path
) -> None:
    """Interrupts are on, no reserved bit is set, and the segment is that of user mode."""
    image = NewThread(name)
    image.write(member, value)
    row = only(rows(image.open(tmp_path)))
    assert (row["Status"], row["Rip"]) == ("no saved registers", None)


@pytest.mark.parametrize("name", ["win10-x64", "xp-x86"])
def test_a_frame_to_which_the_thread_points_may_have_flags_of_a_context(
    name: str, tmp_path: pathlib.Path
) -> None:
    """NtSetContextThread writes EFlags into the frame of a system call, too."""
    image = NewThread(name)
    image.thread.kthread["TrapFrame"] = image.address
    row = only(rows(image.open(tmp_path)))
    assert (row["Origin"], row["Mode"], row["EFlags"], row["Status"]) == ("thread", "user", 0x200, "")


def test_the_marks_of_x86_are_zero_or_copies(tmp_path: pathlib.Path) -> None:
    image = NewThread("xp-x86")
    assert image.architecture == X86_OLD
    image.write("DbgEip", image.registers["eip"] + 0x100)
    row = only(rows(image.open(tmp_path)))
    assert row["Status"] == "no saved registers"


@pytest.mark.shared
@pytest.mark.cli
def test_new_threads_of_a_kernel_that_nobody_here_wrote(
    shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """ReactOS for x64: two threads of setup are suspended in their first kernel APC."""
    folder = shared_dir / "reactos_x64"
    if not folder.is_dir():
        pytest.skip("the images of ReactOS for x64 are not there")
    image = unpacked(folder / "images" / "rosx64-newthreads.raw.xz", tmp_path)
    listed = vol.run(image, "windows.trapframes", "--pid", "76", symbols=tmp_path / "symbols").rows
    written: Dict[int, Dict[str, Any]] = {row["TID"]: row for row in listed if row["TrapKind"] == "written"}
    assert {tid: (row["Rip"], row["Rsp"], row["Status"]) for tid, row in written.items()} == {
        84: (0x140008143, 0x62FFC8, ""),
        88: (0x140007BCF, 0x82FFC8, ""),
    }
    walked = vol.run(image, "windows.callstacks", "--pid", "76", symbols=tmp_path / "symbols").rows
    user = {row["TID"]: row for row in walked if row["Part"] == "user"}
    assert [user[tid]["__children"][0]["Symbol"] for tid in (84, 88)] == [
        "smss!PnpEventThread",
        "smss!DeviceInstallThread",
    ]
