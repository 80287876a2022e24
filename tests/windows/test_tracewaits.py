# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The flat table of waits says what windows.waits says, and leads to the stacks of windows.traces."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.plugins.minidump import tracewaits as dump_waits
from volatility3.plugins.minidump import waits as dump_chains
from volatility3.plugins.windows import traces, tracewaits, waits

from tests.conftest import SHARED
from tests.forge import context, sample, smalldump
from tests.support import deadlockimages, grid, waitimages, waitobjects, waitrows
from tests.support.only import only
from tests.support.processdumps import OpenedDump, dump_of
from winstacks.stacklist.threadwaits import NO_WAIT

SAME = (
    *("PID", "Process", "TID", "Arch", "WaitsFor", "WaitName", "WaitMode", "Since", "Known", "Ownership"),
    *("OwnerPID", "OwnerProcess", "OwnerTID", "ChainEnd", "Symbol", "Evidence", "Status"),
)

Row = Dict[str, Any]


def table(opened: Any, plugin: Any = tracewaits.TraceWaits, **options: Any) -> List[Row]:
    return [node.row for node in grid.run(opened, plugin, **options)]


def chains(opened: Any, plugin: Any = waits.WaitChains) -> List[Row]:
    """The rows of windows.waits; each thing for which a thread waits has the thread's end and caller."""
    found = []
    for node in grid.run(opened, plugin, fold=True):
        of_thread = {name: node.row[name] for name in ("ChainEnd", "Symbol")}
        found += [{**row, **of_thread} for row in (node.row, *node.children)]
    return found


def compare(opened: Any, of_table: Any = tracewaits.TraceWaits, of_chains: Any = waits.WaitChains) -> None:
    rows, expected = table(opened, of_table), chains(opened, of_chains)
    assert rows
    assert [{name: row[name] for name in SAME} for row in rows] == [
        {name: row[name] for name in SAME} for row in expected
    ]
    addresses = [row["WaitAddress"] for row in expected]
    assert [row["WaitAddress"] for row in rows] == [None if at is None else f"{at:#x}" for at in addresses]


