# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What following the code of an x86 function knows of Esp and Ebp: instructions as compilers make them."""

from __future__ import annotations

from typing import Optional

import pytest

from winstacks.stacks.decode.flow_x86 import CALLERS, OTHER, OURS, Flow, StackPlace

START = 0x10000
SLOT, IMPORTED = 0x77001200, 0x77102000
"""An import of a function that pops 8 bytes."""

FRAME = "55 8b ec"
"""push ebp; mov ebp, esp."""
IN_FRAME = StackPlace(4, OURS, 4)


def behind(code: str, more: str = "90 c3") -> Optional[StackPlace]:
    """What is known of Esp and Ebp behind some code."""
    data = bytes.fromhex(code)
    whole = data + bytes.fromhex(more)
    flow = Flow(whole, START, {SLOT: IMPORTED}.get, {IMPORTED: 8}.get, lambda _: False)
    place = flow.places.get(START + len(data))
    return None if place is None else place._replace(loaded=StackPlace(0, 0, None).loaded)


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


LOAD = "8b 35 00 12 00 77"
"""mov esi, [SLOT]."""


@pytest.mark.parametrize(
    ("code", "depth"),
    [
        (f"56 57 {LOAD} 6a 00 6a 01 ff d6", 8),
        (f"56 57 {LOAD} 6a 00 6a 01 ff 15 00 12 00 77 6a 00 6a 01 ff d6", 8),
        ("53 8b 1d 00 12 00 77 6a 00 6a 01 8b c6 32 c0 ff d3", 4),
        ("57 8b 3d 00 12 00 77 75 02 33 c0 6a 00 6a 01 ff d7", 4),
        # What is called is unknown: nothing was loaded, or it was overwritten since, or on one of two ways.
        ("56 57 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} 8b f0 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} be 01 00 00 00 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} 46 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} a5 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} 5e 56 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} 96 6a 00 6a 01 ff d6", None),
        (f"56 75 06 {LOAD} 6a 00 6a 01 ff d6", None),
        ("53 8b 1d 00 12 00 77 b3 01 6a 00 6a 01 ff d3", None),
        ("53 8b 1d 00 12 00 77 8a d8 6a 00 6a 01 ff d3", None),
        ("53 8b 1d 00 12 00 77 0f 94 c3 6a 00 6a 01 ff d3", None),
        ("64 8b 35 00 12 00 77 6a 00 6a 01 ff d6", None),
    ],
)
def test_a_call_through_a_register_goes_where_it_was_loaded_from(code: str, depth: Optional[int]) -> None:
    place = behind(code)
    assert place is not None
    assert place.depth == depth


def test_the_end_of_a_function_that_switches_threads() -> None:
    """call esi; mov eax, edi; pop edi; pop esi; ret: esi was loaded from an import before the switch."""
    code = f"56 57 {LOAD} e8 00 10 00 00"
    place = behind(code, "6a 00 6a 01 ff d6 8b c7 5f 5e c3")
    assert place is not None
    assert place.depth is None
    whole = bytes.fromhex(f"56 57 {LOAD} 6a 00 6a 01 ff d6 8b c7 5f 5e c3")
    flow = Flow(whole, START, {SLOT: IMPORTED}.get, {IMPORTED: 8}.get, lambda _: False)
    assert (flow.returns, flow.complete) == ([0], True)
    assert flow.places[START + len(whole) - 1].depth == 0
