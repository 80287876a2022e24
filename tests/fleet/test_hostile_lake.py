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

from stackfleet import custody
from stackfleet.lake import Lake
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import fleet

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
        made = fleetlakes.new_lake(self.folder / name)
        for each in image_ids:
            stack = SECRET if name == "other" else f"stack of {each}"
            found = {"Severity": "high", "Finding": "unbacked", "Symbol": stack}
            fleetlakes.add(
                made, each, host=each, traces=[{"StackKey": stack, "Stack": stack}], findings=[found]
            )
        return self.folder / name

    def others(self) -> Dict[str, bytes]:
        """All files outside the lake that is attacked."""
        return {str(path): path.read_bytes() for path in self.other.rglob("*") if path.is_file()}

    @property
    def path(self) -> pathlib.Path:
        return self.lake / "manifest" / "i1.json"

    def table(self, name: str = "traces", image_id: str = "i1") -> pathlib.Path:
        return self.lake / name / f"image={image_id}" / "attempt.parquet"

    def set(self, **values: Any) -> None:
        self.path.write_text(json.dumps({**json.loads(self.path.read_text()), **values}))

    def set_table(self, **values: Any) -> None:
        tables = json.loads(self.path.read_text())["tables"]
        self.set(tables={**tables, "traces": {**tables["traces"], **values}})

    def replace(self, path: pathlib.Path, made: Callable[[pathlib.Path], object]) -> None:
        """Puts something else into the place of a file or folder."""
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        made(path)

    def rewrite(self, table: Any, name: str = "traces") -> None:
        """Writes another table, with which the manifest agrees."""
        path = self.table(name)
        pq.write_table(table, path)
        known = json.loads(self.path.read_text())
        known["tables"][name].update(
            bytes=path.stat().st_size, rows=table.num_rows, sha256=custody.sha256(path)
        )
        self.path.write_text(json.dumps(known))


def link_to(target: pathlib.Path) -> Callable[[pathlib.Path], object]:
    return lambda path: path.symlink_to(target)


def damaged_page(attack: Attack) -> None:
    """The middle of a file is overwritten; its size is the same."""
    data = bytearray(attack.table().read_bytes())
    data[4:200] = b"\xff" * 196
    attack.table().write_bytes(data)


LEFT_OUT: Dict[str, Change] = {
    "a path out of the lake": lambda a: a.set_table(file="../other/traces/image=i9/attempt.parquet"),
    "an absolute path": lambda a: a.set_table(file=str(a.other / "traces/image=i9/attempt.parquet")),
    "all files of the lake": lambda a: a.set_table(file="traces/*/*.parquet"),
    "a path that goes and comes back": lambda a: a.set_table(file="traces/x/../image=i1/attempt.parquet"),
    "a URL": lambda a: a.set_table(file="https://example.invalid/a.parquet"),
    "the table of another image": lambda a: a.set_table(file="traces/image=i2/attempt.parquet"),
    "a table that there is not": lambda a: a.set(tables={"../manifest": {}}),
    "an ImageId with a path": lambda a: a.set(image_id="../../other/i1"),
    "an attempt with a path": lambda a: a.set(attempt="../../../other/traces/image=i9/attempt"),
    "another ImageId than its name": lambda a: a.set(image_id="i2"),
    "a number of many digits": lambda a: a.set(size=10**30),
    "a number that is none": lambda a: a.path.write_text(a.path.read_text().replace("1.0", "NaN")),
    "a text in the place of a list": lambda a: a.set(copies="/images"),
    "a record in the place of a text": lambda a: a.set(path={"a": 1}),
    "half a character": lambda a: a.set(note="\ud800"),
    "no time": lambda a: a.set(started="yesterday"),
    "deep lists": lambda a: a.path.write_text("[" * 200000),
    "an empty manifest": lambda a: a.path.write_text(""),
    "a list": lambda a: a.path.write_text("[]"),
    "a later version": lambda a: a.set(manifest=2),
    "no text": lambda a: a.path.write_bytes(b"\xff\xfe{}"),
    "a pipe as a table": lambda a: a.replace(a.table(), os.mkfifo),
    "a pipe as a manifest": lambda a: a.replace(a.path, os.mkfifo),
    "a link as a manifest": lambda a: a.replace(a.path, link_to(a.other / "manifest" / "i9.json")),
    "a device as a manifest": lambda a: a.replace(a.path, link_to(pathlib.Path("/dev/zero"))),
    "a folder as a manifest": lambda a: a.replace(a.path, pathlib.Path.mkdir),
    "a link as a table": lambda a: a.replace(
        a.table(), link_to(a.other / "traces" / "image=i9" / "attempt.parquet")
    ),
    "a link as the folder of an image": lambda a: a.replace(
        a.table().parent, link_to(a.other / "traces" / "image=i9")
    ),
    "a table that is gone": lambda a: a.table().unlink(),
    "a table that is empty": lambda a: a.table().write_bytes(b""),
    "a table that is cut": lambda a: os.truncate(a.table(), a.table().stat().st_size - 7),
    "other columns": lambda a: a.rewrite(pa.table({"StackKey": [1]})),
    "a page of nonsense": damaged_page,
}
"""What is left out by every question. The other image is shown as if nothing were."""


@pytest.fixture
def attack(tmp_path: pathlib.Path) -> Attack:
    return Attack(tmp_path)


