# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""UNWIND_INFO, byte for byte as the public description has it, and whatever else bytes may be."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.names.decode import unwindinfo as ui
from winstacks.names.decode.unwindinfo import (
    Code,
    Epilog,
    RuntimeFunction,
    UnwindDataError,
    UnwindInfo,
    read_unwind_info,
)


def parse(data: bytes) -> UnwindInfo:
    def read_rva(rva: int, length: int) -> Optional[bytes]:
        return data[rva : rva + length] if rva + length <= len(data) else None

    return read_unwind_info(read_rva, 0)


def test_every_operation_of_version_1() -> None:
    info = parse(
        bytes.fromhex(
            "01 40 13 25"
            "40 99 10 20 03 00"  # SAVE_XMM128_FAR xmm9, 32010h
            "38 68 04 00"  # SAVE_XMM128 xmm6, 40h
            "30 f5 08 00 09 00"  # SAVE_NONVOL_FAR r15, 90008h
            "28 34 06 00"  # SAVE_NONVOL rbx, 30h
            "20 03"  # SET_FPREG
            "1c 11 10 20 03 00"  # ALLOC_LARGE 32010h
            "18 01 ff ff"  # ALLOC_LARGE 7fff8h
            "10 f2"  # ALLOC_SMALL 80h
            "02 c0"  # PUSH_NONVOL r12
            "00 1a"  # PUSH_MACHFRAME with error code
        )
    )
    assert info.codes == (
        Code(0x40, ui.SAVE_XMM128_FAR, 9, 0x32010),
        Code(0x38, ui.SAVE_XMM128, 6, 0x40),
        Code(0x30, ui.SAVE_NONVOL_FAR, 15, 0x90008),
        Code(0x28, ui.SAVE_NONVOL, 3, 0x30),
        Code(0x20, ui.SET_FPREG, 0, 0),
        Code(0x1C, ui.ALLOC_LARGE, 1, 0x32010),
        Code(0x18, ui.ALLOC_LARGE, 0, 0x7FFF8),
        Code(0x10, ui.ALLOC_SMALL, 15, 0x80),
        Code(2, ui.PUSH_NONVOL, 12, 0),
        Code(0, ui.PUSH_MACHFRAME, 1, 0),
    )
    assert (info.version, info.flags, info.prolog_size) == (1, 0, 0x40)
    assert (info.frame_register, info.frame_offset) == (5, 0x20)
    assert info.chained is None


def test_chained_data_lies_behind_an_even_number_of_codes() -> None:
    info = parse(bytes.fromhex("21 00 01 00 02 30 00 00 00100000 40100000 00500000"))
    assert info.chained == RuntimeFunction(0x1000, 0x1040, 0x5000)


def test_epilogues_of_version_2() -> None:
    info = parse(bytes.fromhex("02 04 06 00 05 16 23 26 40 06 00 06 04 32 01 30"))
    assert info.epilogs == (Epilog(5, 5), Epilog(0x223, 5), Epilog(0x40, 5))
    assert [code.operation for code in info.codes] == [ui.ALLOC_SMALL, ui.PUSH_NONVOL]


def test_an_epilogue_that_is_not_at_the_end() -> None:
    assert parse(bytes.fromhex("02 00 02 00 03 06 41 06")).epilogs == (Epilog(0x41, 3),)


def test_old_vector_codes_of_version_1_have_operands() -> None:
    info = parse(bytes.fromhex("01 09 06 00 09 66 ffff 05 77 ffffffff 01 30"))
    assert [code.operation for code in info.codes] == [ui.SPARE, ui.PUSH_NONVOL]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("01 00 01", "unreadable"),
        ("01 00 02 00 02 30", "unreadable"),
        ("03 00 00 00", "invalid"),
        ("00 00 00 00", "invalid"),
        ("01 00 01 00 00 0b", "invalid"),
        ("01 00 01 00 00 21", "invalid"),
        ("01 00 01 00 04 01", "invalid"),
        ("01 00 02 00 04 11 00 00", "invalid"),
        ("21 00 00 00 00000000 00000000", "unreadable"),
    ],
)
def test_what_cannot_be_used_says_why(data: str, reason: str) -> None:
    with pytest.raises(UnwindDataError, match=reason):
        parse(bytes.fromhex(data))


@given(st.binary(max_size=600))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        info = parse(data)
    except UnwindDataError:
        return
    assert len(info.codes) + len(info.epilogs) <= 255
    assert all(0 <= code.value < 1 << 32 for code in info.codes)
