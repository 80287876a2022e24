# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is asked of a lake: rare, diff, findings, status, sql."""

from __future__ import annotations

import csv
import io
import json
import pathlib
from typing import Any, Dict, List, Optional, Tuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stackfleet import output
from stackfleet.lake import Depth, Lake, NewImage
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet, Machine, new_fleet
from tests.support.fleetrun import ask, called, fleet
from tests.support.only import only

Row = Dict[str, Any]

COMMON, OLD, NEW, OWN = 1, 2, 3, 4
"""Sets of module versions: on all hosts, on six, on two, on one."""
SETS = {COMMON: [10], OLD: [10, 20], NEW: [10, 21], OWN: [90]}
"""The numbers of the versions in each."""


def modules(*numbers: int) -> Dict[str, List[Row]]:
    """The tables of an image that has these sets."""
    versions = sorted({version for number in numbers for version in SETS[number]})
    return {
        "modules": [{"Version": version, "Module": f"m{version // 10}"} for version in versions],
        "modulesets": [{"ModuleSet": number, "Versions": SETS[number]} for number in numbers],
    }


def stack(key: str, module_set: Optional[int] = COMMON, **more: Any) -> Row:
    return {"StackKey": key, "ShapeKey": f"shape-{key}", "ModuleSet": module_set, "Stack": key, **more}


@pytest.fixture(scope="module")
def lake(shared_lake: Lake) -> pathlib.Path:
    """Eight hosts. The first has two images, and the last does not say its name."""
    for number in range(8):
        app = OLD if number < 6 else NEW
        rows = [stack("all"), stack("old", OLD)] if app == OLD else [stack("all")]
        known = [COMMON, app]
        if number == 0:
            rows += [
                stack("one of six", OLD),
                stack("plant", Unbacked=2),
                stack("vague", KeyQuality="partial"),
            ]
        if number == 1:
            rows += [stack("one of eight"), stack("own", OWN), stack("cut", Incomplete=True)]
            known.append(OWN)
        if number in (2, 3):
            rows.append(stack("two of six", OLD, Kind="lock"))
        if number == 6:
            rows.append(stack("one of two", NEW))
        if number == 5:
            rows.append(stack("nowhere", None))
        found: List[Row] = [
            {"Severity": "high", "Finding": "unbacked", "Symbol": "<private>", "Confidence": "likely"}
        ]
        found.append({"Severity": None, "Finding": "hidden"})
        if number == 4:
            found.append({**found[0], "StackKey": "x", "Symbol": None, "Confidence": "possible"})
            found.append({"Severity": "medium", "Finding": "start_mismatch", "Confidence": "certain"})
        host = None if number == 7 else f"pc-{number}"
        fleetlakes.add(shared_lake, f"i{number}", host=host, traces=rows, findings=found, **modules(*known))
    again = [stack("plant", Unbacked=2)]
    fleetlakes.add(shared_lake, "i0again", host="PC-0", traces=again, **modules(COMMON))
    failed = fleetlakes.manifest("u1", {}, status="failed", reason="no kernel", path="/images/bad.raw")
    shared_lake.add(NewImage(failed))
    return pathlib.Path(shared_lake.uri)


def test_rare_counts_hosts_and_ranks_by_share(lake: pathlib.Path) -> None:
    rows = ask("rare", lake)
    assert [(row["StackKey"], row["Hosts"], row["Among"], row["Comparable"]) for row in rows] == [
        # Equally rare: what runs outside all files comes first. Two images of one host are one host.
        ("plant", 1, 8, True),
        ("nowhere", 1, 8, True),
        ("one of eight", 1, 8, True),
        ("one of six", 1, 6, True),
        ("two of six", 2, 6, True),
        # Versions on few hosts are a class of their own.
        ("one of two", 1, 2, False),
        ("own", 1, 1, False),
    ]
    assert rows[0]["Hostnames"] == ["PC-0"]
    assert rows[0]["Count"] == 2


def test_what_rare_leaves_out_is_said(lake: pathlib.Path) -> None:
    assert "incomplete: 2 (--partial" in fleet("rare", lake).stderr
    done = fleet("rare", lake, "--partial", "--format", "csv")
    assert "left out" not in done.stderr
    assert {"vague", "cut"} <= {row["StackKey"] for row in csv.DictReader(io.StringIO(done.stdout))}


def test_rare_can_be_asked_for_less_and_more(lake: pathlib.Path) -> None:
    assert [row["StackKey"] for row in ask("rare", lake, "--kind", "lock")] == ["two of six"]
    assert len(ask("rare", lake, "--limit", "3")) == 3
    assert {"old", "two of six"} <= {row["StackKey"] for row in ask("rare", lake, "--max-hosts", "6")}
    shapes = ask("rare", lake, "--by", "ShapeKey")
    assert [row["Among"] for row in shapes] == [8, 8, 8, 6, 6, 2, 1]


