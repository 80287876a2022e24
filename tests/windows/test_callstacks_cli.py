# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.callstacks` on the real command line."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

import pytest

from tests.forge import vol
from tests.support.callstackimages import StackImage

pytestmark = pytest.mark.cli


class SavedImage(NamedTuple):
    """An image with one waiting thread, its file and its symbol directory."""

    forged: StackImage
    file: pathlib.Path
    symbols: pathlib.Path


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> SavedImage:
    forged = StackImage()
    forged.waiting(1004)
    folder = tmp_path_factory.mktemp("stacks")
    image = forged.kernel.image()
    return SavedImage(forged, image.save(folder / "image.raw"), image.install(folder / "symbols"))


def run(image: SavedImage, *options: str, renderer: str = "json") -> vol.Result:
    return vol.run(image.file, "windows.callstacks", *options, symbols=image.symbols, renderer=renderer)


def test_stacks_with_their_frames_below(image: SavedImage) -> None:
    rows = run(image, "--frames-to-skip", "1", "--frames-to-capture", "2").rows
    assert [(row["TID"], row["Part"], row["Depth"]) for row in rows] == [
        *((1004, "kernel", 2), (1004, "user", 2)),
    ]
    mask = (1 << 48) - 1
    for row in rows:
        frames = [address for address, _, _ in image.forged.expected[1004, row["Part"]].frames]
        first = 1 if row["Part"] == "kernel" else 2
        shown = [child["Address"] for child in row["__children"] if child["Frame"] >= first]
        assert shown == [address & mask for address in frames[first : first + 2]]
        assert row["BackTraceHash"] == sum(shown) & 0xFFFFFFFF


def test_nothing_to_show_is_said_and_is_no_failure(image: SavedImage) -> None:
    result = run(image, "--tid", "4444")
    assert (result.returncode, result.rows) == (0, [])
    assert "There is no thread 4444" in result.stderr


def test_registers_from_the_walk(image: SavedImage) -> None:
    result = vol.run(image.file, "windows.trapframes", "--unwind", symbols=image.symbols)
    row = next(row for row in result.rows if row["Mode"] == "user")
    assert row["R12"] == image.forged.at_entry[12]
