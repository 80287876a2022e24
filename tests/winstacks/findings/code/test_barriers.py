# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Write barriers of CLR: code that stores, compares and returns, and code that does anything else."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.findings.code.barriers import LONGEST, is_write_barrier
from winstacks.memory.decode.machine import Machine

AT = 0x7FF700001000
X64, X86 = Machine.AMD64, Machine.I386
STORE, LIMIT, CARDS = "488911", "48b8 1122334455667788", "49b8 8877665544332211"
MARK = "803c01ff 7502 f3c3 c60401ff c3"


def verdict(code: str, machine: Machine, first: int = 0, end: int = 0) -> bool:
    """Whether changed bytes, all by default, are a barrier's; int 3 surrounds the code."""
    data = bytes.fromhex(code)
    around = b"\xcc" * 0x200 + data + b"\xcc" * 0x200

    def read(address: int, length: int) -> Optional[bytes]:
        start = address - AT + 0x200
        return around[start : start + length] if 0 <= start <= len(around) - length else None

    return is_write_barrier(read, ((AT + first, AT + (end or len(data))),), machine)


@pytest.mark.parametrize(
    ("form", "code", "machine"),
    [
        ("before growth", f"{STORE} {LIMIT} 483bd0 7215 48c1e90b {LIMIT} {MARK}", X64),
        ("after growth", f"{STORE} {CARDS} 493bd0 721f {CARDS} 493bd0 7313 {LIMIT} 48c1e90b {MARK}", X64),
        ("of a server", f"{STORE} 48c1e90b {LIMIT} {MARK}", X64),
        ("with a watch", f"{STORE} {LIMIT} 4c8bc1 49c1e80c 42803c0000 7505 42c60400ff {MARK}", X64),
        ("by regions, in bits", f"{STORE} {LIMIT} 83e107 b201 d2e2 841401 7502 f3c3 f0081401 c3", X64),
        ("Eax", "8902 3d11223344 720d c1ea0a 80ba11223344ff 7501 c3 c68211223344ff c3", X86),
        (
            "Esi, filled up",
            "8932 81fe11223344 720d 9090 c1ea0a 80ba11223344ff 7501 c3 c68211223344ff c3",
            X86,
        ),
    ],
)
def test_forms(form: str, code: str, machine: Machine) -> None:
    assert verdict(code, machine)
    assert verdict(code, machine, 3, 9)
    assert not verdict(code.replace(code[:2], "e8", 1), machine)


@pytest.mark.parametrize(
    "code",
    [
        f"{STORE} e800000000 c3",
        f"{STORE} {LIMIT} ffd0 c3",
        f"{STORE} {LIMIT} ffe0",
        f"{STORE} {LIMIT} 50 c3",
        f"{STORE} {LIMIT} 488bE0 c3",
        f"{STORE} {LIMIT} 4889c4 c3",
        f"{STORE} {LIMIT} 4883c408 c3",
        f"{STORE} 48bc1122334455667788 c3",
        f"{STORE} 0f05 c3",
        f"{STORE} ebfe c3",
        f"{STORE} c20800",
        f"{STORE} 90",
        f"{STORE} 7540 c3",
        f"{LIMIT} 483bd0 c3",
        "4889d1 c3",
        "",
    ],
)
def test_what_is_none(code: str) -> None:
    assert not verdict(code, X64, 0, max(len(bytes.fromhex(code)), 1))


def test_a_change_behind_a_barrier() -> None:
    assert not verdict(f"{STORE} c3 e800000000", X64)
    assert not verdict(f"{STORE} {'90' * LONGEST} c3", X64)


@given(st.binary(min_size=1, max_size=80), st.sampled_from((X64, X86)))
def test_any_bytes_have_a_verdict(code: bytes, machine: Machine) -> None:
    assert verdict(code.hex(), machine) in (True, False)
