# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake that somebody else made to harm whoever asks it, writes to it, or cleans it up."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import Any, Callable, Dict, List

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stackfleet import lakefolder, store
from stackfleet.lake import Lake, NewImage
from tests.support import fleetlakes
from tests.support.attackedlakes import SECRET, Attack, added
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import ask, called, fleet
from tests.support.only import only

pytestmark = pytest.mark.skipif(os.name == "nt", reason="plants links and pipes")

Change = Callable[[Attack], object]


def link_to(target: pathlib.Path) -> Callable[[pathlib.Path], object]:
    return lambda path: path.symlink_to(target)


def damaged_page(attack: Attack) -> None:
    """The middle of a file is overwritten; its size is the same."""
    data = bytearray(attack.file().read_bytes())
    data[4:2000] = b"\xff" * 1996
    attack.file().write_bytes(data)


def plant_bytes(attack: Attack, column: str = "Stack", of: str = "traces") -> None:
    """The texts of a column are bytes that are no UTF-8; Arrow does not look at them."""
    table, path = pq.read_table(attack.file(of)), attack.file(of).with_name("z.parquet")
    ends = pa.py_buffer(b"".join(number.to_bytes(4, "little") for number in range(table.num_rows + 1)))
    texts = pa.Array.from_buffers(
        pa.string(), table.num_rows, [None, ends, pa.py_buffer(b"\xff" * table.num_rows)]
    )
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, texts), path)
    attack.put(path, table=of)


SECRETS = "../other/Table=traces/x.parquet"
FILES: Dict[str, Change] = {
    "a path out of the lake": lambda a: a.name_instead(SECRETS),
    "a path in other letters": lambda a: a.name_instead(SECRETS.replace("..", "%2e%2e")),
    "an absolute path": lambda a: a.name_instead(str(next((a.other / "Table=traces").iterdir()))),
    "a URL of a file": lambda a: a.name_instead(f"file://{next((a.other / 'Table=traces').iterdir())}"),
    "a bucket": lambda a: a.name_instead("s3://bucket/i1.parquet"),
    "a size below 0": lambda a: a.name_instead("Table=traces/other.parquet", size=-1),
    "no number of rows": lambda a: a.name_instead("Table=traces/other.parquet", stats="{}"),
    "a pipe as a file": lambda a: a.replace(a.file(), os.mkfifo),
    "a link as a file": lambda a: a.replace(a.file(), link_to(next((a.other / "Table=traces").iterdir()))),
    "a page of nonsense": damaged_page,
    "texts that are not UTF-8": plant_bytes,
    "an ImageId that is not UTF-8": lambda a: plant_bytes(a, "ImageId"),
}
"""Files that a log names, or what is in their place: the rows of the other image are shown."""

MANIFESTS: Dict[str, Change] = {
    "a number of many digits": lambda a: a.set(size=10**30),
    "a text in the place of a list": lambda a: a.set(files="/images"),
    "no time": lambda a: a.set(started="yesterday"),
    "a later version": lambda a: a.set(manifest=99),
    "tables that there are not": lambda a: a.set(tables={"../manifest": {}}),
    "an attempt with a path": lambda a: a.set(attempt="../../../other"),
    "deep lists": lambda a: a.set_row(Manifest="[" * 100000),
    "no JSON": lambda a: a.set_row(Manifest=""),
    "a list": lambda a: a.set_row(Manifest="[]"),
    "another status": lambda a: a.set_row(Status="failed"),
    "a status that there is not": lambda a: a.set_row(Status="good"),
    "another ImageId": lambda a: a.set_row(ImageId="../../i7"),
}
"""Manifests whose form or content is wrong: `status --verify` names them."""

LOGS: Dict[str, Change] = {
    "a link as a log": lambda a: a.replace(a.log, link_to(a.other / "_delta_log")),
    "a link as a table's folder": lambda a: a.replace(a.file().parent, link_to(a.other / "Table=traces")),
    "a link as a commit": lambda a: a.replace(
        a.log / f"{0:020}.json", link_to(a.other / "_delta_log" / f"{0:020}.json")
    ),
    "a pipe as a commit": lambda a: os.mkfifo(a.log / f"{9:020}.json"),
    "a pipe as the last checkpoint": lambda a: os.mkfifo(a.log / "_last_checkpoint"),
    "a device as a commit": lambda a: (a.log / f"{9:020}.json").symlink_to("/dev/zero"),
    "a folder as a commit": lambda a: (a.log / f"{9:020}.json").mkdir(),
    "commits of nonsense": lambda a: [path.write_text("[" * 200000) for path in a.log.glob("*.json")],
    "no protocol": lambda a: (a.log / f"{0:020}.json").write_text("{}\n"),
    "a later protocol": lambda a: a.commit({"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}),
    "a version that no file has": lambda a: (a.log / f"{10**19}.json").write_text("{}\n"),
    "deleted rows in another file": lambda a: a.commit(
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            }
        }
    ),
    "sidecars": lambda a: (a.log / "_sidecars").mkdir(),
    "a checkpoint of nonsense": lambda a: (a.log / f"{1:020}.checkpoint.parquet").write_bytes(b"PAR1"),
    "a last checkpoint of nonsense": lambda a: (a.log / "_last_checkpoint").write_text("{" * 1000),
    "statistics of nonsense": lambda a: a.commit(added("Table=traces/i3.parquet", stats="[")),
    "rows of no image": lambda a: a.rows("traces", {"ImageId": None, "Stack": "x"}),
    "rows without a manifest": lambda a: a.rows("traces", {"ImageId": "i5", "Stack": "x"}),
}
"""A log that is none, or rows that are no image's: nothing outside is read, and whoever asks is told."""


