# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""windows.waits: objects and locks of forged kernels, whose wait blocks are a ring or an array."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.windows import tracewaits, waits

from tests.forge import context, trapframes64
from tests.forge.obj import Obj, ring
from tests.forge.phys import PAGE
from tests.forge.space import State
from tests.forge.trapentries import X64
from tests.support.callstackimages import StackImage
from tests.support.only import only
from tests.support.trapforge import TOP_DISTANCE
from tests.support.waitobjects import (
    ALL,
    EVENT,
    FAST_MUTEX,
    GUARDED_MUTEX,
    MUTANT,
    PID,
    PROCESS,
    SEMAPHORE,
    Waiting,
    rows_by_tid,
)

LAYOUTS = ("xp-x86", "win7-x86", "win7-x64", "win10-x86", "win10-x64", "win11-x64")
ABSENT = interfaces.renderers.BaseAbsentValue


def shown(forged: Waiting, folder: pathlib.Path, **options: Any) -> List[Tuple[int, Dict[str, Any]]]:
    opened = context.open_image(forged.kernel.image(), folder)
    return list(opened.rows(waits.WaitChains, fold=True, **options))


def cells(row: Dict[str, Any], *names: str) -> Tuple[Any, ...]:
    return tuple(None if isinstance(row[name], ABSENT) else row[name] for name in names)


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_mutexes_and_who_waits_for_the_threads(name: str, tmp_path: pathlib.Path) -> None:
    forged = Waiting(name)
    first, second, third, joining = (forged.thread() for _ in range(4))
    wanted, held = forged.mutant(second), forged.mutant(first)
    forged.wait(first, wanted)
    forged.wait(second, held)
    forged.wait(third, held)
    forged.wait(joining, third.ethread, header="Tcb.Header")
    rows = shown(forged, tmp_path)
    ((_, deadlock), *_) = rows
    assert deadlock["WaitsFor"] == "deadlock"
    assert f"thread {first.tid} of server.exe ({PID}) waits for mutant" in deadlock["Evidence"]
    found = rows_by_tid(rows)
    for thread, owner in ((first, second), (second, first), (third, first)):
        row = only(found[thread.tid])
        assert cells(row, "WaitsFor", "Known", "Ownership", "OwnerPID", "OwnerTID", "ChainEnd", "Status") == (
            *("mutant", "list", "thread", PID, owner.tid, "deadlock"),
            row["Status"],
        )
        assert "contradicted" not in row["Status"]
    assert cells(found[joining.tid][0], "WaitsFor", "OwnerTID", "ChainEnd") == (
        "thread",
        third.tid,
        "deadlock",
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_several_objects(name: str, tmp_path: pathlib.Path) -> None:
    forged = Waiting(name)
    thread, other, owner = forged.thread(), forged.thread(), forged.thread()
    semaphore = forged.object("_KSEMAPHORE", "Semaphore", SEMAPHORE)
    forged.wait(thread, forged.event(), forged.mutant(owner), semaphore)
    forged.wait(other, forged.mutant(owner), forged.event(), kind=ALL)
    found = rows_by_tid(shown(forged, tmp_path))
    assert [cells(row, "WaitsFor", "WaitMode") for row in found[thread.tid]] == [
        ("event", "any"),
        ("mutant", "any"),
        ("semaphore", "any"),
    ]
    # One of several objects is enough, so the owner of the mutex is not to blame.
    assert found[thread.tid][0]["ChainEnd"] == "no owner kept"
    assert [row["WaitMode"] for row in found[other.tid]] == ["all", "all"]
    assert found[other.tid][0]["ChainEnd"] == "running"


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_state_that_windows_does_not_have(name: str, tmp_path: pathlib.Path) -> None:
    """The thread may wait: what its wait blocks say is shown, and doubted."""
    forged = Waiting(name)
    thread, owner = forged.thread(), forged.thread(state=2)
    forged.wait(thread, forged.mutant(owner))
    thread.kthread["State"] = 0x55
    row = only(rows_by_tid(shown(forged, tmp_path))[thread.tid])
    assert cells(row, "WaitsFor", "Known", "OwnerTID", "ChainEnd") == ("mutant", "list", owner.tid, "running")
    assert row["Status"].startswith("contradicted: State")


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("written", ({"State": 0}, {"State": 0, "WaitBlockList": 0}))
def test_a_thread_that_never_ran_by_its_state_and_is_in_lists_of_objects(
    name: str, written: Dict[str, int], tmp_path: pathlib.Path
) -> None:
    forged = Waiting(name)
    thread, owner = forged.thread(), forged.thread(state=2)
    forged.wait(thread, forged.mutant(owner), forged.event(), kind=ALL, embedded=True)
    thread.kthread.put(**written)
    rows = rows_by_tid(shown(forged, tmp_path))[thread.tid]
    assert [cells(row, "WaitsFor", "Known") for row in rows] == [("mutant", "list"), ("event", "list")]
    assert rows[0]["OwnerTID"] == owner.tid
    assert all(row["Status"].startswith("contradicted: KTHREAD.State") for row in rows)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_thread_that_is_to_run_and_is_in_the_list_of_an_object(name: str, tmp_path: pathlib.Path) -> None:
    """Until 7 the blocks of a woken thread leave all lists at once. Later they may not, and say nothing."""
    forged = Waiting(name)
    thread, other = forged.thread(), forged.thread()
    blocks = forged.wait(thread, forged.event())
    forged.wait(other, forged.event(), listed=False)
    thread.kthread["State"] = other.kthread["State"] = 1
    found = rows_by_tid(shown(forged, tmp_path))
    if blocks[0].has("NextWaitBlock"):
        assert only(found[thread.tid])["Status"].startswith("contradicted: KTHREAD.State")
    else:
        assert thread.tid not in found
    # No list has the block that a wait left.
    assert other.tid not in found


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("number", (0, 1))
def test_blocks_to_which_nothing_leads(name: str, number: int, tmp_path: pathlib.Path) -> None:
    """The list of blocks is empty, or ends after the first."""
    forged = Waiting(name)
    thread, owner = forged.thread(), forged.thread(state=2)
    blocks = forged.wait(thread, forged.event(), forged.mutant(owner), embedded=True)
    wrong = "KTHREAD.WaitBlockList"
    if not number:
        thread.kthread["WaitBlockList"] = 0
    elif blocks[0].has("NextWaitBlock"):
        blocks[0]["NextWaitBlock"], wrong = blocks[0].address, "KWAIT_BLOCK.NextWaitBlock"
    else:
        thread.kthread["WaitBlockCount"], wrong = 1, "KTHREAD.WaitBlockCount"
    rows = rows_by_tid(shown(forged, tmp_path))[thread.tid]
    assert [cells(row, "WaitsFor", "OwnerTID") for row in rows] == [("event", None), ("mutant", owner.tid)]
    assert all(row["Status"].startswith(f"contradicted: {wrong}") for row in rows)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_block_without_its_object(name: str, tmp_path: pathlib.Path) -> None:
    forged = Waiting(name)
    thread, sleeper = forged.thread(), forged.thread()
    forged.wait(thread, forged.event())[0]["Object"] = 0
    forged.wait(sleeper, forged.event(), listed=False)[0]["Object"] = 0
    found = rows_by_tid(shown(forged, tmp_path))
    assert only(found[thread.tid])["Status"].startswith("contradicted: KWAIT_BLOCK.Object")
    assert "contradicted" not in only(found[sleeper.tid])["Status"]


@pytest.mark.parametrize("name", ("win7-x64", "win10-x64"))
def test_a_mutex_of_the_kernel_has_no_header_and_an_owner(name: str, tmp_path: pathlib.Path) -> None:
    """A KMUTEX lies within another structure of the kernel."""
    forged = Waiting(name)
    thread, owner = forged.thread(), forged.thread(state=2)
    mutex = forged.kernel.obj("_KMUTANT", tag=b"Mutx")
    mutex["Header.Type"], mutex["OwnerThread"] = MUTANT, owner.ethread.address
    forged.wait(thread, mutex)
    row = only(rows_by_tid(shown(forged, tmp_path))[thread.tid])
    assert cells(row, "WaitsFor", "WaitName", "Known", "OwnerTID", "ChainEnd", "Status") == (
        *("mutant", None, "list", owner.tid, "running"),
        row["Status"],
    )


@pytest.mark.parametrize("name", ("win7-x64", "win10-x64"))
def test_a_named_pipe_is_a_file_object_with_its_name(name: str, tmp_path: pathlib.Path) -> None:
    """No public structure leads from a pipe to its other end: the chain ends with the request."""
    forged = Waiting(name)
    thread = forged.thread()
    file = forged.kernel.pool.executive("_FILE_OBJECT", "File")
    file["Event.Header.Type"] = EVENT
    file.text("FileName", "\\spoolss")
    forged.wait(thread, file, header="Event.Header")
    row = only(rows_by_tid(shown(forged, tmp_path))[thread.tid])
    assert cells(row, "WaitsFor", "WaitName", "Known", "Ownership", "ChainEnd") == (
        *("file object", "\\spoolss", "list", "no owner kept", "waits for I/O"),
    )
    assert row["WaitAddress"] == file.address & (1 << 48) - 1


@pytest.mark.parametrize("name", LAYOUTS)
def test_fast_and_guarded_mutexes(name: str, tmp_path: pathlib.Path) -> None:
    forged = Waiting(name)
    owner, thread = forged.thread(), forged.thread()
    isf = forged.kernel.isf
    expected = {}
    for type_name, reason, member in (
        ("_FAST_MUTEX", FAST_MUTEX, "Event"),
        ("_KGUARDED_MUTEX", GUARDED_MUTEX, "Gate"),
    ):
        if isf.has_type(type_name) and isf.has(type_name, f"{member}.Header.Type"):
            thread = forged.thread()
            mutex = forged.mutex(type_name, owner)
            forged.wait(thread, mutex, header=f"{member}.Header", reason=reason)
            expected[thread.tid] = mutex.address
    assert expected
    found = rows_by_tid(shown(forged, tmp_path))
    for tid, address in expected.items():
        row = only(found[tid])
        assert row["WaitAddress"] == address & (1 << 48) - 1
        assert cells(row, "OwnerTID", "ChainEnd", "Known") == (owner.tid, "running", "list")


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64"])
def test_messages(name: str, tmp_path: pathlib.Path) -> None:
    forged = Waiting(name, messages=True)
    service = forged.kernel.process("service.exe", PID + 400)
    client, queued, lost = (forged.thread() for _ in range(3))
    server = forged.thread(service)
    forged.wait(server, forged.mutant(client))
    forged.message(client, server)
    forged.message(queued, None, service)
    forged.message(lost, server)["WaitingThread"] = client.ethread.address
    rows = shown(forged, tmp_path)
    found = rows_by_tid(rows)
    names = ("WaitsFor", "Known", "Ownership", "OwnerPID", "OwnerTID", "ChainEnd")
    assert cells(found[client.tid][0], *names) == (
        *("ALPC reply", "message", "thread", PID + 400, server.tid, "deadlock"),
    )
    assert cells(found[queued.tid][0], *names) == (
        *("ALPC reply", "message", "process", PID + 400, None, "another process"),
    )
    assert "contradicted: KALPC_MESSAGE.WaitingThread" in found[lost.tid][0]["Status"]
    # The deadlock goes through two processes.
    assert "service.exe" in rows[0][1]["Evidence"] and "server.exe" in rows[0][1]["Evidence"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_contradictions_are_named(name: str, tmp_path: pathlib.Path) -> None:
    forged = Waiting(name)
    stale, foreign, signalled, owner = (forged.thread() for _ in range(4))
    forged.wait(stale, forged.event(), listed=False)
    block = only(forged.wait(foreign, forged.event()))
    block["Thread"] = owner.ethread.address
    free = forged.mutant(None)
    forged.wait(signalled, free)
    found = rows_by_tid(shown(forged, tmp_path))
    assert "KWAIT_BLOCK.Thread" in found[foreign.tid][0]["Status"]
    assert "SignalState" in found[signalled.tid][0]["Status"]
    assert cells(found[signalled.tid][0], "Ownership", "ChainEnd") == ("free", "free")
    assert "WaitListEntry" in found[stale.tid][0]["Status"]
    assert found[stale.tid][0]["Known"] == "call"


@pytest.mark.parametrize("name", ("xp-x86", "win10-x64"))
def test_an_object_that_is_not_in_the_image_contradicts_nothing(name: str, tmp_path: pathlib.Path) -> None:
    """Events lie on kernel stacks, too, which are paged out; so do parts of an object's list."""
    forged = Waiting(name)
    alone, first, second = (forged.thread() for _ in range(3))
    gone, shared = paged_out_event(forged), forged.event()
    forged.wait(alone, gone)
    forged.wait(first, shared)
    own, following = only(forged.wait(second, shared)), paged_out_event(forged)
    own["WaitListEntry.Flink"] = following.address
    for lost in (gone, following):
        forged.kernel.space.set_state(lost.address, PAGE, State.PAGEFILE)
    found = rows_by_tid(shown(forged, tmp_path))
    names = ("WaitsFor", "Known", "Ownership", "ChainEnd", "Status")
    row = only(found[alone.tid])
    assert cells(row, *names[:4]) == ("unknown", "call", "unknown", "not known")
    assert "object unreadable" in row["Status"] and "contradicted" not in row["Status"]
    row = only(found[second.tid])
    assert cells(row, *names[:4]) == ("event", "call", "no owner kept", "no owner kept")
    assert "partly unreadable" in row["Status"] and "contradicted" not in row["Status"]


def paged_out_event(forged: Waiting) -> Obj:
    """Returns an event on a page of its own."""
    event = forged.kernel.obj("_KEVENT", forged.kernel.space.reserve(PAGE))
    event["Header.Type"] = EVENT
    ring(forged.kernel.space, [event.at("Header.WaitListHead")])
    return event


@pytest.mark.parametrize("name", ("xp-x86", "win10-x64"))
def test_an_object_of_no_known_type_has_no_known_owner(name: str, tmp_path: pathlib.Path) -> None:
    forged = Waiting(name)
    thread = forged.thread()
    event = forged.event()
    forged.wait(thread, event)
    event["Header.Type"] = 0x30
    row = only(rows_by_tid(shown(forged, tmp_path))[thread.tid])
    assert cells(row, "WaitsFor", "Known", "Ownership", "ChainEnd") == (
        *("unknown", "list", "unknown", "not known"),
    )


@pytest.mark.parametrize("name", ("win7-x64", "win10-x64"))
def test_a_process_that_is_awaited(name: str, tmp_path: pathlib.Path) -> None:
    """IDs have 32 bits: what has only the type of a process is none. Names are printable in each column."""
    forged = Waiting(name)
    joining, odd, wrong = (forged.thread() for _ in range(3))
    other, named = (forged.kernel.process(f"child{number}.exe", PID + 400 * number) for number in (1, 2))
    named.eprocess["ImageFileName"] = b"\x1b[2Jx\0"
    forged.wait(joining, other.eprocess, header="Pcb.Header")
    forged.wait(odd, named.eprocess, header="Pcb.Header")
    fake = forged.kernel.obj("_EPROCESS")
    fake["Pcb.Header.Type"], fake["UniqueProcessId"] = PROCESS, 0x7FFB704D64D
    forged.wait(wrong, fake, header="Pcb.Header")
    found = rows_by_tid(shown(forged, tmp_path))
    names = ("WaitsFor", "Ownership", "OwnerPID", "OwnerProcess", "ChainEnd")
    assert [cells(found[thread.tid][0], *names) for thread in (joining, odd)] == [
        ("process", "process", PID + 400, "child1.exe", "another process"),
        ("process", "process", PID + 800, "\\x1b[2Jx", "another process"),
    ]
    assert cells(found[wrong.tid][0], *names[:4]) == ("process", "unknown", None, None)


@pytest.mark.parametrize("name", ("win7-x64", "win10-x64"))
def test_contradictions_of_mutexes_are_named(name: str, tmp_path: pathlib.Path) -> None:
    """The wait block of a fast mutex is examined as blocks of objects are."""
    forged = Waiting(name)
    owner, stale, foreign = (forged.thread() for _ in range(3))
    for thread, listed in ((stale, False), (foreign, True)):
        mutex = forged.mutex("_FAST_MUTEX", owner)
        block = only(forged.wait(thread, mutex, header="Event.Header", reason=FAST_MUTEX, listed=listed))
    block["Thread"] = owner.ethread.address
    found = rows_by_tid(shown(forged, tmp_path))
    assert cells(found[stale.tid][0], "WaitsFor", "Known") == ("fast mutex", "call")
    assert "contradicted: WaitListEntry" in found[stale.tid][0]["Status"]
    assert "contradicted: KWAIT_BLOCK.Thread" in found[foreign.tid][0]["Status"]


@pytest.mark.parametrize(
    ("link", "word"), [(0x41414141, "contradicted: WaitListEntry"), (0, "partly unreadable")]
)
def test_a_wait_block_that_leads_to_no_address_of_the_kernel(
    link: int, word: str, tmp_path: pathlib.Path
) -> None:
    """Nothing is missing in the image there; an address of the kernel may be of a page that is missing."""
    forged = Waiting("win10-x64")
    thread = forged.thread()
    block = only(forged.wait(thread, forged.event()))
    block["WaitListEntry.Flink"] = link or forged.kernel.base - 0x10000
    row = rows_by_tid(shown(forged, tmp_path))[thread.tid][0]
    assert (row["Known"], row["Status"]) == ("call", f"{word}, unreadable")


@pytest.mark.parametrize("name", ("win7-x64", "win10-x64"))
def test_a_deadlock_has_the_contradictions_of_its_waits(name: str, tmp_path: pathlib.Path) -> None:
    """Threads of two circles wait for each other's mutex: of one circle a list does not have the block."""
    forged = Waiting(name)
    threads = [forged.thread() for _ in range(4)]
    for number, other in enumerate((1, 0, 3, 2)):
        forged.wait(threads[number], forged.mutant(threads[other]), listed=number != 2)
    opened = context.open_image(forged.kernel.image(), tmp_path)
    for plugin, column in ((waits.WaitChains, "WaitsFor"), (tracewaits.TraceWaits, "ChainEnd")):
        rows = [row for _, row in opened.rows(plugin) if row[column] == "deadlock"]
        found = {row["Evidence"]: row["Status"] for row in rows if "Deadlock" in str(row["Evidence"])}
        assert sorted(found.values()) == ["", "contradicted: WaitListEntry"]
        assert all((f"thread {threads[2].tid} " in text) == bool(doubt) for text, doubt in found.items())


@pytest.mark.parametrize("name", ("xp-x86", "win10-x64"))
def test_a_process_that_has_the_id_of_another(name: str, tmp_path: pathlib.Path) -> None:
    """PspCidTable names the process of a mutex's owner; its own structure has the ID of the first process."""
    forged = Waiting(name)
    other = forged.kernel.process("other.exe", PID + 400)
    first, asleep = forged.thread(), forged.thread()
    second, sleeping = forged.thread(other), forged.thread(other, state=2)
    forged.wait(first, forged.mutant(second))
    forged.wait(second, forged.mutant(first))
    forged.wait(asleep, forged.mutant(sleeping))
    image = forged.kernel.image()
    other.eprocess["UniqueProcessId"] = PID
    rows = list(context.open_image(image, tmp_path).rows(waits.WaitChains, fold=True))
    found = rows_by_tid(rows)
    assert found[asleep.tid][0]["ChainEnd"] == "running"
    assert [found[thread.tid][0]["ChainEnd"] for thread in (first, second)] == ["deadlock", "deadlock"]
    assert rows[0][1]["WaitsFor"] == "deadlock"


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_thread_that_exited_while_it_owned(name: str, tmp_path: pathlib.Path) -> None:
    forged = Waiting(name)
    thread, gone = forged.thread(), forged.thread(state=4)
    forged.wait(thread, forged.mutant(gone))
    found = rows_by_tid(shown(forged, tmp_path))
    assert cells(found[thread.tid][0], "OwnerTID", "ChainEnd") == (gone.tid, "exited while owner")


def test_an_owner_whose_state_alone_says_that_it_exited(tmp_path: pathlib.Path) -> None:
    """Its object is not signalled: its own wait counts, and the chain goes on."""
    forged = Waiting("win10-x64")
    thread, owner, last = (forged.thread() for _ in range(3))
    forged.wait(thread, forged.mutant(owner))
    forged.wait(owner, forged.mutant(last))
    owner.kthread["State"] = 4
    found = rows_by_tid(shown(forged, tmp_path))
    assert cells(found[thread.tid][0], "OwnerTID", "ChainEnd") == (owner.tid, "running")
    assert found[owner.tid][0]["OwnerTID"] == last.tid
    assert found[owner.tid][0]["Status"].startswith("contradicted: State")


@pytest.mark.parametrize("name", LAYOUTS)
def test_hostile_blocks_are_bounded(name: str, tmp_path: pathlib.Path) -> None:
    """Loops, counts and pointers that no kernel writes end, and what was read is shown."""
    forged = Waiting(name)
    loop, many, nowhere, itself = (forged.thread() for _ in range(4))
    block = only(forged.wait(loop, forged.event()))
    block.maybe("NextWaitBlock", block.address + 8)
    forged.wait(many, forged.event())
    many.kthread.maybe("WaitBlockCount", 0xFF)
    forged.wait(nowhere, forged.event())
    nowhere.kthread["WaitBlockList"] = 0x1234
    forged.wait(itself, forged.mutant(itself))
    rows = shown(forged, tmp_path, chains=True)
    found = rows_by_tid(rows)
    assert {loop.tid, many.tid, nowhere.tid, itself.tid} <= set(found)
    assert len(rows) < 100
    assert not any(row["WaitsFor"] == "deadlock" for _, row in rows)


def test_a_wait_whose_user_stack_is_lost_says_why(tmp_path: pathlib.Path) -> None:
    """Its system call is unknown: the wait may have another name in user mode."""
    forged = StackImage("win10-x64")
    thread = forged.waiting(1004)
    thread.kthread["State"] = 5
    frame = thread.stack_base - TOP_DISTANCE[X64]
    forged.kernel.space.write_int(frame + trapframes64.OFFSETS["ExceptionActive"], 0x80, 1)
    opened = context.open_image(forged.kernel.image(), tmp_path)
    row = only(row for _, row in opened.rows(waits.WaitChains, fold=True) if row["TID"] == thread.tid)
    assert row["Symbol"].partition("+")[0] == "nt"
    assert "not a trap frame" in row["Status"].split(", ")
