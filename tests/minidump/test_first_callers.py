# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The callers of system calls in dumps that people send: such a dump has the code at Rip, and no headers.

Breakpad's `minidump_stackwalk` names the same callers ("simulating a return from leaf function").
"""

from __future__ import annotations

from typing import Dict

import pytest
from volatility3.plugins.minidump import callstacks

from tests.conftest import SHARED
from tests.support.processdumps import OpenedDump

pytestmark = pytest.mark.shared

WAIT, POOL = "KERNELBASE+0x4f45f", "ntdll+0x32f6e"
CALLERS = {
    "tiny-exe-fastfail.dmp": dict.fromkeys((36104, 26620, 34828), "ntdll+0x52dc7"),
    "broken/rust-invalid-parameter.dmp": dict.fromkeys((14112, 11744, 12044, 13188), "ntdll+0x1f856"),
    "more/node-minidump-windows.dmp": {
        **dict.fromkeys((8220, 3324, 9660, 9276, 2396), POOL),
        **dict.fromkeys((2280, 3056, 964), WAIT),
        **dict.fromkeys((2180, 3232, 5680), "KERNELBASE+0x175ff"),
        **dict.fromkeys((7840, 5332), "ntdll+0x6bd75"),
    },
}
"""Symbol of frame 1 by file and TID; the threads that crashed or wrote the dump are left out."""


@pytest.mark.parametrize("name", CALLERS)
def test_the_caller_of_a_system_call_is_on_top_of_the_stack(name: str) -> None:
    found: Dict[int, str] = {}
    for _, row in OpenedDump(SHARED / "real_minidumps" / name).rows(callstacks.CallStacks):
        if row["Frame"] == 1 and row["TID"] in CALLERS[name]:
            assert (row["How"], row["Status"]) == ("leaf", "headers unreadable")
            found[row["TID"]] = row["Symbol"]
    assert found == CALLERS[name]