def rows(*arguments: object) -> List[Dict[str, Any]]:
    return ask(*arguments, code=3, said="left out")


@pytest.mark.parametrize("name", FILES)
def test_a_file_harms_its_own_image_only(name: str, attack: Attack) -> None:
    FILES[name](attack)
    assert [row["Stack"] for row in rows("sql", attack.lake, "SELECT Stack FROM traces")] == ["stack of i2"]
    assert attack.others() == attack.before


def test_rows_that_a_log_no_longer_has_are_missed_when_asked(attack: Attack) -> None:
    gone = {"path": f"Table=traces/{attack.file().name}", "deletionTimestamp": 1, "dataChange": True}
    attack.commit({"remove": {**gone, "partitionValues": {"Table": "traces"}}})
    reasons = {row["ImageId"]: row["Reason"] for row in rows("status", attack.lake, "--verify")}
    assert reasons["i1"] == "traces: 0 rows, but 1 in the manifest"


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_harms_its_own_image_only(name: str, attack: Attack) -> None:
    MANIFESTS[name](attack)
    for query in ("SELECT Stack FROM traces", "SELECT * FROM manifests", "SELECT Host FROM hosts"):
        done = called("sql", attack.lake, query, "--format", "jsonl")
        assert done.returncode in (0, 3), done.stderr
        assert "i2" in done.stdout.lower()
    states = {row["ImageId"]: row["Status"] for row in rows("status", attack.lake, "--verify")}
    assert states["i2"] == "done" and "damaged" in states.values()
    assert attack.others() == attack.before


@pytest.mark.parametrize("column", ["ImageId", "Manifest"])
def test_a_file_of_manifests_that_is_not_utf8_harms_its_own_images_only(column: str, attack: Attack) -> None:
    plant_bytes(attack, column, "manifests")
    states = {row["ImageId"]: row["Status"] for row in rows("status", attack.lake, "--verify")}
    assert states == {"i1": "damaged", "i2": "done", "Table=manifests/z.parquet": "damaged"}
    assert called("export", attack.lake, "--to", "folded").stdout == "std;I2;nt;stack of i2 1\n"


@pytest.mark.parametrize("name", LOGS)
def test_a_log_leads_nowhere(name: str, attack: Attack) -> None:
    LOGS[name](attack)
    for arguments in (["status", attack.lake], ["sql", attack.lake, "SELECT Stack FROM traces"]):
        done = called(*arguments, "--format", "jsonl")
        assert done.returncode in (0, 2, 3)
        assert SECRET not in done.stdout and "i9" not in done.stdout
        shown = [json.loads(line) for line in done.stdout.splitlines()]
        # Nothing that is there is left out without a word.
        assert len(shown) == 2 or done.stderr
    assert attack.others() == attack.before


@pytest.mark.parametrize("command", ["rare", "findings", "status", "report", "export"])
def test_every_command_leaves_a_damaged_image_out(
    command: str, attack: Attack, tmp_path: pathlib.Path
) -> None:
    FILES["a path out of the lake"](attack)
    arguments: Dict[str, List[Any]] = {"report": ["-o", tmp_path / "pages"], "export": ["--to", "folded"]}
    more = arguments.get(command, [])
    done = called(command, attack.lake, *more, code=3)
    text = done.stdout + "".join(path.read_text() for path in tmp_path.glob("pages/*"))
    assert SECRET not in text
    assert "i2" in text or "stack of i2" in text


