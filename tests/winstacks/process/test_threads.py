# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
from __future__ import annotations

import collections
import pathlib
from typing import Any, Counter, Dict, List, Optional

import pytest

from tests.forge import context, kernels
from tests.forge.context import Opened
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.support.only import only, rows_of
from winstacks.memory.decode import links
from winstacks.memory.decode.status import text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.process.kernelobjects import PROCESS_OF_THREAD
from winstacks.process.kernelstacks import MAX_SEGMENTS, KernelStacks
from winstacks.process.spaces import AddressSpaces
from winstacks.process.thread import TERMINATED, Thread
from winstacks.process.threads import Threads
from winstacks.process.userstacks import UserStacks

ALL = ("xp-x86", "win7-x86", "win10-x86", "2003-x64", "win7-x64", "win10-x64", "win11-x64")
# Pool scans before Windows 10 are of physical memory.
SCANNED = ("win7-x64", "win10-x64", "xp-x86")


def listed(opened: Opened, **options: Any) -> List[Thread]:
    return list(Threads.list_threads(opened.image, **options))


NOWHERE = 0xFFFF800000001000
"""An address of the kernel at which nothing is."""


@pytest.mark.parametrize("name", ALL)
def test_every_member(name: str, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, cpus=2, **known.options())
    app = kernel.process("app.exe", pid=1000)
    first = app.thread(1004, start=0x10001000, win32_start=0x10002000, wait_reason=15, trap_frame=0x1234)
    second = app.thread(1008)
    kernel.cpus[1].current(second)
    system = kernel.system.thread(8, start=kernel.base + 0x1000)
    opened = context.open_image(kernel.image(), tmp_path)
    threads = listed(opened)
    assert [thread.tid for thread in threads] == [8, 1004, 1008]
    own, one, two = threads
    assert one.ethread == first.ethread.address
    assert (one.stack_base, one.stack_limit) == (first.stack_base, first.stack_limit)
    assert (one.initial_stack, one.kernel_stack, one.trap_frame) == (
        first.stack_base,
        first.stack_base,
        0x1234,
    )
    assert first.teb is not None
    assert (one.teb, one.start_address, one.win32_start_address) == (
        first.teb.address,
        0x10001000,
        0x10002000,
    )
    assert (one.state_name, one.wait_reason_name, one.running, text(one.status)) == (
        "Waiting",
        "WrQueue",
        False,
        "",
    )
    assert (one.space.process, one.space.pid, one.wow64) == ("app.exe", 1000, None)
    assert (two.state_name, two.wait_reason_name, two.running, two.processor) == ("Running", "", True, 1)
    assert (own.ethread, own.teb, own.space.pid) == (system.ethread.address, 0, 4)
    assert [thread.tid for thread in listed(opened, pids=[1000], tids=[1008])] == [1008]