def test_findings_come_worst_and_rarest_first(lake: pathlib.Path) -> None:
    rows = ask("findings", lake, "--each")
    assert [(row["Severity"], row["Finding"], row["Hosts"]) for row in rows[:2]] == [
        ("high", "unbacked", 1),
        ("high", "unbacked", 8),
    ]
    assert rows[-1]["Finding"] == "start_mismatch"
    assert len(rows) == 10
    assert "Checks that could not run on an image: 8 (" in fleet("findings", lake).stderr
    assert len(ask("findings", lake, "--each", "--severity", "high")) == 9
    assert ask("findings", lake, "--each", "--unchecked")[-1]["Finding"] == "hidden"


def test_equal_findings_are_one_row_with_their_hosts(lake: pathlib.Path) -> None:
    rows = ask("findings", lake)
    assert [(row["Severity"], row["Finding"], row["Hosts"], row["Number"]) for row in rows] == [
        ("high", "unbacked", 1, 1),
        ("high", "unbacked", 8, 8),
        ("medium", "start_mismatch", 1, 1),
    ]
    assert [row["Hostnames"] for row in rows[::2]] == [["PC-4"], ["PC-4"]]
    # An image that does not record its computer is called by its ImageId, and by its file.
    assert rows[1]["Hostnames"][-1] == "no name: i7" and rows[1]["Files"][-1] == "i7.raw"
    assert ask("findings", lake, "--unchecked")[-1]["Hosts"] == 8


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--check", "START_*"], [("start_mismatch", 1, ["PC-4"])]),
        (["--check", "start_*", "--check", "gadget"], [("start_mismatch", 1, ["PC-4"])]),
        # How many hosts of the lake have it does not change.
        (["--host", "pc-2"], [("unbacked", 8, ["PC-2"])]),
        (["--host", "pc-[23]", "--host", "i7.raw"], [("unbacked", 8, ["PC-2", "PC-3", "no name: i7"])]),
        (
            ["--host", "/images/i4.raw", "--check", "unbacked"],
            [("unbacked", 1, ["PC-4"]), ("unbacked", 8, ["PC-4"])],
        ),
        (["--host", "PC-4", "--severity", "high"], [("unbacked", 1, ["PC-4"]), ("unbacked", 8, ["PC-4"])]),
        (["--host", "pc-0", "--check", "start_mismatch"], []),
    ],
)
def test_findings_are_chosen_by_check_and_host(
    arguments: List[str], expected: List[Any], lake: pathlib.Path
) -> None:
    done = called("findings", lake, *arguments, "--format", "jsonl", code=0)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["Finding"], row["Hosts"], row["Hostnames"]) for row in rows] == expected


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--check", "nosuch"], ("--check nosuch", "unbacked", "start_mismatch", "shadow_stack")),
        (["--host", "pc-4", "--host", "nobody*"], ("--host nobody*", "PC-0", "PC-6", "i7")),
    ],
)
def test_a_check_or_host_that_is_unknown_is_answered_by_those_there_are(
    arguments: List[str], messages: Tuple[str, ...], lake: pathlib.Path
) -> None:
    done = called("findings", lake, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(word in done.stderr for word in messages), done.stderr


def test_a_query_of_standard_input(lake: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT count(*) AS n, min(size) AS s, sum(rows) > 0 AS r FROM manifests"
    monkeypatch.setattr("sys.stdin", io.StringIO(query))
    assert called("sql", lake, "-", "--format", "csv").stdout.splitlines() == ["n,s,r", "10,1,True"]


def test_status_has_the_failed_first(lake: pathlib.Path) -> None:
    rows = ask("status", lake, code=3)
    assert len(rows) == 10
    assert (rows[0]["Status"], rows[0]["Reason"], rows[0]["Rows"]) == ("failed", "no kernel", 0)
    assert rows[1]["Rows"] > 0


def test_paths_with_one_end_show_where_they_differ() -> None:
    end, stem = "/collection/2026/evidence/triage/of/memory/of/the/night/memory.dmp", "y" * 80
    paths = [f"/cases/{host}{end}" for host in ("PC-1", "PC-12", "PC-2")]
    paths += [f"D:\\{stem}{letter}{end}" for letter in "AB"] + [f"/cases{end[:-4]}.raw", "/a.dmp"]
    stream = io.BytesIO()
    states = pa.table({"Path": paths, "Reason": ["no kernel " * 20] * len(paths)})
    output.write(states, output.TABLE, stream, states.column_names)
    lines = stream.getvalue().decode().splitlines()[1:]
    shown = [line.split(" | ")[0].strip() for line in lines]
    assert [text[:7] for text in shown[:3]] == ["…PC-1/c", "…PC-12/", "…PC-2/c"]
    assert all(text.endswith("memory.dmp") for text in shown[:5]) and shown[5].endswith("memory.raw")
    assert len(set(shown)) == len(paths) and shown[-1] == "/a.dmp"
    assert max(map(len, lines)) <= output.WIDTH


@pytest.mark.parametrize(
    "command", [["rare"], ["findings"], ["status"], ["diff"], ["rare", "--by", "ShapeKey"]]
)
def test_the_sql_that_is_shown_gives_the_same_rows(command: List[str], lake: pathlib.Path) -> None:
    pair = ["pc-0", "pc-1"] if command == ["diff"] else []
    arguments = [command[0], lake, *pair, *command[1:]]
    shown = fleet(*arguments, "--show-sql")
    with duckdb.connect() as connection:
        *before, query = [word for word in shown.stdout.split(";\n") if word.strip()]
        for statement in before:
            connection.execute(statement)
        # A time with a zone would need another package in Python.
        found = connection.sql(query).to_arrow_table().num_rows
    assert found == len(ask(*arguments, code=3 if command == ["status"] else 0)) > 0


def test_formats(lake: pathlib.Path, tmp_path: pathlib.Path) -> None:
    table = fleet("rare", lake).stdout.splitlines()
    assert len(table) == 8
    assert "| plant " in table[1]
    rows = list(csv.DictReader(io.StringIO(fleet("rare", lake, "--format", "csv").stdout)))
    assert rows[0]["Hostnames"] == "PC-0"
    file = tmp_path / "rare.parquet"
    fleet("rare", lake, "--format", "parquet", "--output", file, code=0)
    assert pq.read_table(file).column("StackKey")[0].as_py() == "plant"
    fleet("rare", lake, "--output", tmp_path / "no" / "file", code=2)


def test_sql(lake: pathlib.Path) -> None:
    row = only(ask("sql", lake, "SELECT count(*) AS Images, count(DISTINCT Host) AS Hosts FROM hosts"))
    assert row == {"Images": 9, "Hosts": 8}
    bad = fleet("sql", lake, "SELECT nonsense FROM traces", code=2)
    assert "nonsense" in bad.stderr


def test_sql_runs_one_statement(lake: pathlib.Path) -> None:
    done = called("sql", lake, "SELECT 1; SELECT 2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "sql runs one statement" in done.stderr
    pivot = "PIVOT (SELECT status, 1 AS n FROM manifests) ON status USING sum(n)"
    assert called("sql", lake, pivot, "--format", "csv").stdout.split() == ["done,failed", "9,1"]


@pytest.mark.parametrize(
    ("query", "form", "reason"),
    [
        *[("TIMESTAMP '20000-01-01'", form, "date value out of range") for form in ("table", "csv", "jsonl")],
        ("DATE '-4000-01-01'", "jsonl", "date value out of range"),
        ("INTERVAL 3 MONTH", "parquet", "no form in Parquet"),
    ],
)
def test_a_value_that_no_format_has_is_a_message(
    query: str, form: str, reason: str, lake: pathlib.Path
) -> None:
    done = called("sql", lake, f"SELECT {query} FROM manifests", "--format", form, code=2)
    assert reason in done.stderr


def test_a_lake_without_a_done_image(new_lake: Lake) -> None:
    called("status", new_lake.uri, code=2)
    new_lake.add(NewImage(fleetlakes.manifest("u1", {}, status="failed", reason="no kernel")))
    assert len(ask("status", new_lake.uri, code=3)) == 1
    done = fleet("rare", new_lake.uri, code=2)
    assert "no image of this lake is done" in done.stderr


def test_a_damaged_manifest_is_named(new_lake: Lake) -> None:
    new_lake.add(NewImage(fleetlakes.manifest("i1", {}, status="failed", size="many")))
    done = called("status", new_lake.uri, "--verify", code=3)
    assert "left out: i1: manifest: the value of size has a wrong form" in done.stderr


def test_a_group_may_be_named_in_many_ways(lake: pathlib.Path) -> None:
    assert ask("diff", lake, "i0,i0again", "PC-0") == []
    assert ask("diff", lake, "/images/i1.raw", "i1.raw") == []
    fleet("diff", lake, "nobody", "PC-0", code=2)
    fleet("diff", lake, ",", "PC-0", code=2)
    fleet("diff", lake, "case=none", "PC-0", code=2)


@pytest.fixture(scope="module")
def reboots(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A machine before and after a reboot, with other bases, other pages and a plant."""
    images: Fleet = new_fleet(tmp_path_factory.mktemp("reboots") / "images")
    before = Machine(1, own=5)
    images.add(before, "before")
    images.add(Machine(1, own=5, boot=3, planted=True), "after")
    images.ready()
    lake = images.folder / "lake"
    fleet("run", *images.paths, "-o", lake, *images.options, code=0)
    assert len(Lake(str(lake)).manifests()) == 2
    return lake


def test_after_a_reboot_only_the_plant_is_new(reboots: pathlib.Path) -> None:
    row = only(ask("diff", reboots, "before.dmp", "after.dmp"))
    assert (row["Change"], row["Unbacked"]) == ("new", 1)
    assert row["Stack"].startswith("<no-module>")
    row = only(ask("diff", reboots, "after.dmp", "before.dmp"))
    assert row["Change"] == "gone"


def test_an_image_against_itself_is_nothing(reboots: pathlib.Path) -> None:
    assert ask("diff", reboots, "after.dmp", "after.dmp", "--partial") == []


def test_guessed_stacks_outside_any_file_are_a_group_of_their_own(new_lake: Lake) -> None:
    """An implant's own thread has no module, and so no exact key."""
    implant = stack("implant", None, Unbacked=3, KeyQuality="partial", Incomplete=True)
    for number in range(6):
        rows = [stack("all"), *([implant, stack("one"), stack("cut", Incomplete=True)] if not number else [])]
        fleetlakes.add(new_lake, f"i{number}", host=f"PC-{number}", traces=rows, **modules(COMMON))
    rows = ask("rare", new_lake.uri)
    assert [(row["Stack"], row["KeyQuality"], row["Among"]) for row in rows] == [
        ("one", "exact", 6),
        ("implant", "guessed", None),
    ]
    assert "incomplete: 1 (--partial" in called("rare", new_lake.uri).stderr


def test_tables_fit_a_terminal_and_wide_shows_all(new_lake: Lake) -> None:
    long = {"Process": "a" * 90, "Stack": "; ".join(["driver!Function+0x10"] * 30)}
    found = {"Severity": "high", "Finding": "unbacked", "Symbol": "s" * 90, "Evidence": "e" * 300}
    for number in range(2):
        name = f"PC-{number}" + "X" * 90
        rows = [{**stack(f"{number}"), **long}]
        fleetlakes.add(new_lake, f"i{number}", host=name, traces=rows, findings=[found], **modules(COMMON))
    for arguments in (["status"], ["rare"], ["findings"], ["findings", "--each"], ["diff", "i0", "i1"]):
        command, *more = arguments
        narrow, wide = (called(command, new_lake.uri, *more, *option).stdout for option in ([], ["--wide"]))
        assert max(map(len, narrow.splitlines())) <= 120 < max(map(len, wide.splitlines()))
        assert len(narrow.splitlines()[0].split("|")) < len(wide.splitlines()[0].split("|"))


def test_status_tells_images_of_one_folder_apart(new_lake: Lake) -> None:
    names = [f"{number}-of-the-night.dmp" for number in range(3)]
    for name in names:
        path = "/evidence/of/many/machines" * 9 + f"/{name}"
        failed = {"status": "failed", "reason": "Volatility finds no Windows kernel" * 9, "path": path}
        new_lake.add(NewImage(fleetlakes.manifest(f"u{name}", {}, **failed)))
    shown = called("status", new_lake.uri).stdout
    assert all(f"machines/{name} |" in shown for name in names)
    assert shown.count("Volatility finds no Windows kernel") == len(names)


def test_the_state_of_an_image_that_failed_is_in_the_exit_code(new_lake: Lake) -> None:
    fleetlakes.add(new_lake, "i1")
    called("status", new_lake.uri, code=0)
    new_lake.add(NewImage(fleetlakes.manifest("u1", {}, status="failed", reason="no kernel")))
    called("status", new_lake.uri, code=3)
    assert not new_lake.contents(Depth.CONTENT).damaged
    assert "no name: i1" in called("sql", new_lake.uri, "SELECT HostText FROM hosts").stdout


def test_counts_are_compared(new_lake: Lake) -> None:
    fleetlakes.add(new_lake, "i1", traces=[stack("a", Count=2), stack("b")])
    fleetlakes.add(new_lake, "i2", traces=[stack("a", Count=5), stack("b")])
    row = only(ask("diff", new_lake.uri, "i1", "i2"))
    assert (row["Change"], row["CountBefore"], row["CountAfter"]) == ("changed", 2, 5)
