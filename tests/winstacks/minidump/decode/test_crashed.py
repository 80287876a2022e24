# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The limits of what the decoders of small kernel dumps take for an address, and for a structure."""

from __future__ import annotations

import functools
import types
from typing import Any, Optional

import pytest

from winstacks.minidump.decode import crashed, debuggerdata
from winstacks.minidump.decode.triage import TriageDump


@pytest.mark.parametrize(
    ("wide", "address", "kernel"),
    [
        (True, None, False),
        (True, 0, False),
        (True, 0x7FFFFFFFFFFF, False),
        (True, 0x800000000000, False),
        (True, 0xFFFF7FFFFFFFFFFF, False),
        (True, 0xFFFF800000000000, True),
        (True, (1 << 64) - 1, True),
        (False, 0x7FFFFFFF, False),
        (False, 0x80000000, True),
        (False, 0x180000000, False),
    ],
)
def test_addresses_of_the_kernel(wide: bool, address: Optional[int], kernel: bool) -> None:
    dump: Any = types.SimpleNamespace(header=types.SimpleNamespace(wide=wide))
    dump.canonical = functools.partial(TriageDump.canonical, dump)
    assert crashed._kernel_address(dump, address) == (address if kernel else None)


@pytest.mark.parametrize("more", [-1, 0])
def test_debugger_data_needs_its_header(more: int) -> None:
    least = debuggerdata._LEAST
    data = bytearray(least + more)
    data[0x10:0x14] = debuggerdata.TAG
    data[0x14:0x18] = least.to_bytes(4, "little")
    assert debuggerdata.read_debugger_data(bytes(data[: least + more])).tagged == (more == 0)
