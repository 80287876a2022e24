# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Function tables: lookups, pieces, and what a missing page leaves unknown."""

from __future__ import annotations

import struct
from typing import Any, Callable, List, Optional, Tuple, Type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.only import only
from winstacks.names.decode import functiontable
from winstacks.names.decode.functiontable import MAX_CHAIN, FunctionTable
from winstacks.names.decode.functiontable_arm64 import FunctionTableArm64
from winstacks.names.decode.unwindinfo import RuntimeFunction, UnwindDataError

PLAIN, CHAINED, LOOP, INDIRECT_TARGET = 0x100, 0x110, 0x120, 0x140
IMAGE = bytearray(0x400)
IMAGE[PLAIN : PLAIN + 4] = b"\x01\0\0\0"
IMAGE[CHAINED : CHAINED + 16] = b"\x21\0\0\0" + struct.pack("<III", 0x1000, 0x1100, PLAIN)
IMAGE[LOOP : LOOP + 16] = b"\x21\0\0\0" + struct.pack("<III", 0x5000, 0x5100, LOOP)
IMAGE[INDIRECT_TARGET : INDIRECT_TARGET + 12] = struct.pack("<III", 0x2000, 0x2040, CHAINED)

FIRST = RuntimeFunction(0x1000, 0x1100, PLAIN)
PIECE = RuntimeFunction(0x2000, 0x2040, CHAINED)
INDIRECT = RuntimeFunction(0x3000, 0x3010, INDIRECT_TARGET + 1)
LOOPING = RuntimeFunction(0x5000, 0x5100, LOOP)
LOST = RuntimeFunction(0x6000, 0x6100, 0x10000)
ALL = [FIRST, PIECE, INDIRECT, LOOPING, LOST]


def read_rva(rva: int, length: int) -> Optional[bytes]:
    return bytes(IMAGE[rva : rva + length]) if rva + length <= len(IMAGE) else None


def table(entries: List[RuntimeFunction]) -> FunctionTable:
    return FunctionTable.from_bytes(b"".join(struct.pack("<III", *entry) for entry in entries), read_rva)


def test_find_takes_the_first_byte_and_not_the_end() -> None:
    found = table(ALL)
    assert found.find_entry(0x1000) == FIRST
    assert found.find_entry(0x10FF) == FIRST
    assert found.find_entry(0x1100) is None
    assert found.find_entry(0xFFF) is None
    assert found.find_entry(0x203F) == PIECE


def test_pieces_lead_to_the_function_that_they_belong_to() -> None:
    found = table(ALL)
    assert [found.primary(entry) for entry in (FIRST, PIECE, INDIRECT)] == [FIRST] * 3
    assert found.direct(INDIRECT) == PIECE


def test_an_indirect_entry_that_stands_for_itself_is_no_entry() -> None:
    image = struct.pack("<III", 0x3000, 0x3010, 1)
    found = FunctionTable.from_bytes(image, lambda rva, length: image[rva : rva + length])
    entry = only([found.find_entry(0x3008)])
    assert entry == RuntimeFunction(0x3000, 0x3010, 1)
    with pytest.raises(UnwindDataError, match="invalid"):
        found.direct(entry)
    assert found.primary(entry) is None


def test_a_chain_that_loops_or_is_unreadable_leads_nowhere() -> None:
    found = table(ALL)
    assert found.primary(LOOPING) is None
    assert found.primary(LOST) is None
    with pytest.raises(UnwindDataError, match="invalid"):
        found.chain(LOOPING)
    with pytest.raises(UnwindDataError, match="unreadable"):
        found.chain(LOST)


def test_the_chain_is_every_piece_of_unwind_data_in_order() -> None:
    chain = table(ALL).chain(INDIRECT)
    assert [info.chained for info in chain] == [FIRST, None]
    assert len(chain) <= MAX_CHAIN


def test_an_unsorted_or_padded_table_is_searched_all_the_same() -> None:
    found = table([PIECE, RuntimeFunction(0, 0, 0), FIRST, RuntimeFunction(9, 3, 1)])
    assert list(found) == [FIRST, PIECE]
    assert found.find_entry(0x1050) == FIRST


def test_a_missing_page_makes_none_mean_nothing_where_entries_may_lack() -> None:
    data = b"".join(struct.pack("<III", *entry) for entry in ALL)
    # The second entry is cut, the fourth and fifth are gone.
    found = FunctionTable.from_runs([(0, data[:16]), (20, data[20:36])], len(data), read_rva)
    assert list(found) == [FIRST, INDIRECT]
    assert [found.complete_at(rva) for rva in (0x500, 0x1100, 0x2000, 0x3008, 0x3010, 0x9000)] == [
        *(True, False, False, True, False, False)
    ]


def test_a_table_of_which_nothing_is_there_is_complete_nowhere() -> None:
    found = FunctionTable.from_runs([], 120, read_rva)
    assert len(found) == 0
    assert not found.complete_at(0x1000)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 0x400)), max_size=30),
    st.integers(0, 320),
)
def test_lookups_agree_with_a_search_of_every_entry(entries: List[Tuple[int, int, int]], rva: int) -> None:
    """Where entries do not overlap; where they do, what is found still holds the address."""
    found = table([RuntimeFunction(*entry) for entry in entries])
    entry = found.find_entry(rva)
    holding = [piece for piece in found if piece.begin <= rva < piece.end]
    if entry is not None:
        assert entry in holding
        found.primary(entry)
    if len(list(found)) == len({function.begin for function in found}) and not _overlap(list(found)):
        assert ([entry] if entry else []) == holding


def _overlap(entries: List[RuntimeFunction]) -> bool:
    return any(first.end > second.begin for first, second in zip(entries, entries[1:]))


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (FunctionTable, struct.pack("<BBBB", 1, 0x20, 20, 0) + b"\x01\x02" * 20),
        (FunctionTableArm64, struct.pack("<I", 0x40 | 5 << 27) + b"\x01" * 19 + b"\xe4"),
    ],
    ids=["x64", "arm64"],
)
def test_unwind_data_that_is_kept_has_a_limit(
    kind: Type[FunctionTable], record: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records may overlap, so that few bytes make very many codes: of the 40 functions, few are kept."""
    monkeypatch.setattr(functiontable, "MOST_CODES", 200)
    data, reads = record.ljust(0x100, b"\0") * 40, 0

    def read(rva: int, length: int) -> Optional[bytes]:
        nonlocal reads
        reads += 1
        return data[rva : rva + length]

    rows = [(0x1000 + 16 * number, 0x1010 + 16 * number, 0x100 * number) for number in range(40)]
    columns = [row if kind is FunctionTable else (row[0], row[2]) for row in rows]
    found = kind.from_bytes(b"".join(struct.pack(f"<{len(each)}I", *each) for each in columns), read)
    ask: Callable[[RuntimeFunction], Any]
    ask = found.record if isinstance(found, FunctionTableArm64) else found.unwind_info
    for _ in range(2):
        for entry in list(found):
            before = reads
            first = ask(entry)
            assert reads > before
            before = reads
            assert ask(entry) is first and reads == before
