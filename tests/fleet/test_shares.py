# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Several processes that share an image write the rows that one process writes, in the same order."""

from __future__ import annotations

import pathlib
from typing import Any, Dict

import pytest

from stackfleet.job import Reading
from stackfleet.layout import FINDINGS, FRAMES, IMAGE, TABLES, TRACES
from tests.forge import context
from tests.hostile.subjects import BUILDERS
from tests.support.fleetnight import hostile
from tests.support.shared import shared, whole

EVERYTHING = Reading(carve=True, scan_stacks=True, scan_threads=True, scan_processes=True, processors=True)

DIFFER = ("Warnings", "WarningText")
"""What depends on how often a process reads the same memory: it keeps what it has read last."""


def test_shares_are_those_of_the_whole_image(tmp_path: pathlib.Path) -> None:
    found = compared(context.open_file(saved("sample", tmp_path)), tmp_path, Reading(), 1)
    assert all(found[name].num_rows for name in (TRACES, FRAMES, FINDINGS, IMAGE))


@pytest.mark.parametrize(
    ("subject", "seed"),
    [("owners-xp-x86", None), ("owners-win10-x64", 1), ("heaps-wow64", None), ("stacks-win10-x64", 1)],
)
def test_images(subject: str, seed: Any, tmp_path: pathlib.Path) -> None:
    path = saved(subject, tmp_path)
    if seed is not None:
        path.write_bytes(hostile(path.read_bytes(), seed))
    compared(path, tmp_path, EVERYTHING if seed else Reading(), 2)


def saved(subject: str, folder: pathlib.Path) -> pathlib.Path:
    context.open_raw(BUILDERS[subject](), folder)
    [path] = folder.glob("image.*")
    return path


def compared(path: Any, folder: pathlib.Path, reading: Reading, helpers: int) -> Dict[str, Any]:
    path = next(iter(folder.glob("image.*")))
    expected = whole(context.open_file(path), folder / "lake", reading)
    found = shared(lambda: context.open_file(path), folder / "lake", reading, helpers)
    for name in TABLES:
        assert found[name].schema.equals(expected[name].schema, check_metadata=True)
        mine, theirs = found[name].to_pylist(), expected[name].to_pylist()
        for row in (*mine, *theirs) if name == IMAGE else ():
            for column in DIFFER:
                del row[column]
        assert len(mine) == len(theirs), name
        for place, (one, other) in enumerate(zip(mine, theirs)):
            assert one == other, (name, place)
    return expected
