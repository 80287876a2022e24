# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ARM64 unwind data in forms that the recorded points lack, and damaged unwind data."""

from __future__ import annotations

import contextlib
import struct
from typing import List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.armtruth import reader
from tests.support.deep import rounds
from tests.support.only import only
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.decode.functiontable_arm64 import FunctionTableArm64
from winstacks.names.decode.unwind_arm64 import (
    ALLOC,
    D0,
    END,
    END_C,
    FP,
    LR,
    NOP,
    RESERVED,
    SAVE,
    SET_FP,
    SIGN_LR,
    VECTORS,
    UnwindCode,
    UnwindRecord,
    read_record,
)
from winstacks.names.decode.unwindinfo import UnwindDataError
from winstacks.stacks.decode.rule_arm64 import of_codes

XDATA = 0x100


def packed(
    length: int = 0x40, floats: int = 0, integers: int = 0, homes: int = 0, chain: int = 0, frame: int = 0
) -> UnwindRecord:
    """Reads a packed record of a function."""
    word = (
        1 | length // 4 << 2 | floats << 13 | integers << 16 | homes << 20 | chain << 21 | frame // 16 << 23
    )
    return read_record(reader(b""), word)


def full(codes: bytes, length: int = 0x100, scopes: Tuple[int, ...] = (), single: int = -1) -> UnwindRecord:
    """Reads a full record; `scopes` are the raw words, `single` the index of the codes of a last epilogue."""
    codes = codes.ljust(-(-len(codes) // 4) * 4, b"\xe3")
    count = len(scopes) if single < 0 else single
    head = length // 4 | (single >= 0) << 21 | count << 22 | len(codes) // 4 << 27
    data = bytes(XDATA) + struct.pack(f"<I{len(scopes)}I", head, *scopes) + codes
    return read_record(reader(data), XDATA)


def shapes(record: UnwindRecord) -> List[Tuple[object, ...]]:
    """The instructions of a prologue in the order of the code: operation, registers, offset, size."""
    return [tuple(code[:4]) for code in reversed(record.codes[: record.prolog])]


@pytest.mark.parametrize(
    "record, expected",
    [
        # Microsoft's examples, and the forms that its table lists.
        (packed(chain=3, frame=0x20), [(SAVE, (FP, LR), 0, 0x20), (SET_FP, (), 0, 0)]),
        (
            packed(chain=2, integers=2, frame=0x30),
            [
                (SIGN_LR, (), 0, 0),
                (SAVE, (19, 20), 0, 0x10),
                (SAVE, (FP, LR), 0, 0x20),
                (SET_FP, (), 0, 0),
            ],
        ),
        (
            packed(chain=3, frame=0x210 + 0x1000),
            [
                (ALLOC, (), 0, 4080),
                (ALLOC, (), 0, 0x1210 - 4080),
                (SAVE, (FP, LR), 0, 0),
                (SET_FP, (), 0, 0),
            ],
        ),
        (packed(chain=1, integers=1, frame=0x10), [(ALLOC, (), 0, 0x10), (SAVE, (19, LR), 0, 0)]),
        (packed(chain=1, integers=2, frame=0x20), [(SAVE, (19, 20), 0, 0x20), (SAVE, (LR,), 0x10, 0)]),
        (packed(chain=1, integers=3, frame=0x20), [(SAVE, (19, 20), 0, 0x20), (SAVE, (21, LR), 0x10, 0)]),
        (packed(chain=1, frame=0x30), [(SAVE, (LR,), 0, 0x10), (ALLOC, (), 0, 0x20)]),
        (
            packed(floats=2, frame=0x20),
            [(SAVE, (D0 + 8, D0 + 9), 0, 0x20), (SAVE, (D0 + 10,), 0x10, 0)],
        ),
        (
            packed(integers=1, homes=1, frame=0x50),
            [(SAVE, (19,), 0, 0x50), *[(NOP, (), 0, 0)] * 4],
        ),
        (packed(homes=1, frame=0x50), [(ALLOC, (), 0, 0x50)]),
    ],
)
def test_packed_record_has_the_canonical_prologue(record: UnwindRecord, expected: object) -> None:
    assert shapes(record) == expected


def test_packed_epilogue_is_at_the_end_without_set_fp_and_homing() -> None:
    record = packed(length=0x40, chain=3, integers=2, homes=0, frame=0x30)
    scope = only(record.epilogs)
    assert (scope.start, scope.length) == (0x40 // 4 - 3, 2)
    rule = of_codes(record.codes, record.at_instruction(scope.start))
    assert rule.sp.offset == 0x30
    assert of_codes(record.codes, record.at_instruction(scope.start + 2)).sp.offset == 0


def test_fragment_is_body_everywhere() -> None:
    word = 2 | 4 << 2 | 3 << 21 | 2 << 23
    record = read_record(reader(b""), word)
    assert [record.at_instruction(number) for number in range(4)] == [0] * 4
    assert not record.whole


@pytest.mark.parametrize(
    "codes, expected",
    [
        ("01", UnwindCode(ALLOC, size=0x10)),
        ("c0 01", UnwindCode(ALLOC, size=0x10)),
        ("c7 ff", UnwindCode(ALLOC, size=0x7FF0)),
        ("e0 01 00 00", UnwindCode(ALLOC, size=0x100000)),
        ("22", UnwindCode(SAVE, (19, 20), 0, 0x10)),
        ("42", UnwindCode(SAVE, (FP, LR), 0x10)),
        ("81", UnwindCode(SAVE, (FP, LR), 0, 0x10)),
        ("c8 84", UnwindCode(SAVE, (21, 22), 0x20)),
        ("cc 83", UnwindCode(SAVE, (21, 22), 0, 0x20)),
        ("d0 42", UnwindCode(SAVE, (20,), 0x10)),
        ("d4 21", UnwindCode(SAVE, (20,), 0, 0x10)),
        ("d6 42", UnwindCode(SAVE, (21, LR), 0x10)),
        ("d8 82", UnwindCode(SAVE, (D0 + 10, D0 + 11), 0x10)),
        ("da 81", UnwindCode(SAVE, (D0 + 10, D0 + 11), 0, 0x10)),
        ("dc 42", UnwindCode(SAVE, (D0 + 9,), 0x10)),
        ("de 21", UnwindCode(SAVE, (D0 + 9,), 0, 0x10)),
        ("df 01", UnwindCode(VECTORS)),
        ("e7 66 89", UnwindCode(SAVE, (D0 + 6, D0 + 7), 0, 0xA0, 16)),
        ("e7 46 82", UnwindCode(SAVE, (D0 + 6, D0 + 7), 0x20, 0, 16)),
        ("e7 13 02", UnwindCode(SAVE, (19,), 0x10)),
        ("e7 53 02", UnwindCode(SAVE, (19, 20), 0x20)),
        ("e7 13 c2", UnwindCode(VECTORS)),
        ("e7 93 02", UnwindCode(RESERVED)),
        ("f8 00", UnwindCode(RESERVED)),
        ("ed", UnwindCode(RESERVED)),
    ],
)
def test_code_has_microsofts_form(codes: str, expected: UnwindCode) -> None:
    assert full(bytes.fromhex(codes) + b"\xe4").codes[0] == expected


def test_save_next_is_the_following_pair() -> None:
    # stp x19,x20,[sp,#-48]!; stp x21,x22; stp x23,x24: the code of the first pair comes last.
    record = full(bytes.fromhex("e6 e6 26 e4"))
    assert [tuple(code[:4]) for code in record.codes[:3]] == [
        (SAVE, (23, 24), 0x20, 0),
        (SAVE, (21, 22), 0x10, 0),
        (SAVE, (19, 20), 0, 0x30),
    ]
    # There is no pair behind x27, x28, and none without a pair.
    assert full(bytes.fromhex("e6 ca 00 e4")).codes[0].operation == RESERVED
    assert full(bytes.fromhex("e6 e4")).codes[0].operation == RESERVED


def test_end_c_ends_the_prologue_only() -> None:
    record = full(bytes.fromhex("01 e5 42 02 e4"))
    assert record.prolog == 1
    assert of_codes(record.codes, record.at_instruction(0)).sp.offset == 0x20
    assert of_codes(record.codes, record.at_instruction(1)).sp.offset == 0x30
    assert not full(bytes.fromhex("e5 42 02 e4")).whole


def test_epilogue_without_end_continues_with_the_functions_own_codes() -> None:
    record = full(bytes.fromhex("02 e4 01 e3"), scopes=(0x10 | 2 << 22,))
    assert of_codes(record.codes, record.at_instruction(0x10)).sp.offset == 0x30
    assert of_codes(record.codes, record.at_instruction(0x11)).sp.offset == 0x20


def test_scope_of_the_32_bit_form_has_an_index_of_8_bits() -> None:
    old = 0x10 | 0x38 << 18 | 2 << 24
    record = full(bytes.fromhex("02 e4 01 e4"), scopes=(old,))
    assert of_codes(record.codes, record.at_instruction(0x10)).sp.offset == 0x10


def test_single_epilogue_is_at_the_very_end() -> None:
    record = full(bytes.fromhex("02 e4 01 e4"), length=0x40, single=2)
    scope = only(record.epilogs)
    assert (scope.start, scope.length) == (14, 1)


@pytest.mark.parametrize("codes", ["01 01 01 01", "e3 e3 e3 e3", "e5 01 01 01"])
def test_codes_without_end(codes: str) -> None:
    if codes.startswith("e5"):
        # The count of the prologue ends; the rest applies up to the end of the array.
        assert full(bytes.fromhex(codes)).prolog == 0
        return
    with pytest.raises(UnwindDataError) as error:
        full(bytes.fromhex(codes))
    assert error.value.code is StatusCode.UNWIND_DATA_INVALID


def table(*entries: Tuple[int, int], more: bytes = b"") -> FunctionTableArm64:
    """A table at RVA 0 of an image, with more bytes behind it."""
    data = b"".join(struct.pack("<II", *entry) for entry in entries)
    return FunctionTableArm64.from_bytes(data, reader(data + more))


def test_entries_have_the_length_of_their_unwind_data() -> None:
    full_word = 32  # RVA of the record behind the four entries
    found = table(
        (0x1000, 1 | 4 << 2), (0x1100, full_word), (0x1200, 0x8000), (0x1300, 3), more=struct.pack("<I", 8)
    )
    assert [entry.end for entry in found] == [0x1010, 0x1120, 0x1300, 0x130C]
    assert found.find_entry(0x1010) is None
    entry = found.find_entry(0x1280)
    # The record of this entry is unreadable: it counts up to the next entry.
    assert entry is not None and entry.begin == 0x1200
    with pytest.raises(UnwindDataError) as error:
        found.record(entry)
    assert error.value.code is StatusCode.UNWIND_DATA_UNREADABLE
    assert found.gap_around(0x1050) == (0x1010, 0x1100)


ENDLESS = b"\xe4" + b"\x81" * 1019
"""Codes that have no end from the second one on."""


def _with_scopes(places: List[int]) -> UnwindRecord:
    """Reads a record of an extended header whose epilogues begin at bytes of ENDLESS."""
    head = struct.pack("<II", 0x40, len(places) | len(ENDLESS) // 4 << 16)
    scopes = struct.pack(
        f"<{len(places)}I", *(0x10 + number | place << 22 for number, place in enumerate(places))
    )
    return read_record(reader(bytes(XDATA) + head + scopes + ENDLESS), XDATA)


def test_epilogues_without_an_end_share_what_follows_them() -> None:
    """Thousands of them made millions of codes of 20 KB."""
    record = _with_scopes([1] * 4096)
    assert len(record.epilogs) == 4096
    assert len(record.codes) == len(ENDLESS) + len(ENDLESS[1:]) + 1
    with pytest.raises(UnwindDataError):
        _with_scopes([1 + number % 1000 for number in range(4096)])


def test_unsorted_entries_are_sorted_and_empty_ones_left_out() -> None:
    found = table((0x2000, 1 | 4 << 2), (0, 0), (0x1000, 1 | 4 << 2))
    assert [entry.begin for entry in found] == [0x1000, 0x2000]


def test_island_leads_to_another_entry_once() -> None:
    found = table((0x1000, 1 | 4 << 2 | 3 << 21 | 2 << 23), (0x2000, 0 | 3), (0x3000, 8 | 3))
    assert [found.primary(entry) for entry in found] == [next(iter(found)), next(iter(found)), None]
    with pytest.raises(UnwindDataError):
        found.direct(found.entry(2))


@settings(max_examples=rounds(2000))
@given(st.binary(min_size=4, max_size=200))
def test_any_bytes_are_a_record_or_an_error(data: bytes) -> None:
    try:
        record = read_record(reader(bytes(XDATA) + data), XDATA)
    except UnwindDataError:
        return
    for number in (0, 1, record.length // 4, *(scope.start for scope in record.epilogs)):
        first = record.at_instruction(number)
        assert 0 <= first <= len(record.codes)
        with contextlib.suppress(UnwindDataError):
            of_codes(record.codes, first)
    assert {code.operation for code in record.codes} <= set(range(SAVE, RESERVED + 1)) | {
        NOP,
        ALLOC,
        END,
        END_C,
    }


@settings(max_examples=rounds(2000))
@given(st.integers(0, (1 << 32) - 1))
def test_any_packed_word_is_a_record_or_an_error(word: int) -> None:
    word = word & ~3 | 1
    try:
        record = read_record(reader(b""), word)
    except UnwindDataError:
        return
    for number in range(record.length // 4):
        rule = of_codes(record.codes, record.at_instruction(number))
        assert 0 <= rule.sp.offset <= 0x2000
