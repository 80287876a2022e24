# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The comparison of a dump of a real program with StackWalk64."""

from __future__ import annotations

import lzma
import pathlib

import pytest

from benchmarks import realprocesses
from tests.conftest import SHARED

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
