# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The tools of `stackfleet mcp` without a client: rows of the commands, with bounds."""

from __future__ import annotations

import fnmatch
import json
import pathlib
from typing import Any, Dict, List

import pytest

from stackfleet import agent_tools, agent_words, agents, exits
from stackfleet.agents import Answerer, AnswerError
from stackfleet.database import SqlError
from stackfleet.lake import Lake, LakeError, NewImage
from stackfleet.planning import WrongUseError
from tests.support import fleetlakes
from tests.support.agents import arguments
from tests.support.fleetrun import called
from tests.support.only import only
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.decode.text import symbol_globs
from winstacks.stacklist.selection import Selection

pytestmark = pytest.mark.once

Row = Dict[str, Any]
KEY = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def lake(shared_lake: Lake) -> pathlib.Path:
    """Six computers, and one image that failed; one computer has a stack outside any file."""
    for number in range(6):
        rows = [
            {
                "StackKey": f"{place:032x}",
                "ModuleSet": 1,
                "Stack": f"a!f{place}+0x1",
                "Process": "app.exe",
                "PID": 8,
            }
            for place in range(30)
        ]
        plant = {"StackKey": KEY, "ModuleSet": 1, "Stack": "<private>", "Unbacked": 1, "Kind": "user"}
        known = {"user": 3, "kernel": 2}
        fleetlakes.add(
            shared_lake,
            f"i{number}0",
            host=f"pc-{number}",
            traces=[plant, *rows] if not number else rows,
            frames=[
                {"TraceId": "std:0", "Frame": frame, "How": how, "Symbol": f"nt!Zw{how}+0x{frame}"}
                for frame, how in enumerate(("trap", "unwind", "scan"))
            ],
            findings=[
                {"Severity": "high", "Finding": "unbacked", "StackKey": KEY, "Symbol": "<private>"},
                {"Severity": None, "Finding": "hidden"},
            ][bool(number) :],
            waits=[{"TID": 4, "WaitsFor": "event", "ChainEnd": "not known", "Symbol": "a!wait+0x2"}],
            image=[
                {
                    "ComputerName": f"pc-{number}",
                    "StacksKnown": json.dumps(known),
                    "StacksRead": json.dumps({**known, "user": 3 - (number == 1)}),
                    "StructuresAbsent": json.dumps({"stack unreadable": 1} if number == 1 else {}),
                }
            ],
            modules=[{"Version": 1, "Module": "a"}],
            modulesets=[{"ModuleSet": 1, "Versions": [1]}],
        )
    shared_lake.add(
        NewImage(fleetlakes.manifest("u1", {}, status="failed", reason="no kernel", path="/bad.raw"))
    )
    return pathlib.Path(shared_lake.uri)


def ask(lake: object, tool: str, **given: Any) -> Row:
    return agent_tools.answered(str(lake), tool, arguments(tool, **given))


def flat(row: Row) -> Row:
    """A row as a command gives it."""
    return {**row["values"], **row["from_image"]}


def every(lake: pathlib.Path, tool: str, **given: Any) -> List[Row]:
    """All rows of a tool, page by page."""
    found: List[Row] = []
    cursor = ""
    while cursor is not None:
        answer = ask(lake, tool, cursor=cursor, **given)
        found += map(flat, answer["rows"])
        cursor = answer["next"]
    return found


@pytest.mark.parametrize(
    ("tool", "given", "command"),
    [
        ("images", {}, ["status"]),
        ("findings", {"each": False}, ["findings"]),
        ("findings", {"unchecked": True}, ["findings", "--each", "--unchecked"]),
        (
            "findings",
            {"check": "unb*", "host": "pc-0"},
            ["findings", "--each", "--check", "unb*", "--host", "pc-0"],
        ),
        ("rare", {"max_hosts": 6}, ["rare", "--max-hosts", "6", "--limit", "0"]),
        ("rare", {"partial": True, "kind": "user"}, ["rare", "--partial", "--kind", "user", "--limit", "0"]),
        ("diff", {"first": "pc-1", "second": "pc-0"}, ["diff", "pc-1", "pc-0"]),
        ("waits", {}, ["waits"]),
        ("waits", {"deadlocks": True}, ["waits", "--deadlocks"]),
        ("sql", {"query": "SELECT * FROM traces ORDER BY ALL"}, ["sql", "SELECT * FROM traces ORDER BY ALL"]),
    ],
)
def test_a_tool_gives_the_rows_of_its_command(
    tool: str, given: Row, command: List[str], lake: pathlib.Path
) -> None:
    name, *options = command
    printed = called(name, lake, *options, "--format", "jsonl").stdout.splitlines()
    assert every(lake, tool, limit=17, **given) == list(map(json.loads, printed))
    assert printed or tool == "waits"