def test_the_sample(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    compare(opened)
    rows = table(opened)
    stacks = {node.row["TraceId"]: node.row for node in grid.run(opened, traces.StackTraces)}
    deadlock = only(row for row in rows if row["WaitsFor"] == "deadlock")
    assert (deadlock["TID"], deadlock["TraceId"], deadlock["Deadlock"]) == (None, None, 1)
    for row in rows:
        if row is not deadlock:
            stack = stacks[row["TraceId"]]
            assert (stack["PID"], stack["TID"], stack["Arch"]) == (row["PID"], row["TID"], row["Arch"])
            assert row["Symbol"].partition(" ")[0] in stack["Stack"]
    assert {row["TID"]: row["Deadlock"] for row in rows if row["TID"]} == {
        **dict.fromkeys((4316, 4320, 5124)),
        **dict.fromkeys((6204, 6208), 1),
    }


def test_a_thread_is_shown_with_the_chain_through_threads_that_are_left_out(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    whole = [row for row in table(opened) if row["TID"] in (None, 6204)]
    assert table(opened, tid=[6204]) == whole
    assert len(whole) == 2


@pytest.mark.parametrize(("tid", "rows"), [(4316, [4316]), (6208, [None, 6208]), (99999, [])])
def test_windows_waits_selects_deadlocks_as_the_table_does(
    tid: int, rows: List[Any], tmp_path: pathlib.Path
) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    shown = grid.run(opened, waits.WaitChains, tid=[tid], fold=True)
    assert [row.row["TID"] for row in shown] == rows == [row["TID"] for row in table(opened, tid=[tid])]


@pytest.mark.parametrize(
    ("options", "tids"),
    [
        ({"find": "updater!*"}, [4316]),
        ({"find": "spooler!write_log"}, [None, 6204]),
        ({"unbacked": True}, [4320]),
        ({"find": "nosuch"}, []),
    ],
    ids=str,
)
def test_a_deadlock_is_shown_if_one_of_its_threads_matches(
    options: Dict[str, Any], tids: List[Any], tmp_path: pathlib.Path
) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    shown = grid.run(opened, waits.WaitChains, fold=True, **options)
    assert [row.row["TID"] for row in shown] == tids


@pytest.mark.parametrize("tid", [4316, 5124])
def test_a_deadlock_of_threads_that_are_left_out_is_left_out(tid: int, tmp_path: pathlib.Path) -> None:
    """The thread's own chain leads to no deadlock."""
    opened = context.open_image(sample.build().image(), tmp_path)
    assert [row["TID"] for row in table(opened, tid=[tid])] == [tid]


def test_a_deadlock_behind_the_chain_of_a_selected_thread_is_shown(tmp_path: pathlib.Path) -> None:
    """The third thread waits for a part of the deadlock, and is in none; of two deadlocks one has no row."""
    forged = waitobjects.Waiting("win10-x64")
    others = [forged.thread(), forged.thread()]
    threads = [forged.thread(), forged.thread()]
    for first, second in (others, threads):
        forged.wait(first, forged.mutant(second))
        forged.wait(second, forged.mutant(first))
    behind = forged.thread()
    forged.wait(behind, forged.mutant(threads[0]))
    opened = context.open_image(forged.kernel.image(), tmp_path)
    whole = table(opened)
    deadlocks = [row for row in whole if row["WaitsFor"] == "deadlock"]
    assert len(deadlocks) == 2
    number = only({row["Deadlock"] for row in whole if row["TID"] == threads[0].tid})
    shown = table(opened, tid=[behind.tid])
    assert [(row["TID"], row["ChainEnd"], row["Deadlock"]) for row in shown] == [
        (None, "deadlock", number),
        (behind.tid, "deadlock", None),
    ]
    assert shown[0] == deadlocks[number - 1]


def test_stacks_without_a_wait_are_no_silent_table(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    assert not table(opened, pid=[4312], tid=[4324])
    assert "No thread of the selected processes waits, as far as the input tells" in caplog.messages
    caplog.clear()
    assert table(opened, pid=[4312], tid=[4316])
    assert not [text for text in caplog.messages if "waits" in text]


@pytest.mark.parametrize("plugin", [dump_chains.WaitChains, dump_waits.TraceWaits])
@pytest.mark.parametrize(("pid", "said"), [(4312, ["1 thread waits"]), (6200, [])])
def test_a_thread_that_may_wait_is_told(
    plugin: Any, pid: int, said: List[str], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Thread 4324 of 4312 stands in a system call without a known caller."""
    opened = context.open_image(sample.build().image(), tmp_path)
    (tmp_path / "app.dmp").write_bytes(dump_of(opened, pid))
    assert OpenedDump(tmp_path / "app.dmp").rows(plugin)
    assert [text.partition(":")[0] for text in caplog.messages if "not known" in text] == [
        f"It is not known whether {words}" for words in said
    ]


@pytest.mark.shared
@pytest.mark.parametrize("plugin", [dump_chains.WaitChains, dump_waits.TraceWaits])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("more/node-minidump-windows", "It is not known whether 13 threads wait"),
        ("null_write_av", "It is not known whether 1 thread waits"),
        ("more/lldb-fizzbuzz_no_heap", NO_WAIT),
    ],
)
def test_threads_of_a_dump_without_ntdll_are_not_said_to_run(
    plugin: Any, name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not OpenedDump(SHARED / "real_minidumps" / f"{name}.dmp").rows(plugin)
    assert [text.partition(":")[0] for text in caplog.messages if " wait" in text] == [said]


@pytest.mark.parametrize("plugin", [dump_chains.WaitChains, dump_waits.TraceWaits])
def test_a_small_kernel_dump_has_no_waiting_thread(
    plugin: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    dump = smalldump.SmallDump()
    dump.crash(0xC4, (1, 2, 3, 4), smalldump.context(True, 0xFFFFF80312201234, 0xFFFFD00012345040))
    dump.stack(0xFFFFD00012345000, bytes(0x200))
    (tmp_path / "small.dmp").write_bytes(dump.file())
    assert not OpenedDump(tmp_path / "small.dmp").rows(plugin)
    assert [text.partition(",")[0] for text in caplog.messages if " wait" in text] == [
        "A small kernel dump has one thread"
    ]


@pytest.mark.parametrize("name", ["xp-x86", "win7-x64", "win10-x64", "win11-x64"])
def test_several_objects_are_several_rows(name: str, tmp_path: pathlib.Path) -> None:
    forged = waitobjects.Waiting(name)
    thread, owner = forged.thread(), forged.thread()
    forged.wait(thread, forged.event(), forged.mutant(owner))
    opened = context.open_image(forged.kernel.image(), tmp_path)
    compare(opened)
    found = [row for row in table(opened) if row["TID"] == thread.tid]
    assert [(row["WaitsFor"], row["WaitMode"]) for row in found] == [("event", "any"), ("mutant", "any")]
    assert len({row["TraceId"] for row in found}) == 1


def test_a_deadlock_of_three(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(deadlockimages.build(deadlockimages.Scenario()).image, tmp_path)
    compare(opened)


@pytest.mark.parametrize("pid", [4312, 6200])
def test_a_dump(pid: int, tmp_path: pathlib.Path) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    path = tmp_path / "process.dmp"
    path.write_bytes(dump_of(opened, pid))
    compare(OpenedDump(path), dump_waits.TraceWaits, dump_chains.WaitChains)


@pytest.mark.shared
@pytest.mark.parametrize("label", waitrows.LABELS)
def test_what_ntdll_wrote(label: str, tmp_path: pathlib.Path) -> None:
    for snapshot in waitrows.some(label, 0)[:3]:
        compare(context.open_image(waitimages.image_of(snapshot), tmp_path))
