# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`stackfleet` on a folder of small kernel dumps: what is rare by stack, driver and bug check."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, NamedTuple

import pytest

from stackfleet.database import Database
from stackfleet.lake import Lake
from tests.forge import smalldump
from tests.forge.smalldump import Driver, SmallDump
from tests.support.fleetimages import options_for
from tests.support.fleetrun import ask, fleet

pytestmark = pytest.mark.once

KERNEL, DRIVER, STACK = 0xFFFFF80312200000, 0xFFFFF80314000000, 0xFFFFD00012345000
HOSTS = 6
OTHER_TYPES = (2, 5, 8)
"""DumpType of files that nothing can open: of an unknown kind, without a bitmap, without a list of pages."""


class Read(NamedTuple):
    """A lake, and what was said when it was made."""

    lake: pathlib.Path
    code: int
    stderr: str


def dump(code: int, driver: str, rip: int = DRIVER + 0x1234, **options: Any) -> bytes:
    forged_dump = SmallDump(**options)
    forged_dump.crash(code, (1, 2, 3, 4), smalldump.context(True, rip, STACK))
    forged_dump.stack(STACK, bytes(0x100))
    forged_dump.thread(0xFFFFA00001234080, 0xFFFFA00001230080, STACK + 0xF0, STACK, 0, 0)
    forged_dump.drivers([Driver("ntoskrnl.exe", KERNEL, 0x800000), Driver(driver, DRIVER, 0x10000)])
    forged_dump.block(DRIVER, driver.encode() + bytes(16))
    return forged_dump.file()


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    folder = tmp_path_factory.mktemp("small")
    dumps, options = folder / "Minidump", (*options_for(folder), "--workers", 2)
    dumps.mkdir()
    for number in range(HOSTS):
        (dumps / f"{number}.dmp").write_bytes(dump(0xD1, "common.sys", DRIVER + 0x1000 + number))
    (dumps / "rare.DMP").write_bytes(dump(0x139, "rare.sys"))
    (dumps / "nowhere.dmp").write_bytes(dump(0x139, "common.sys", KERNEL + 0x10000000))
    (dumps / "arm.dmp").write_bytes(dump(0xD1, "common.sys", machine=0x1C4))
    (dumps / "cut.dmp").write_bytes(dump(0xD1, "common.sys")[:0x50])
    for kind in OTHER_TYPES:
        data = bytearray(dump(0xD1, "common.sys"))
        data[0xF98] = kind
        (dumps / f"type{kind}.dmp").write_bytes(data)
    (dumps / "readme.txt").write_text("no dump")
    done = fleet("run", dumps, "-o", folder / "lake", *options)
    return Read(folder / "lake", done.returncode, done.stderr)


def rare(read: Read, *options: object) -> List[Dict[str, Any]]:
    return ask("rare", read.lake, *options)


def test_a_folder_stands_for_its_dumps(read: Read) -> None:
    assert read.code != 0
    assert "machine of type ARM:" in read.stderr
    assert (
        "begins as a" in read.stderr or "cannot be read" in read.stderr or "no Windows kernel" in read.stderr
    )
    assert "readme.txt" not in read.stderr
    for kind in OTHER_TYPES:
        assert f"the file is a crash dump of type {kind}; Volatility finds no Windows kernel" in read.stderr
    assert "Traceback" not in read.stderr
    with Database(Lake(str(read.lake))) as database:
        rows = database.table("SELECT InputKind, Threads, Databases FROM image").to_pylist()
    # Such a dump has no database that could be counted: none is not 0.
    assert rows == [{"InputKind": "small kernel dump", "Threads": 1, "Databases": None}] * (HOSTS + 2)


def test_rare_drivers(read: Read) -> None:
    rows = rare(read, "--by", "Driver", "--max-hosts", 1)
    assert [(row["Driver"], row["Hosts"], row["Among"]) for row in rows] == [
        ("<no-module>", 1, HOSTS + 2),
        ("rare", 1, HOSTS + 2),
    ]
    assert "0x139 KERNEL_SECURITY_CHECK_FAILURE" in rows[1]["BugChecks"]


def test_rare_bug_checks(read: Read) -> None:
    rows = rare(read, "--by", "BugCheck", "--max-hosts", 100)
    assert [(row["BugCheck"], row["Hosts"]) for row in rows] == [
        ("0x139 KERNEL_SECURITY_CHECK_FAILURE", 2),
        ("0xd1 DRIVER_IRQL_NOT_LESS_OR_EQUAL", HOSTS),
    ]
    assert rare(read, "--by", "BugCheck", "--max-hosts", 1) == []


def test_rare_stacks(read: Read) -> None:
    rows = rare(read, "--partial", "--by", "ShapeKey", "--max-hosts", 1)
    assert {row["Stack"].partition(";")[0] for row in rows} >= {"rare+0x1234", "<no-module>"}


def test_registers_are_rows_too(read: Read) -> None:
    with Database(Lake(str(read.lake))) as database:
        rows = database.table("SELECT DISTINCT Origin, Mode FROM trapframes").to_pylist()
    assert rows == [{"Origin": "saved", "Mode": "kernel"}]
