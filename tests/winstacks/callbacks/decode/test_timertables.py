# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pointers of timers to their DPCs, and the forms of a table that symbols do not describe."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forge import callbacks
from winstacks.callbacks.decode.timertables import TimerTable, decoded_dpc, likeliest

START, POINTER = 0x1000, 8
FORMS = [
    TimerTable(START + first, stride, length)
    for first, stride in ((POINTER, 0x20), (0, 0x18), (0, 0x10))
    for length in (512, 256)
]
ADDRESSES = st.integers(1, (1 << 60) - 1).map(lambda number: number << 4)

Words = Dict[int, int]


def table_of(form: TimerTable) -> Words:
    """The words of a table whose lists are empty; times lie between."""
    words: Words = {}
    for head in form.heads:
        words.update({head: head, head + POINTER: head, head + 2 * POINTER: 0xFFFFFFFF00000000})
    return words


def reader(words: Words, address: int) -> Optional[Tuple[int, int]]:
    """The links at an address; behind the table is other data."""
    return words.get(address, 0x1234), words.get(address + POINTER, 0)


@given(ADDRESSES, ADDRESSES)
def test_a_pointer_is_decoded(dpc: int, timer: int) -> None:
    stored = callbacks.encoded(dpc, timer)
    assert decoded_dpc(stored, timer, callbacks.NEVER, callbacks.ALWAYS) == dpc


@pytest.mark.parametrize("never", [0, 0x3F, 0x40, 0xFF, (1 << 64) - 1])
def test_any_key_gives_an_address(never: int) -> None:
    for stored in (1, (1 << 64) - 1):
        assert 0 <= decoded_dpc(stored, 0xFFFFE00012345678, never, 5) < 1 << 64


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_form_that_was_made_is_found(form: TimerTable) -> None:
    words = table_of(form)
    assert likeliest(FORMS, lambda address: reader(words, address)) == form


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("number", [0, 100, 255, -1])
def test_one_overwritten_head_does_not_change_the_form(form: TimerTable, number: int) -> None:
    words = table_of(form)
    head = form.heads[number]
    words[head] = 0x4141414141414141
    assert likeliest(FORMS, lambda address: reader(words, address)) == form


def test_other_data_is_no_table() -> None:
    assert likeliest(FORMS, lambda address: (0x1234, 0x5678)) is None
    assert likeliest(FORMS, lambda address: None) is None
