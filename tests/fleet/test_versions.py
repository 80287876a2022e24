# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake that another version of the tables began: fewer columns, further columns, other types."""

from __future__ import annotations

import pathlib
from typing import Any

import pyarrow as pa
import pytest

from stackfleet.columns import UNITED
from stackfleet.lake import Depth, Lake
from stackfleet.newfiles import Part
from stackfleet.store import Store
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import ask, called, fleet

LACKING = ("InputKind", "Completeness", "StacksKnown", "StacksRead", "StructuresAbsent", "Owner", "Bytes")
"""Columns that version 1 lacks here."""
SAID = "stackfleet: tables of version 1, not"


@pytest.fixture
def lake(tmp_path: pathlib.Path) -> str:
    """Three images; the lake was begun with one of version 1."""
    uri = str(tmp_path / "lake")
    fields = [field for field in UNITED if field.name not in LACKING]
    with fleetlakes.of_columns(pa.schema([*fields, pa.field("PagesWanted", pa.int64())])):
        add(Lake(uri, create=True), "old", Schema=1)
    for image_id in ("new1", "new2"):
        add(Lake(uri), image_id)
    return uri


def add(lake: Lake, image_id: str, **more: Any) -> None:
    traces = [{"StackKey": f"{len(image_id)}" * 32, "Stack": "nt!A", "Owner": "0x80", "Bytes": 7, **more}]
    image = [{"ComputerName": f"pc-{image_id}", **more}]
    fleetlakes.add(lake, image_id, traces=traces, image=image)


def test_a_column_that_a_version_lacks_is_empty(lake: str) -> None:
    sql = "SELECT ImageId, Owner, Bytes, InputKind FROM traces JOIN image USING (ImageId) ORDER BY ALL"
    new = {"Owner": "0x80", "Bytes": 7, "InputKind": "image"}
    expected = [{"ImageId": "new1", **new}, {"ImageId": "new2", **new}]
    expected.append({"ImageId": "old", "Owner": None, "Bytes": None, "InputKind": None})
    for compact in (False, True):
        if compact:
            called("compact", lake, code=0)
        assert ask("sql", lake, sql, said=SAID) == expected


def test_every_question_has_all_images_and_names_the_version(lake: str, tmp_path: pathlib.Path) -> None:
    for command in (["rare", lake, "--max-hosts", "9"], ["findings", lake], ["diff", lake, "old", "new1"]):
        ask(*command, said=SAID)
    done = called("report", lake, "-o", tmp_path / "pages")
    assert (done.returncode, "3 done, 0 failed" in done.stdout, SAID in done.stderr) == (0, True, True)


def test_digests_of_the_rows_that_there_are_stay(lake: str) -> None:
    """A column that only later versions have is null, and null columns are not in a digest."""
    new = [item for item in Lake(lake).contents(Depth.CONTENT).damaged if item.image_id != "old"]
    assert not new


def test_a_run_into_such_a_lake(lake: str, few: Fleet) -> None:
    fleet("run", few.paths[0], "-o", lake, *few.options, code=0)
    assert len(Lake(lake).manifests()) == 4


def test_a_column_of_another_type_is_refused_in_a_sentence(tmp_path: pathlib.Path) -> None:
    fields = [pa.field("ImageId", pa.int64()), *(field for field in UNITED if field.name != "ImageId")]
    schema = pa.schema(fields)
    store = Store(str(tmp_path / "lake"), schema)
    batch = pa.record_batch({"ImageId": pa.array([1])})
    store.commit(store.snapshot(room=0), [Part("traces", [batch])], [])
    done = called("status", tmp_path / "lake")
    assert (done.returncode, "its column ImageId is int64, not string" in done.stderr) == (2, True), (
        done.stderr
    )
