# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""windows.callstacks on systems that nobody here wrote, against gdb's walks of the same threads.

gdb unwinds by the call frame information of GCC, or by its own reader of x64 unwind data.
"""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

import pytest

from tests.forge import vol
from tests.support.strangers import ADDRESS, IMAGES, Part, unpacked, walked_by_gdb, with_holes

pytestmark = [pytest.mark.shared, pytest.mark.cli]

Frame = Tuple[Part, int, Dict[str, Any]]
"""The part of the stack, the address in 48 bits, and the row."""


def walk(image: pathlib.Path) -> vol.Result:
    return vol.run(image, "windows.callstacks", symbols=image.parent / "symbols")


def frames(walks: vol.Result) -> Iterator[Frame]:
    for stack in walks.rows:
        for row in stack["__children"]:
            if row["Address"] is not None:
                yield (row["PID"] or 0, row["TID"] or 0, row["Part"]), row["Address"] & ADDRESS, row


def sure_and_wrong(found: Iterable[Frame], walked: Dict[Part, Set[int]]) -> List[Dict[str, Any]]:
    """Returns the frames that gdb does not have, of the stacks that it walked."""
    other = (row for part, address, row in found if part in walked and address not in walked[part])
    return [row for row in other if "unsure" not in (row["Status"] or "")]


@pytest.fixture(scope="module", params=IMAGES, ids=lambda path: path.name.partition(".")[0])
def packed(request: pytest.FixtureRequest) -> pathlib.Path:
    path: pathlib.Path = request.param
    return path


def test_the_frames_are_those_of_gdb(packed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The Idle process is on no list, and registers of a running thread are not saved: both may be absent."""
    walked, found = walked_by_gdb(packed), list(frames(walk(unpacked(packed, tmp_path))))
    assert sure_and_wrong(found, walked) == []
    listed = {(part, address) for part, address, _ in found}
    parts = {part for part, _ in listed}
    walks = {(part, address) for part, addresses in walked.items() for address in addresses}
    assert {(part, address) for part, address in walks - listed if part in parts} == set()
    assert len(set(walked) - parts) <= 2


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_no_frame_is_sure_and_wrong_without_some_pages(
    packed: pathlib.Path, share: float, seed: int, tmp_path: pathlib.Path
) -> None:
    """Volatility opens no image that lacks the pages by which it finds the kernel: then others are drawn."""
    image = unpacked(packed, tmp_path)
    draws = (walk(with_holes(image, share, seed + 10 * number)) for number in range(10))
    walks = next(draw for draw in draws if not draw.returncode)
    assert sure_and_wrong(frames(walks), walked_by_gdb(packed)) == []
