# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""windows.waits on systems that nobody here wrote: ReactOS, whose kernel has the same structures."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterator, List

import pytest

from tests.forge import vol
from tests.support.strangers import IMAGES, unpacked
from winstacks.columns import words

pytestmark = [pytest.mark.shared, pytest.mark.cli]

OF_OBJECTS = {
    *(words.EVENT, words.SEMAPHORE, words.TIMER, words.QUEUE, words.FILE, words.JOINED_PROCESS),
    words.SLEEP,
}


def rows_of(rows: List[Dict[str, Any]]) -> Iterator[Dict[str, Any]]:
    """Yields the rows of waits: those of threads, and of the objects below them."""
    for row in rows:
        if row["WaitsFor"] is not None:
            yield row
        yield from rows_of(row["__children"])


@pytest.mark.parametrize("packed", IMAGES, ids=lambda path: path.name.partition(".")[0])
def test_no_row_is_false(packed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Each wait block is in the list of its object; no thread waits for a lock, and none is in a deadlock."""
    image = unpacked(packed, tmp_path)
    listed = vol.run(image, "windows.waits", "--fold", symbols=tmp_path / "symbols").rows
    found = list(rows_of(listed))
    assert len(found) >= 10
    for row in found:
        assert row["WaitsFor"] in OF_OBJECTS
        assert row["Known"] == (words.BY_CALL if row["WaitsFor"] == words.SLEEP else words.BY_LIST)
        assert "contradicted" not in row["Status"] and row["OwnerTID"] is None
