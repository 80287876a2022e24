# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Declared structures: where each member lies, what is read, and that what is read is what was written."""

from __future__ import annotations

import struct
from typing import Annotated, Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode.declared import (
    MAYBE_ULONG,
    STRING,
    STRING64,
    UCHAR,
    ULONG,
    ULONGLONG,
    USHORT,
    Declared,
    without,
)
from winstacks.memory.decode.records import NamedTuple


class Inner(NamedTuple):
    """A structure within a structure."""

    low: USHORT
    high: UCHAR


class Outer(NamedTuple):
    """Members of each kind; `judged` is not in the file."""

    number: ULONG
    inner: Inner
    name: STRING
    last: Annotated[int, "ULONG @0x38"]
    numbers: Annotated[Tuple[int, ...], "USHORT[3] @0xc"]
    data: Annotated[bytes, "UCHAR[5]"]
    text: Annotated[Optional[str], "WCHAR[4]"]
    short: Annotated[str, "CHAR[4]"]
    signed: Annotated[Optional[int], "LONG"]
    wide: STRING64
    judged: Optional[bool] = None


class Sized(NamedTuple):
    """A structure of two sizes."""

    pointer: Annotated[int, "ULONG_PTR"]
    entries: Annotated[int, "ULONG @0x8/0x14"]
    only_wide: Annotated[Optional[int], "ULONG @-/0x1c"] = None


OUTER = Declared(Outer, size=64, least=12)
TEXTS = {1: "one", 2: "two"}


def laid_out(record: Outer) -> bytes:
    """The bytes of a record, by hand."""
    data = bytearray(64)
    places = {text: place for place, text in TEXTS.items()}
    struct.pack_into("<IHB", data, 0, record.number, *record.inner)
    struct.pack_into("<I", data, 7, places.get(record.name or "", 0))
    struct.pack_into("<3H5s", data, 12, *record.numbers, record.data)
    data[23:31] = (record.text or "").encode("utf-16-le").ljust(8, b"\0")
    data[31:35] = record.short.encode("latin-1").ljust(4, b"\0")
    struct.pack_into("<iQ", data, 35, record.signed or 0, places.get(record.wide or "", 0))
    struct.pack_into("<I", data, 56, record.last)
    return bytes(data)


def put(text: Optional[str]) -> int:
    return {text: place for place, text in TEXTS.items()}.get(text or "", 0)


small, long = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
names = st.sampled_from((None, "one", "two"))
outers = st.builds(
    Outer,
    number=long,
    inner=st.builds(Inner, small, st.integers(0, 255)),
    name=names,
    last=long,
    numbers=st.tuples(small, small, small),
    data=st.binary(min_size=5, max_size=5),
    text=st.text("ab\u00e9", max_size=3),
    short=st.text("ab\u00e9", max_size=3),
    signed=st.integers(-(1 << 31), (1 << 31) - 1),
    wide=names,
    judged=st.none(),
)


@given(st.lists(outers, max_size=5))
def test_many_are_read_as_they_were_written(records: List[Outer]) -> None:
    data = b"".join(OUTER.encode(record, put) for record in records)
    assert data == b"".join(map(laid_out, records))
    assert list(OUTER.records(OUTER.struct.iter_unpack(data), TEXTS.get)) == records


@given(outers, st.integers(0, 64))
def test_what_an_older_version_lacks_is_zero(record: Outer, size: int) -> None:
    data = laid_out(record)[:size]
    assert OUTER.decode(data, TEXTS.get) == OUTER.decode(data.ljust(64, b"\0"), TEXTS.get)


def test_texts_are_found_structure_by_structure() -> None:
    asked: List[int] = []
    rows = [OUTER.row(struct.pack("<7xI28xQ", number, number + 1)) for number in (3, 5)]
    list(OUTER.records(rows, lambda place: asked.append(place)))
    assert asked == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("wide", "size", "ends"),
    [
        (False, 12, {"pointer": 4, "entries": 12}),
        (True, 32, {"pointer": 8, "entries": 24, "only_wide": 32}),
    ],
)
def test_both_bitnesses(wide: bool, size: int, ends: Dict[str, int]) -> None:
    form = Declared(Sized, wide=wide)
    assert (form.size, form.ends) == (size, ends)
    record = Sized(7, 9, 11 if wide else None)
    assert form.decode(form.encode(record)) == record


def test_a_value_that_is_unknown() -> None:
    class Counted(NamedTuple):
        """A number that may be unknown."""

        known: MAYBE_ULONG
        address: ULONGLONG

    form = Declared(Counted)
    assert form.encode(Counted(None, 5)) == struct.pack("<IQ", 0, 5)
    assert without(form.decode(struct.pack("<IQ", 3, 5)), ["known"]) == (None, 5)


def test_texts_that_are_too_long_end_with_a_zero() -> None:
    record = Outer(0, Inner(0, 0), None, 0, (0, 0, 0), b"", "abcdef", "abcdef", None, None)
    read = OUTER.decode(OUTER.encode(record, put), TEXTS.get)
    assert (read.text, read.short, read.data, read.signed) == ("abc", "abc", bytes(5), 0)
