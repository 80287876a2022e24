# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The worked example in the package's docstring is true, and builders refuse what cannot be."""

from __future__ import annotations

import pathlib
import textwrap
from typing import Any

import pytest
from volatility3.plugins.windows import pslist

import tests.forge
from tests.forge import kernels
from tests.forge.kernel import Kernel
from tests.forge.obj import Obj
from tests.forge.paging import State
from tests.support import work


@pytest.mark.cli
def test_worked_example(tmp_path: pathlib.Path) -> None:
    lines = (tests.forge.__doc__ or "").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("    from "))
    stop = next(number for number, line in enumerate(lines) if line.startswith("`real_sets"))
    names: dict[str, Any] = {
        "path_of_a_kernel_isf": kernels.DATA / "win10-x64.json.xz",
        "frame_bytes": bytes(0x190),
        "tmp_path": tmp_path,
        "SomePlugin": pslist.PsList,
    }
    exec(textwrap.dedent("\n".join(lines[start:stop])), names)
    assert [row["PID"] for _, row in names["opened"].rows(pslist.PsList, pid=[1000])] == [1000]
    assert [row["PID"] for row in names["listed"]] == [4, 1000]


def test_a_process_without_user_half_takes_no_module() -> None:
    kernel = Kernel(kernels.load("win10-x64").table)
    for process in (kernel.system, kernel.process("done.exe", pid=8, exited=True)):
        with pytest.raises(ValueError, match="no user half"):
            process.module("a.dll")


def test_a_thread_without_teb_has_no_32_bit_side() -> None:
    process = Kernel(kernels.load("win10-x64").table).process("app.exe", pid=1000)
    with pytest.raises(ValueError, match="no TEB"):
        process.wow64().thread(process.thread(1004, teb=False))


def test_large_page_is_not_cut() -> None:
    kernel = Kernel(kernels.load("win10-x64").table, large_pages=True)
    with pytest.raises(ValueError, match="large page"):
        kernel.space.set_state(kernel.base + 0x1000, 1, State.PAGEFILE)


def test_stacks_of_a_processor() -> None:
    kernel = Kernel(kernels.load("win10-x64").table, cpus=2)
    cpu = kernel.cpus[1]
    bases = {kind: cpu.stack(kind, data=kind.encode()) for kind in ("dpc", "isr", "ist1", "ist4")}
    assert (cpu.kprcb["DpcStack"], cpu.kprcb["IsrStack"]) == (bases["dpc"], bases["isr"])
    tss = Obj(kernel.space, kernel.isf, "_KTSS64", cpu.kpcr["TssBase"])
    assert [tss[f"Ist[{number}]"] for number in range(5)] == [0, bases["ist1"], 0, 0, bases["ist4"]]
    for kind, base in bases.items():
        assert kernel.space.read(base - len(kind), len(kind)) == kind.encode()
    assert kernel.cpus[0].kprcb["DpcStack"] == 0


def test_globals_that_a_table_lacks_are_left_alone() -> None:
    kernel = Kernel(kernels.load("win10-x64").table)
    assert kernel.set("NtGlobalFlag", 0x2000, 4)
    assert kernel.space.read_int(kernel.symbol("NtGlobalFlag"), 4) == 0x2000
    assert not kernel.set("NoSuchGlobal", 1)


def test_building_may_go_on_after_an_image() -> None:
    kernel = Kernel(kernels.load("win7-x64").table)
    process = kernel.process("app.exe", pid=1000)
    first = kernel.image().digest()
    assert kernel.image().digest() == first
    process.region(0x10000000, b"more")
    process.thread(1004)
    assert kernel.image().digest() != first
    assert process.eprocess["ActiveThreads"] == 1


def test_a_typical_image_is_built_with_little_work() -> None:
    table = kernels.load("win10-x64").table

    def build() -> None:
        kernel = Kernel(table, cpus=2)
        for pid in range(1000, 1040, 8):
            process = kernel.process("app.exe", pid=pid)
            process.module("ntdll.dll")
            process.thread(pid + 4)
        kernel.image()

    _, calls = work.calls(build)
    assert calls < 100_000