def test_pages_are_bounded_by_bytes(lake: pathlib.Path) -> None:
    query = "SELECT range AS n, repeat('x', 590) AS a, a AS b, a AS c, a AS d FROM range(100) ORDER BY n"
    answer = ask(lake, "sql", query=query, limit=50)
    assert 10 < len(answer["rows"]) < 50
    assert len(json.dumps(answer["rows"])) < 1.1 * agent_tools.MOST_BYTES
    rows = every(lake, "sql", query=query, limit=50)
    assert [row["n"] for row in rows] == list(range(100))


def test_a_cursor_belongs_to_its_question_and_to_the_lake_as_it_was(new_lake: Lake) -> None:
    fleetlakes.add(new_lake, "i1", traces=[{}, {}])
    cursor = ask(new_lake.uri, "stacks", limit=1)["next"]
    assert len(ask(new_lake.uri, "stacks", limit=5, cursor=cursor)["rows"]) == 1
    for wrong in ("x", "AAAA", "é", cursor[:-4]):
        with pytest.raises(WrongUseError, match="cursor"):
            ask(new_lake.uri, "stacks", cursor=wrong)
    with pytest.raises(WrongUseError, match="other arguments"):
        ask(new_lake.uri, "stacks", kind="user", cursor=cursor)
    fleetlakes.add(new_lake, "i2", traces=[{}])
    with pytest.raises(WrongUseError, match="the lake has changed"):
        ask(new_lake.uri, "stacks", cursor=cursor)


def test_a_row_says_how_its_stack_was_found_and_how_complete_its_image_is(lake: pathlib.Path) -> None:
    answer = ask(lake, "findings", severity="high")
    row = only(answer["rows"])
    assert row["stack"]["values"]["How"] == ["trap", "unwind", "scan"]
    assert row["stack"]["values"]["Status"] == ""
    image = only(answer["images"])
    assert image["values"]["ImageId"] == row["values"]["ImageId"] == "i00"
    assert image["stacks"] == {"kernel": {"known": 2, "read": 2}, "user": {"known": 3, "read": 3}}
    assert ask(lake, "stacks", kind="user")["images"][0]["stacks"] == {"user": {"known": 3, "read": 3}}


def test_grouped_rows_have_one_of_their_stacks(lake: pathlib.Path) -> None:
    for tool, given in (
        ("rare", {}),
        ("diff", {"first": "pc-1", "second": "pc-0"}),
        ("findings", {"each": False}),
    ):
        row = ask(lake, tool, **given)["rows"][0]
        assert row["values"]["StackKey"] == KEY
        assert row["stack"]["values"]["ImageId"] == "i00"
        assert row["stack"]["values"]["How"] == ["trap", "unwind", "scan"]


def test_frames_have_how_they_were_found(lake: pathlib.Path) -> None:
    answer = ask(lake, "stack", trace_id="std:0", image="pc-3")
    assert [row["values"]["How"] for row in answer["rows"]] == ["trap", "unwind", "scan"]
    assert ["stack" in row for row in answer["rows"]] == [True, False, False]


