# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""UMDH logs: what is written is read again, and what grew between two."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.heaps.decode import umdh
from winstacks.heaps.decode.block import DAMAGED, TraceGroup
from winstacks.heaps.decode.umdh import Allocation, UmdhHeap, UmdhLog, UmdhModule
from winstacks.memory.decode.status import NOTHING, Status
from winstacks.tracedb.decode.recorded import RecordedStack

MODULES = (
    UmdhModule(0x7FF612340000, 0x2D000, "C:\\Program Files\\app.exe"),
    UmdhModule(0x7FFB31C50000, 0x1F8000, "C:\\Windows\\SYSTEM32\\ntdll.dll"),
)
TEXT = "\r\n".join(
    [
        "// Loaded modules:",
        "//     Base Size Module",
        "//    00007FF612340000 0002D000 C:\\Program Files\\app.exe",
        "//    00007FFB31C50000 001F8000 C:\\Windows\\SYSTEM32\\ntdll.dll",
        "//",
        "",
        "*- - - - - - - - - - Start of data for heap @ 1A0000 - - - - - - - - - -",
        "",
        "REQUESTED bytes + OVERHEAD at ADDRESS by BackTraceID",
        "     STACK if not already dumped.",
        "",
        "*- - - - - - - - - - Heap 1A0000 Hogs - - - - - - - - - -",
        "",
        "5DC bytes + 34 at 1A2DE0 by BackTrace2510",
        "",
        "\t7FFB31C6A09B",
        "\t7FF612345678",
        "",
        "10 bytes + 30 at 1A3000 by BackTrace2510",
        "*- - - - - - - - - - End of data for heap @ 1A0000 - - - - - - - - - -",
        "",
        "",
    ]
)
LOG = UmdhLog(
    MODULES,
    (
        UmdhHeap(
            0x1A0000, (Allocation(0x5DC, 0x34, 0x1A2DE0, 0x2510), Allocation(0x10, 0x30, 0x1A3000, 0x2510))
        ),
    ),
    {0x2510: (0x7FFB31C6A09B, 0x7FF612345678)},
)


def test_text_is_umdhs() -> None:
    assert "".join(umdh.write(LOG)) == TEXT


def test_text_is_read_again() -> None:
    assert umdh.parse(TEXT.splitlines(keepends=True)) == LOG


def test_more_than_a_raw_log_holds_is_passed_over() -> None:
    """UMDH itself writes a heap's figures before its blocks."""
    figures = ["    Flags: 58000062", "    Number Of Entries: 1033", ""]
    lines = TEXT.splitlines()
    place = lines.index("REQUESTED bytes + OVERHEAD at ADDRESS by BackTraceID")
    assert umdh.parse(lines[:place] + figures + lines[place:]) == LOG


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no data of a heap"),
        ("hello\nworld\n", "no data of a heap"),
        (TEXT[: TEXT.index("*- - - - - - - - - - End")], "has no end"),
        (TEXT.replace("10 bytes", "ten bytes"), "line 19: the line is neither a block nor a frame"),
        (TEXT.replace("\t7FFB31C6A09B", "\tntdll!RtlAllocateHeap"), "line 16: the line is neither"),
        (TEXT.replace("\t7FFB31C6A09B", "\n".join(["\t7FFB31C6A09B"] * 2000)), "more than 1024 frames"),
    ],
)
def test_what_is_no_log_is_refused(text: str, reason: str) -> None:
    with pytest.raises(umdh.UmdhError, match=reason):
        umdh.parse(text.splitlines())


NUMBERS = st.integers(0, 2**64 - 1)
FRAMES = st.lists(NUMBERS, min_size=1, max_size=4).map(tuple)


@given(
    st.lists(st.tuples(NUMBERS, st.integers(0, 2**32 - 1)), max_size=3),
    st.dictionaries(st.integers(1, 9), FRAMES, min_size=1, max_size=4),
    st.lists(
        st.tuples(NUMBERS, st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, st.integers(0, 99)), max_size=6)),
        min_size=1,
        max_size=3,
    ),
)
def test_every_log_is_read_again(
    modules: List[Tuple[int, int]],
    traces: Dict[int, Tuple[int, ...]],
    heaps: List[Tuple[int, List[Tuple[int, int, int, int]]]],
) -> None:
    known = sorted(traces)
    log = UmdhLog(
        tuple(
            UmdhModule(base, size, f"C:\\a b\\{number}.dll") for number, (base, size) in enumerate(modules)
        ),
        tuple(
            UmdhHeap(heap, tuple(Allocation(a, b, c, known[d % len(known)]) for a, b, c, d in blocks))
            for heap, blocks in heaps
        ),
        traces,
    )
    used = {block.trace for heap in log.heaps for block in heap.allocations}
    read = umdh.parse("".join(umdh.write(log)).splitlines())
    assert read == log._replace(traces={trace: traces[trace] for trace in used})


FORGERIES = [
    "a.dll\r\n//    0000000000400000 00001000 evil.dll\r\n",
    "a.dll\r\n*- - - Start of data for heap @ 10 - - -\r\n*- - - Heap 10 Hogs - - -\r\n",
    "\x85\u2028\x0b//    0000000000400000 00001000 evil.dll",
    "",
    " ",
    " a.dll ",
    "\ud800.dll",
    "\u202ecod.exe",
]


