# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The comparison of a dump of a real program with StackWalk64."""

from __future__ import annotations

import lzma
import pathlib
from typing import Iterable, List, Sequence

import pytest

from benchmarks import realprocesses
from tests.conftest import SHARED
from winstacks.stacklist.shown import MAX_SHOWN, shown_numbers

PACKED = SHARED / "runtimes" / "rwx.dmp.xz"


@pytest.mark.cli
@pytest.mark.shared
@pytest.mark.skipif(not PACKED.exists(), reason=f"{PACKED} is not there")
def test_a_dump_is_compared(tmp_path: pathlib.Path) -> None:
    """One thread has a whole truth; three sleep in private code, for which there is no unwind data."""
    dump = tmp_path / "rwx.dmp"
    dump.write_bytes(lzma.decompress(PACKED.read_bytes()))
    dump.with_suffix(".json").write_bytes((SHARED / "runtimes" / "rwx.json").read_bytes())
    found = realprocesses.compare(dump, tmp_path)
    assert (found.idle, found.idle_equal, found.busy, found.wrong, found.alarms) == (1, 1, 0, 0, 6)
    table = {line.what: line.value for line in realprocesses.as_lines([found])}
    assert table["idle threads of 1 real programs with the frames of StackWalk64"] == 1
    assert table["sure frames that StackWalk64 has not"] == 0


def rows(numbers: Iterable[int], frames: Sequence[int]) -> List[realprocesses.Row]:
    """The rows of some frames of a stack."""
    return [{"Frame": number, "Address": frames[number]} for number in numbers]


def test_the_middle_of_a_deep_stack_is_not_shown() -> None:
    """Its depth is compared all the same, and each frame that is shown."""
    frames = [0x7FF600000000 + number for number in range(MAX_SHOWN + 508)]
    shown = rows(shown_numbers(len(frames)), frames)
    assert realprocesses.equal(shown, frames)
    assert not realprocesses.equal(shown, frames[:-1])
    assert not realprocesses.equal(shown, [*frames[:-1], 0x7FF600000000])
    assert not realprocesses.equal(shown[:-1], frames)
    assert not realprocesses.equal(rows(range(10), frames), frames[:11])
    assert realprocesses.equal(rows(range(10), frames), frames[:10])
