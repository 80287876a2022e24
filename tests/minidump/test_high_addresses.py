# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps of 32-bit processes whose addresses above 2 GB are sign-extended."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List

import pytest
from volatility3.plugins.minidump import callstacks, info, tracefindings, traceimage

from tests.support.changeddumps import EXCEPTION, MEMORY, MODULES, OF_WINDOWS, ChangedDump
from tests.support.only import only
from tests.support.processdumps import OpenedDump

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there"),
]

X86, SIGNED_FAULT = "lldb-fizzbuzz_no_heap.dmp", "breakpad-minidump_32bit_crash_addr.dmp"
HIGH, SIGN = 0x80000000, 0xFFFFFFFF00000000
PROGRAM_END = 0x10000000
"""The program and the stack lie below, the DLLs above."""
CONTEXT_SIZE, FIRST_REGISTER, LAST_REGISTER = 0xCC, 0x9C, 0xC8
"""CONTEXT of x86: Edi, and SegSs."""


def moved(value: int) -> int:
    """Moves an address of the program or of its stack above 2 GB."""
    return value + HIGH if 0x10000 <= value < PROGRAM_END else value


def high_dump(path: pathlib.Path, signed: bool) -> OpenedDump:
    """A real dump with the program and the stack above 2 GB, as of a program that is large address aware."""

    def long(value: int) -> bytes:
        value = moved(value)
        return struct.pack("<Q", value | SIGN if signed and value & HIGH else value)

    def in_memory(data: bytes) -> bytes:
        return b"".join(struct.pack("<I", moved(value)) for (value,) in struct.iter_unpack("<I", data))

    dump = ChangedDump.named(X86)
    thread = only(dump.thread_rows())
    teb, start, size, rva = struct.unpack("<QQII", dump.read(thread + 16, 24))
    dump.write(rva, in_memory(dump.read(rva, size & -4)))
    dump.write(thread + 16, long(teb) + long(start))
    exception = bytearray(dump.stream(EXCEPTION))
    for place in {
        struct.unpack("<II", dump.read(thread + 40, 8))[1],
        struct.unpack_from("<I", exception, 164)[0],
    }:
        dump.write(
            place + FIRST_REGISTER,
            in_memory(dump.read(place + FIRST_REGISTER, LAST_REGISTER - FIRST_REGISTER)),
        )
    exception[24:32] = long(struct.unpack_from("<Q", exception, 24)[0])
    dump.replace(EXCEPTION, bytes(exception))
    for kind, first, step in ((MODULES, 4, 108), (MEMORY, 4, 16)):
        data = bytearray(dump.stream(kind))
        for place in range(first, len(data), step):
            data[place : place + 8] = long(struct.unpack_from("<Q", data, place)[0])
        dump.replace(kind, bytes(data))
    path.write_bytes(dump.bytes())
    return OpenedDump(path)


def shown(dump: OpenedDump, plugin: Any, *columns: str, **options: Any) -> List[List[Any]]:
    return [[row[column] for column in columns] for _, row in dump.rows(plugin, **options)]


def test_sign_extended_addresses_are_32_bit_addresses(tmp_path: pathlib.Path) -> None:
    """dbghelp's own COPYSE macro sign-extends: such a dump says the same as one with plain addresses."""
    plain = high_dump(tmp_path / "plain.dmp", signed=False)
    signed = high_dump(tmp_path / "signed.dmp", signed=True)
    frames = ("TID", "Sp", "Address", "Symbol", "How", "Status")
    found = [shown(dump, callstacks.CallStacks, *frames)[1:] for dump in (plain, signed)]
    assert [row[2:5] for row in found[0]][:2] == [
        [0x80164D14, "fizzbuzz+0x14d14", "trap"],
        [0x80167C79, "fizzbuzz+0x17c79", "framepointer"],
    ]
    assert [str(row) for row in found[1]] == [str(row) for row in found[0]]
    severities = [
        str(shown(dump, tracefindings.TraceFindings, "Finding", "Severity", "Status"))
        for dump in (plain, signed)
    ]
    assert severities[1] == severities[0] and "medium" not in severities[0]
    listed = [
        [
            row
            for row in shown(dump, info.Info, "Member", "Address", modules=True)
            if str(row[0]).startswith("Modules")
        ]
        for dump in (plain, signed)
    ]
    assert ["Modules[0]", 0x80150000] in listed[0]
    assert listed[1] == listed[0]


def of_crash(dump: OpenedDump) -> Dict[str, Any]:
    brief = {row["Member"]: row["Value"] for _, row in dump.rows(info.Info, brief=True)}
    image = only(row for _, row in dump.rows(traceimage.TraceImage))
    return {"words": brief["Crash"], "parameters": image["CrashParameters"]}


def test_a_32_bit_process_has_no_address_of_64_bits() -> None:
    """A real file, in which the upper half of the address is not the program's."""
    crash = of_crash(OpenedDump(only(path for path in OF_WINDOWS if path.name == SIGNED_FAULT)))
    assert crash == {
        "words": "exception 0xc0000005 ACCESS_VIOLATION: write of 0x45",
        "parameters": "0x1 0x45",
    }