VALUES: Dict[str, Dict[str, Any]] = {
    "counts whose sum is too large": {"Count": (1 << 63) - 1},
    "a count below 0": {"Count": -(1 << 63)},
    "a text of control characters": {"Process": "\x1b[2J\r\n\u202e", "Stack": "a\nb"},
    "no name of the process": {"Process": None},
    "a key that is none": {"StackKey": "\u0000", "ShapeKey": "x" * 10000},
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_one_image_end_no_command(name: str, attack: Attack, tmp_path: pathlib.Path) -> None:
    traces = [{"StackKey": "k", "Stack": "planted", **VALUES[name]}] * 3
    fleetlakes.add(Lake(str(attack.lake)), "i3", traces=traces)
    for arguments in (
        ["rare"],
        ["findings"],
        ["status"],
        ["diff", "i2", "i3"],
        ["export", "--to", "folded"],
        ["export", "--to", "speedscope"],
        ["export", "--to", "timesketch"],
        ["report", "-o", tmp_path / "pages"],
    ):
        command, *more = arguments
        called(command, attack.lake, *more, code=0)


def test_cells_that_no_image_leaves_empty_end_no_page(attack: Attack, tmp_path: pathlib.Path) -> None:
    same = {"ImageId": "i2", "StackKey": "stack of i2", "Stack": "stack of i2"}
    attack.rows("traces", {**same, "KeyQuality": "exact", "Incomplete": False})
    attack.rows("frames", {"ImageId": "i2", "TraceId": "std:0", "Frame": 0, "Symbol": "a!b"})
    called("report", attack.lake, "-o", tmp_path / "pages", code=0)


@pytest.mark.parametrize("moment", [(1 << 62), -(1 << 62), 253402300800000000 + 1])
def test_times_that_no_calendar_has_are_null(moment: int, attack: Attack, tmp_path: pathlib.Path) -> None:
    time = pa.scalar(moment, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    table = fleetlakes.arrow("traces", "i3", [{"StackKey": "k", "Stack": "s"}])
    place = table.schema.get_field_index("ThreadCreateTime")
    table = table.set_column(place, table.schema.field(place), pa.repeat(time, 1))
    fleetlakes.add(Lake(str(attack.lake)), "i3", traces=table)
    export = ("export", "--to")
    for command, *rest in (("sql", "SELECT * FROM traces"), (*export, "jsonl"), (*export, "timesketch")):
        called(command, attack.lake, *rest, code=0)


@pytest.mark.parametrize("image_id", ["i2", "../../../etc/passwd", "<script>"])
def test_pages_with_rows_of_another_image(image_id: str, attack: Attack, tmp_path: pathlib.Path) -> None:
    """Rows without a manifest do not exist; their number is wrong when all is compared."""
    attack.rows("findings", {"ImageId": image_id, "Severity": "high", "Finding": "x", "Symbol": "planted"})
    fleet("report", attack.lake, "-o", tmp_path / "pages", code=0)
    assert {path.name for path in (tmp_path / "pages").iterdir()} == {
        "index.html",
        "image-i1.html",
        "image-i2.html",
    }
    reasons = {row["ImageId"]: row["Reason"] for row in rows("status", attack.lake, "--verify")}
    assert "findings: " in reasons[image_id]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{}/_delta_log/00000000000000000000.json')",
        "SELECT * FROM '{}/Table=traces/*.parquet'",
        "COPY (SELECT 1) TO '{}/made'",
        "ATTACH '{}/made.db'",
        "SELECT * FROM glob('{}/**')",
        "INSTALL httpfs",
    ],
)
def test_a_query_reaches_no_file(sql: str, attack: Attack) -> None:
    done = called("sql", attack.lake, sql.format(attack.other), code=2)
    assert SECRET not in done.stdout
    assert attack.others() == attack.before


@pytest.mark.parametrize("name", ["a link as a log", "a link as a table's folder"])
@pytest.mark.parametrize("command", [["compact"], ["forget"], ["run"]])
def test_what_changes_a_lake_stays_in_it(command: List[str], name: str, attack: Attack, few: Fleet) -> None:
    LOGS[name](attack)
    if command == ["run"]:
        done: Any = fleet("run", few.paths[0], "-o", attack.lake, *few.options)
    else:
        done = called(*command, attack.lake, *(["i1"] if command == ["forget"] else []))
    assert done.returncode in (0, 2, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert attack.others() == attack.before
    if command == ["run"]:
        assert "is a link" in done.stderr or "there is no lake" in done.stderr


def test_a_lake_of_too_many_files_or_bytes_is_refused(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, most in ((store, "MOST_FILES", 3), (lakefolder, "MOST_LOG_BYTES", 100)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, most)
            done = called("status", attack.lake)
            assert (done.returncode, "more than" in done.stderr) == (2, True)
    called("compact", attack.lake, code=0)
    with monkeypatch.context() as patch:
        patch.setattr(lakefolder, "MOST_ACTIONS", 3)
        assert "more than 3 rows" in called("status", attack.lake).stderr


def test_an_image_is_not_compared_with_a_pipe(few: Fleet, tmp_path: pathlib.Path) -> None:
    """A manifest may say that an image with the same ImageId lies at any path."""
    lake = tmp_path / "mine"
    fleet("run", few.paths[0], "-o", lake, *few.options, code=0)
    known = only(Lake(str(lake)).manifests())
    pipe, same = tmp_path / "pipe", tmp_path / "same.dmp"
    os.mkfifo(pipe)
    shutil.copy(few.paths[0], same)
    facts = pipe.stat()
    known.update(path=str(pipe), size=facts.st_size, modified=facts.st_mtime_ns)
    known["files"] = [{"path": str(pipe), "size": 0, "sha256": None}]
    fleetlakes.put_manifest(Lake(str(lake)), known)
    fleet("run", same, "-o", lake, *few.options, code=0)
    assert len(Lake(str(lake)).manifests()) == 2


def test_a_manifest_of_a_size_that_no_image_has(attack: Attack) -> None:
    failed = fleetlakes.manifest("u1", {}, status="failed", log="x" * (1 << 20))
    Lake(str(attack.lake)).add(NewImage(failed))
    called("status", attack.lake, code=3)
