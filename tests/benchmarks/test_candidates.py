# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The count of candidates that are callers, in a dump of a real program without its code."""

from __future__ import annotations

import lzma
import pathlib
import struct

import pytest

from benchmarks import candidates
from tests.benchmarks.test_realprocesses import PACKED
from tests.conftest import SHARED


@pytest.mark.cli
@pytest.mark.shared
@pytest.mark.skipif(not PACKED.exists(), reason=f"{PACKED} is not there")
def test_candidates_of_a_dump_without_code(tmp_path: pathlib.Path) -> None:
    """Three callers lie in private memory, which a dump without a list of regions does not show."""
    whole, part = tmp_path / "rwx.dmp", tmp_path / "cut.dmp"
    whole.write_bytes(lzma.decompress(PACKED.read_bytes()))
    whole.with_suffix(".json").write_bytes((SHARED / "runtimes" / "rwx.json").read_bytes())
    candidates.FullDump(whole).cut(part)
    assert part.stat().st_size < whole.stat().st_size // 50
    true = candidates.callers(whole, tmp_path)
    assert sum(map(len, true.values())) == 12
    found = candidates.count(part, true, tmp_path, ())
    assert found == candidates.Counted(0, 0, 0, 0, 19, 9, 9)


def test_files_that_were_marked_make_no_claim(tmp_path: pathlib.Path) -> None:
    """The copy of a marked file has the CheckSum 0; other files are given as they are."""
    home, copies = tmp_path / "files", tmp_path / "copies"
    home.mkdir()
    copies.mkdir()
    header = bytearray(0x200)
    header[0x40:0x50] = b"Wine builtin DLL"
    struct.pack_into("<I", header, 60, 0x80)
    struct.pack_into("<I", header, 0x80 + 24 + 64, 0x1234)
    (home / "marked.dll").write_bytes(header)
    (home / "plain.dll").write_bytes(bytes(0x200))
    assert candidates.unmarked([home], copies) == [copies, home]
    copied = copies / "marked.dll"
    struct.pack_into("<I", header, 0x80 + 24 + 64, 0)
    assert ([path.name for path in copies.iterdir()], copied.read_bytes()) == (["marked.dll"], bytes(header))
