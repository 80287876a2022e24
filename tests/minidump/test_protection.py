# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Sleeping threads in private code: the present protection decides, and both protections are shown.

The dump is of a program that Wine ran. Its three threads sleep in code that was allocated executable, made
executable later, and committed as executable in memory that was reserved without access.
"""

from __future__ import annotations

import lzma
import pathlib
import struct
from typing import Any, Dict, List

import pytest
from volatility3.plugins.minidump import tracefindings

from tests.conftest import SHARED
from tests.forge import context
from tests.forge.vad import EXECUTE_READWRITE, READWRITE
from tests.support.findingimages import PRIVATE, FindingImage
from tests.support.only import only
from tests.support.processdumps import OpenedDump
from tests.support.writtendumps import process_of, write_dump
from winstacks.columns.words import HIGH, MEDIUM, POSSIBLE

PACKED = SHARED / "runtimes" / "rwx.dmp.xz"
SLEEPING = (576, 580, 584)
_UNUSED, _MEMORY_INFO, _THREAD_INFO = 0, 16, 17

of_wine = pytest.mark.skipif(not PACKED.exists(), reason=f"{PACKED} is not there")


def without(data: bytes, *streams: int) -> bytes:
    """Returns a dump without some streams."""
    changed = bytearray(data)
    count, directory = struct.unpack_from("<II", data, 8)
    for place in range(directory, directory + 12 * count, 12):
        if struct.unpack_from("<I", data, place)[0] in streams:
            struct.pack_into("<III", changed, place, _UNUSED, 0, 0)
    return bytes(changed)


@pytest.fixture(scope="module")
def dump() -> bytes:
    return lzma.decompress(PACKED.read_bytes())


def findings(folder: pathlib.Path, data: bytes, **options: Any) -> List[Dict[str, Any]]:
    path = folder / "rwx.dmp"
    path.write_bytes(data)
    return [row for _, row in OpenedDump(path).rows(tracefindings.TraceFindings, **options)]


def found(rows: List[Dict[str, Any]], name: str) -> List[Dict[str, Any]]:
    return [row for row in rows if row["Finding"] == name and row["Status"] != "not checked"]


def reasons(rows: List[Dict[str, Any]], name: str) -> List[str]:
    return [row["Evidence"] for row in rows if row["Finding"] == name and row["Status"] == "not checked"]


@pytest.mark.shared
@of_wine
def test_all_three_are_found(dump: bytes, tmp_path: pathlib.Path) -> None:
    rows = findings(tmp_path, dump)
    unbacked = found(rows, "unbacked")
    assert [(row["TID"], row["Severity"]) for row in unbacked] == [(tid, HIGH) for tid in SLEEPING]
    first, changed, reserved = (row["Evidence"] for row in unbacked)
    assert "private PAGE_EXECUTE_READWRITE, bytes" in first
    assert "private PAGE_READWRITE, now PAGE_EXECUTE_READ, bytes" in changed
    assert "private PAGE_NOACCESS, now PAGE_EXECUTE_READWRITE, bytes" in reserved
    starts = found(rows, "start_mismatch")
    assert [(row["TID"], row["Severity"]) for row in starts] == [(tid, MEDIUM) for tid in SLEEPING]
    assert not found(rows, "not_executable")
    for name in ("unbacked", "start_mismatch", "not_executable"):
        assert not reasons(rows, name)


@pytest.mark.shared
@of_wine
def test_without_the_list_of_regions_the_protection_is_unknown(dump: bytes, tmp_path: pathlib.Path) -> None:
    rows = findings(tmp_path, without(dump, _MEMORY_INFO))
    for name in ("unbacked", "start_mismatch"):
        assert [row["TID"] for row in found(rows, name)] == list(SLEEPING)
        for row in found(rows, name):
            assert (row["Severity"], row["Confidence"]) == (MEDIUM, POSSIBLE)
            assert "private, protection unknown, bytes" in row["Evidence"]
    for name in ("unbacked", "not_executable"):
        assert any("MemoryInfoListStream" in reason for reason in reasons(rows, name))
    assert not [row for row in rows if row["Severity"] == HIGH]


@pytest.mark.shared
@of_wine
def test_without_start_addresses_the_threads_are_named(dump: bytes, tmp_path: pathlib.Path) -> None:
    rows = findings(tmp_path, without(dump, _THREAD_INFO))
    assert not found(rows, "start_mismatch")
    reason = only(reasons(rows, "start_mismatch"))
    assert reason.startswith("the dump has no start address: TID 572")


@pytest.mark.shared
@of_wine
def test_code_that_was_made_data_is_reported(dump: bytes, tmp_path: pathlib.Path) -> None:
    """An implant that sleeps may take the right to execute away from its own code."""
    changed = bytearray(dump)
    count, directory = struct.unpack_from("<II", dump, 8)
    rva = only(
        struct.unpack_from("<I", dump, place + 8)[0]
        for place in range(directory, directory + 12 * count, 12)
        if struct.unpack_from("<I", dump, place)[0] == _MEMORY_INFO
    )
    header, entry, infos = struct.unpack_from("<IIQ", dump, rva)
    for place in range(rva + header, rva + header + infos * entry, entry):
        protect, kind = struct.unpack_from("<II", dump, place + 36)
        if kind == 0x20000 and protect in (0x20, 0x40):
            struct.pack_into("<I", changed, place + 36, 4)
    rows = findings(tmp_path, bytes(changed))
    assert not found(rows, "unbacked")
    assert [(row["TID"], row["Severity"]) for row in found(rows, "not_executable")] == [
        (tid, HIGH) for tid in SLEEPING
    ]


@pytest.mark.parametrize(
    ("protection", "forbidden", "check", "now"),
    [
        (READWRITE, False, "unbacked", "PAGE_READWRITE, now PAGE_EXECUTE_READWRITE"),
        (EXECUTE_READWRITE, False, "unbacked", "PAGE_EXECUTE_READWRITE, bytes"),
        (EXECUTE_READWRITE, True, "not_executable", "PAGE_EXECUTE_READWRITE, now PAGE_READWRITE"),
    ],
)
def test_the_dump_of_an_image_has_the_present_protection(
    protection: int, forbidden: bool, check: str, now: str, tmp_path: pathlib.Path
) -> None:
    forged = FindingImage("win10-x64")
    forged.private(protection)
    if forbidden:
        forged.forbid()
    forged.interrupted_at(PRIVATE + 0x20)
    opened = context.open_image(forged.image(), tmp_path)
    path = tmp_path / "app.dmp"
    write_dump(opened, process_of(opened, forged.app.pid), path)
    rows = [row for _, row in OpenedDump(path).rows(tracefindings.TraceFindings)]
    row = only(row for row in rows if row["Severity"] in ("high", "medium"))
    assert row["Finding"] == check
    assert now in row["Evidence"]
