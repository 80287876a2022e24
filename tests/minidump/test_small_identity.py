# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Process and thread of a small kernel dump without the kernel's symbols."""

from __future__ import annotations

import json
import lzma
import pathlib
from typing import Any, Dict, Optional, Tuple

import pytest
from volatility3.plugins.minidump import callstacks, info

from tests.conftest import SHARED
from tests.forge import smalldump
from tests.forge.smalldump import Driver, SmallDump
from tests.support.processdumps import OpenedDump
from winstacks.memory import tables
from winstacks.minidump.crash import table_of_build

KERNEL, STACK = {True: 0xFFFFF80312200000, False: 0x82800000}, {True: 0xFFFFD00012345000, False: 0x8F345000}
PLACES: Dict[Tuple[int, bool], Tuple[int, int, int]] = {
    (2600, False): (0x84, 0x174, 0x1EC),
    (7601, True): (0x180, 0x2E0, 0x3B8),
    (9600, True): (0x2E0, 0x438, 0x620),
    (17763, True): (0x2E0, 0x450, 0x638),
    (19045, True): (0x440, 0x5A8, 0x478),
    (22631, True): (0x440, 0x5A8, 0x4C8),
    (26100, True): (0x1D0, 0x338, 0x508),
}
"""UniqueProcessId, ImageFileName and Cid by public symbols; 26100 as real dumps of it show the first two."""


def dump_of(
    build: int, wide: bool, places: Tuple[int, int, int], *identity: Any, seed: Optional[int] = None
) -> SmallDump:
    dump = SmallDump(wide=wide, build=build, seed=seed)
    dump.offsets.update(SizeEThread=0x900, SizeEProcess=0xC00)
    dump.drivers([Driver("\\SystemRoot\\system32\\ntoskrnl.exe", KERNEL[wide], 0x800000)])
    dump.crash(0xD1, (0x10, 2, 0, 0), smalldump.context(wide, KERNEL[wide] + 0x1234, STACK[wide] + 0x40))
    dump.stack(STACK[wide], bytes(0x200))
    ethread, eprocess = (0xFFFFA00001234080, 0xFFFFA00001230080) if wide else (0x85123020, 0x85124020)
    dump.thread(ethread, eprocess, STACK[wide] + 0x180, STACK[wide], 1, 0)
    dump.identify(places, *identity)
    return dump


def first_row(dump: SmallDump, folder: pathlib.Path) -> Dict[str, Any]:
    (folder / "small.dmp").write_bytes(dump.file())
    return OpenedDump(folder / "small.dmp").rows(callstacks.CallStacks)[0][1]


@pytest.mark.parametrize(("build", "wide"), PLACES)
def test_the_file_tells(build: int, wide: bool, tmp_path: pathlib.Path) -> None:
    row = first_row(dump_of(build, wide, PLACES[build, wide], 4312, b"a_long_name.exe", 4316), tmp_path)
    assert (row["PID"], row["Process"], row["TID"]) == (4312, "a_long_name.exe", 4316)
    assert "unknown" not in row["Status"] and "not in the dump" not in row["Status"]


@pytest.mark.parametrize("seed", range(6))
def test_every_layout_of_x86_is_shown_alike(seed: int, tmp_path: pathlib.Path) -> None:
    """Dumps of x86 are known from the forge only: in whatever layout, the answer is the same."""
    dump = dump_of(2600, False, PLACES[2600, False], 4312, b"app.exe", 4316, seed=seed)
    (tmp_path / "small.dmp").write_bytes(dump.file())
    path = tmp_path / "small.dmp"
    brief = {row["Member"]: row["Value"] for _, row in OpenedDump(path).rows(info.Info, brief=True)}
    assert brief["At"] == "nt+0x1234 (0x82801234)"
    assert brief["Process"] == "app.exe (4312), thread 4316"
    shown = {row["Member"]: row["Value"] for _, row in OpenedDump(path).rows(info.Info)}
    expected = "0x82800000-0x82ffffff, TimeDateStamp 0x5f000000, CheckSum 0x12345"
    assert shown["\\SystemRoot\\system32\\ntoskrnl.exe"] == expected


def test_a_layout_of_another_build_counts_if_both_structures_agree(tmp_path: pathlib.Path) -> None:
    """A build that no table knows: its layout is that of another one."""
    row = first_row(dump_of(30000, True, PLACES[22631, True], 8, b"a.exe", 12), tmp_path)
    assert (row["PID"], row["Process"], row["TID"]) == (8, "a.exe", 12)


