# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What following the code of an x86 function knows of Esp and Ebp: instructions as compilers make them."""

from __future__ import annotations

from typing import Optional

import pytest

from winstacks.stacks.decode.flow_x86 import CALLERS, OTHER, OURS, Flow, StackPlace

START = 0x10000

FRAME = "55 8b ec"
"""push ebp; mov ebp, esp."""
IN_FRAME = StackPlace(4, OURS, 4)


def behind(code: str, more: str = "90 c3") -> Optional[StackPlace]:
    """What is known behind some code."""
    data = bytes.fromhex(code)
    whole = data + bytes.fromhex(more)
    flow = Flow(whole, START, lambda _: None, lambda _: None, lambda _: False)
    return flow.places.get(START + len(data))


@pytest.mark.parametrize(
    "code",
    [
        "b9 6c c9 99 7c",  # mov ecx, 7C99C96Ch: the immediate is no ModRM
        "b8 22 00 00 00",  # mov eax, 22h, as in a stub of a system call
        "b8 ec 00 00 00",
        "bf e5 c4 00 00",
        "04 ec",  # add al, 0ECh
        "05 e5 00 00 00",
        "2d c4 00 00 00",
        "a8 65",  # test al, 65h
        "a9 6c 65 2c 25",
        "a1 6c 00 00 00",  # mov eax, [6Ch]
        "a2 2c 25 00 00",
        "a3 64 00 00 00",
        "b0 ec",  # mov al, 0ECh
        "b4 e5",  # mov ah, 0E5h: of eight bits, number 4 is Ah
        "40",  # inc eax
        "4f",  # dec edi
        "0f c8",  # bswap eax
        "98",  # cwde
    ],
)
def test_what_names_neither_esp_nor_ebp_changes_neither(code: str) -> None:
    assert behind(code) == StackPlace(0, CALLERS, None)
    assert behind(f"{FRAME} {code}") == IN_FRAME


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("bd 00 00 40 00", StackPlace(4, OTHER, 4)),  # mov ebp, imm32
        ("bc 00 00 40 00", StackPlace(None, OURS, 4)),  # mov esp, imm32
        ("45", StackPlace(4, OTHER, 4)),  # inc ebp
        ("4d", StackPlace(4, OTHER, 4)),  # dec ebp
        ("44", StackPlace(None, OURS, 4)),  # inc esp
        ("4c", StackPlace(None, OURS, 4)),  # dec esp
        ("0f cd", StackPlace(4, OTHER, 4)),  # bswap ebp
        ("0f cc", StackPlace(None, OURS, 4)),  # bswap esp
        ("8b e9", StackPlace(4, OTHER, 4)),  # mov ebp, ecx
        ("83 ec 10", StackPlace(20, OURS, 4)),  # sub esp, 10h
        ("6a 05", StackPlace(8, OURS, 4)),  # push 5
        ("68 ec 00 00 00", StackPlace(8, OURS, 4)),  # push 0ECh
    ],
)
def test_what_writes_esp_or_ebp_is_seen(code: str, known: StackPlace) -> None:
    assert behind(f"{FRAME} {code}") == known


def test_the_caller_of_a_stub_of_a_system_call_is_where_esp_is() -> None:
    """mov eax, 0ECh; mov edx, 7FFE0300h: the call behind them has the return address on top of the stack."""
    assert behind("b8 ec 00 00 00 ba 00 03 fe 7f", "ff 12 c2 18 00") == StackPlace(0, CALLERS, None)
