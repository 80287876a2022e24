# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which label reaches an address."""

from __future__ import annotations

import struct
from typing import Dict, List, Optional, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.names.decode.functiontable import FunctionTable
from winstacks.names.decode.pe import Section
from winstacks.names.decode.rules import ExportNames, NameTable, PdbNames, sort_labels

SECTIONS = (Section(0x1000, 0x5000, ".text", 0x60000020), Section(0x6000, 0x7000, ".data", 0xC0000040))
PLAIN = 0x8000
"""RVA of unwind information that is not chained."""
CHAINED = 0x8010
"""RVA of unwind information that is chained to the function at 0x1000."""
PAGED_OUT = 0x9000

UNWIND: Dict[int, bytes] = {
    PLAIN: b"\x01\0\0\0",
    CHAINED: b"\x21\0\0\0" + struct.pack("<III", 0x1000, 0x1100, PLAIN),
}
FUNCTIONS = [
    (0x1000, 0x1100, PLAIN),  # exported
    (0x1100, 0x1180, PLAIN),  # not exported
    (0x2000, 0x2100, CHAINED),  # a piece of the first one, moved away
    (0x2100, 0x2200, PAGED_OUT),
    (0x3000, 0x3100, PLAIN),  # exported, followed by leaf code
    (0x0800, 0x0900, CHAINED),  # before its function
]
LABELS = {0x1000: "First", 0x1040: "Inner", 0x3000: "Third", 0x3180: "Leaf", 0x4FF0: "Last", 0x6010: "Data"}


def read(rva: int, length: int) -> Optional[bytes]:
    for start, data in UNWIND.items():
        if start <= rva and rva + length <= start + len(data):
            return data[rva - start : rva - start + length]
    return None


def table(exports: bool, x64: bool = True, labels: Optional[Dict[int, str]] = None) -> NameTable:
    pdata = b"".join(struct.pack("<III", *function) for function in sorted(FUNCTIONS))
    functions = FunctionTable.from_bytes(pdata, read) if x64 else None
    kind = ExportNames if exports else PdbNames
    return kind(*sort_labels((labels or LABELS).items()), SECTIONS, functions)


@pytest.mark.parametrize(
    "rva, expected",
    [
        (0x1000, (0x1000, "First", "export")),
        (0x1050, (0x1000, "First", "export")),  # not Inner, which starts no function
        (0x10FF, (0x1000, "First", "export")),
        (0x1100, None),  # a function without a name
        (0x1190, None),  # no function, and one without a name lies before
        (0x2010, (0x1000, "First", "export")),  # a moved piece
        (0x2110, None),  # may be a moved piece: not known
        (0x3050, (0x3000, "Third", "export")),
        (0x3110, None),  # leaf code behind a function that has ended
        (0x3190, (0x3180, "Leaf", "nearest")),
        (0x4FEF, (0x3180, "Leaf", "nearest")),
        (0x4FF8, (0x4FF0, "Last", "nearest")),
        (0x5000, None),  # between the sections
        (0x6008, None),  # the label before it is in another section
        (0x6018, (0x6010, "Data", "nearest")),
        (0x0850, (0x1000, "First", "export")),  # a piece that lies before its function
        (0x0500, None),  # the headers
    ],
)
def test_exports_and_a_function_table(rva: int, expected: Optional[Tuple[int, str, str]]) -> None:
    assert table(exports=True).find_label(rva) == expected


@pytest.mark.parametrize(
    "rva, expected",
    [
        (0x1010, (0x1000, "First", "pdb")),
        (0x1050, (0x1040, "Inner", "pdb")),
        (0x1110, None),
        (0x2010, (0x1000, "First", "pdb")),
        (0x3110, None),
        (0x3190, (0x3180, "Leaf", "pdb")),
        (0x6008, None),
    ],
)
def test_a_pdb_and_a_function_table(rva: int, expected: Optional[Tuple[int, str, str]]) -> None:
    assert table(exports=False).find_label(rva) == expected