def test_an_empty_answer_says_what_was_searched_and_what_could_not_be_read(lake: pathlib.Path) -> None:
    answer = ask(lake, "stacks", find="nobody!*")
    assert answer["rows"] == [] and answer["next"] is None
    assert answer["empty"] == agent_tools.EMPTY
    assert answer["searched"] == {"images": 6, "table": "traces", "rows": 181}
    unread = answer["unread"]
    assert unread["stacks"] == {"user": {"known": 18, "read": 17}}
    assert unread["structures_absent"] == {"stack unreadable": 1}
    assert (unread["failed_images"], unread["checks_not_run"]) == (1, 6)
    assert only(unread["named"])["from_image"] == {"Path": "/bad.raw", "Reason": "no kernel"}
    one = ask(lake, "stacks", find="nobody!*", image="pc-0")
    assert one["searched"]["rows"] == 31 and one["unread"]["stacks"] == {}


def test_what_a_question_leaves_out_is_said(lake: pathlib.Path, new_lake: Lake) -> None:
    fleetlakes.add(new_lake, "i1", traces=[{"StackKey": KEY, "KeyQuality": "partial"}])
    assert ask(new_lake.uri, "rare")["unread"]["left_out"].startswith("Stacks left out")
    assert "left_out" not in ask(lake, "rare")["unread"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Only stacks with frames can be found by them.
        ({"find": "a!f7"}, 0),
        ({"find": "A!F7+0X1"}, 0),
        ({"find": "ZwTrap"}, 6),
        ({"find": "nt!zw*"}, 6),
        ({"find": "zwscan", "image": "pc-2"}, 1),
        ({"process": "APP*"}, 180),
        ({"process": "8"}, 180),
        ({"process": "9"}, 0),
        ({"unbacked": True}, 1),
        ({"kind": "user"}, 1),
        ({"kind": "heap"}, 0),
    ],
)
def test_stacks_are_chosen(given: Row, expected: int, lake: pathlib.Path) -> None:
    assert len(every(lake, "stacks", limit=50, **given)) == expected


@pytest.mark.parametrize(
    "find",
    ["open_store", "updater!open_store", "open*", "updater!*", "nt!Zw?lose", "a+0x1", "nt!x+0x*", "[op]*"],
)
def test_globs_find_what_find_of_the_plugins_finds(find: str) -> None:
    selection = Selection(find)
    typed, wider = symbol_globs(find.lower())
    for symbol in (
        *("updater!open_store+0x22", "updater!open_store", "nt!ZwClose+0x1", "nt!x+0x12", "b!open+0x1"),
        *("<private>", "a+0x1", "a+0x12", "updater!OPEN_STORE+0x22", "open_store+0x3", "xopen_store"),
    ):
        mine = any(fnmatch.fnmatchcase(symbol.lower(), glob) for glob in typed + wider)
        assert mine == bool(selection._matches(symbol)), symbol


NO_SELECT = (
    *("SELECT 1; SELECT 2", "SET threads = 8", "CREATE TABLE a AS SELECT 1", "PRAGMA version", ""),
    *("COPY (SELECT 1) TO 'a.csv'", "ATTACH 'a.db'", "INSTALL httpfs", "DROP VIEW traces"),
    "CALL pragma_version()",
)
OF_FILES = (
    *("SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM glob('*')", "SELECT * FROM 'a.parquet'"),
    *("SELECT * FROM read_csv('http://127.0.0.1/a')", "SELEC", "SELECT Process::INT FROM traces"),
    *("SELECT getenv('HOME')", "SELECT * FROM duckdb_secrets()"),
)


@pytest.mark.parametrize("query", [*NO_SELECT, *OF_FILES])
def test_a_query_is_one_select_that_reaches_no_file(query: str, lake: pathlib.Path) -> None:
    with pytest.raises(SqlError if query in OF_FILES else WrongUseError) as error:
        ask(lake, "sql", query=query)
    assert query in OF_FILES or "one SELECT" in str(error.value)


def test_a_query_is_short_and_so_are_its_rows(lake: pathlib.Path) -> None:
    with pytest.raises(WrongUseError, match="letters"):
        ask(lake, "sql", query=f"SELECT 1 -- {'x' * agent_tools.MOST_SQL}")
    wide = ", ".join(f"a a{number}" for number in range(900))
    with pytest.raises(WrongUseError, match="fewer columns"):
        ask(lake, "sql", query=f"SELECT {wide} FROM (SELECT repeat('x', 600) AS a)")


