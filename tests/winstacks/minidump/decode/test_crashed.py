# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The limits of what the decoders of small kernel dumps take for an address, and for a structure."""

from __future__ import annotations

import types
from typing import Any, Optional

import pytest

from winstacks.memory.decode.machine import Machine
from winstacks.minidump.decode import crashed, debuggerdata


@pytest.mark.parametrize(
    ("machine", "address", "kernel"),
    [
        (Machine.AMD64, None, False),
        (Machine.AMD64, 0, False),
        (Machine.AMD64, 0x7FFFFFFFFFFF, False),
        (Machine.AMD64, 0x800000000000, False),
        (Machine.AMD64, 0xFFFF7FFFFFFFFFFF, False),
        (Machine.AMD64, 0xFFFF800000000000, True),
        (Machine.AMD64, (1 << 64) - 1, True),
        (Machine.I386, 0x7FFFFFFF, False),
        (Machine.I386, 0x80000000, True),
    ],
)
def test_addresses_of_the_kernel(machine: Machine, address: Optional[int], kernel: bool) -> None:
    dump: Any = types.SimpleNamespace(machine=machine)
    assert crashed._kernel_address(dump, address) == (address if kernel else None)


@pytest.mark.parametrize("more", [-1, 0])
def test_debugger_data_needs_its_header(more: int) -> None:
    least = debuggerdata._LEAST
    data = bytearray(least + more)
    data[debuggerdata._TAG_AT : debuggerdata._TAG_AT + 4] = debuggerdata.TAG
    data[debuggerdata._SIZE_AT : debuggerdata._SIZE_AT + 4] = least.to_bytes(4, "little")
    assert debuggerdata.read_debugger_data(bytes(data[: least + more])).tagged == (more == 0)