@pytest.mark.parametrize("exports, source", [(True, "nearest"), (False, "pdb")])
def test_x86_has_the_last_label_before(exports: bool, source: str) -> None:
    names = table(exports, x64=False)
    assert names.find_label(0x1030) == (0x1000, "First", source)
    assert names.find_label(0x1100) == (0x1040, "Inner", source)
    assert names.find_label(0x3110) == (0x3000, "Third", source)
    assert names.find_label(0x6008) is None
    assert names.find_label(0xFFF) is None


def test_without_sections_a_label_reaches_as_far_as_the_next() -> None:
    names = PdbNames([0x1000, 0x2000], ["A", "B"])
    assert names.find_label(0xFFF) is None
    assert names.find_label(0x1FFF) == (0x1000, "A", "pdb")
    assert names.find_label(0x90000) == (0x2000, "B", "nearest")


FEW = (Section(0x1000, 0x40000, ".text", 0x60000020),)


@pytest.mark.parametrize("sections", [(), FEW])
@pytest.mark.parametrize(
    "rva, expected",
    [
        (0x1000 + 0x1FEC, (0x1000, "Long", "pdb")),  # XP's longest function, MiInitMachineDependent
        (0x5000 + 0x1445E, (0x5000, "Gap", "nearest")),
        (0x5000, (0x5000, "Gap", "pdb")),  # the label itself
        (0x5010, (0x5000, "Gap", "nearest")),  # where Gap ends is unknown
        (0x2A010, (0x2A000, "Last", "nearest")),  # nothing follows
    ],
)
def test_a_pdb_that_lacks_symbols_bounds_nothing(
    rva: int, expected: Tuple[int, str, str], sections: Sequence[Section]
) -> None:
    names = PdbNames([0x1000, 0x5000, 0x2A000], ["Long", "Gap", "Last"], sections)
    assert names.find_label(rva) == expected


def test_the_next_function_bounds_leaf_code_that_a_pdb_names() -> None:
    pdata = struct.pack("<IIIIII", 0x1000, 0x1100, PLAIN, 0x2000, 0x2100, PLAIN)
    names = PdbNames([0x1200, 0x2180], ["Leaf", "Last"], FEW, FunctionTable.from_bytes(pdata, read))
    assert names.find_label(0x1210) == (0x1200, "Leaf", "pdb")
    assert names.find_label(0x2190) == (0x2180, "Last", "nearest")


def test_the_best_of_several_names() -> None:
    pairs = [(1, "?Mangled@@YAXXZ"), (1, "Plain"), (2, "ZwClose"), (2, "NtClose"), (3, "_x"), (3, "$$0")]
    assert sort_labels(pairs) == ([1, 2, 3], ["Plain", "NtClose", "_x"])


@given(
    labels=st.dictionaries(st.integers(0, 0x7000), st.text("abc", min_size=1, max_size=3), max_size=20),
    rva=st.integers(0, 0x7000),
    x64=st.booleans(),
)
def test_a_label_never_crosses_a_function_or_a_section(labels: Dict[int, str], rva: int, x64: bool) -> None:
    found = table(True, x64, labels or {0: "a"}).find_label(rva)
    if found is None:
        return
    start, name, source = found
    assert labels.get(start, "a") == name
    holding: List[Tuple[int, int, int]] = (
        [function for function in FUNCTIONS if function[0] <= rva < function[1]] if x64 else []
    )
    if holding:
        assert source == "export"
        assert start == (
            0x1000 if holding[0][2] == CHAINED and holding[0][0] not in labels else holding[0][0]
        )
    else:
        assert source == "nearest"
        assert start <= rva
        assert all(section.start <= start for section in SECTIONS if section.start <= rva < section.end)
        assert not x64 or not any(start < end <= rva for _, end, _ in FUNCTIONS)
        assert not any(start < other <= rva for other in labels)
