# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86 functions that only jump on to another one: what they pop, and where they lead."""

from __future__ import annotations

from typing import Optional

import pytest

from winstacks.memory.decode.ranges import Extents
from winstacks.stacks.decode.functions_x86 import Functions

PROGRAM, FORWARDER, POINTER, FUNCTION = 0x401000, 0x7BB40000, 0x7BB90000, 0x7B620000


@pytest.mark.parametrize(
    ("code", "popped"),
    [
        ("ff 25 00 00 b9 7b", 4),  # jmp [pointer]
        ("8b ff 55 8b ec 5d ff 25 00 00 b9 7b", 4),  # mov edi, edi; push ebp; mov ebp, esp; pop ebp; jmp
        ("8b ff 55 8b ec 5d ff 25 00 00 b9 7c", None),
        ("85 c0 75 06 ff 25 00 00 b9 7b c2 08 00", 8),
        ("50 ff 25 00 00 b9 7b", None),
    ],
)
def test_what_forwards_to_a_function_pops_what_that_pops(code: str, popped: Optional[int]) -> None:
    parts = {
        PROGRAM: bytes.fromhex("90 ff 15 08 10 40 00 90") + FORWARDER.to_bytes(4, "little"),
        FORWARDER: bytes.fromhex(code).ljust(0x20, b"\xcc"),
        POINTER: FUNCTION.to_bytes(4, "little"),
        FUNCTION: bytes.fromhex("55 8b ec 5d c2 04 00").ljust(0x20, b"\xcc"),
    }
    functions = Functions(Extents(parts.items()).read)
    assert functions.pops(FORWARDER) == popped
    assert (FUNCTION in functions.starts(PROGRAM + 7)) is (popped is not None)
