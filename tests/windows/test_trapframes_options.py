# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.trapframes`: processors, WoW64, what the options select and add."""

from __future__ import annotations

import pathlib
from typing import Any, List, Optional, Tuple

import pytest

from tests.forge import trapentries as entries
from tests.forge import trapframes
from tests.forge.trapentries import X64, Entry
from tests.support import traplayouts
from tests.support.trapimages import LiveImage
from tests.support.trapsets import registers_64
from tests.support.trapthreads import POISON, TOP, in_system_call, make_kernel, masked, put, shown

RUNNING = 2


def context_of(arch: str, flags: int, **registers: int) -> bytes:
    form = traplayouts.context(arch)
    data = bytearray(b"\x5e" * form.size)
    for name, value in dict(registers, ContextFlags=flags).items():
        field = form.fields[name]
        data[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
    return bytes(data)


WOW64_CONTEXT = context_of("x86", 0x10007, Rip=0x77001234, Rsp=0x6FFFF0, SegCs=0x23, EFlags=0x246, Rax=7)


@pytest.mark.parametrize("code_segment", [0x33, 0x23])
def test_the_cpu_area_of_a_wow64_thread(code_segment: int, tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    app = kernel.process("app.exe", pid=1000)
    wow = app.wow64()
    thread = app.thread(1004)
    broken = app.thread(1008)
    none = app.thread(1012)
    wow.thread(thread, context=WOW64_CONTEXT)
    wow.thread(broken, context=bytes(0x2CC))
    wow.thread(none)
    for forged_thread in (thread, broken, none):
        address = forged_thread.stack_base - TOP
        registers = dict(registers_64("user64"), cs=code_segment)
        kind = entries.SYSCALL if code_segment == 0x33 else entries.DEVICE
        put(kernel, forged_thread, Entry(kind, "user64", mitigated=True), registers, address)
        forged_thread.kthread["KernelStack"] = forged_thread.stack_base - 0x2000
    rows = LiveImage(kernel, tmp_path).rows()
    stale = "stale" if code_segment == 0x23 else ""
    assert shown([row for row in rows if row["Origin"] == "wow64"], "TID", "Arch", "Status") == [
        (1004, "x86", stale),
        (1008, "x86", "not a context"),
    ]
    row = next(row for row in rows if row["Origin"] == "wow64")
    assert (row["Rip"], row["Rsp"], row["Rax"], row["Mode"]) == (0x77001234, 0x6FFFF0, 7, "user")
    assert (row["Dr7"], row["R8"], row["TrapKind"]) == (None, None, None)


def test_members_of_a_wow64_threads_context(tmp_path: pathlib.Path) -> None:
    """Those of parts that were not written are there, and said to be."""
    kernel = make_kernel()
    app = kernel.process("app.exe", pid=1000)
    wow, thread = app.wow64(), app.thread(1004)
    wow.thread(thread, context=WOW64_CONTEXT)
    in_system_call(kernel, thread)
    cells = LiveImage(kernel, tmp_path).cells(members=True)
    start = next(number for number, (_, row) in enumerate(cells) if row["Origin"] == "wow64")
    listed = [row for depth, row in cells[start + 1 :] if depth]
    values = {row["Member"]: row["Value"] for row in listed}
    assert values["ContextFlags"] == "0x10007 saved"
    assert (values["Rip"], values["Rax"]) == ("0x77001234 saved", "0x7 saved")
    assert values["Dr7"] == values["MxCsr"] == "not saved"
    assert "R8" not in values


def test_processors(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel(cpus=3)
    app = kernel.process("app.exe", pid=1000)
    thread = app.thread(1004, state=RUNNING)
    kernel.cpus[0].current(thread)
    saved = context_of(
        "x64", 0x10001F, Rip=kernel.base + 0x1234, Rsp=thread.stack_base - 8, R12=12, SegCs=0x10
    )
    for cpu in kernel.cpus[:2]:
        cpu.kprcb["ProcessorState.ContextFrame"] = saved
    live = LiveImage(kernel, tmp_path)
    rows = live.rows(processors=True)
    assert shown(rows, "PID", "TID", "Origin", "Processor", "R12", "Mode", "TrapKind") == [
        (1000, 1004, "top", None, None, None, None),
        (1000, 1004, "processor", "CPU 0", 12, "kernel", None),
        (0, None, "processor", "CPU 1", 12, "kernel", None),
    ]
    assert shown(live.rows(processors=True, pid=[1000])[1:], "Processor") == [("CPU 0",)]
    assert shown(live.rows(processors=True, pid=[0]), "Processor") == [("CPU 0",), ("CPU 1",)]
    assert shown(live.rows(), "TID", "Status") == [(1004, "running, no saved registers")]


def test_no_processor_is_missed_where_none_runs_the_process(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = make_kernel(cpus=1)
    for pid in (1000, 2000):
        thread = kernel.process("app.exe", pid=pid).thread(pid + 4, state=RUNNING)
    kernel.cpus[0].current(thread)
    live = LiveImage(kernel, tmp_path)
    live.rows(processors=True)
    assert "No processor has saved a context" in caplog.text
    caplog.clear()
    kernel.cpus[0].kprcb["ProcessorState.ContextFrame"] = context_of(
        "x64", 0x10001F, Rip=kernel.base, SegCs=0x10
    )
    assert LiveImage(kernel, tmp_path).rows(processors=True, pid=[1000])
    assert "No processor has saved a context" not in caplog.text


def test_processors_whose_context_is_of_another_time(tmp_path: pathlib.Path) -> None:
    """A kernel debugger leaves contexts in memory: one of another stack, and one that no processor has."""
    kernel = make_kernel(cpus=2)
    app = kernel.process("app.exe", pid=1000)
    threads = [app.thread(tid, state=RUNNING) for tid in (1004, 1008)]
    for cpu, thread, mxcsr in zip(kernel.cpus, threads, (0x1F80, 0x80001F80)):
        cpu.current(thread)
        cpu.kprcb["ProcessorState.ContextFrame"] = context_of(
            "x64", 0x10001F, Rip=kernel.base + 0x1234, Rsp=threads[1].stack_base - 8, SegCs=0x10, MxCsr=mxcsr
        )
    rows = [row for row in LiveImage(kernel, tmp_path).rows(processors=True) if row["Origin"] == "processor"]
    assert shown(rows, "TID", "Rip", "Rsp", "Status") == [
        (1004, None, None, "stale"),
        (1008, kernel.base + 0x1234, threads[1].stack_base - 8, "context may be older"),
    ]
    assert "Rip" in rows[1]["Unsure"]


@pytest.mark.parametrize(("outside", "status"), [(False, "context may be older"), (True, "stale")])
def test_a_processor_in_user_mode_in_an_image_that_no_crash_made(
    outside: bool, status: str, tmp_path: pathlib.Path
) -> None:
    """One whose thread is not known, too: nothing tells of when its registers are."""
    kernel = make_kernel(cpus=2)
    app = kernel.process("app.exe", pid=1000)
    thread = app.thread(1004, state=RUNNING)
    rsp = thread.user_stack_base - 0x100 + (0x1000000 if outside else 0)
    kernel.cpus[0].current(thread)
    for cpu in kernel.cpus:
        cpu.kprcb["ProcessorState.ContextFrame"] = context_of(
            "x64", 0x10001F, Rip=0x140001234, Rsp=rsp, SegCs=0x33, MxCsr=0x1F80
        )
    rows = LiveImage(kernel, tmp_path, suffix=".raw").rows(processors=True)
    found = shown([row for row in rows if row["Origin"] == "processor"], "TID", "Processor", "Status")
    assert found == [(1004, "CPU 0", status), (None, "CPU 1", "context may be older")]


def test_stacks_of_processors(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    cpu = kernel.cpus[0]
    stacks = {kind: cpu.stack(kind) for kind in ("dpc", "isr", "ist3")}
    registers = registers_64("kernel")
    nmi = stacks["ist3"] - TOP
    forged = trapframes.forge(X64, Entry(entries.NMI, "kernel"), registers, nmi, POISON)
    kernel.space.write(nmi, forged.data)
    pointer = stacks["dpc"] - 0x408
    fault = trapframes.kernel_address(X64, entries.EXCEPTION, pointer)
    registers = dict(registers, rsp=pointer)
    kernel.space.write(
        fault, trapframes.forge(X64, Entry(entries.EXCEPTION, "kernel"), registers, fault, POISON).data
    )
    live = LiveImage(kernel, tmp_path)
    rows = live.rows(scan_stacks=True)
    assert shown(rows, "PID", "Process", "TID", "TrapFrame", "Processor", "TrapKind") == [
        (0, "nt", None, masked(fault), "CPU 0 dpc", "exception"),
        (0, "nt", None, masked(nmi), "CPU 0 ist3", "interrupt"),
    ]
    assert {name: rows[1][name] for name in forged.expected} == forged.expected
    assert rows[1]["Unsure"] == "Rsi FaultAddress GsSwap"
    assert live.rows(scan_stacks=True, pid=[4]) == []


def test_what_is_selected(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    one, two = kernel.process("one.exe", pid=1000), kernel.process("two.exe", pid=2000)
    hidden = kernel.process("hidden.exe", pid=3000, listed=False)
    for process in (one, two, hidden):
        for number in (4, 8):
            in_system_call(kernel, process.thread(process.pid + number))
    in_system_call(kernel, two.thread(2012, listed=False))
    live = LiveImage(kernel, tmp_path)

    def tids(**options: Any) -> List[Optional[int]]:
        return [row["TID"] for row in live.rows(**options)]

    assert tids() == [1004, 1008, 2004, 2008]
    assert tids(pid=[2000]) == [2004, 2008]
    assert tids(tid=[1008, 2004]) == [1008, 2004]
    assert tids(offset=masked(hidden.eprocess.address)) == [3004, 3008]
    scanned = live.rows(scan_threads=True)
    assert sorted(row["TID"] for row in scanned) == [1004, 1008, 2004, 2008, 2012, 3004, 3008]
    status = {row["TID"]: (row["Process"], row["Status"]) for row in scanned}
    assert status[2012] == ("two.exe", "not in the thread list")
    assert status[3004] == ("hidden.exe", "not in the thread list")
    assert status[1004] == ("one.exe", "")
    assert tids(scan_threads=True, pid=[2000]) == [2004, 2008, 2012]


def test_a_damaged_thread_list(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    app = kernel.process("app.exe", pid=1000)
    threads = [app.thread(1004 + 4 * number) for number in range(5)]
    for thread in threads:
        in_system_call(kernel, thread)
    kernel.image()
    # The third is overwritten, so that neither neighbour's link leads through it.
    broken = threads[2].ethread
    links = broken.at("ThreadListEntry")
    live = LiveImage(kernel, tmp_path)
    live.poke(links, bytes(16))
    rows = live.rows()
    assert shown(rows, "TID", "Status") == [
        (1004, ""),
        (1008, ""),
        (1016, ""),
        (1020, ""),
        (1012, "not in the thread list, found by PspCidTable"),
        (None, "thread list damaged"),
    ]


@pytest.mark.parametrize(
    ("place", "expected"),
    [(2, [(1012, "thread links disagree")]), (None, [(1012, ""), (None, "thread list damaged")])],
)
def test_one_wrong_link_hides_no_thread(
    place: Optional[int], expected: List[Tuple[Optional[int], str]], tmp_path: pathlib.Path
) -> None:
    kernel = make_kernel()
    app = kernel.process("app.exe", pid=1000)
    threads = [app.thread(1004 + 4 * number) for number in range(3)]
    for thread in threads:
        in_system_call(kernel, thread)
    kernel.image()
    owner = (
        app.eprocess.at("ThreadListHead") if place is None else threads[place].ethread.at("ThreadListEntry")
    )
    live = LiveImage(kernel, tmp_path)
    live.poke(owner + 8, bytes(8))
    assert shown(live.rows(), "TID", "Status") == [(1004, ""), (1008, ""), *expected]


def test_members(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    in_system_call(kernel, thread)
    cells = LiveImage(kernel, tmp_path).cells(members=True)
    assert [depth for depth, _ in cells] == [0] + [1] * (len(cells) - 1)
    values = {row["Member"]: row["Value"] for _, row in cells[1:]}
    assert set(values) == set(kernel.isf.types["_KTRAP_FRAME"]["fields"])
    registers = registers_64("user64")
    assert values["Rcx"] == f"{registers['r10']:#x} reused: R10: the first argument"
    assert values["EFlags"] == "0x246 [PF ZF IF] saved"
    assert values["Dr7"] == "0x0 partial: low word 0: no debug registers in use"
    assert values["SegDs"] == values["Xmm0"] == values["FaultAddress"] == "not saved"
    assert values["ExceptionActive"] == "0x2 computed"
    keys = {(row["PID"], row["TID"], row["TrapFrame"], row["Rip"]) for _, row in cells[1:]}
    assert keys == {(1000, 1004, cells[0][1]["TrapFrame"], None)}
