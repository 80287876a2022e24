# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is decoded of real small kernel dumps, compared with values that other readers print of them."""

from __future__ import annotations

import lzma

import pytest

from tests.conftest import SHARED
from winstacks.minidump.decode.crashed import crashed_thread
from winstacks.minidump.decode.drivers import list_drivers, list_unloaded
from winstacks.minidump.decode.triage import TriageDump, memory_ranges

pytestmark = pytest.mark.shared


def read(name: str, size: int = 1 << 30) -> TriageDump:
    data = lzma.decompress((SHARED / "real_trapframes" / f"{name}.dmp.xz").read_bytes())[:size]
    return TriageDump(lambda offset, length: data[offset : offset + length], len(data))


def test_x64() -> None:
    dump = read("triage_x64")
    assert (dump.status, dump.context.status, dump.exception.status) == ((), (), ())
    assert (dump.context.offset, dump.exception.offset) == (0x348, 0xF00)
    # Rip of the CONTEXT: amdppm+334Ch.
    assert dump.context.data[0xF8:0x100] == (0xFFFFF8048B58334C).to_bytes(8, "little")
    assert dump.exception.data[:4] == (0x80000003).to_bytes(4, "little")
    drivers, faults = list_drivers(dump)
    assert (len(drivers), faults) == (151, ())
    # The headers of ntoskrnl are in the dump's memory, and have the same stamp.
    assert drivers[0].TimeDateStamp == 0x0D8333E6
    assert all(driver.TimeDateStamp for driver in drivers)
    assert len(list_unloaded(dump)[0]) == 4
    crashed = crashed_thread(dump)
    assert crashed.member("teb") == 0 and crashed.eprocess


def test_arm64() -> None:
    """What does not depend on the machine: header, bug check, drivers, parts."""
    dump = read("triage_arm64")
    assert (dump.status, dump.context.status, dump.exception.status) == ((), (), ())
    assert (dump.context.offset, dump.context.size) == (0x348, 0x390)
    assert (dump.header.MachineImageType, dump.header.MinorVersion) == (0xAA64, 22000)
    assert (dump.header.BugCheckCode, dump.header.BugCheckParameters) == (
        0x1C8,
        (0x1B58, 0xFFFFF803F3A20860, 0, 0),
    )
    drivers, faults = list_drivers(dump)
    assert (len(drivers), faults, drivers[0].TimeDateStamp) == (245, (), 0xDF291B09)
    assert len(list_unloaded(dump)[0]) == 11
    assert dump.call_stack.size == 0xB60
    crashed = crashed_thread(dump)
    assert crashed.ethread and crashed.eprocess and crashed.processor == 0
    ranges, faults = memory_ranges(dump)
    assert sum(piece.length for piece in ranges) > 0x50000


@pytest.mark.parametrize("name", ["triage_x64", "triage_arm64"])
@pytest.mark.parametrize("size", [0x1000, 0x2000, 0x2040])
def test_the_first_kilobytes_alone(name: str, size: int) -> None:
    whole, dump = read(name), read(name, size)
    assert dump.header_only
    assert dump.header.BugCheckParameters == whole.header.BugCheckParameters
    assert (dump.header.SystemTime, dump.context.data) == (whole.header.SystemTime, whole.context.data)
    assert dump.exception.data == whole.exception.data
    assert dump.header.SystemUpTime == (None if size == 0x1000 else whole.header.SystemUpTime)
