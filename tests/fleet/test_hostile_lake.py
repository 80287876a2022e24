# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake that somebody else made to harm whoever asks it, writes to it, or cleans it up."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import Any, Callable, Dict, List, Optional

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stackfleet import provenance
from stackfleet.entries import Entries
from stackfleet.lake import Lake
from stackfleet.layout import TABLES, table_file
from stackfleet.summary import FIELDS
from stackfleet.tablelog import TableLog
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import called, fleet
from tests.support.only import only

pytestmark = pytest.mark.skipif(os.name == "nt", reason="plants links and pipes")

SECRET = "secret of another case"
Change = Callable[["Attack"], object]


class Attack:
    """A lake of two images, `i1` and `i2`, and one of another case beside it, with `i9`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.lake = self._lake("lake", "i1", "i2")
        self.other = self._lake("other", "i9")
        self.before = self.others()

    def _lake(self, name: str, *image_ids: str) -> pathlib.Path:
        lake = fleetlakes.new_lake(self.folder / name)
        for image_id in image_ids:
            stack = SECRET if name == "other" else f"stack of {image_id}"
            found = {"Severity": "high", "Finding": "unbacked", "Symbol": stack}
            fleetlakes.add(
                lake, image_id, host=image_id, traces=[{"StackKey": stack, "Stack": stack}], findings=[found]
            )
        return self.folder / name

    def others(self) -> Dict[str, bytes]:
        """All files outside the lake that is attacked."""
        return {str(path): path.read_bytes() for path in self.other.rglob("*") if path.is_file()}

    @property
    def path(self) -> pathlib.Path:
        return self.lake / "manifest" / "i1.json"

    def table(self, name: str = "traces", image_id: str = "i1") -> pathlib.Path:
        return table_file(str(self.lake), name, image_id, "attempt")

    def log(self, name: str = "traces") -> pathlib.Path:
        return self.lake / "tables" / name / "_delta_log"

    def set(self, **values: Any) -> None:
        """Lets the manifest and the catalogue say something else of `i1`."""
        self.set_text(json.dumps({**json.loads(self.path.read_text()), **values}))

    def set_text(self, text: str, image_id: str = "i1") -> None:
        self.path.write_text(text)
        entries = Entries(self.lake)
        altered = entries.by_id["i1"]._replace(image_id=image_id, manifest=text)
        entries.put([altered], ["i1"] if image_id != "i1" else [])

    def set_column(self, name: str, value: object) -> None:
        """Lets a column of the catalogue say something else of `i1`; its manifest stays."""
        place = [field.name for field in FIELDS].index(name)
        entries = Entries(self.lake)
        known = entries.by_id["i1"]
        entries.put([known._replace(summary=(*known.summary[:place], value, *known.summary[place + 1 :]))])

    def set_rows(self, **counts: Optional[int]) -> None:
        (*_, rows) = Entries(self.lake).by_id["i1"].summary
        self.set_column("Rows", tuple({**dict(zip(TABLES, rows)), **counts}.values()))

    def set_table(self, **values: Any) -> None:
        tables = json.loads(self.path.read_text())["tables"]
        self.set(tables={**tables, "traces": {**tables["traces"], **values}})

    def replace(self, path: pathlib.Path, replacement: Callable[[pathlib.Path], object]) -> None:
        """Puts something else into the place of a file or folder."""
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        replacement(path)

    def rewrite(self, table: Any, name: str = "traces") -> None:
        """Writes another table, with which manifest, catalogue and log agree."""
        fleetlakes.write(self.table(name), name, table)
        fleetlakes.enter_again(self.lake, json.loads(self.path.read_text()), name)

    def commit(self, *actions: Dict[str, Any], name: str = "traces") -> None:
        """Adds a commit to the log of a table: lines of JSON, whatever they say."""
        number = len(list(self.log(name).glob("*.json")))
        lines = "".join(f"{json.dumps(action)}\n" for action in actions)
        (self.log(name) / f"{number:020}.json").write_text(lines)

    def name_instead(self, path: str, **more: Any) -> None:
        """Lets the log name another file in the place of that of `i1`."""
        gone = {"path": self.table().name, "deletionTimestamp": 1, "dataChange": True, "partitionValues": {}}
        self.commit({"remove": gone}, added(path, **more))


def added(path: str, **more: Any) -> Dict[str, Any]:
    """What a log says of a file that is added."""
    stats = {"numRecords": 1, "minValues": {"ImageId": "i1"}, "maxValues": {"ImageId": "i1"}}
    entry = {"path": path, "size": 7323, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    return {"add": {**entry, "stats": json.dumps(stats), **more}}


def link_to(target: pathlib.Path) -> Callable[[pathlib.Path], object]:
    return lambda path: path.symlink_to(target)


def damaged_page(attack: Attack) -> None:
    """The middle of a file is overwritten; its size is the same."""
    data = bytearray(attack.table().read_bytes())
    data[4:200] = b"\xff" * 196
    attack.table().write_bytes(data)


def other_columns(attack: Attack) -> None:
    pq.write_table(pa.table({"StackKey": [1]}), attack.table())
    fleetlakes.enter_again(attack.lake, json.loads(attack.path.read_text()), "traces")


SECRETS = "tables/traces/i9.attempt.parquet"
LEFT_OUT: Dict[str, Change] = {
    "a path out of the lake": lambda a: a.set_table(file=f"../other/{SECRETS}"),
    "an absolute path": lambda a: a.set_table(file=str(a.other / SECRETS)),
    "all files of the lake": lambda a: a.set_table(file="tables/traces/*.parquet"),
    "a path that goes and comes back": lambda a: a.set_table(
        file="tables/x/../traces/i1.attempt.parquet",
    ),
    "a URL": lambda a: a.set_table(file="https://example.invalid/a.parquet"),
    "the table of another image": lambda a: a.set_table(file="tables/traces/i2.attempt.parquet"),
    "a table that there is not": lambda a: a.set(tables={"../manifest": {}}),
    "an ImageId with a path": lambda a: a.set(image_id="../../other/i1"),
    "an entry with a path": lambda a: a.set_text(a.path.read_text(), "../../i1"),
    "an attempt with a path": lambda a: a.set(attempt=f"../../../other/{SECRETS}"),
    "another ImageId than its name": lambda a: a.set(image_id="i2"),
    "another attempt than its entry": lambda a: a.set(attempt="attempt2"),
    "a number of many digits": lambda a: a.set(size=10**30),
    "a number that is none": lambda a: a.set_text(a.path.read_text().replace("1.0", "NaN")),
    "a text in the place of a list": lambda a: a.set(copies="/images"),
    "a record in the place of a text": lambda a: a.set(path={"a": 1}),
    "half a character": lambda a: a.set(note="\ud800"),
    "no time": lambda a: a.set(started="yesterday"),
    "deep lists": lambda a: a.set_text("[" * 200000),
    "an empty manifest": lambda a: a.set_text(""),
    "a list": lambda a: a.set_text("[]"),
    "a later version": lambda a: a.set(manifest=3),
    "a pipe as a table": lambda a: a.replace(a.table(), os.mkfifo),
    "a link as a table": lambda a: a.replace(a.table(), link_to(a.other / SECRETS)),
    "a table that is gone": lambda a: a.table().unlink(),
    "a table that is empty": lambda a: a.table().write_bytes(b""),
    "a table that is cut": lambda a: os.truncate(a.table(), a.table().stat().st_size - 7),
    "other columns": other_columns,
    "a page of nonsense": damaged_page,
    "a log that leads out of the lake": lambda a: a.name_instead(f"../../../other/{SECRETS}"),
    "a log that leads out in other letters": lambda a: a.name_instead(
        f"%2e%2e/%2e%2e/%2e%2e/other/{SECRETS}"
    ),
    "a log that leads to an absolute path": lambda a: a.name_instead(str(a.other / SECRETS)),
    "a log that leads to a URL of a file": lambda a: a.name_instead(f"file://{a.other / SECRETS}"),
    "a log that leads to a bucket": lambda a: a.name_instead("s3://bucket/i1.attempt.parquet"),
    "a log with a size below 0": lambda a: a.name_instead("i1.attempt.parquet", size=-1),
    "a log without a number of rows": lambda a: a.name_instead("i1.attempt.parquet", stats="{}"),
    "a log with another number of rows": lambda a: a.name_instead(
        "i1.attempt.parquet", size=a.table().stat().st_size, stats=json.dumps({"numRecords": 7})
    ),
}
"""What is left out by every question. The other image is shown as if nothing were."""

COLUMNS: Dict[str, Change] = {
    "another status": lambda a: a.set_column("Status", "good"),
    "the status of a failed image": lambda a: a.set_column("Status", "failed"),
    "no status": lambda a: a.set_column("Status", None),
    "no path": lambda a: a.set_column("Path", None),
    "no list": lambda a: a.set_column("Copies", None),
    "a list without texts": lambda a: a.set_column("Replaces", [None]),
    "another image with a path": lambda a: a.set_column("Replaces", ["../../other/i1"]),
    "no time": lambda a: a.set_column("Started", "yesterday"),
    "endless": lambda a: a.set_column("Seconds", float("inf")),
    "memory below 0": lambda a: a.set_column("Memory", -1),
    "no rows": lambda a: a.set_column("Rows", None),
    "rows below 0": lambda a: a.set_rows(traces=-1),
    "other rows than the log": lambda a: a.set_rows(traces=2),
    "rows of a table that is not said": lambda a: a.set_rows(frames=None),
    "two rows of an image": lambda a: a.set_rows(image=2),
}
"""Columns of the catalogue that are not of the form of their manifest's members."""

