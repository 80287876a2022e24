# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`stackfleet export`, read by what reads such files. The server of Timesketch is a stub of ours."""

from __future__ import annotations

import datetime
import io
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types
from typing import Any, Iterator, List, Tuple

import pytest

from stackfleet.export import MOST_BYTES
from stackfleet.lake import Lake, NewImage
from stackfleet.output import opened, take_standard_streams
from stackfleet.planning import WrongUseError
from tests.conftest import ROOT
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import COMMAND, fleet
from tests.support.only import only
from tests.support.timesketchserver import TimesketchServer, running

START = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)


@pytest.fixture(scope="module")
def lake(shared_lake: Lake) -> pathlib.Path:
    thread = {"Kind": "user", "PID": 8, "Process": "a;b.exe", "TID": 12, "ThreadCreateTime": START}
    stacks = [
        {**thread, "Stack": "ntdll!Wait+0x14; <private>; app!main+0x20", "ProcessOffset": 1 << 63},
        {"PID": 8, "Process": "a;b.exe", "ProcessCreateTime": START, "Stack": "é" * MOST_BYTES, "Count": 3},
        {"Stack": "nt!KeWait+0x10; nt!Start+0x5", "Count": 2},
        {"Stack": None, "Count": None, "Status": "unreadable"},
    ]
    found = [
        {"Severity": "high", "Finding": "unbacked", "PID": 8, "Process": "a;b.exe", "TraceId": "std:0"},
        {"Severity": "low", "Finding": "hidden", "PID": 0, "Process": "nt", "TraceId": None},
        {"Severity": None, "Finding": "start_mismatch"},
    ]
    image = [{"ComputerName": "pc", "CaptureTime": START + datetime.timedelta(hours=1)}]
    fleetlakes.add(shared_lake, "i1", traces=stacks, findings=found, image=image)
    fleetlakes.add(shared_lake, "i2", host="other", traces=[{"Stack": "nt!KeWait+0x99; nt!Start+0x5"}])
    return pathlib.Path(shared_lake.uri)


def export(lake: object, form: str, *options: str) -> List[str]:
    return fleet("export", lake, "--to", form, *options, code=0).stdout.splitlines()


def test_folded(lake: pathlib.Path) -> None:
    lines = export(lake, "folded", "--kind", "user")
    assert lines == ["user;PC;a:b.exe;app!main;<private>;ntdll!Wait 1"]
    assert "std;PC;nt;nt!Start;nt!KeWait 2" in export(lake, "folded")


HOSTILE = "a\u009b31mb\u0085c\u202etxt.exe\u2028d\x1b]0;"


def test_what_moves_the_cursor_or_ends_a_line_is_escaped(new_lake: Lake) -> None:
    fleetlakes.add(new_lake, "i1", traces=[{"Process": HOSTILE, "Stack": f"nt!{HOSTILE}+0x1; é!ж+0x2"}])
    for arguments in (("--to", "jsonl"), ("--to", "folded"), ("--to", "speedscope")):
        done = fleet("export", new_lake.uri, *arguments, code=0)
        assert all(line.isprintable() for line in done.stdout.rstrip("\n").split("\n"))
    done = fleet("sql", new_lake.uri, "SELECT Process, Stack FROM traces", "--format", "jsonl")
    line = only(done.stdout.rstrip("\n").split("\n"))
    assert line.isprintable() and "é!ж" in line
    assert json.loads(line)["Process"] == HOSTILE
    path = fleetlakes.manifest("u1", {}, status="failed", path=f"/images/{HOSTILE}")
    new_lake.add(NewImage(path))
    told: List[Tuple[object, ...]] = [
        ("run", f"/{HOSTILE}", "-o", new_lake.uri),
        ("forget", new_lake.uri, "u1"),
    ]
    for words in told:
        done = fleet(*words)
        assert only((done.stdout + done.stderr).splitlines()).isprintable()
    done = fleet("run", "/a\nstackfleet: all images are done", "-o", new_lake.uri)
    assert sum(line.startswith("stackfleet:") for line in done.stderr.splitlines()) == 1


def test_speedscope(lake: pathlib.Path) -> None:
    file = json.loads("\n".join(export(lake, "speedscope")))
    assert "speedscope" in file["$schema"]
    names = [frame["name"] for frame in file["shared"]["frames"]]
    assert len(set(names)) == len(names)
    titles = [profile["name"] for profile in file["profiles"]]
    assert titles == ["std OTHER (i2)", "std PC (i1)", "user PC (i1)"]
    for profile in file["profiles"]:
        assert profile["type"] == "sampled"
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        assert all(0 <= number < len(names) for sample in profile["samples"] for number in sample)
    sample = only(file["profiles"][0]["samples"])
    assert [names[number] for number in sample] == ["nt", "nt!Start", "nt!KeWait"]


