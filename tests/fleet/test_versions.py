# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake in which another version of the tables is, too: fewer columns, further columns, other types."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Callable

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stackfleet.agreement import Depth
from stackfleet.lake import Lake
from stackfleet.layout import table_file
from stackfleet.merging import merge
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import called, fleet, manifests

Change = Callable[[Any], Any]
LACKING = {
    "image": ["InputKind", "Completeness", "StacksKnown", "StacksRead", "StructuresAbsent"],
    "traces": ["Owner", "Bytes"],
}
"""Columns that version 1 of these tables lacks here."""
SAID = "stackfleet: 1 of 3 images have tables of version 1, not 4"


def rewrite(lake: pathlib.Path, table: str, change: Change) -> None:
    """Changes the file of a table of the image `old`, as if another version had written it."""
    path = table_file(str(lake), table, "old", "attempt")
    pq.write_table(change(pq.ParquetFile(path).read()), path)
    manifest = json.loads((lake / "manifest" / "old.json").read_text())
    fleetlakes.enter_again(lake, manifest, table)


def of_version_1(table: str) -> Change:
    def change(rows: Any) -> Any:
        place = rows.schema.get_field_index("Schema")
        ones = pa.array([1] * rows.num_rows, rows.schema.field(place).type)
        rows = rows.set_column(place, rows.schema.field(place), ones)
        return rows.drop_columns(LACKING[table]).append_column("PagesWanted", ones)

    return change


def without_kind(rows: Any) -> Any:
    return rows.drop_columns(["Kind"])


def with_named_hosts(rows: Any) -> Any:
    names = pa.array(["x"] * rows.num_rows)
    return rows.set_column(rows.schema.get_field_index("HostKey"), "HostKey", names)


@pytest.fixture
def lake(tmp_path: pathlib.Path) -> pathlib.Path:
    """Three images; the tables `image` and `traces` of one of them have version 1."""
    new_lake = fleetlakes.new_lake(tmp_path / "lake")
    for number, image_id in enumerate(["old", "new1", "new2"]):
        traces = [{"StackKey": f"{number}" * 32, "Stack": "nt!A", "Owner": "0x80", "Bytes": 7}]
        fleetlakes.add(new_lake, image_id, host=f"pc-{image_id}", traces=traces)
    for table in LACKING:
        rewrite(new_lake.folder, table, of_version_1(table))
    return new_lake.folder


def test_a_column_that_a_version_lacks_is_empty(lake: pathlib.Path) -> None:
    sql = "SELECT ImageId, Owner, Bytes, InputKind FROM traces JOIN image USING (ImageId) ORDER BY ALL"
    expected = [
        {"ImageId": "new1", "Owner": "0x80", "Bytes": 7, "InputKind": "image"},
        {"ImageId": "new2", "Owner": "0x80", "Bytes": 7, "InputKind": "image"},
        {"ImageId": "old", "Owner": None, "Bytes": None, "InputKind": None},
    ]
    for compact in (False, True):
        if compact:
            assert called("compact", lake).returncode == 0
        done = called("sql", lake, sql, "--format", "jsonl")
        assert done.returncode == 0, done.stderr
        assert [json.loads(line) for line in done.stdout.splitlines()] == expected
        assert SAID in done.stderr
    assert not Lake(str(lake)).contents(Depth.CONTENT).damaged


def test_a_lake_of_an_earlier_version_alone(lake: pathlib.Path) -> None:
    assert called("forget", lake, "new1", "new2").returncode == 0
    sql = "SELECT InputKind, Host FROM image JOIN hosts USING (ImageId)"
    done = called("sql", lake, sql, "--format", "csv")
    assert (done.returncode, done.stdout.split()) == (0, ["InputKind,Host", ",PC-OLD"]), done.stderr


def test_every_question_has_all_images_and_names_the_version(
    lake: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for command in (["rare", lake], ["findings", lake], ["diff", lake, "old", "new1"]):
        done = called(*command, "--format", "csv")
        assert done.returncode == 0, done.stderr
        assert SAID in done.stderr
    assert called("rare", lake, "--format", "csv").stdout.count("PC-") == 3
    done = called("report", lake, "-o", tmp_path / "pages")
    assert (done.returncode, "3 done, 0 failed" in done.stdout, SAID in done.stderr) == (0, True, True)


def test_other_readers_see_the_columns_of_all_versions(lake: pathlib.Path) -> None:
    """The log was begun by the version with fewer columns."""
    first = min((lake / "tables" / "image" / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            form = json.loads(line["metaData"]["schemaString"])
            form["fields"] = [field for field in form["fields"] if field["name"] not in LACKING["image"]]
            line["metaData"]["schemaString"] = json.dumps(form)
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    fleetlakes.add(Lake(str(lake)), "new3", host="pc-new3")
    kinds = polars.scan_delta(str(lake / "tables" / "image")).select("ImageId", "InputKind").collect()
    assert dict(kinds.rows()) == {"old": None, "new1": "image", "new2": "image", "new3": "image"}


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("traces", without_kind, "it lacks the column Kind"),
        ("keys", with_named_hosts, "the type of HostKey is string instead of int64"),
    ],
)
def test_a_version_whose_rows_cannot_be_read_takes_its_own_image_only(
    table: str, change: Change, message: str, lake: pathlib.Path
) -> None:
    rewrite(lake, table, change)
    done = called("rare", lake, "--format", "csv")
    assert done.returncode == 3
    assert f"left out: /images/old.raw (old): tables/{table}/old.attempt.parquet: " in done.stderr
    assert message in done.stderr
    assert done.stdout.count("PC-") == 2
    # The others become a batch, and it stays as it is.
    merged = merge(Lake(str(lake)), "run", everything=True)
    assert (merged.images, [manifest.image_id for manifest in merged.damaged]) == (2, ["old"])
    assert called("rare", lake, "--format", "csv").stdout == done.stdout


def test_a_run_into_such_a_lake(lake: pathlib.Path, few: Fleet) -> None:
    ran = fleet("run", few.paths[0], "-o", lake, *few.options)
    assert ran.returncode == 0, ran.stderr
    assert [manifest["status"] for manifest in manifests(lake).values()] == ["done"] * 4
    done = called("sql", lake, "SELECT DISTINCT Schema FROM image ORDER BY 1", "--format", "csv")
    assert (done.returncode, done.stdout.split()) == (0, ["Schema", "1", "4"]), done.stderr
