# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Prologues of x64 functions, and what unwind data may say of each instruction."""

from __future__ import annotations

from typing import Optional

import pytest

from winstacks.names.decode.unwindinfo import UnwindInfo, read_unwind_info
from winstacks.stacks.decode import prologue_x64


def unwind_info(text: str) -> UnwindInfo:
    data = bytes.fromhex(text)

    def read_rva(rva: int, length: int) -> Optional[bytes]:
        return data[rva : rva + length].ljust(length, b"\0")

    return read_unwind_info(read_rva, 0)


PUSH_RBX, PUSH_R12 = "01 02 01 00 02 30 00 00", "01 02 01 00 02 c0 00 00"
ALLOC_20, ALLOC_80, ALLOC_8 = "01 04 01 00 04 32 00 00", "01 07 02 00 07 01 10 00", "01 01 01 00 01 02 00 00"

PUSH_RSI_RDI = "01 06 02 00 06 70 06 60"
PROBED = "01 0f 02 00 0f 01 04 02"


@pytest.mark.parametrize(
    ("info", "code", "agreeing"),
    [
        (PUSH_RBX, "40 53", True),
        (PUSH_RBX, "ff f3", True),
        (PUSH_RBX, "40 57", False),
        (PUSH_RBX, "90 90", False),
        (PUSH_R12, "41 54", True),
        (PUSH_R12, "40 54", False),
        (ALLOC_20, "48 83 ec 20", True),
        (ALLOC_20, "48 83 ec 28", False),
        (ALLOC_20, "48 83 c4 e0", True),
        (ALLOC_20, "48 8d 60 e0", True),
        (ALLOC_20, "48 8b 45 10", False),
        (ALLOC_80, "48 81 ec 80 00 00 00", True),
        (ALLOC_80, "48 81 ec 90 00 00 00", False),
        (ALLOC_80, "b8 80 00 00 48 2b e0", True),
        (ALLOC_80, "b8 80 00 00 48 29 c4", True),
        # APX: pushp r12; push2p rdi, rsi, one code for each register.
        ("01 03 01 00 03 c0 00 00", "d5 09 54", True),
        ("01 03 01 00 03 c0 00 00", "d5 08 54", False),
        (PUSH_RSI_RDI, "62 f4 cc 18 ff f7", True),
        (PUSH_RSI_RDI, "62 f4 cc 18 ff f3", False),
        (PUSH_RSI_RDI, "62 f4 e4 18 ff f7", False),
        # Free Pascal: lea rsp, [rsp - 1020h]; mov [rsp + 24h], eax; mov [rsp], eax.
        (PROBED, "48 8d a4 24 e0 ef ff ff 89 44 24 24 89 04 24", True),
        (PROBED, "48 8d a4 24 e0 ef ff ff 8b 44 24 24 89 04 24", False),
        (PROBED, "48 8b 84 24 e0 ef ff ff 89 44 24 24 89 04 24", False),
        (ALLOC_8, "50", True),
        (ALLOC_8, "c3", False),
        # V8's pair of codes and a machine frame say nothing of the prologue.
        ("01 04 02 05 04 03 01 50", "00 0f 1f 00", True),
        ("01 02 02 00 02 30 00 0a", "90 90", True),
    ],
)
def test_code_and_codes(info: str, code: str, agreeing: bool) -> None:
    assert prologue_x64.agrees(bytes.fromhex(code).ljust(16, b"\x90"), unwind_info(info)) is agreeing


def test_what_a_hook_wrote_over_is_not_compared_and_what_is_behind_is() -> None:
    """push rbx; sub rsp, 20h, ten bytes into the function."""
    info = unwind_info("01 10 02 00 10 32 02 30")
    jump = bytes.fromhex("e9 00 10 00 00 90 90 90 90 90 90 90")
    assert prologue_x64.agrees(jump + bytes.fromhex("48 83 ec 20"), info)
    assert not prologue_x64.agrees(jump + bytes.fromhex("48 83 ec 28"), info)
    assert not prologue_x64.agrees(b"\x90" * 12 + bytes.fromhex("48 83 ec 20"), info)


@pytest.mark.parametrize(
    "detour",
    [
        "e9 00 10 00 00",
        "ff 25 00 10 00 00",
        "48 ff 25 00 10 00 00",
        "ff 25 00 00 00 00 88 77 66 55 f7 7f 00 00",
        "48 b8 88 77 66 55 f7 7f 00 00 ff e0",
        "48 b8 88 77 66 55 f7 7f 00 00 50 c3",
        "49 bb 88 77 66 55 f7 7f 00 00 41 53 c3",
        "50 48 b8 88 77 66 55 f7 7f 00 00 48 87 04 24 c3",
        "68 88 77 66 55 c7 44 24 04 f7 7f 00 00 c3",
    ],
)
def test_all_bytes_of_a_hook_are_passed_over(detour: str) -> None:
    """mov [rsp+8], rbx; mov [rsp+10h], rsi; push rdi; sub rsp, 20h: a jump with its target behind it, as
    products write it, ends within the last of these."""
    info = unwind_info("01 0f 06 00 0f 64 07 00 0f 34 06 00 0f 32 0b 70")
    whole = bytes.fromhex("48 89 5c 24 08 48 89 74 24 10 57 48 83 ec 20 8b f9")
    hook = bytes.fromhex(detour)
    assert prologue_x64.detour(hook.ljust(16, b"\x90")) == len(hook)
    assert prologue_x64.agrees(whole, info)
    assert prologue_x64.agrees(hook + whole[len(hook) :], info)