@pytest.mark.parametrize("form", ["folded", "speedscope"])
def test_blocks_of_a_heap_are_not_added_to_threads(form: str, new_lake: Lake) -> None:
    kinds = [
        {"Kind": kind, "Stack": "nt!Start+0x5", "Count": count} for kind, count in (("heap", 24), ("user", 1))
    ]
    fleetlakes.add(new_lake, "i1", traces=kinds)
    lines = export(new_lake.uri, form)
    if form == "folded":
        assert lines == ["heap;i1;nt;nt!Start 24", "user;i1;nt;nt!Start 1"]
    else:
        weights = [profile["weights"] for profile in json.loads("".join(lines))["profiles"]]
        assert weights == [[24], [1]]


def test_jsonl(lake: pathlib.Path) -> None:
    rows = [json.loads(line) for line in export(lake, "jsonl")]
    assert len(rows) == 5
    assert rows[0]["ThreadCreateTime"] == START.isoformat()
    findings = [json.loads(line) for line in export(lake, "jsonl", "--table", "findings")]
    assert [row["Finding"] for row in findings] == ["unbacked", "hidden", "start_mismatch"]
    assert not export(lake, "jsonl", "--table", "findings", "--kind", "lock")


def test_a_kind_chooses_findings_as_it_chooses_stacks(tmp_path: pathlib.Path) -> None:
    of_kinds = [{"Kind": kind, "ProcessCreateTime": START} for kind in ("user", "heap")]
    found = [{"Kind": row["Kind"], "Severity": "low", "Finding": "unbacked"} for row in of_kinds]
    image = [{"ComputerName": "pc", "CaptureTime": START}]
    fleetlakes.add(fleetlakes.new_lake(tmp_path / "lake"), "i1", traces=of_kinds, findings=found, image=image)
    for form, *options in (("timesketch",), ("ecs",), ("jsonl", "--table", "findings")):
        documents = export(tmp_path / "lake", form, *options, "--kind", "user")
        assert documents and not [line for line in documents if '"heap"' in line]


def test_stacks_that_share_a_trace_id_make_no_further_events(new_lake: Lake) -> None:
    traces = [{"TraceId": "std:0", "ThreadCreateTime": START}] * 20
    found = [{"TraceId": "std:0", "Severity": "low", "Finding": "unbacked"}] * 20
    frames = [
        {"TraceId": "std:0", "Frame": number, "Symbol": "nt!Start", "How": "unwind"} for number in range(20)
    ]
    fleetlakes.add(new_lake, "i1", traces=traces, findings=found, frames=frames)
    assert len(export(new_lake.uri, "timesketch")) == 20 + 20
    lines = export(new_lake.uri, "ecs")
    assert len(lines) == 20
    assert "".join(lines).count('"symbol_info"') == "".join(lines).count("finding unbacked") == 20


@pytest.fixture
def server() -> Iterator[TimesketchServer]:
    with running() as listening:
        yield listening


def test_the_client_of_timesketch_sends_the_whole_file(
    lake: pathlib.Path, tmp_path: pathlib.Path, server: TimesketchServer
) -> None:
    importer = pytest.importorskip("timesketch_import_client.importer")
    file = tmp_path / "events.jsonl"
    done = fleet("export", lake, "--to", "timesketch", "--output", file, code=0)
    assert "left out: 3 stacks without a time" in done.stderr
    assert ": 2 fields" in done.stderr
    requests = pytest.importorskip("requests")
    api = types.SimpleNamespace(session=requests.Session(), api_root=server.address)
    sketch = types.SimpleNamespace(api=api, id=1, my_acl=["write"])
    with importer.ImportStreamer() as streamer:
        streamer.set_sketch(sketch)
        streamer.set_timeline_name("stacks")
        streamer.add_file(str(file))
    assert len(server.events) == len(file.read_text().splitlines()) == 4
    for event in server.events:
        assert event["message"]
        assert event["timestamp_desc"] in ("Thread started", "Process started", "Memory captured")
        assert event["datetime"].startswith("2026-01-02T0")
        assert all(len(str(value).encode()) <= MOST_BYTES for value in event.values())
        assert not [name for name, value in event.items() if isinstance(value, int) and value >= 1 << 63]
        assert event["Host"] == "PC"
    found = {event["Finding"]: event["timestamp_desc"] for event in server.events if "Finding" in event}
    assert found == {"unbacked": "Thread started", "hidden": "Memory captured"}
    thread = server.events[0]
    assert thread["ProcessOffset"] == "0x8000000000000000"
    assert datetime.datetime.fromisoformat(thread["datetime"]) == START


def test_a_file_that_cannot_be_written_leaves_the_older_one(tmp_path: pathlib.Path) -> None:
    older, new = tmp_path / "older.jsonl", tmp_path / "new.jsonl"
    older.write_text("older")
    for path in (older, new):
        reason = f"{path} cannot be written: No space left on device"
        with pytest.raises(WrongUseError, match=reason), opened(str(path)) as stream:
            stream.write(b"a half")
            raise OSError(28, "No space left on device")
    assert older.read_text() == "older"
    assert [path.name for path in tmp_path.iterdir()] == ["older.jsonl"]
    with opened(str(older)) as stream:
        stream.write(b"whole")
    assert older.read_text() == "whole"


