# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The dictionary of columns holds in every plugin, and rows say enough to do --unbacked again without it."""

from __future__ import annotations

import collections
from typing import Any, Counter, Dict, Iterator, List, Tuple

import pytest
from volatility3.plugins.windows import (
    callstacks,
    gflags,
    handletraces,
    heaptraces,
    locks,
    minidump,
    objecttraces,
    stacktracedb,
    tracefindings,
    trapframes,
    waits,
)

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.support import grid
from tests.support.grid import Node
from winstacks.columns import dictionary
from winstacks.columns.dictionary import COLUMNS
from winstacks.columns.registers import ARM64_REGISTERS, REGISTERS
from winstacks.columns.tables import BRIEF, FLAT, KEYS, TABLES, WRITERS
from winstacks.names.symbolizer import AddressNamer
from winstacks.rows.grid import TYPES

CLASSES = {
    "gflags": gflags.GFlags,
    "stacktracedb": stacktracedb.StackTraceDb,
    "trapframes": trapframes.TrapFrames,
    "callstacks": callstacks.CallStacks,
    "locks": locks.Locks,
    "handletraces": handletraces.HandleTraces,
    "objecttraces": objecttraces.ObjectTraces,
    "heaptraces": heaptraces.HeapTraces,
    "tracefindings": tracefindings.TraceFindings,
    "minidump": minidump.MiniDump,
    "waits": waits.WaitChains,
}
PLUGINS = {name: [member.name for member in table] for name, table in TABLES.items() if name not in FLAT}
OF_DUMPS = {"info"}
"""Tables of process dumps only, which `tests/minidump` has."""
STACKS = sorted({name for name, names in PLUGINS.items() if "Unbacked" in names})
BACKED = ("image", "mapped", "user")
BACKINGS = {*BACKED, "private", "unmapped", "none", "unloaded"}

OPTIONS: List[Tuple[str, Dict[str, Any]]] = [
    *((name, {}) for name in sorted(CLASSES)),
    *((name, {"fold": True}) for name in STACKS),
    ("stacktracedb", {"carve": True}),
    ("heaptraces", {"blocks": True}),
    ("trapframes", {"members": True, "scan_stacks": True, "unwind": True, "processors": True}),
    ("callstacks", {"unique": True}),
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("columns"))


def test_every_column_has_a_meaning_and_a_table() -> None:
    assert set(PLUGINS) == {*CLASSES, *WRITERS, *OF_DUMPS}
    assert {member.name for table in TABLES.values() for member in table} == set(COLUMNS)
    assert set(COLUMNS) >= KEYS
    for name, column in COLUMNS.items():
        assert column.name == name and column.type in TYPES, name
        meaning = column.meaning
        assert meaning.endswith(".") and meaning[0].isupper() and meaning.isprintable(), name
        assert not any(value.endswith(".") or not value.isprintable() for value in column.values.values()), (
            name
        )
    twice = collections.Counter(
        column.meaning for column in COLUMNS.values() if column.type != dictionary.REGISTER
    )
    assert max(twice.values()) == 1


def test_brief_columns_are_columns_of_the_table() -> None:
    for name, kept in BRIEF.items():
        assert set(kept) <= {column.name for column in TABLES[name]} and kept[-1] == "Status", name


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_plugin_has_the_columns_of_the_dictionary(name: str, opened: Opened) -> None:
    shown = [(column.name, column.type) for column in opened.construct(CLASSES[name]).run().columns]
    assert shown == [(column, TYPES[COLUMNS[column].type]) for column in PLUGINS[name]]
    assert {"PID", "Process", "Status"} <= set(PLUGINS[name])
    assert ("Arch" in PLUGINS[name]) == (name != "tracefindings"), "a finding is of a process"
    assert len(set(PLUGINS[name])) == len(PLUGINS[name])