def rows(*arguments: object) -> List[Dict[str, Any]]:
    done = fleet(*arguments, "--format", "jsonl", timeout=60)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "left out" in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_attack_harms_its_own_image_only(name: str, attack: Attack) -> None:
    LEFT_OUT[name](attack)
    found = rows("sql", attack.lake, "SELECT Stack, * EXCLUDE (Stack) FROM traces")
    assert [row["Stack"] for row in found] == ["stack of i2"]
    assert attack.others() == attack.before


@pytest.mark.parametrize("name", ["a path out of the lake", "a table that is cut", "an empty manifest"])
@pytest.mark.parametrize("command", ["rare", "findings", "status"])
def test_every_question_leaves_it_out(command: str, name: str, attack: Attack) -> None:
    LEFT_OUT[name](attack)
    found = rows(command, attack.lake, *(["--verify"] if command == "status" else []))
    if command == "status":
        assert {row["ImageId"]: row["Status"] for row in found} == {"i1": "damaged", "i2": "done"}
    else:
        assert "stack of i2" in json.dumps(found) and "stack of i1" not in json.dumps(found)
    assert SECRET not in json.dumps(found)


def test_pages_leave_it_out(attack: Attack, tmp_path: pathlib.Path) -> None:
    LEFT_OUT["a path out of the lake"](attack)
    done = fleet("report", attack.lake, "-o", tmp_path / "pages")
    assert done.returncode == 3, done.stderr
    assert "images: 1 done, 1 failed" in done.stdout
    text = (tmp_path / "pages" / "index.html").read_text()
    assert SECRET not in text and "damaged" in text


def test_rows_that_say_another_image_are_found_when_asked(attack: Attack) -> None:
    attack.rewrite(fleetlakes.arrow("traces", "i2", [{"Stack": "planted"}]))
    (first, *_) = rows("status", attack.lake, "--verify")
    assert (first["ImageId"], first["Status"]) == ("i1", "damaged")
    assert "rows of another image" in first["Reason"]


@pytest.mark.parametrize("image_id", ["i2", "i3", "../../../etc/passwd", "<script>"])
def test_pages_with_rows_of_another_image(image_id: str, attack: Attack, tmp_path: pathlib.Path) -> None:
    """Such rows are believed, and lead nowhere."""
    found = {"Severity": "high", "Finding": "unbacked", "Symbol": "planted", "TraceId": "std:0"}
    attack.rewrite(fleetlakes.arrow("findings", image_id, [found]), "findings")
    attack.rewrite(fleetlakes.arrow("image", image_id, [{"ComputerName": "pc"}]), "image")
    done = fleet("report", attack.lake, "-o", tmp_path / "pages")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    names = {each.name for each in (tmp_path / "pages").iterdir()}
    assert names == {"index.html", "image-i1.html", "image-i2.html"}
    assert "etc/passwd.html" not in (tmp_path / "pages" / "index.html").read_text()


def test_altered_rows_are_found_when_asked(attack: Attack) -> None:
    path = attack.table()
    path.write_bytes(path.read_bytes().replace(b"stack of i1", b"stack of iX"))
    rows_said = rows("status", attack.lake, "--verify")
    assert "SHA-256" in rows_said[0]["Reason"]
    attack.set_table(rows=7, sha256=custody.sha256(path))
    assert "7 in the manifest" in rows("status", attack.lake, "--verify")[0]["Reason"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{}/manifest/i9.json')",
        "SELECT * FROM '{}/traces/image=i9/attempt.parquet'",
        "COPY (SELECT 1) TO '{}/made'",
        "ATTACH '{}/made.db'",
        "SELECT * FROM glob('{}/**')",
        "INSTALL httpfs",
    ],
)
def test_a_query_reaches_the_files_of_its_views_only(sql: str, attack: Attack) -> None:
    done = fleet("sql", attack.lake, sql.format(attack.other))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and SECRET not in done.stdout
    assert attack.others() == attack.before


CLEANED: Dict[str, Change] = {
    "a link as a table's folder": lambda a: a.replace(a.lake / "traces", link_to(a.other / "traces")),
    "a link as an image's folder": lambda a: (a.lake / "traces" / "image=i9").symlink_to(
        a.other / "traces" / "image=i9"
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


def test_cleaning_up_keeps_what_a_manifest_may_name_that_cannot_be_read(attack: Attack) -> None:
    attack.path.write_text("")
    assert Lake(str(attack.lake)).clean() == 0
    assert attack.table().exists()


def test_an_image_is_not_compared_with_a_pipe(few: Fleet, attack: Attack, tmp_path: pathlib.Path) -> None:
    """A manifest may say that an image with the same ImageId lies at any path."""
    lake = tmp_path / "mine"
    assert fleet("run", few.paths[0], "-o", lake, *few.options).returncode == 0
    (path,) = (lake / "manifest").glob("*.json")
    pipe, same = tmp_path / "pipe", tmp_path / "same.dmp"
    os.mkfifo(pipe)
    shutil.copy(few.paths[0], same)
    known = json.loads(path.read_text())
    facts = pipe.stat()
    known.update(path=str(pipe), size=facts.st_size, modified=facts.st_mtime_ns)
    known["files"] = [{"path": str(pipe), "size": 0, "sha256": None}]
    path.write_text(json.dumps(known))
    done = fleet("run", same, "-o", lake, *few.options, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(list((lake / "manifest").glob("*.json"))) == 2
