# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Each column of each table that may be null is null in a row of one image, under every command."""

from __future__ import annotations

import datetime
import pathlib
import shutil
from typing import Any, Dict, List

import pytest

from stackfleet.columns import SCHEMAS
from stackfleet.lake import Lake
from stackfleet.layout import IMAGE, KEYS
from stackfleet.manifests import DONE
from tests.support import fleetlakes
from tests.support.fleetrun import called

WORDS = {"Severity": "high", "Finding": "unbacked", "Kind": "user", "Files": "[]"}
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
OF_TYPES = {"string": "1", "int64": 1, "bool": True, "list<item: int64>": [1]}
FORMS = ("folded", "speedscope", "timesketch", "ecs", "jsonl")
COMMANDS = [
    *(["rare"], ["findings"], ["findings", "--each"], ["waits"], ["status"], ["diff", "i1", "i2"]),
    *(["export", "--to", form] for form in FORMS),
    *(["report", "-o", "pages"], ["sql", "SELECT * FROM traces"]),
]
CHANGES = (["compact"], ["forget", "i2"], ["run", "note.raw"])


def filled(table: str) -> List[Dict[str, Any]]:
    """A row for each column that may be null: that one is, and all others have a value."""
    whole = {field.name: OF_TYPES.get(str(field.type), NOW) for field in SCHEMAS[table]}
    whole.update({name: text for name, text in WORDS.items() if name in whole})
    del whole["ImageId"]
    nullable = (field.name for field in SCHEMAS[table] if field.nullable and field.name in whole)
    return [{**whole, name: None} for name in nullable]


@pytest.fixture(scope="module")
def lake(shared_lake: Lake) -> pathlib.Path:
    fleetlakes.add(shared_lake, "i1", host="i1", traces=[{"StackKey": "k", "Stack": "stack of i1"}])
    tables = {name: fleetlakes.arrow(name, "i2", filled(name)) for name in SCHEMAS if name != IMAGE}
    fleetlakes.add(shared_lake, "i2", **tables)
    for number, row in enumerate(filled(IMAGE)):
        fleetlakes.add(shared_lake, f"one{number}", image=[row])
    return pathlib.Path(shared_lake.uri)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_column_that_may_be_null_ends_no_command(
    command: List[str], lake: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    name, *more = (str(tmp_path / word) if word == "pages" else word for word in command)
    done = called(name, lake, *more)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("command", CHANGES, ids=" ".join)
def test_a_column_that_may_be_null_keeps_no_lake_from_being_changed(
    command: List[str], lake: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    changed, note = shutil.copytree(lake, tmp_path / "lake"), tmp_path / "note.raw"
    note.write_bytes(b"no image")
    name, *more = (str(note) if word == note.name else word for word in command)
    done = called(name, changed, *more) if name != "run" else called(name, *more, "-o", changed)
    assert (done.returncode, "Traceback" in done.stderr) == (3 if name == "run" else 0, False), done.stderr
    images = {item["image_id"] for item in Lake(str(changed)).manifests() if item["status"] == DONE}
    assert images == {"i1", *("i2",) * (name != "forget"), *(f"one{n}" for n in range(len(filled(IMAGE))))}
    called("status", changed, "--verify", code=done.returncode)


def test_every_table_has_rows(lake: pathlib.Path) -> None:
    tables = next(item["tables"] for item in Lake(str(lake)).manifests() if item["image_id"] == "i2")
    rows = {name: table["rows"] for name, table in tables.items() if name not in (IMAGE, KEYS)}
    assert rows == {name: len(filled(name)) for name in rows}
    assert rows["traces"] > 10


@pytest.mark.parametrize("form", ["folded", "speedscope"])
def test_a_process_without_a_name_is_unreadable(form: str, lake: pathlib.Path) -> None:
    done = called("export", lake, "--to", form)
    assert "unreadable" in done.stdout
    assert not any(word in done.stdout for word in ("None", "null"))
