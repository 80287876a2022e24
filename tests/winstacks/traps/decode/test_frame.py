# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every measured frame: what was saved is shown and true, what was not saved is not shown."""

from __future__ import annotations

import pathlib
from collections import Counter
from typing import Dict, Iterator, Tuple

import pytest

from tests.forge import kernels
from tests.support import real_trapframes, traplayouts
from tests.support.real_trapframes import RealFrame
from winstacks.columns.registers import REGISTERS
from winstacks.traps.decode.frame import EntryFacts
from winstacks.traps.decode.trapframe_x86 import COLUMN_MEMBERS

X86_TO_COLUMN = {member: column for column, member in COLUMN_MEMBERS.items()}

# Not saved by an exception from kernel mode, though the CONTEXT has them.
STALE_IN_THE_CRASH = "Rbx Rsi Rdi R12 R13 R14 R15 SegDs SegEs SegFs SegGs Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"

# The kinds of the reference data, as the plugin names them; an x86 exception or interrupt has no name.
SERVICES = {"service", "service_apc", "service_int2e", "trap2b"}
X64_INTERRUPTS = {"trap02", "trap12", "trap1f", "trap2f", "trape1", "direct_435b0"}


def expected_kind(real: RealFrame) -> str:
    if real.kind in ("service_internal", "service_zw"):
        return "service"
    if real.arch == "x64":
        if real.kind in SERVICES:
            return "syscall"
        return (
            "interrupt" if real.kind.startswith("interrupt") or real.kind in X64_INTERRUPTS else "exception"
        )
    if real.kind in SERVICES or (real.kind == "trap2c" and real.build.startswith("5.1")):
        return "service" if real.mode == "kernel" else "syscall"
    if real.kind == "trap02":
        return "interrupt"
    fast_path = real.mode == "v86" and real.kind in ("trap06", "trap0d", "trap2a")
    return "exception" if fast_path else ""


def columns_of(real: RealFrame) -> Iterator[Tuple[str, real_trapframes.RealMember]]:
    for name, member in real.members.items():
        column = X86_TO_COLUMN.get(name, name)
        if column in REGISTERS:
            yield column, member


def is_impossible(real: RealFrame, source: str) -> bool:
    """Ecx of int 2B in kernel mode, where Windows has none: it looks like a Zw call, which saves no Ecx."""
    return (real.kind, real.mode, source) == ("trap2b", "kernel", "ecx")


def truth_of(real: RealFrame, column: str, member: real_trapframes.RealMember) -> int:
    value = real.registers[member.source]
    return value & 0xFFFF if column.startswith("Seg") else value


def check(real: RealFrame, facts: EntryFacts, count: Dict[str, int]) -> None:
    frame = traplayouts.of_real(real).decode(real.address, real.data, facts)
    for column, member in columns_of(real):
        if is_impossible(real, member.source):
            continue
        where = f"{real.label} {column} {member.status}"
        if member.status == "saved":
            assert frame.registers.get(column) == truth_of(real, column, member), where
            count["saved, unsure" if column in frame.unsure else "saved, shown"] += 1
        elif member.status == "unwritten" and column == "Rsp" and real.arch == "x86":
            assert frame.registers["Rsp"] == real.registers["esp"], where
            count["computed, shown"] += 1
        elif member.status == "unwritten":
            assert column not in frame.registers or column in frame.unsure, where
            count["not saved, unsure" if column in frame.registers else "not saved, absent"] += 1


# Registers (of all columns, over all frames of the build): saved and shown as sure, saved and shown under
# Unsure, computed (the Esp of x86 frames from kernel mode), not saved but shown under Unsure (their slots
# hold plausible values), not saved and absent.
COUNTS = {
    "5.2.3790.3959up-x64": (2623, 73, 0, 29, 2222),
    "5.1.2600.5512up-x86": (1226, 197, 21, 3, 554),
    "5.2.3790.3959pa-x86": (1284, 228, 23, 0, 504),
}
LABELS = ("saved, shown", "saved, unsure", "computed, shown", "not saved, unsure", "not saved, absent")


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_every_real_frame(shared_dir: pathlib.Path, build: str) -> None:
    count: Dict[str, int] = Counter()
    for real in real_trapframes.load(shared_dir, build):
        check(real, EntryFacts(), count)
    print(f"{build}: " + "; ".join(f"{label} {count[label]}" for label in LABELS))
    assert tuple(count[label] for label in LABELS) == COUNTS[build]


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_every_real_frame_whose_handler_is_known(shared_dir: pathlib.Path, build: str) -> None:
    for real in real_trapframes.load(shared_dir, build):
        facts = EntryFacts(handler=real.entry, clears_dr7=build.startswith("5.2"))
        check(real, facts, Counter())


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_kind_and_mode_of_every_real_frame(shared_dir: pathlib.Path, build: str) -> None:
    for real in real_trapframes.load(shared_dir, build):
        frame = traplayouts.of_real(real).decode(real.address, real.data)
        assert frame.kind == expected_kind(real), real.label
        assert frame.mode == ("kernel" if real.mode == "kernel" else "user"), real.label


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_members_of_every_real_frame(shared_dir: pathlib.Path, build: str) -> None:
    for real in real_trapframes.load(shared_dir, build):
        form = traplayouts.of_real(real)
        frame = form.decode(real.address, real.data)
        listed = list(form.list_members(frame, real.data))
        assert [member.offset for member in listed] == sorted(place.offset for place in form.members.values())
        for member in listed:
            truth = real.members[member.name]
            if is_impossible(real, truth.source):
                continue
            if truth.status == "unwritten":
                assert member.validity in ("not saved", "unsure", "reused, unsure"), (real.label, member)
            if truth.status == "saved":
                assert member.value == truth.value, (real.label, member)
                assert member.validity in ("saved", "computed", "unsure", "reused", "reused, unsure"), (
                    real.label,
                    member,
                )
            assert (member.value is None) == (member.validity == "not saved")


@pytest.mark.shared
def test_the_real_crash_equals_the_context_that_windows_wrote(shared_dir: pathlib.Path) -> None:
    crash = real_trapframes.load_crash(shared_dir)
    form = traplayouts.trap_frame_layout(kernels.load("win10-x64").table)
    frame = form.decode(crash.address, crash.frame)
    assert (frame.kind, frame.mode) == ("exception", "kernel")
    sure = {name: value for name, value in frame.registers.items() if name not in frame.unsure}
    context = crash.truth["context"]
    assert sure == {
        name: int(context[name.replace("Seg", "").lower()], 16)
        for name in REGISTERS
        if name.replace("Seg", "").lower() in context and name not in STALE_IN_THE_CRASH.split()
    }
    # The handler's name settles what the bytes leave open.
    facts = EntryFacts(handler="KiSegmentNotPresentFault")
    settled = form.decode(crash.address, crash.frame, facts)
    assert settled.unsure == ()
    assert settled.registers["ErrorCode"] == 4
    assert "FaultAddress" not in settled.registers
