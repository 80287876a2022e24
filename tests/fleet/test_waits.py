# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`stackfleet waits`: equal waits and equal deadlocks of many machines are one row."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any, Dict, List

import pytest

from stackfleet import waits
from stackfleet.lake import Lake
from tests.support import fleetlakes
from tests.support.fleetrun import ask, fleet

Row = Dict[str, Any]

CAPTURED = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)


def wait(tid: int, symbol: str, **more: Any) -> Row:
    row: Row = {"PID": 100, "Process": "Server.exe", "TID": tid, "WaitsFor": "critical section"}
    row.update(Symbol=symbol, ChainEnd="running", Known="table", Ownership="thread")
    return {**row, **more}


def deadlock(number: int, tids: List[int], symbols: List[str], pid: int) -> List[Row]:
    sentence = {"WaitsFor": "deadlock", "TID": None, "PID": pid, "Deadlock": number, "ChainEnd": "deadlock"}
    parts = [
        wait(tid, symbol, PID=pid, Deadlock=number, ChainEnd="deadlock", WaitAddress=0x1000 + tid)
        for tid, symbol in zip(tids, symbols)
    ]
    return [{**sentence, "Evidence": f"Deadlock: {pid}.", "Process": "Server.exe"}, *parts]


@pytest.fixture(scope="module")
def lake(shared_lake: Lake) -> pathlib.Path:
    """Three hosts: the first two hang in the same way, with the threads in another order."""
    first = deadlock(1, [4, 8], ["app!log+0x26", "app!count+0x1d"], 100)
    first.append(wait(12, "app!log+0x26", ChainEnd="deadlock"))
    first.append(wait(20, "app!serve+0x1", WaitsFor="queue", ChainEnd="idle"))
    second = deadlock(7, [48, 44], ["app!count+0x99", "app!log+0x2a"], 900)
    second.append(wait(52, "msvcrt!malloc+0x10", WaitName="heap lock of 0x1d0000"))
    second.append(wait(56, "app+0x4711", WaitsFor="event", ChainEnd="no owner kept"))
    second[-1]["Since"] = CAPTURED - datetime.timedelta(days=1)
    third = [
        wait(60, "msvcrt!malloc+0x10", WaitName="heap lock of 0x7f0000", PID=200),
        wait(64, "msvcrt!malloc+0x20", WaitName="heap lock of 0x7f0000", Process="server.exe", PID=200),
        *deadlock(1, [70, 74], ["app!log+0x26", "other!close+0x1"], 200),
    ]
    for number, rows in enumerate((first, second, third), 1):
        image = [{"ComputerName": f"pc-{number}", "CaptureTime": CAPTURED}]
        fleetlakes.add(shared_lake, f"i{number}", image=image, waits=rows)
    return pathlib.Path(shared_lake.uri)


def test_equal_waits_are_one_row(lake: pathlib.Path) -> None:
    rows = ask("waits", lake)
    found = [
        (row["ChainEnd"], row["Hosts"], row["Threads"], row["WaitName"], row["Function"]) for row in rows
    ]
    assert found == [
        ("deadlock", 3, 4, None, "app!log"),
        ("deadlock", 2, 2, None, "app!count"),
        ("deadlock", 1, 1, None, "other!close"),
        ("running", 2, 3, "heap lock", "msvcrt!malloc"),
        # Without a function's name the offset is all that distinguishes code.
        ("no owner kept", 1, 1, None, "app+0x4711"),
    ]
    assert rows[0]["Hostnames"] == ["PC-1", "PC-2", "PC-3"]
    assert {row["Processes"] for row in rows} == {"server.exe"}


def test_threads_that_wait_for_work_are_no_hang(lake: pathlib.Path) -> None:
    more = [row for row in ask("waits", lake, "--idle") if row["ChainEnd"] == "idle"]
    assert [(row["WaitsFor"], row["Function"], row["Hosts"]) for row in more] == [("queue", "app!serve", 1)]


def test_equal_deadlocks_are_one_row(lake: pathlib.Path) -> None:
    rows = ask("waits", lake, "--deadlocks")
    log, count = (f"critical section in server.exe app!{name}" for name in ("log", "count"))
    assert [(row["Hosts"], row["Number"], row["Threads"], row["Cycle"]) for row in rows] == [
        (2, 2, 2, [count, log]),
        (1, 1, 2, [log, "critical section in server.exe other!close"]),
    ]
    assert (rows[0]["Hostnames"], rows[0]["ImageIds"]) == (["PC-1", "PC-2"], ["i1", "i2"])
    assert rows[0]["Evidence"] == "Deadlock: 100."


def test_the_screen_has_the_answer(lake: pathlib.Path) -> None:
    lines = fleet("waits", lake).stdout.splitlines()
    named = set(lines[0].replace("|", " ").split())
    assert named == set(waits.NARROW) - {"Number", "Cycle"}
    assert "86400" in next(line for line in lines if "app+0x4711" in line)
    assert "TraceId" in fleet("waits", lake, "--wide").stdout
