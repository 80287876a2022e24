# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.callstacks` where something is missing: what is shown of it, and what is said."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Dict, List, Set, Tuple

import pytest
from volatility3.plugins.windows import traces

from tests.docs import tables
from tests.forge import context, kernels
from tests.forge import trapentries as entries
from tests.forge.code import RBP, RBX
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.stacks64 import NAMES, Stack64
from tests.forge.trapentries import Entry
from tests.forge.vad import EXECUTE_READWRITE
from tests.support import traplayouts
from tests.support.callstackimages import DRIVER, MAIN, SWAP, UNWIND_DATA, USER_START, WAIT_EX, StackImage
from tests.support.callstackimages86 import Wow64Threads
from tests.windows.test_callstacks import MASK, Row, by_key, stacks

Shown = Dict[Tuple[int, str], Tuple[Row, List[Row]]]


def shown(image: StackImage, folder: pathlib.Path, **options: Any) -> Shown:
    return by_key(stacks(context.open_image(image.kernel.image(), folder), **options))


def frame_statuses(frames: List[Row]) -> List[Tuple[int, str, str]]:
    return [(frame["Address"], frame["How"], frame["Status"]) for frame in frames]


def expected(image: StackImage, tid: int, part: str, status: str = "") -> List[Tuple[int, str, str]]:
    return [(address & MASK, how, status) for address, _, how in image.expected[tid, part].frames]


def unsure_callers(image: StackImage, tid: int) -> List[Tuple[int, str, str]]:
    """The frames of a user stack: only what the last entry into the kernel interrupted is sure."""
    interrupted, *callers = expected(image, tid, "user")
    return [interrupted, *((address, how, "unsure") for address, how, _ in callers)]