def test_a_time_that_no_calendar_has_is_no_answer(lake: pathlib.Path) -> None:
    with pytest.raises(WrongUseError, match="date value out of range"):
        ask(lake, "sql", query="SELECT 'infinity'::TIMESTAMP FROM manifests")


def test_columns_and_words_have_meanings() -> None:
    how = only(agent_words.explained("how")["columns"])
    assert how["words"]["scan"].startswith("a guess")
    assert "waits" in agent_words.explained("")["tables"]
    unsure = [
        item["meaning"] for item in agent_words.explained("unsure")["words"] if item["column"] == "Status"
    ]
    assert unsure == ["A guess, or a value found by way of a guess."]
    assert only(agent_words.explained("Among")["columns"])["meaning"]
    assert agent_words.explained("nothing of ours") == {"tables": {}, "columns": [], "words": []}
    assert agent_tools.answered("no lake is read", "columns", {"name": "How"})["columns"] == [how]


def test_every_word_of_status_has_a_meaning_here() -> None:
    texts = {code.value for code in StatusCode if "{" not in code.value}
    assert texts <= set(agent_words.status_words())


def test_a_lake_without_a_done_image_has_images_only(new_lake: Lake) -> None:
    new_lake.add(NewImage(fleetlakes.manifest("u1", {}, status="failed", reason="no kernel")))
    answer = ask(new_lake.uri, "images")
    assert only(answer["rows"])["values"]["Status"] == "failed"
    assert answer["unread"]["failed_images"] == 1
    with pytest.raises(LakeError, match="no image of this lake is done"):
        ask(new_lake.uri, "stacks")


def test_a_damaged_image_is_named(lake: pathlib.Path, new_lake: Lake) -> None:
    fleetlakes.add(new_lake, "i1", traces=[{}])
    fleetlakes.add(new_lake, "i2", traces=[{}])
    damaged = next((pathlib.Path(new_lake.uri, "Table=traces")).iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-9])
    answer = ask(new_lake.uri, "stacks")
    assert len(answer["rows"]) == 1
    assert answer["unread"]["damaged_images"] >= 1


@pytest.fixture()
def answerer(lake: pathlib.Path) -> Any:
    with Answerer(str(lake), 120, 2 << 30) as known:
        yield known


def test_one_process_answers_until_it_needs_too_much(
    answerer: Answerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = answerer.answer("stacks", arguments("stacks"))
    assert len(first["rows"]) == 20
    process = answerer._process
    with pytest.raises(AnswerError, match="one SELECT"):
        answerer.answer("sql", arguments("sql", query="DROP VIEW traces"))
    assert answerer._process is process
    monkeypatch.setattr(answerer, "_seconds", 0.5)
    endless = "SELECT count(*) AS n FROM range(1000000000000)"
    with pytest.raises(AnswerError, match=r"longer than 0\.5 seconds"):
        answerer.answer("sql", arguments("sql", query=endless))
    assert answerer._process is None
    # DuckDB's temporary files are in there.
    assert not pathlib.Path(answerer._folder.name).exists()
    monkeypatch.setattr(answerer, "_seconds", 120)
    monkeypatch.setattr(answerer, "_memory", 1 << 20)
    with pytest.raises(AnswerError, match="more than 1 MiB"):
        answerer.answer("sql", arguments("sql", query=endless))
    for wrong in ("\ud800", "a\0"):
        with pytest.raises(AnswerError, match="half of a letter"):
            answerer.answer("stacks", arguments("stacks", find=wrong))
    with pytest.raises(AnswerError, match="letters"):
        answerer.answer("sql", arguments("sql", query="x" * 200_000))


def test_a_process_that_ends_is_no_answer(answerer: Answerer) -> None:
    with pytest.raises(AnswerError, match="has ended"):
        answerer.answer("nothing", {})


def test_the_command_names_the_package_that_it_needs(
    lake: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "SDK", "a_package_that_nobody_has")
    done = called("mcp", lake, code=exits.WRONG_USE)
    assert "pip install '.[fleet,mcp]'" in done.stderr
