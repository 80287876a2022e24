# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The schemas of windows.tracefindings and minidump.info hold for what `vol` prints.

`tests/windows/test_pipelines.py` has those of the flat tables.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, Iterator, List

import jsonschema
import pytest

from tests.conftest import SHARED
from tests.forge import vol
from tests.support import processdumps, smalldumps

from . import jsonschemas
from .runs import Runner

REAL = sorted((SHARED / "real_minidumps").glob("**/*.dmp"))
SAMPLE = ("sample.dmp", smalldumps.SAMPLE, *processdumps.SAMPLE)
LISTS = "--modules --unloaded --handles --regions --annotations"

pytestmark = [
    pytest.mark.cli,
    pytest.mark.skipif(os.name == "nt", reason="the commands are those of a POSIX shell"),
]


def validator(table: str) -> Any:
    return jsonschema.Draft202012Validator(jsonschemas.make(table))


def flat(rows: List[Dict[str, Any]]) -> Iterator[Dict[str, Any]]:
    for row in rows:
        yield row
        yield from flat(row[jsonschemas.CHILDREN])


@pytest.mark.parametrize("name", SAMPLE)
def test_findings_of_the_sample_are_what_the_schema_says(name: str, runner: Runner) -> None:
    folder = "windows" if name == "sample.dmp" else "minidump"
    rows: List[Dict[str, Any]] = []
    for options in ("", " --summary"):
        command = f"vol -r jsonl -f {name} {folder}.tracefindings{options}"
        rows += [json.loads(line) for line in runner.output(command) if line.startswith("{")]
    assert rows
    for row in rows:
        validator("tracefindings").validate(row)


@pytest.mark.parametrize("name", SAMPLE[1:])
def test_the_contents_of_a_dump_are_what_the_schema_says(name: str, runner: Runner) -> None:
    for options in ("", f" {LISTS}"):
        text = "\n".join(runner.output(f"vol -r json -f {name} minidump.info{options}"))
        rows = json.loads(text[text.index("[") :])
        assert rows
        validator("info").validate(rows)


@pytest.mark.shared
@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_real_dumps_give_what_the_schemas_say(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "symbols").mkdir()
    rows = vol.run(path, "minidump.info", *LISTS.split(), symbols=tmp_path / "symbols").rows
    assert len(list(flat(rows))) >= 3
    validator("info").validate(rows)
    found = vol.run(path, "minidump.tracefindings", symbols=tmp_path / "symbols", renderer="jsonl")
    for line in found.stdout.splitlines():
        if line.startswith("{"):
            validator("tracefindings").validate(json.loads(line))


def test_the_schemas_refuse_what_no_row_has() -> None:
    good: Dict[str, Any] = dict.fromkeys(jsonschemas.make("tracefindings")["properties"])
    good.update({"ImageId": f"i{0:032x}", jsonschemas.CHILDREN: []})
    validator("tracefindings").validate(good)
    for name, value in {"Severity": "dire", "PID": "4", "ImageId": None}.items():
        assert not validator("tracefindings").is_valid({**good, name: value})
    row: Dict[str, Any] = dict.fromkeys(jsonschemas.make("info")["$defs"]["row"]["properties"])
    row[jsonschemas.CHILDREN] = []
    validator("info").validate([{**row, "Part": "user 2", jsonschemas.CHILDREN: [row]}])
    refused: List[Dict[str, Any]] = [{"Part": "user two"}, {"Address": "0x10"}, {jsonschemas.CHILDREN: [{}]}]
    for wrong in refused:
        assert not validator("info").is_valid([{**row, **wrong}])