def ran(line: str, lake: pathlib.Path, output: Any, *before: str, **variables: str) -> Tuple[int, str]:
    """Runs a command on a copy of the lake; returns its code and its errors."""
    copied = shutil.copytree(lake, pathlib.Path(tempfile.mkdtemp(dir=lake.parent), "lake"))
    command = [*before, *COMMAND, *(word.format(copied) for word in line.split())]
    known, errors = {**os.environ, **variables}, subprocess.PIPE
    done = subprocess.run(command, cwd=ROOT, env=known, stdout=output, stderr=errors, text=True, check=False)
    return done.returncode, done.stderr


UNWRITTEN = "stackfleet: standard output cannot be written: {}\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full, a disk that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("line", ["export {} --to jsonl", "status {}", "compact {}", "rare --help"])
def test_a_full_disk_behind_standard_output_is_a_message(
    lake: pathlib.Path, line: str, unbuffered: str
) -> None:
    """Python keeps what it could not write, and tries again when it ends, unless it is unbuffered."""
    with open("/dev/full", "wb") as full:
        done = ran(line, lake, full, PYTHONUNBUFFERED=unbuffered)
    assert done == (2, UNWRITTEN.format("No space left on device"))


@pytest.mark.skipif(os.name == "nt", reason="the limits of POSIX")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_fills_up_within_the_last_piece_is_a_message(
    lake: pathlib.Path, tmp_path: pathlib.Path, unbuffered: str
) -> None:
    """The file that PYTHONUNBUFFERED gives writes a part of a piece and raises nothing."""
    line = "sql {} --format parquet SELECT*FROM/**/traces"
    with (tmp_path / "rows").open("wb") as rows:
        assert ran(line, lake, rows, PYTHONUNBUFFERED=unbuffered) == (0, "")
        whole = rows.seek(0, os.SEEK_END)
        rows.truncate(0)
        rows.seek(0)
        limit = ("sh", "-c", 'ulimit -f "$0" && "$@"', str(whole // 512))
        done = ran(line, lake, rows, *limit, PYTHONUNBUFFERED=unbuffered)
    assert done == (2, UNWRITTEN.format("File too large"))


def taken_when_full(reader: int) -> Iterator[bytes]:
    """Yields what a pipe has, after its writer had to wait for a while."""
    select.select((reader,), (), ())
    time.sleep(0.3)
    while piece := os.read(reader, 1 << 16):
        yield piece


@pytest.mark.skipif(os.name == "nt", reason="the pipes of POSIX")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_rows_wait_for_a_slow_reader(lake: pathlib.Path, unbuffered: str) -> None:
    """The rows behind the first 64 KiB were lost, with the code 0 if standard output had no buffer."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    words = [*COMMAND, "export", str(lake), "--to", "jsonl"]
    known = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(words, cwd=ROOT, stdout=writer, env=known) as started:
        os.close(writer)
        rows = b"".join(taken_when_full(reader)).decode().splitlines()
    os.close(reader)
    assert (started.returncode, rows) == (0, export(lake, "jsonl"))


@pytest.mark.skipif(os.name == "nt", reason="the pipes of POSIX")
def test_messages_wait_for_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program tried again without a pause, as fast as the processor allows."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.FileIO(writer, "w", closefd=False), "utf-8"))
    take_standard_streams()
    calls: List[str] = []
    text = "a message\n" * (1 << 15)

    def write() -> None:
        sys.setprofile(lambda frame, event, argument: calls.append(event))
        sys.stderr.write(text)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    assert b"".join(taken_when_full(reader)).decode() == text
    thread.join()
    os.close(reader)
    assert len(calls) < 1000


@pytest.mark.skipif(os.name == "nt", reason="the shell of POSIX closes the output")
@pytest.mark.parametrize("line", ["export {} --to jsonl", "compact {}", "--help"])
def test_who_reads_the_output_may_stop(lake: pathlib.Path, line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert ran(line, lake, writer) == (0, "")
    os.close(writer)


@pytest.mark.skipif(os.name == "nt", reason="the pipes of POSIX")
def test_who_reads_the_messages_may_stop(few: Fleet, fresh: pathlib.Path) -> None:
    """The run ended behind the first image, with the code 1."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [*COMMAND, "run", *few.paths, "-o", str(fresh), *few.options]
    done = subprocess.run(list(map(str, words)), cwd=ROOT, stderr=writer, check=False)
    os.close(writer)
    assert (done.returncode, len(Lake(str(fresh)).manifests())) == (0, len(few.paths))


@pytest.mark.skipif(os.name == "nt", reason="the shell of POSIX closes the output")
def test_a_closed_standard_output_is_a_message(lake: pathlib.Path) -> None:
    closed = ("sh", "-c", '"$@" >&-', "sh")
    assert ran("status {}", lake, None, *closed) == (2, UNWRITTEN.format("it is closed"))