@pytest.mark.parametrize("name", SCANNED)
def test_threads_on_no_list(name: str, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    app.thread(1004)
    loose = app.thread(1008, listed=False)
    opened = context.open_image(kernel.image(), tmp_path)
    assert [(thread.tid, text(thread.status)) for thread in listed(opened)] == [(1004, "")]
    found = [(thread.tid, text(thread.status)) for thread in listed(opened, scan=True)]
    assert found == [(1004, ""), (1008, "not in the thread list")]
    scanned = listed(opened, scan=True)[1]
    assert scanned.space.pid == 1000
    assert scanned.stack_base == loose.stack_base
    # A list in the thread gives its virtual address away where physical memory was scanned.
    assert scanned.ethread in (0, loose.ethread.address)


def test_a_scan_that_lacks_a_variable_of_the_kernel(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    kernel.process("app.exe", pid=1000).thread(1004)
    image = kernel.image()
    kernel.space.set_state(kernel.symbol("ObHeaderCookie"), 4, State.MISSING)
    opened = context.open_image(image, tmp_path)
    assert [(thread.tid, text(thread.status)) for thread in listed(opened, scan=True)] == [(1004, "")]
    assert "scan for threads ended early" in caplog.text


def test_what_is_not_a_thread(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    app.thread(1004)
    app.thread(1008).ethread["Tcb.Header.Type"] = 3
    found = listed(context.open_image(kernel.image(), tmp_path))
    assert [(thread.tid, text(thread.status)) for thread in found] == [(1004, ""), (1008, "not a thread")]


@pytest.mark.parametrize(
    ("current", "expected"),
    [("other", "running on no processor"), ("", ""), ("no thread", ""), ("nothing", "")],
)
def test_a_running_thread_that_is_not_the_processors(
    current: str, expected: str, tmp_path: pathlib.Path
) -> None:
    """A CurrentThread that leads to no thread does not show that the processor was executing another one."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    thread, other = app.thread(1004), app.thread(1008)
    places = {"other": other.ethread.address, "no thread": app.eprocess.address, "nothing": NOWHERE}
    kernel.cpus[0].current(other)
    kernel.cpus[0].kprcb["CurrentThread"] = places.get(current, 0)
    thread.kthread["State"] = 2
    found = listed(context.open_image(kernel.image(), tmp_path), pids=[1000])
    assert [text(each.status) for each in found if each.tid == 1004] == [expected]


@pytest.mark.parametrize("name", ALL)
def test_a_thread_that_is_not_signalled_has_not_ended(name: str, tmp_path: pathlib.Path) -> None:
    """Windows signals the object of a thread that ends."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    app.thread(1004).kthread["State"] = TERMINATED
    app.thread(1008).end()
    app.thread(1012).kthread["Header.SignalState"] = 1
    found = listed(context.open_image(kernel.image(), tmp_path))
    shown = [(thread.ended, thread.state_name, text(thread.status)) for thread in found]
    assert shown == [
        (False, "Terminated", "contradicted: State"),
        (True, "Terminated", "terminated"),
        (False, "Waiting", ""),
    ]


def test_a_list_with_a_page_missing(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    threads = [app.thread(1004 + 4 * number) for number in range(12)]
    image = kernel.image()
    hole = threads[5].ethread
    kernel.space.set_state(hole.address & ~0xFFF, 0x1000, State.PAGEFILE)
    found = listed(context.open_image(image, tmp_path), pids=[1000])
    assert [thread.tid for thread in found] == [
        *(thread.tid for thread in threads[:5]),
        None,
        *(thread.tid for thread in threads[6:]),
    ]
    # Its neighbours name it.
    lost = found[5]
    assert (lost.ethread, text(lost.status), lost.stack_base) == (hole.address, "unreadable", None)


@pytest.mark.parametrize("link", [0, 0x7FFE0000])
def test_a_link_that_leads_to_no_address_of_the_kernel_is_no_thread(
    link: int, tmp_path: pathlib.Path
) -> None:
    """Programs that copy memory write zeros for pages that they cannot read."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    app.thread(1004)
    image = kernel.image()
    for offset in (0, 8):
        kernel.space.write_int(app.eprocess.at("ThreadListHead") + offset, link, 8)
    found = listed(context.open_image(image, tmp_path), pids=[1000])
    assert [(thread.tid, text(thread.status)) for thread in found] == [
        (1004, "not in the thread list, found by PspCidTable"),
        (None, "thread list damaged"),
    ]


def test_a_thread_whose_second_half_is_paged_out(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    thread = app.thread(1004)
    boundary = kernel.space.reserve(0x2000) + 0x1000
    # The list leads to one that crosses a page's end.
    thread.ethread = kernel.obj("_ETHREAD", boundary - kernel.isf.offset("_ETHREAD", "Tcb.Teb"))
    thread.ethread.put(**{"Tcb.Header.Type": 6, "Tcb.InitialStack": 0xFFFFF000_00001000})
    image = kernel.image()
    kernel.space.set_state(boundary, 0x1000, State.PAGEFILE)
    found = listed(context.open_image(image, tmp_path), pids=[1000])
    assert [(text(thread.status), thread.initial_stack, thread.tid) for thread in found] == [
        ("partly unreadable", 0xFFFFF000_00001000, 1004)
    ]


def test_segments_that_go_in_a_circle(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    initial = thread.stack_base - 0x100
    thread.kthread["InitialStack"] = initial
    control = kernel.obj("_KSTACK_CONTROL", initial)
    for name, value in (
        ("StackBase", thread.stack_base),
        ("StackLimit", thread.stack_limit),
        ("InitialStack", initial),
        ("KernelStack", 0),
    ):
        control[f"Previous.{name}"] = value
    wild = kernel.process("b.exe", pid=2000).thread(2004)
    wild.kthread["StackLimit"] = wild.stack_base - (1 << 40)
    opened = context.open_image(kernel.image(), tmp_path)
    stacks = KernelStacks(opened.image, 0xFFFF800000000000)
    first, second = rows_of(2, listed(opened))
    assert len(list(stacks.segments(first))) == 1 < MAX_SEGMENTS
    # Where the pages of a stack end is where its limit is.
    assert [(segment.base, segment.limit) for segment in stacks.segments(second)] == [
        (wild.stack_base, wild.stack_limit)
    ]
    assert text(second.status) == "contradicted: StackLimit"
    assert list(stacks.segments(first._replace(kernel_stack=None))) == []


@pytest.mark.parametrize("name", ALL)
def test_the_teb_of_another_thread(name: str, tmp_path: pathlib.Path) -> None:
    """The limits in that TEB are limits of the other thread alone."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    first, second, third, ended = (app.thread(tid) for tid in (1004, 1008, 1012, 1016))
    ended.end()
    assert second.teb is not None and third.teb is not None
    first.kthread["Teb"] = ended.kthread["Teb"] = second.teb.address
    # A program can write into its TEB: one of two IDs is enough.
    third.teb["ClientId.UniqueThread"] = 1004
    third.teb["RealClientId.UniqueThread"] = third.tid
    opened = context.open_image(kernel.image(), tmp_path)
    threads = rows_of(4, listed(opened))
    assert [text(thread.status) for thread in threads] == ["contradicted: Teb", "", "", "terminated"]
    limits = UserStacks(opened.image)
    assert [limits.native(thread) for thread in threads[:2]] == [
        [],
        [(second.user_stack_limit, second.user_stack_base)],
    ]


@pytest.mark.parametrize("name", ("win7-x64", "win10-x64", "win10-x86"))
def test_a_thread_whose_type_is_that_of_a_process(name: str, tmp_path: pathlib.Path) -> None:
    """Its ID is the ID of the thread in PspCidTable: no process is there."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    changed = app.thread(1004)
    app.thread(1008)
    image = kernel.image()
    changed.kthread["Header.Type"] = 3
    # The word of a thread where a process has its ID is not 0.
    place = changed.ethread.address + kernel.isf.offset("_EPROCESS", "UniqueProcessId")
    if kernel.space.read_int(place) == 0:
        kernel.space.write_int(place, 0x1234, 4)
    opened = context.open_image(image, tmp_path)
    assert [space.pid for space in AddressSpaces.list_spaces(opened.image)] == [0, 4, 1000]
    assert [text(thread.status) for thread in listed(opened)] == ["not a thread", ""]


@pytest.mark.parametrize("lost", ["nothing", "missing", "zeroes"])
def test_a_teb_that_says_nothing(lost: str, tmp_path: pathlib.Path) -> None:
    """A page that is not in the image, or was read as zeros, contradicts nothing."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    assert thread.teb is not None
    if lost == "missing":
        thread.process.space.set_state(thread.teb.address & ~(PAGE - 1), PAGE, State.MISSING)
    if lost == "zeroes":
        thread.process.space.write(thread.teb.address, bytes(thread.teb.size))
    found = only(listed(context.open_image(kernel.image(), tmp_path)))
    assert text(found.status) == ""


@pytest.mark.parametrize("member", ["StackBase", "StackLimit", "InitialStack"])
@pytest.mark.parametrize("name", ["win10-x64", "xp-x86"])
def test_a_wrong_border_of_a_stack_is_restored_and_named_alone(
    name: str, member: str, tmp_path: pathlib.Path
) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    right = (thread.stack_base, thread.stack_limit, thread.stack_base)
    thread.kthread[member] = thread.stack_base + (1 << 26)
    found = only(listed(context.open_image(kernel.image(), tmp_path)))
    assert (found.stack_base, found.stack_limit, found.initial_stack) == right
    assert text(found.status) == f"contradicted: {member}"


@pytest.mark.parametrize("name", ("xp-x86", "win10-x64"))
def test_a_stack_that_two_threads_have(name: str, tmp_path: pathlib.Path) -> None:
    """A thread ends after its page was copied, and a new thread gets its stack."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    new, old, ended, _ = (app.thread(1004 + 4 * number) for number in range(4))
    for thread in (old, ended):
        for member in ("StackBase", "StackLimit", "InitialStack", "KernelStack"):
            thread.kthread[member] = new.kthread[member]
    ended.end()
    image, wrong = kernel.image(), "contradicted: StackBase"
    expected = {1004: wrong, 1008: wrong, 1012: "terminated", 1016: ""}
    assert statuses(image, tmp_path) == expected
    # If PspCidTable no longer has the thread that has ended, the other one is above suspicion.
    assert kernel.cid is not None
    kernel.space.write_int(kernel.cid.entry(old.tid), 0, kernel.bits // 8)
    assert statuses(image, tmp_path) == {**expected, 1004: ""}


def test_borders_written_to_one_thread_make_no_other_doubtful(tmp_path: pathlib.Path) -> None:
    """Its InitialStack, which leads to its own stack, contradicts them."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    innocent, written = app.thread(1004), app.thread(1008)
    for member in ("StackBase", "StackLimit"):
        written.kthread[member] = innocent.kthread[member]
    found = statuses(kernel.image(), tmp_path)
    assert found[1004] == ""
    assert found[1008].startswith("contradicted: ")


def statuses(image: Image, folder: pathlib.Path) -> Dict[Optional[int], str]:
    """Returns the statuses of the threads of process 1000 by TID."""
    found = listed(context.open_image(image, folder), pids=[1000])
    return {thread.tid: text(thread.status) for thread in found}


@pytest.mark.parametrize("name", ["win7-x64", "xp-x86"])
def test_the_frame_of_a_callback_lies_below_the_end_of_its_stack(name: str, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    thread.kthread["CallbackStack"] = thread.stack_base
    opened = context.open_image(kernel.image(), tmp_path)
    found = KernelStacks(opened.image, opened.image.machine.kernel_start).find_segments(only(listed(opened)))
    assert [(segment.base, segment.depth) for segment in found.found] == [(thread.stack_base, 1)]
    assert (found.lost, found.lost_depth) == (StatusCode.OUTSIDE_THE_STACK, 2)


@pytest.mark.parametrize("name", ["win10-x64", "xp-x86"])
def test_threads_that_point_to_another_process_cost_one_walk_of_their_list(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app, other = kernel.process("app.exe", pid=1000), kernel.process("other.exe", pid=2000)
    other.thread(2004)
    for number in range(12):
        thread = app.thread(1004 + 4 * number)
        path = next(path for path in PROCESS_OF_THREAD if kernel.isf.has("_ETHREAD", path))
        thread.ethread[path] = other.eprocess.address
    opened = context.open_image(kernel.image(), tmp_path)
    walked: Counter[int] = collections.Counter()
    walk = links.walk

    def counted(head: int, *rest: Any) -> Any:
        walked[head] += 1
        return walk(head, *rest)

    monkeypatch.setattr(links, "walk", counted)
    threads = listed(opened, pids=[1000, 2000])
    assert [thread.space.pid for thread in threads] == 12 * [1000] + [2000]
    assert all("contradicted" in text(thread.status) for thread in threads[:-1])
    assert text(threads[-1].status) == ""
    # Once for the list itself, once for all that point elsewhere.
    assert walked[app.eprocess.at("ThreadListHead")] == 2
