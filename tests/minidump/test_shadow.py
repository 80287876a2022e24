# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A real dump without code whose shadow stack proves the whole stack."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.plugins.minidump import callstacks, traces

from tests.conftest import SHARED
from tests.support.processdumps import OpenedDump

PATH = SHARED / "real_minidumps" / "tiny-exe-with-cet-xsave.dmp"
POINTER = 0xCBC83FEFC8
"""IA32_PL3_SSP, 8 bytes behind IA32_U_CET (1) in component 11 of the only thread."""

pytestmark = pytest.mark.shared


def memory_place(data: bytes, address: int) -> Tuple[int, int]:
    """Offset in the file of an address in MemoryListStream, and the number of bytes from there."""
    count, directory = struct.unpack_from("<II", data, 8)
    for number in range(count):
        kind, _, rva = struct.unpack_from("<III", data, directory + 12 * number)
        for entry in range(struct.unpack_from("<I", data, rva)[0] if kind == 5 else 0):
            start, size, place = struct.unpack_from("<QII", data, rva + 4 + 16 * entry)
            if start <= address < start + size:
                return place + address - start, start + size - address
    raise AssertionError("the dump lacks the memory")


def frames_of(path: pathlib.Path) -> List[Dict[str, Any]]:
    return [row for depth, row in OpenedDump(path).rows(callstacks.CallStacks) if depth]


def test_the_whole_stack() -> None:
    data = PATH.read_bytes()
    place, size = memory_place(data, POINTER)
    shadow = list(struct.unpack_from(f"<{size // 8}Q", data, place))
    frames = frames_of(PATH)
    assert [row["Address"] for row in frames[1:]] == shadow
    assert [row["How"] for row in frames] == ["trap", "leaf"] + ["shadow"] * 6
    assert not any("unsure" in row["Status"] for row in frames)
    # Each return address lies below the stack pointer of its frame.
    for row in frames[1:]:
        at, _ = memory_place(data, row["Sp"] - 8)
        assert struct.unpack_from("<Q", data, at)[0] == row["Address"]
    trace = next(row for _, row in OpenedDump(PATH).rows(traces.StackTraces) if row["Kind"] == "user")
    assert (trace["KeyQuality"], trace["Guessed"], trace["Incomplete"]) == ("exact", 0, False)


def test_a_shadow_stack_that_is_not_on_the_stack_proves_nothing(tmp_path: pathlib.Path) -> None:
    data = bytearray(PATH.read_bytes())
    place, _ = memory_place(bytes(data), POINTER)
    struct.pack_into("<Q", data, place, 0x7FF911111111)
    (tmp_path / "other.dmp").write_bytes(data)
    assert "shadow" not in [row["How"] for row in frames_of(tmp_path / "other.dmp")]