def test_one_thing_has_one_name() -> None:
    """Names of 1.0.0 that said the same as another, or something else in another plugin."""
    gone = {
        "FrameAddress",
        "Hash",
        "Type",
        "TraceCount",
        "Allocations",
        "CreatorBackTraceIndex",
        "Unreadable",
    }
    assert not gone & set(COLUMNS)
    for family in ({"Symbol", "Source", "Backing"}, {"Frame", "Address", "Unbacked"}):
        for name, names in PLUGINS.items():
            whole = family & set(names) in (set(), family)
            assert whole or name in ("trapframes", "tracefindings", *OF_DUMPS), name


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=lambda value: str(value))
def test_keys_repeat_and_nothing_else_does(name: str, options: Dict[str, Any], opened: Opened) -> None:
    below = 0
    for node in grid.run(opened, CLASSES[name], **options):
        for child in node.children:
            below += 1
            for column in KEYS & set(child):
                if node.row[column] is not None and not (
                    column in ("Index", "EntryAddress") and child.get("Block")
                ):
                    assert child[column] == node.row[column], column
            assert all(child[column] is None for column in ("Count", "Unbacked", "Depth") if column in child)
    assert below or options.get("fold") or name in ("trapframes", "tracefindings")


def rebuilt(nodes: List[Node]) -> List[Node]:
    """What --unbacked selects, by what the rows say."""
    return [node for node in nodes if node.row["Unbacked"]]


@pytest.mark.parametrize("name", STACKS)
def test_unbacked_can_be_done_again(name: str, opened: Opened) -> None:
    everything = grid.run(opened, CLASSES[name])
    shown = [
        node for node in grid.run(opened, CLASSES[name], unbacked=True) if node.row["Unbacked"] is not None
    ]
    assert rebuilt(everything) == shown
    for node in everything:
        frames = [child for child in node.children if child["Frame"] is not None]
        found = [child["Backing"] for child in frames]
        assert set(found) <= {*BACKINGS, None}
        suspect = [backing for backing in found if backing is not None and backing not in BACKED]
        assert (node.row["Unbacked"] or 0) == len(suspect)
        assert (node.row["Unbacked"] is None) == (not frames)


def test_the_sample_has_stacks_to_be_found_in_every_source(opened: Opened) -> None:
    found = {name: len(rebuilt(grid.run(opened, CLASSES[name]))) for name in STACKS}
    print(found)
    assert sum(map(bool, found.values())) >= 4, found


def test_a_folded_stack_counts_as_its_frames_do(opened: Opened) -> None:
    plain = [node.row["Unbacked"] for node in grid.run(opened, stacktracedb.StackTraceDb)]
    assert [node.row["Unbacked"] for node in grid.run(opened, stacktracedb.StackTraceDb, fold=True)] == plain


def registers(rows: List[Dict[str, Any]]) -> Iterator[Tuple[Dict[str, Any], List[str]]]:
    for row in rows:
        yield row, [name for name in REGISTERS if row[name] is None]


def test_registers_that_were_not_saved_have_names(opened: Opened) -> None:
    rows = [node.row for node in grid.run(opened, trapframes.TrapFrames, scan_stacks=True)]
    assert {row["Arch"] for row in rows} == {"x64", "x86"}
    narrow = {"R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15", "FaultAddress", "GsSwap"}
    for row, absent in registers(rows):
        lacking = ARM64_REGISTERS if row["Arch"] == "x64" else (*narrow, *ARM64_REGISTERS)
        expected = [name for name in absent if name not in lacking]
        assert row["NotSaved"].split() == expected
        assert row["Backing"] in BACKINGS


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in [*STACKS, "trapframes"]),
        *((name, {"unbacked": True, "find": "*!*"}) for name in STACKS),
        ("stacktracedb", {"fold": True}),
        ("trapframes", {"scan_stacks": True}),
    ],
    ids=str,
)
def test_an_address_is_judged_once_in_each_space(
    name: str, options: Dict[str, Any], opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is asked for once: what follows from it, such as its backing, is remembered with its cells."""
    calls: Counter[Tuple[int, int, bool]] = collections.Counter()
    kept: List[AddressNamer] = []
    named = AddressNamer.name

    def counted(self: AddressNamer, address: int, return_address: bool = True) -> Any:
        kept.append(self)
        calls[id(self), address, return_address] += 1
        return named(self, address, return_address)

    monkeypatch.setattr(AddressNamer, "name", counted)
    grid.run(opened, CLASSES[name], **options)
    assert max(calls.values()) == 1, calls.most_common(3)
