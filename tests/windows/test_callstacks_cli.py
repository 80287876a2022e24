# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.callstacks` on the real command line."""

from __future__ import annotations

import pathlib
from typing import Tuple

import pytest

from tests.forge import vol
from tests.support.callstackimages import StackImage

pytestmark = pytest.mark.cli

Made = Tuple[StackImage, pathlib.Path, pathlib.Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """An image with one waiting thread, its file and its symbol directory."""
    forged = StackImage()
    forged.waiting(1004)
    folder = tmp_path_factory.mktemp("stacks")
    image = forged.kernel.image()
    return forged, image.save(folder / "image.raw"), image.install(folder / "symbols")


def run(made: Made, *options: str, renderer: str = "json") -> vol.Result:
    return vol.run(made[1], "windows.callstacks", *options, symbols=made[2], renderer=renderer)


def test_stacks_with_their_frames_below(made: Made) -> None:
    rows = run(made, "--frames-to-skip", "1", "--frames-to-capture", "2").rows
    assert [(row["TID"], row["Part"], row["Depth"]) for row in rows] == [
        *((1004, "kernel", 2), (1004, "user", 2)),
    ]
    mask = (1 << 48) - 1
    for row in rows:
        frames = [address for address, _, _ in made[0].expected[1004, row["Part"]].frames]
        first = 1 if row["Part"] == "kernel" else 2
        shown = [child["Address"] for child in row["__children"] if child["Frame"] >= first]
        assert shown == [address & mask for address in frames[first : first + 2]]
        assert row["BackTraceHash"] == sum(shown) & 0xFFFFFFFF


def test_nothing_to_show_is_said_and_is_no_failure(made: Made) -> None:
    result = run(made, "--tid", "4444")
    assert (result.returncode, result.rows) == (0, [])
    assert "There is no thread 4444" in result.stderr


def test_registers_from_the_walk(made: Made) -> None:
    result = vol.run(made[1], "windows.trapframes", "--unwind", symbols=made[2])
    row = next(row for row in result.rows if row["Mode"] == "user")
    assert row["R12"] == made[0].at_entry[12]