LOGS: Dict[str, Change] = {
    "a link as a log": lambda a: a.replace(a.log(), link_to(a.other / "tables" / "traces" / "_delta_log")),
    "a link as a table's folder": lambda a: a.replace(a.log().parent, link_to(a.other / "tables" / "traces")),
    "a link as all tables": lambda a: a.replace(a.lake / "tables", link_to(a.other / "tables")),
    "a link as a commit": lambda a: a.replace(
        a.log() / f"{0:020}.json", link_to(a.other / "tables" / "traces" / "_delta_log" / f"{0:020}.json")
    ),
    "a pipe as a commit": lambda a: os.mkfifo(a.log() / f"{9:020}.json"),
    "a pipe as the last checkpoint": lambda a: os.mkfifo(a.log() / "_last_checkpoint"),
    "a device as a commit": lambda a: (a.log() / f"{9:020}.json").symlink_to("/dev/zero"),
    "a folder as a commit": lambda a: (a.log() / f"{9:020}.json").mkdir(),
    "a commit of nonsense": lambda a: [path.write_text("[" * 200000) for path in a.log().glob("*.json")],
    "no protocol": lambda a: (a.log() / f"{0:020}.json").write_text("{}\n"),
    "a later protocol": lambda a: a.commit({"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}),
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
    "a checkpoint that names other logs": lambda a: pq.write_table(
        pa.table({"sidecar": [{"path": "/etc/passwd"}]}), a.log() / f"{1:020}.checkpoint.parquet"
    ),
    "a checkpoint of nonsense": lambda a: (a.log() / f"{1:020}.checkpoint.parquet").write_bytes(b"PAR1"),
    "a last checkpoint of nonsense": lambda a: (a.log() / "_last_checkpoint").write_text("{" * 1000),
    "a schema of nonsense": lambda a: a.commit(
        {
            "metaData": {
                "id": "x",
                "schemaString": "{",
                "format": {},
                "partitionColumns": [],
                "configuration": {},
            }
        }
    ),
    "statistics of nonsense": lambda a: a.commit(added("i3.attempt.parquet", stats="[")),
}
"""A log of a table that is none: nothing outside is read, and whoever asks is told."""


@pytest.fixture
def attack(tmp_path: pathlib.Path) -> Attack:
    return Attack(tmp_path)


def rows(*arguments: object) -> List[Dict[str, Any]]:
    done = called(*arguments, "--format", "jsonl")
    assert done.returncode == 3, done.stderr
    assert "left out" in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_attack_harms_its_own_image_only(name: str, attack: Attack) -> None:
    """A query of manifests reads them whole."""
    LEFT_OUT[name](attack)
    query = "SELECT Stack, * EXCLUDE (Stack) FROM traces WHERE ImageId IN (SELECT image_id FROM manifests)"
    found = rows("sql", attack.lake, query)
    assert [row["Stack"] for row in found] == ["stack of i2"]
    assert attack.others() == attack.before


@pytest.mark.parametrize(
    "query", ["FROM traces", "FROM traces WHERE ImageId IN (SELECT image_id FROM manifests)"]
)
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_the_catalogue_harm_their_own_image_only(name: str, query: str, attack: Attack) -> None:
    COLUMNS[name](attack)
    assert [row["Stack"] for row in rows("sql", attack.lake, query)] == ["stack of i2"]


def test_columns_that_are_not_those_of_the_manifest_are_found_when_asked(attack: Attack) -> None:
    attack.set_column("Path", "/other")
    assert called("status", attack.lake).returncode == 0
    (first, *_) = rows("status", attack.lake, "--verify")
    assert (first["ImageId"], first["Status"]) == ("i1", "damaged")
    assert "columns" in first["Reason"]


@pytest.mark.parametrize("columns", [["ImageId", "Attempt", "Batch", "Manifest"], ["ImageId"]])
def test_a_catalogue_of_other_columns_is_refused_and_made_anew(columns: List[str], attack: Attack) -> None:
    entries = Entries(attack.lake)
    entries.put([entries.by_id["i1"]])
    path = only((attack.lake / "tables" / "manifests").glob("*.parquet"))
    pq.write_table(pq.read_table(path).select(columns), path)
    log = TableLog(attack.lake, "manifests")
    old = only(log.load())
    new = path.with_name("entries.other.parquet")
    path.rename(new)
    log.commit(
        pa.schema([("ImageId", pa.string())]), [old._replace(name=new.name, size=new.stat().st_size)], [old]
    )
    done = called("status", attack.lake)
    assert done.returncode == 2 and "stackfleet run rebuilds it" in done.stderr
    lake = Lake(str(attack.lake))
    assert lake.mend() == ["manifests"]
    assert [manifest["image_id"] for manifest in lake.contents().manifests] == ["i1", "i2"]


@pytest.mark.parametrize("table", ["traces", "manifests"])
@pytest.mark.parametrize("name", LOGS)
def test_a_log_leads_nowhere(name: str, table: str, attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    log = attack.log
    monkeypatch.setattr(attack, "log", lambda name=table: log(table))
    LOGS[name](attack)
    for arguments in (["status", attack.lake], ["sql", attack.lake, "SELECT Stack FROM traces"]):
        done = called(*arguments, "--format", "jsonl")
        assert done.returncode in (0, 2, 3)
        assert SECRET not in done.stdout and "i9" not in done.stdout
        shown = [json.loads(line) for line in done.stdout.splitlines()]
        # Nothing that is there is left out without a word.
        assert len(shown) == 2 or done.stderr
    assert attack.others() == attack.before


@pytest.mark.parametrize("name", ["a log that leads out of the lake", "a table that is cut", "rows below 0"])
@pytest.mark.parametrize("command", ["rare", "findings", "status"])
def test_every_question_leaves_it_out(command: str, name: str, attack: Attack) -> None:
    {**LEFT_OUT, **COLUMNS}[name](attack)
    found = rows(command, attack.lake, *(["--verify"] if command == "status" else []))
    if command == "status":
        assert {("i1", "damaged"), ("i2", "done")} <= {(row["ImageId"], row["Status"]) for row in found}
    else:
        assert "stack of i2" in json.dumps(found) and "stack of i1" not in json.dumps(found)
    assert SECRET not in json.dumps(found)


def test_pages_leave_it_out(attack: Attack, tmp_path: pathlib.Path) -> None:
    LEFT_OUT["a log that leads out of the lake"](attack)
    done = fleet("report", attack.lake, "-o", tmp_path / "pages")
    assert done.returncode == 3, done.stderr
    assert "images: 1 done, 1 failed" in done.stdout
    text = (tmp_path / "pages" / "index.html").read_text()
    assert SECRET not in text and "damaged" in text


def test_rows_that_say_another_image_are_found_when_asked(attack: Attack) -> None:
    attack.rewrite(fleetlakes.arrow("traces", "i2", [{"Stack": "planted"}]))
    (first, *_) = rows("status", attack.lake, "--verify")
    assert (first["ImageId"], first["Status"]) == ("i1", "damaged")
    assert "0 rows, but 1 in the manifest" in first["Reason"]


CUSTODY: Dict[str, Change] = {
    "a pipe as a manifest": lambda a: a.replace(a.path, os.mkfifo),
    "a link as a manifest": lambda a: a.replace(a.path, link_to(a.other / "manifest" / "i9.json")),
    "a device as a manifest": lambda a: a.replace(a.path, link_to(pathlib.Path("/dev/zero"))),
    "a folder as a manifest": lambda a: a.replace(a.path, pathlib.Path.mkdir),
    "a manifest that is gone": lambda a: a.path.unlink(),
    "another manifest": lambda a: a.path.write_text(a.path.read_text().replace("/images", "/other")),
    "no text": lambda a: a.path.write_bytes(b"\xff\xfe{}"),
}


@pytest.mark.parametrize("name", CUSTODY)
def test_manifests_are_compared_with_the_catalogue_when_asked(name: str, attack: Attack) -> None:
    """Questions read none of them."""
    CUSTODY[name](attack)
    done = called("sql", attack.lake, "SELECT Stack FROM traces ORDER BY ALL", "--format", "jsonl")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    (first, *_) = rows("status", attack.lake, "--verify")
    assert (first["ImageId"], first["Status"]) == ("i1", "damaged")
    assert "manifest" in first["Reason"]


def test_a_manifest_that_the_catalogue_lacks_is_named_when_asked(attack: Attack) -> None:
    shutil.copy(attack.path, attack.path.with_name("i5.json"))
    reasons = {row["ImageId"]: row["Reason"] for row in rows("status", attack.lake, "--verify")}
    assert reasons["i5"] == "its manifest is not in the catalogue"


def test_a_file_that_a_log_names_and_is_none_of_its_own_is_named_when_asked(attack: Attack) -> None:
    attack.commit(added("../../../etc/passwd"))
    image_ids = [row["ImageId"] for row in rows("status", attack.lake, "--verify")]
    assert "tables/traces: ../../../etc/passwd" in image_ids


@pytest.mark.parametrize("image_id", ["i2", "i3", "../../../etc/passwd", "<script>"])
def test_pages_with_rows_of_another_image(image_id: str, attack: Attack, tmp_path: pathlib.Path) -> None:
    """Such rows are believed, and lead nowhere."""
    found = {"Severity": "high", "Finding": "unbacked", "Symbol": "planted", "TraceId": "std:0"}
    attack.rewrite(fleetlakes.arrow("findings", image_id, [found]), "findings")
    attack.rewrite(fleetlakes.arrow("image", image_id, [{"ComputerName": "pc"}]), "image")
    done = fleet("report", attack.lake, "-o", tmp_path / "pages")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    names = {path.name for path in (tmp_path / "pages").iterdir()}
    assert names == {"index.html", "image-i1.html", "image-i2.html"}
    assert "etc/passwd.html" not in (tmp_path / "pages" / "index.html").read_text()


def test_altered_rows_are_found_when_asked(attack: Attack) -> None:
    path = attack.table()
    path.write_bytes(path.read_bytes().replace(b"stack of i1", b"stack of iX"))
    rows_said = rows("status", attack.lake, "--verify")
    assert "SHA-256" in rows_said[0]["Reason"]
    attack.set_table(rows=7, sha256=provenance.sha256(path))
    assert "columns of the catalogue" in rows("status", attack.lake, "--verify")[0]["Reason"]
    attack.set_rows(traces=7)
    assert "rows or bytes" in rows("status", attack.lake)[0]["Reason"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{}/manifest/i9.json')",
        "SELECT * FROM '{}/tables/traces/i9.attempt.parquet'",
        "COPY (SELECT 1) TO '{}/made'",
        "ATTACH '{}/made.db'",
        "SELECT * FROM glob('{}/**')",
        "INSTALL httpfs",
    ],
)
def test_a_query_reaches_the_files_of_its_views_only(sql: str, attack: Attack) -> None:
    done = called("sql", attack.lake, sql.format(attack.other))
    assert done.returncode == 2
    assert SECRET not in done.stdout
    assert attack.others() == attack.before


CLEANED: Dict[str, Change] = {
    "a link as a table's folder": LOGS["a link as a table's folder"],
    "a link as a log": LOGS["a link as a log"],
    "a link as all tables": LOGS["a link as all tables"],
    "a log that leads out of the lake": LEFT_OUT["a log that leads out of the lake"],
    "a link as a file of a table": lambda a: (a.lake / "tables" / "traces" / "i9.x.parquet").symlink_to(
        a.other / SECRETS
    ),
    "a link as the lock": lambda a: (a.lake / "lock").symlink_to(a.other / "manifest" / "i9.json"),
    "a pipe as the lock": lambda a: os.mkfifo(a.lake / "lock"),
    "a link as the runs": lambda a: (a.lake / "runs").symlink_to(a.other),
    "a link left over": lambda a: (a.lake / "manifest" / ".i1.json.x").symlink_to(a.other / "manifest"),
    "a folder left over": lambda a: (a.lake / "manifest" / ".i2.json.x").mkdir(),
    "a link as the manifests": lambda a: a.replace(a.lake / "manifest", link_to(a.other / "manifest")),
}


@pytest.mark.parametrize("name", CLEANED)
def test_a_run_stays_in_its_lake(name: str, attack: Attack, few: Fleet) -> None:
    CLEANED[name](attack)
    done = fleet("run", few.paths[0], "-o", attack.lake, *few.options, timeout=120)
    assert done.returncode in (0, 2, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert attack.others() == attack.before


def test_cleaning_up_keeps_what_a_log_may_name_that_cannot_be_read(attack: Attack) -> None:
    for path in attack.log().glob("*.json"):
        path.write_text("")
    assert Lake(str(attack.lake)).clean() == 0
    assert attack.table().exists()


@pytest.mark.parametrize(
    "name", ["a link as a log", "a log that leads out of the lake", "a link as all tables"]
)
@pytest.mark.parametrize("command", [["compact"], ["forget"]])
def test_what_changes_a_lake_stays_in_it(command: List[str], name: str, attack: Attack) -> None:
    {**LOGS, **LEFT_OUT}[name](attack)
    done = called(*command, attack.lake, *(["i1"] if command == ["forget"] else []))
    assert done.returncode in (0, 2, 3)
    assert attack.others() == attack.before


def test_an_image_is_not_compared_with_a_pipe(few: Fleet, attack: Attack, tmp_path: pathlib.Path) -> None:
    """A manifest may say that an image with the same ImageId lies at any path."""
    lake = tmp_path / "mine"
    assert fleet("run", few.paths[0], "-o", lake, *few.options).returncode == 0
    path = only((lake / "manifest").glob("*.json"))
    pipe, same = tmp_path / "pipe", tmp_path / "same.dmp"
    os.mkfifo(pipe)
    shutil.copy(few.paths[0], same)
    known = json.loads(path.read_text())
    facts = pipe.stat()
    known.update(path=str(pipe), size=facts.st_size, modified=facts.st_mtime_ns)
    known["files"] = [{"path": str(pipe), "size": 0, "sha256": None}]
    fleetlakes.enter_again(lake, known)
    done = fleet("run", same, "-o", lake, *few.options, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(list((lake / "manifest").glob("*.json"))) == 2
