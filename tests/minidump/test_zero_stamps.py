# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Programs linked without a time (TimeDateStamp 0): --binaries tells their builds by the RSDS record."""

from __future__ import annotations

import pathlib
import struct
from typing import Set

import pytest

from tests.minidump.test_symbols_from import dump, run
from tests.winstacks.names.decode.test_pdb import files

pytestmark = pytest.mark.cli


def unstamped(arch: str = "x64") -> bytes:
    """Returns the program without its time."""
    data = bytearray(files(arch)["app.exe"])
    struct.pack_into("<I", data, data.index(b"PE\0\0") + 8, 0)
    return bytes(data)


def statuses(folder: pathlib.Path, data: bytes, recorded: bool = True) -> Set[str]:
    """Returns the statuses of all frames where a file is given; the folder gets what was logged."""
    dump("x64", folder / "app.dmp", stamped=False, recorded=recorded)
    (folder / "files").mkdir()
    (folder / "files" / "app.exe").write_bytes(data)
    frames, result = run(folder / "app.dmp", folder, "--binaries", str(folder / "files"))
    (folder / "logged").write_text(result.stderr, encoding="utf-8")
    return {frame["Status"] for frame in frames.values()}


def test_the_file_of_the_same_record(tmp_path: pathlib.Path) -> None:
    assert statuses(tmp_path, unstamped()) == {"from the file"}


def test_a_file_of_another_record_and_the_same_size(tmp_path: pathlib.Path) -> None:
    data = bytearray(unstamped())
    data[data.index(b"RSDS") + 4] ^= 1
    assert "from the file" not in statuses(tmp_path, bytes(data))
    assert "it is of another build" in (tmp_path / "logged").read_text("utf-8")


def test_a_dump_without_the_record(tmp_path: pathlib.Path) -> None:
    assert "from the file" not in statuses(tmp_path, unstamped(), recorded=False)
    assert "it has TimeDateStamp 0, as the image has" in (tmp_path / "logged").read_text("utf-8")