def saved_context(**registers: int) -> bytes:
    form = traplayouts.context("x64")
    data = bytearray(form.size)
    for name, value in dict(registers, ContextFlags=0x10001F).items():
        field = form.fields[name]
        data[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
    return bytes(data)


def test_a_running_thread_whose_processor_saved_nothing(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    image.kernel.cpus[0].current(image.waiting(1004))
    found = shown(image, tmp_path)
    stack, frames = found[1004, "kernel"]
    assert (stack["Status"], stack["State"], stack["Depth"], frames) == ("running", "Running", 0, [])
    # What it had in user mode when it entered the kernel last is there, and said to be of then.
    stack, frames = found[1004, "user"]
    assert stack["Status"] == "running, hash unsure"
    assert frame_statuses(frames) == unsure_callers(image, 1004)


def test_a_running_thread_that_has_called_other_functions_since_its_last_system_call(
    tmp_path: pathlib.Path,
) -> None:
    """The old stack pointer leads to the caller of another function: no frame behind the first is sure."""
    image = StackImage()
    thread = image.waiting(1004)
    (tmp_path / "before").mkdir()
    _, frames = shown(image, tmp_path / "before")[1004, "user"]
    true, slot = frames[2]["Address"], frames[2]["Sp"] - 8
    assert image.app.space.read_int(slot, 8) == true
    image.app.space.write_int(slot, frames[1]["Address"], 8)
    image.kernel.cpus[0].current(thread)
    stack, frames = shown(image, tmp_path)[1004, "user"]
    assert stack["Status"].startswith("running")
    assert frames[2]["Address"] != true
    assert [frame["Status"] for frame in frames] == ["", *["unsure"] * (len(frames) - 1)]


def became_running(tmp_path: pathlib.Path) -> Tuple[StackImage, List[Row]]:
    """An image whose thread runs on a processor, and the frames of its kernel stack while it waited."""
    image = StackImage()
    thread = image.waiting(1004)
    (tmp_path / "before").mkdir()
    _, frames = shown(image, tmp_path / "before")[1004, "kernel"]
    image.kernel.cpus[0].current(thread)
    return image, frames


def test_the_user_stack_of_a_thread_that_was_stopped_in_the_kernel_is_sure(tmp_path: pathlib.Path) -> None:
    """A crash dump has the registers of its processor: the thread was in the kernel until then."""
    image, frames = became_running(tmp_path)
    high = ~MASK & (1 << 64) - 1
    saved = saved_context(Rip=frames[1]["Address"] | high, Rsp=frames[1]["Sp"] | high, SegCs=0x10)
    image.kernel.cpus[0].kprcb["ProcessorState.ContextFrame"] = saved
    found = shown(image, tmp_path)
    assert found[1004, "kernel"][1][0]["Status"] == ""
    assert frame_statuses(found[1004, "user"][1]) == expected(image, 1004, "user")


def test_candidates_of_a_running_thread(tmp_path: pathlib.Path) -> None:
    """They are above the last known stack pointer, and no frames: no number, no depth, no hash."""
    image, frames = became_running(tmp_path)
    stack, rows = shown(image, tmp_path, candidates=True)[1004, "kernel"]
    assert (stack["Status"], stack["Depth"]) == ("running", 0)
    assert {frame["Address"] for frame in frames[2:]} < {row["Address"] for row in rows}
    assert {(row["Frame"], row["How"], row["Status"]) for row in rows} == {
        (None, "scan", "candidate, unsure")
    }
    assert [row["Sp"] for row in rows] == sorted(row["Sp"] for row in rows)


def test_a_running_thread_whose_processor_was_stopped_in_the_kernel(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    thread = image.thread(12, image.kernel.system)
    stack = Stack64(image.kernel.space, thread.stack_base).start()
    stack.enter(image.driver, DRIVER)
    ip = image.driver + DRIVER.rva + 0x22
    names = {name.capitalize(): stack.registers[number] for number, name in NAMES.items()}
    saved = saved_context(Rip=ip, Rsp=stack.sp, SegCs=0x10, **names)
    image.kernel.cpus[0].current(thread)
    image.kernel.cpus[0].kprcb["ProcessorState.ContextFrame"] = saved
    stack_row, frames = shown(image, tmp_path)[12, "kernel"]
    assert (stack_row["Status"] or "") == ""
    assert frame_statuses(frames) == [(ip & MASK, "trap", "")]
    assert stack_row["Depth"] == 0


def test_a_running_thread_whose_processor_has_a_context_of_another_time(tmp_path: pathlib.Path) -> None:
    """A kernel debugger leaves one there after each report: its Rsp is on none of the stacks."""
    image = StackImage()
    thread = image.thread(12, image.kernel.system)
    other = Stack64(image.kernel.space, image.thread(16, image.kernel.system).stack_base).start()
    other.enter(image.driver, DRIVER)
    saved = saved_context(Rip=image.driver + DRIVER.rva + 0x22, Rsp=other.sp, SegCs=0x10)
    image.kernel.cpus[0].current(thread)
    image.kernel.cpus[0].kprcb["ProcessorState.ContextFrame"] = saved
    stack_row, frames = shown(image, tmp_path)[12, "kernel"]
    assert (stack_row["Status"], frames) == ("running", [])


def test_a_context_in_an_image_that_no_crash_made(tmp_path: pathlib.Path) -> None:
    """Nothing tells that its processor was stopped: no frame is sure."""
    image = StackImage()
    thread = image.thread(12, image.kernel.system)
    stack = Stack64(image.kernel.space, thread.stack_base).start()
    stack.enter(image.driver, DRIVER)
    ip = image.driver + DRIVER.rva + 0x22
    image.kernel.cpus[0].current(thread)
    image.kernel.cpus[0].kprcb["ProcessorState.ContextFrame"] = saved_context(
        Rip=ip, Rsp=stack.sp, SegCs=0x10
    )
    opened = context.open_raw(image.kernel.image(), tmp_path)
    stack_row, frames = by_key(stacks(opened))[12, "kernel"]
    assert stack_row["Status"].startswith("context may be older")
    assert frame_statuses(frames) == [(ip & MASK, "trap", "unsure")]


@pytest.mark.parametrize("raw", [False, True])
def test_a_running_thread_whose_processor_was_stopped_in_user_mode(raw: bool, tmp_path: pathlib.Path) -> None:
    """In an image that no crash made nothing tells that it was: all of it is doubtful."""
    image = StackImage()
    thread = image.waiting(1004)
    user = Stack64(image.app.space, thread.user_stack_base).start()
    user.enter(image.modules["ntdll"].base, USER_START)
    user.call(image.modules["ntdll"].base, USER_START)
    user.enter(image.modules["app"].base, MAIN)
    ip = image.modules["app"].base + MAIN.rva + 0x15
    saved = saved_context(Rip=ip, Rsp=user.sp, Rbp=user.registers[RBP], SegCs=0x33)
    image.kernel.cpus[0].current(thread)
    image.kernel.cpus[0].kprcb["ProcessorState.ContextFrame"] = saved
    opened = context.open_raw(image.kernel.image(), tmp_path) if raw else None
    found = by_key(stacks(opened)) if opened else shown(image, tmp_path)
    older, unsure = ("context may be older", "unsure") if raw else ("", "")
    assert found[1004, "kernel"][0]["Status"] == ", ".join(["in user mode", *filter(None, [older])])
    assert older in found[1004, "user"][0]["Status"]
    assert frame_statuses(found[1004, "user"][1]) == [
        *((ip, "trap", unsure), (user.frames[0].address, "unwind", unsure)),
    ]


def test_a_context_of_user_mode_that_is_of_another_thread(tmp_path: pathlib.Path) -> None:
    """Its Rsp is on none of the thread's stacks: what it had when it entered the kernel last is shown."""
    image = StackImage()
    thread, other = image.waiting(1004), image.waiting(1008)
    ip = image.modules["app"].base + MAIN.rva + 0x15
    saved = saved_context(Rip=ip, Rsp=other.user_stack_base - 0x100, SegCs=0x33)
    image.kernel.cpus[0].current(thread)
    image.kernel.cpus[0].kprcb["ProcessorState.ContextFrame"] = saved
    found = by_key(stacks(context.open_raw(image.kernel.image(), tmp_path)))
    stack_row, frames = found[1004, "kernel"]
    assert (stack_row["Status"], frames) == ("running", [])
    stack_row, frames = found[1004, "user"]
    assert stack_row["Status"] == "running, hash unsure"
    assert frame_statuses(frames) == unsure_callers(image, 1004)


def test_a_kernel_stack_that_is_paged_out(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    thread = image.waiting(1004)
    size = thread.stack_base - thread.stack_limit
    image.kernel.space.set_state(thread.stack_limit, size, State.PAGEFILE)
    found = shown(image, tmp_path)
    assert (found[1004, "kernel"][0]["Status"], found[1004, "kernel"][1]) == ("unreadable", [])
    assert (found[1004, "user"][0]["Status"], found[1004, "user"][1]) == ("unreadable", [])


def test_a_kernel_stack_of_which_a_page_is_missing(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    image.interrupted(1008)
    thread = image.threads[1008]
    image.kernel.space.set_state(thread.stack_base - 0x1000, 0x1000, State.PAGEFILE)
    thread.kthread["KernelStack"] = thread.stack_base - 0x1030
    assert shown(image, tmp_path)[1008, "kernel"][0]["Status"] == "unreadable"


@pytest.mark.parametrize("exit_time", [0, 0x01D9_0000_0000_0000])
def test_a_process_that_gave_its_page_tables_back(exit_time: int, tmp_path: pathlib.Path) -> None:
    """It has no PEB any more, and other data is where its tables were: kernel stacks do not need these."""
    image = StackImage()
    image.waiting(1004)
    whole = shown(image, tmp_path)[1004, "kernel"][1]
    eprocess = image.threads[1004].process.eprocess
    eprocess["Peb"], eprocess["ExitTime.QuadPart"] = 0, exit_time
    for place in (0, image.kernel.space.tables.root + 0x1000):
        eprocess["Pcb.DirectoryTableBase"] = place
        found = shown(image, tmp_path)
        assert found[1004, "kernel"][1] == whole != []
        row, (frame,) = found[1004, "user"]
        assert "stack unreadable" in row["Status"] and "page tables unreadable" in frame["Status"]
    assert "gave them back" in tables.words()["page tables unreadable"].meaning


@pytest.mark.parametrize(("threads", "kinds"), [(0, set()), (1, {"std", "heap", "lock"})])
def test_a_process_that_has_ended_lost_no_stacks(
    threads: int, kinds: Set[str], tmp_path: pathlib.Path
) -> None:
    """Other data is where its page tables were. While a thread lives, there may be databases and locks."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    eprocess = kernel.process("gone.exe", pid=1008).eprocess
    image = kernel.image()
    eprocess["Peb"], eprocess["ExitTime.QuadPart"] = 0, 0x01D9_0000_0000_0000
    eprocess["Pcb.DirectoryTableBase"], eprocess["ActiveThreads"] = 0, threads
    rows = context.open_image(image, tmp_path).rows(traces.StackTraces)
    found = {row["Kind"] for _, row in rows if row["PID"] == 1008 and "page tables" in str(row["Status"])}
    assert (found if not threads else found & kinds) == kinds


def test_no_switch_frame_where_it_should_be(tmp_path: pathlib.Path) -> None:
    """The scan finds the first return address, and the trap frame at the top is found all the same."""
    image = StackImage()
    thread = image.waiting(1004)
    kernel_stack = thread.kthread["KernelStack"]
    image.kernel.space.write(kernel_stack, b"\x41" * 0x40)
    stack, frames = shown(image, tmp_path)[1004, "kernel"]
    assert stack["Status"] == "no switch frame, hash unsure"
    assert [(address, status) for address, _, status in frame_statuses(frames)] == [
        (address, "unsure") for address, _, _ in expected(image, 1004, "kernel")[1:]
    ]
    assert frames[0]["How"] == "scan"


def test_nothing_but_the_users_trap_frame_on_a_kernel_stack(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    thread = image.waiting(1004)
    kernel_stack = thread.kthread["KernelStack"]
    image.kernel.space.write(kernel_stack, bytes(thread.stack_base - 0x190 - kernel_stack))
    found = shown(image, tmp_path)
    assert (found[1004, "kernel"][0]["Status"], found[1004, "kernel"][1]) == ("no switch frame", [])
    assert frame_statuses(found[1004, "user"][1]) == expected(image, 1004, "user")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (lambda image: image.nt + UNWIND_DATA, "unwind data unreadable"),
        (lambda image: image.kernel.nt.base + image.kernel.nt.pe.pdata_rva, "no function table"),
    ],
)
def test_unwind_data_that_is_paged_out(
    place: Callable[[StackImage], int], reason: str, tmp_path: pathlib.Path
) -> None:
    image = StackImage()
    image.waiting(1004)
    page = place(image) // 0x1000 * 0x1000
    image.kernel.space.set_state(page, 0x1000, State.PAGEFILE)
    stack, frames = shown(image, tmp_path)[1004, "kernel"]
    assert "unsure" not in frames[0]["Status"]
    assert all("unsure" in frame["Status"] for frame in frames[1:])
    assert reason in stack["Status"]


def test_a_user_stack_that_is_paged_out(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    thread = image.waiting(1004)
    image.app.space.set_state(thread.user_stack_base - 0x1000, 0x1000, State.PAGEFILE)
    stack, frames = shown(image, tmp_path)[1004, "user"]
    assert stack["Status"] == "stack unreadable"
    assert frame_statuses(frames) == expected(image, 1004, "user")[:1]


def test_a_start_address_in_a_vad_that_may_be_missing(tmp_path: pathlib.Path) -> None:
    """Each part says it, also one whose frames all have names."""
    image = StackImage()
    image.waiting(1004).ethread["Win32StartAddress"] = 0x20000000
    forged = image.kernel.image()
    image.app.eprocess["VadRoot.Root"] = image.kernel.space.reserve(0x1000)
    found = by_key(stacks(context.open_image(forged, tmp_path)))
    for part in ("kernel", "user"):
        stack, _ = found[1004, part]
        assert (stack["StartSymbol"], stack["Status"]) == ("<unmapped>", "VADs incomplete")


def test_a_stack_that_is_not_the_tebs(tmp_path: pathlib.Path) -> None:
    """A fiber's, say: it is walked, and that its end is not known is said."""
    image = StackImage()
    thread = image.waiting(1004)
    assert thread.teb is not None
    thread.teb["NtTib.StackBase"] = 0x20000
    thread.teb["NtTib.StackLimit"] = 0x10000
    stack, frames = shown(image, tmp_path)[1004, "user"]
    assert stack["Status"] == "stack limits unknown"
    assert frame_statuses(frames) == expected(image, 1004, "user")


PRIVATE = (0x20000000, 0x20100000, 0x20200000)


@pytest.mark.parametrize("data", [False, True])
def test_code_that_no_file_backs(data: bool, tmp_path: pathlib.Path) -> None:
    """Three frames of it: the first is found for sure, the others by scan, unless they cannot be executed."""
    image = StackImage()
    image.waiting(1004)
    thread = image.thread(1008)
    for private in PRIVATE:
        code = b"\x90" * 0x100 + b"\xe8\0\0\0\0"
        image.app.region(private, code, size=0x1000, protection=EXECUTE_READWRITE)
    if data:
        image.app.space.tables.forbid_execution(PRIVATE[1])
    user = Stack64(image.app.space, thread.user_stack_base).start()
    user.enter(image.modules["ntdll"].base, USER_START)
    user.call(image.modules["ntdll"].base, USER_START)
    for private in reversed(PRIVATE):
        user.sp -= 0x40
        user.push(private + 0x105)
    kernelbase = image.modules["kernelbase"].base
    user.enter(kernelbase, WAIT_EX)
    user.call(kernelbase, WAIT_EX, how="leaf")
    stub = image.modules["ntdll"].base + 0x1112

    image.wait(thread, image.leave_user(thread, user, stub, Entry(entries.SYSCALL, "user64", mitigated=True)))
    found = shown(image, tmp_path, unbacked=True)
    assert set(found) == {(1008, "user")}
    stack, frames = found[1008, "user"]
    assert stack["Status"] == "code in no module, hash unsure"
    assert [frame["Symbol"].split("+")[0] for frame in frames[:2]] == ["ntdll!NtWait", "kernelbase!WaitEx"]
    assert [frame["Symbol"].split("+")[0] for frame in frames[2:]] == [
        *["<private>"] * (2 if data else 3),
        "ntdll!RtlUserThreadStart",
    ]
    callers = [PRIVATE[0], *PRIVATE[1 + data :]]
    assert frame_statuses(frames)[2:-1] == [
        (callers[0] + 0x105, "unwind", ""),
        *((private + 0x105, "scan", "unsure") for private in callers[1:]),
    ]
    assert (frames[-1]["How"], frames[-1]["Status"]) == ("scan", "unsure")
    # As far as no guess is captured, or skipped on the way, there is no doubt in what is captured.
    opened = context.open_image(image.kernel.image(), tmp_path, "again.dmp")
    for skip, capture, status in ((0, 2, ""), (0, 3, ", hash unsure"), (2, 1, ", hash unsure"), (9, 9, "")):
        options = {"tid": [1008], "frames_to_skip": skip, "frames_to_capture": capture}
        stack = by_key(stacks(opened, **options))[1008, "user"][0]
        assert stack["Status"] == "code in no module" + status


def test_threads_that_are_none_or_no_more(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    gone, broken = image.waiting(1004), image.waiting(1008)
    gone.end()
    gone.kthread["KernelStack"] = 0
    broken.ethread["Tcb.Header.Type"] = 3
    found = shown(image, tmp_path)
    assert found[1004, "kernel"][0]["Status"] == "terminated, unreadable"
    assert found[1008, "kernel"][0]["Status"] == "not a thread"
    assert (1008, "user") not in found


def test_wow64_threads_without_a_cpu_area(tmp_path: pathlib.Path) -> None:
    """The process has a 32-bit half: another thread has a 32-bit TEB."""
    image = StackImage()
    threads = Wow64Threads(image)
    image.waiting(1004)
    threads.in_system_call(1008)
    stack, frames = shown(image, tmp_path)[1004, "wow64"]
    assert (stack["Status"], frames) == ("no saved registers", [])


def test_a_stack_that_leads_back_to_itself(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    thread = image.waiting(1004)
    # KiSwapContext's caller is itself, again and again, up to the stack's end.
    swap = image.nt + SWAP.returns()
    start = thread.kthread["KernelStack"] + 0x40
    for slot in range(start + 0x138, thread.stack_base - 0x140, 0x140):
        image.kernel.space.write_int(slot, swap, 8)
    stack, frames = shown(image, tmp_path)[1004, "kernel"]
    assert len(frames) < 0x6000 // 0x140 + 1
    assert stack["Status"]


def test_registers_below_survive_the_border(tmp_path: pathlib.Path) -> None:
    """The user's innermost function keeps its frame in Rbx, which the trap frame of a fault does not hold."""
    image = StackImage()
    thread = image.thread(1004)
    ntdll = image.modules["ntdll"]
    user = Stack64(image.app.space, thread.user_stack_base).start()
    user.enter(ntdll.base, USER_START)
    user.call(ntdll.base, USER_START)
    framed = image.app.module("framed.dll", **image.options_of(DRIVER))
    user.enter(framed.base, DRIVER)
    assert user.registers[RBX] == user.sp + 0x20
    ip = framed.base + DRIVER.rva + 0x22

    kernel = image.leave_user(thread, user, ip, Entry(entries.PAGE_FAULT, "user64"))
    image.wait(thread, kernel)
    # KiSwapContext saved Rbx: the walk carries it to the user's frame.
    stack, frames = shown(image, tmp_path)[1004, "user"]
    assert (stack["Status"] or "") == ""
    assert frame_statuses(frames) == expected(image, 1004, "user")