@given(st.lists(st.one_of(st.sampled_from(FORGERIES), st.text(st.characters(), max_size=30)), max_size=4))
def test_no_path_forges_a_log(paths: List[str]) -> None:
    modules = tuple(UmdhModule(0x400000 + number, 0x1000, path) for number, path in enumerate(paths))
    data = "".join(umdh.write(LOG._replace(modules=modules))).encode("utf-8")
    read = umdh.parse(data.decode("utf-8").splitlines())
    assert [module[:2] for module in read.modules] == [module[:2] for module in modules]
    assert (read.heaps, read.traces) == (LOG.heaps, LOG.traces)
    assert [module.path for module in read.modules] == [module.written for module in modules]
    assert "".join(umdh.write(read)).encode("utf-8") == data


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("C:\\Program Files\\app.exe", "C:\\Program Files\\app.exe"),
        ("a.dll\r\n// b", "a.dll\\x0d\\x0a// b"),
        ("", "?"),
        ("  ", "\\x20\\x20"),
        (" a b ", "\\x20a b\\x20"),
        ("d" * 0x7FFF, "d" * 0x7FFF),
    ],
)
def test_a_path_is_written_on_one_line(path: str, written: str) -> None:
    assert UmdhModule(1, 2, path).written == written


def test_growth_knows_a_module_of_a_strange_name_again() -> None:
    odd = UmdhModule(0x400000, 0x1000, "C:\\a\r\nb.dll ")
    log = LOG._replace(modules=(odd,), traces={0x2510: (0x400010,)})
    read = umdh.parse("".join(umdh.write(log)).splitlines())
    growth = umdh.Growth(read, [odd._replace(base=0x900000)], [group(2, 0x5EC, frames=(0x900010,))])
    assert [change for _, change in growth.compared()] == [umdh.Change(0, 0)]


@given(st.text(alphabet="*- SEHhogstadrmniubyBckTe@0123456789ABF+\t\n/", max_size=400))
def test_any_text_is_a_log_or_refused(text: str) -> None:
    try:
        umdh.parse(text.splitlines())
    except umdh.UmdhError as error:
        assert str(error)


def test_growth_knows_a_stack_again_after_a_restart() -> None:
    moved = 0x10000
    later = UmdhLog(
        (
            MODULES[0],
            MODULES[1]._replace(base=MODULES[1].base + moved, path="c:\\windows\\system32\\NTDLL.DLL"),
        ),
        (UmdhHeap(0x2B0000, (Allocation(0x20, 0, 0x2B0010, 0x99),)), UmdhHeap(0x2C0000, ())),
        {0x99: (0x7FFB31C6A09B + moved, 0x7FF612345678)},
    )
    before, after = umdh.totals(LOG), umdh.totals(later)
    assert before.keys() == after.keys()
    assert list(before.values()) == [umdh.Total(2, 0x5EC)]
    assert list(after.values()) == [umdh.Total(1, 0x20)]


def test_growth_tells_places_apart() -> None:
    places = umdh.Places(MODULES)
    inside, outside = MODULES[1].base + MODULES[1].size - 1, MODULES[1].base + MODULES[1].size
    assert places.stack([inside, outside, 1]) == (("ntdll.dll", MODULES[1].size - 1), outside, 1)


STACK = LOG.traces[0x2510]


def group(
    count: int,
    size: int,
    status: Status = NOTHING,
    unsized: int = 0,
    freed: bool = False,
    frames: Tuple[Optional[int], ...] = STACK,
) -> TraceGroup:
    trace = RecordedStack("log", 0x5000, 0, frames)
    return TraceGroup(trace, freed, status, count, size, unsized, (0x1A0000,), ())


def test_growth_is_that_of_all_groups_of_a_stack() -> None:
    """A block's status makes another group, but no other stack: nothing grew here."""
    groups = [group(1, 0x5DC), group(1, 0x10, DAMAGED)]
    growth = umdh.Growth(LOG, MODULES, groups)
    assert growth.compared() == [(groups[0], umdh.Change(0, 0)), (groups[1], None)]
    assert growth.left() == []


def test_growth_of_a_stack_with_blocks_of_unknown_size_is_not_known() -> None:
    groups = [group(1, 0x5DC), group(1, 0, DAMAGED, unsized=1)]
    growth = umdh.Growth(LOG, MODULES, groups)
    assert growth.compared() == [(groups[0], umdh.UNKNOWN), (groups[1], None)]
    assert growth.left() == []


def test_only_freed_blocks_are_no_growth() -> None:
    groups = [group(2, 0x5EC, freed=True), group(3, 7, frames=(None, 1))]
    growth = umdh.Growth(LOG, MODULES, groups)
    assert growth.compared() == [(group, None) for group in groups]
    assert growth.left() == [(STACK, umdh.Total(2, 0x5EC))]


def test_what_grew_most_comes_first() -> None:
    """Then what shrank, what is not known, and what cannot be compared; a stack's groups stay together."""
    freed, shrunk, new = group(9, 999, freed=True), group(1, 0x5D0), group(1, 50, frames=(1,))
    rest, unknown = group(1, 5, DAMAGED), group(2, 60, unsized=1, frames=(2,))
    growth = umdh.Growth(LOG, MODULES, [freed, shrunk, unknown, new, rest])
    assert growth.compared() == [
        (new, umdh.Change(1, 50)),
        (shrunk, umdh.Change(0, -0x17)),
        (rest, None),
        (unknown, umdh.UNKNOWN),
        (freed, None),
    ]


def test_what_is_gone_is_told_where_it_would_be_now() -> None:
    moved = (MODULES[0]._replace(base=0x7FF700000000),)
    growth = umdh.Growth(LOG, moved, [])
    inside = 0x7FF612345678 - MODULES[0].base
    ntdll = 0x7FFB31C6A09B - MODULES[1].base
    assert growth.left() == [((ntdll, 0x7FF700000000 + inside), umdh.Total(2, 0x5EC))]