@pytest.mark.parametrize("name", [b"\x01.exe", b""])
def test_no_layout_fits(name: bytes, tmp_path: pathlib.Path) -> None:
    row = first_row(dump_of(19041, True, PLACES[19045, True], 8, name, 12), tmp_path)
    assert not isinstance(row["PID"], int) and not isinstance(row["Process"], str)
    assert "offset unknown for this build: UniqueProcessId ImageFileName" in row["Status"]


def test_a_thread_that_was_attached_to_another_process(tmp_path: pathlib.Path) -> None:
    """The IDs differ: only the layout of the dump's own build counts then."""
    row = first_row(dump_of(19041, True, PLACES[19045, True], 8, b"a.exe", 12, 500), tmp_path)
    assert (row["PID"], row["Process"], row["TID"]) == (8, "a.exe", 12)
    assert "thread of process 500" in row["Status"]
    row = first_row(dump_of(19041, True, PLACES[22631, True], 8, b"a.exe", 12, 500), tmp_path)
    assert "offset unknown for this build" in row["Status"]


def test_the_file_lacks_both(tmp_path: pathlib.Path) -> None:
    dump = dump_of(19041, True, PLACES[19045, True], 8, b"a.exe", 12)
    dump.put("ProcessOffset", value=0)
    dump.put("ThreadOffset", value=0)
    row = first_row(dump, tmp_path)
    assert "not in the dump: UniqueProcessId ImageFileName" in row["Status"]
    assert "not in the dump: UniqueThread" in row["Status"]


@pytest.mark.shared
def test_a_real_file(tmp_path: pathlib.Path) -> None:
    data = lzma.decompress((SHARED / "real_trapframes" / "triage_x64.dmp.xz").read_bytes())
    (tmp_path / "small.dmp").write_bytes(data)
    opened = OpenedDump(tmp_path / "small.dmp")
    row = opened.rows(callstacks.CallStacks)[0][1]
    assert (row["PID"], row["Process"], row["TID"]) == (4, "System", 264)
    shown = {row["Member"]: row for _, row in opened.rows(info.Info)}
    assert shown["Context"]["Value"] == "1232 bytes at 0x348"
    assert "TimeDateStamp 0xd8333e6" in shown["\\SystemRoot\\system32\\ntoskrnl.exe"]["Value"]
    assert {name for name, row in shown.items() if row["Status"]} == {"driver on the stack"}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("build", "arch", "file"),
    [
        (2600, "x86", "ntkrnlpa.pdb/30B5FB31AE7E4ACAABA750AA241FF331-1"),
        (7601, "x64", "ntkrnlmp.pdb/339E74133576439CBCDF7E0229DA3773-1"),
        (9600, "x64", "ntkrnlmp.pdb/06A508F37B81478E855A3542E272C084-1"),
        (14393, "x64", "ntkrnlmp.pdb/2E6DEB6CFD444100AC0E803337A56E8E-1"),
        (17763, "x64", "ntkrnlmp.pdb/06F33B5BE23EF96AC9D93825124DAA16-1"),
        (19041, "x64", "ntkrnlmp.pdb/5278AFF86C341677D7D7835C85B7B844-1"),
        (20348, "x64", "ntkrnlmp.pdb/0C3FB08B9223E2EFB08FA14331050B26-1"),
        (22000, "x64", "ntkrnlmp.pdb/0B0A89438BE7729EB33FD00A7D6FA816-1"),
    ],
)
def test_the_tables_agree_with_public_symbols(build: int, arch: str, file: str) -> None:
    known = json.loads(lzma.decompress((SHARED / "isf/symbols/windows" / f"{file}.json.xz").read_bytes()))
    name = f"crash-{table_of_build('crash', arch, build)}-{arch}"
    path = pathlib.Path(tables.find_table(name).partition("file://")[2])
    ours = json.loads(path.read_text(encoding="utf-8"))["user_types"]
    for kind, member in (
        ("_EPROCESS", "UniqueProcessId"),
        ("_EPROCESS", "ImageFileName"),
        ("_ETHREAD", "Cid"),
    ):
        theirs = known["user_types"][kind]["fields"][member]["offset"]
        assert ours[kind]["fields"][member]["offset"] == theirs, (kind, member)
