# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which generation a database is of: told by what it holds, and a new one is a new table and nothing else."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import struct

import pytest

from tests.forge import std as forge
from tests.forge import std_bytes
from tests.forge.std import Block, Std
from tests.forge.std_layouts import ALL, Layout, layout
from tests.support import bare, newbuild, stddata
from winstacks.tracedb.decode import anomalies, backtraces
from winstacks.tracedb.decode import database as stdwalk
from winstacks.tracedb.decode import proof as stdproof
from winstacks.tracedb.model import Layouts

SHIFT = 0x20
"""Bytes that the invented build puts before the header's members."""
PAD = 8
"""Bytes that it puts before an entry's frames."""
CODES = {4: "I", 8: "Q"}


def logged(std: Std) -> Std:
    for number in range(300):
        trace = [0x10000000 + 0x1000 * number + 4 * place for place in range(number * 7 % 32 + 1)]
        std.log(trace, number=number % 5 != 0)
        if number % 9 == 0 and not std.layout.old:
            std.release(trace)
    return std


@pytest.mark.parametrize("name, arch, kernel", ALL)
def test_the_order_of_the_tables_does_not_matter(name: str, arch: str, kernel: bool) -> None:
    """Nor that of XP and 2003, whose structures are alike but for XP's lock."""
    whole = logged(Std(name, arch, kernel=kernel))
    empty = Std(name, arch, kernel=kernel)
    for std in (whole, empty):
        reader = stddata.reader_of(std.regions().items())
        for order in itertools.permutations(stddata.layouts_of(arch).std):
            proof = stdproof.prove(reader, std.base, order)
            assert proof.header is not None and proof.header.layout.name == name


@pytest.mark.parametrize("name, arch, kernel", ALL)
def test_nor_does_it_for_a_damaged_header(name: str, arch: str, kernel: bool) -> None:
    std = logged(Std(name, arch, kernel=kernel))
    regions = std.regions()
    memory = bytearray(regions[std.base])
    offset, _ = std.layout.fields["CommitBase"]
    memory[offset : offset + 4] = b"\x41" * 4
    reader = stddata.reader_of({**regions, std.base: bytes(memory)}.items())
    for order in itertools.permutations(stddata.layouts_of(arch).std):
        proof = stdproof.recover(reader, std.base, order)
        assert proof.header is not None and proof.header.layout.name == name
        assert proof.failed == ("CommitBase",)


def invented(arch: str, kernel: bool) -> Layout:
    """A build that no one has seen: longer structures, and another order of an entry's members."""
    known = layout("6.1", arch, kernel)
    return dataclasses.replace(
        known,
        fields={name: (offset + SHIFT, size) for name, (offset, size) in known.fields.items()},
        buckets=known.buckets + SHIFT,
        declared=known.declared + SHIFT,
        head=known.head + PAD,
    )


def write_entry(std: Std, memory: bytearray, block: Block) -> None:
    """Writes an entry of that build: Depth and Index come before TraceCount and IndexHigh."""
    pointer, depth, offset = std.layout.pointer, len(block.frames), block.va - std.base
    word = block.count | (block.capacity - 1 if block.capacity < 32 else 31) << 11
    low, high = block.index & 0xFFFF, block.index >> 16
    struct.pack_into("<HHHH", memory, offset + pointer, depth, low, word, high)
    struct.pack_into(f"<{depth}{CODES[pointer]}", memory, offset + std.layout.head, *block.frames)


ENTRY = """
    sizeof                       @0x94/0x118 since 10.0.30000;
    USHORT Depth                 @0x4/0x8    since 10.0.30000;
    USHORT Index                 @0x6/0xa    since 10.0.30000;
    USHORT TraceCount : 11 << 0  @0x8/0xc    since 10.0.30000;
    USHORT BlockDepth : 5 << 11  @0x8/0xc    since 10.0.30000;
    USHORT IndexHigh             @0xa/0xe    since 10.0.30000;
    void* BackTrace[32]          @0x14/0x18  since 10.0.30000;
    _SINGLE_LIST_ENTRY FreeChain @0x14/-     since 10.0.30000;
    _SLIST_ENTRY FreeChain       @-/0x18     since 10.0.30000;
"""
"""What that build's text has of an entry; the members of the database move by SHIFT."""


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("arch", ["x64", "x86"])
class TestInventedBuild:
    """Some more lines of text, and databases of a build that the code has never heard of are read."""

    @pytest.fixture
    def layouts(self, arch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Layouts:
        entry = ENTRY.strip().splitlines()
        newbuild.add(
            *(tmp_path, monkeypatch, "std"), _STACK_TRACE_DATABASE=SHIFT, _RTL_STACK_TRACE_ENTRY=entry
        )
        return Layouts(bare.image(stddata.POINTERS[arch]), bare.MACHINES[stddata.POINTERS[arch]])

    @pytest.fixture
    def std(self, arch: str, kernel: bool, monkeypatch: pytest.MonkeyPatch) -> Std:
        monkeypatch.setattr(std_bytes, "_write_entry", write_entry)
        monkeypatch.setattr(forge, "layout", lambda name, arch, kernel: invented(arch, kernel))
        return logged(Std("6.1", arch, kernel=kernel))

    def test_its_traces_come_back(self, arch: str, kernel: bool, layouts: Layouts, std: Std) -> None:
        reader = stddata.reader_of(std.regions().items())
        proof = stdproof.prove(reader, std.base, layouts.std)
        assert proof.header is not None and proof.header.layout.name == newbuild.VERSION
        database = stdwalk.StdDatabase(reader, proof.header)
        assert stddata.shown(database) == stddata.expected(std)
        assert (database.status, database.figures().freed) == ((), len(std.freed()))
        numbered = [trace for trace in database.traces() if trace.trace_index][:5]
        picker = anomalies.IndexLookup(reader, proof.header)
        assert picker.traces([trace.trace_index or 0 for trace in numbered]) == numbered
        dump = b"".join(backtraces.encode(database.buffer(), database.records(), layouts.backtraces()))
        _, records = backtraces.decode(dump, layouts.backtraces())
        for trace in numbered:
            assert records[(trace.trace_index or 0) - 1].frames() == trace.frames

    def test_a_damaged_one_does_too(self, arch: str, kernel: bool, layouts: Layouts, std: Std) -> None:
        regions = std.regions()
        memory = bytearray(regions[std.base])
        struct.pack_into("<I", memory, std.layout.fields["NumberOfBuckets"][0], 0xFFFFFFFF)
        reader = stddata.reader_of({**regions, std.base: bytes(memory)}.items())
        proof = stdproof.recover(reader, std.base, layouts.std)
        assert proof.header is not None and proof.header.layout.name == newbuild.VERSION
        assert stddata.shown(stdwalk.StdDatabase(reader, proof.header)) == stddata.expected(std)

    def test_what_is_known_stays_known(self, arch: str, kernel: bool, layouts: Layouts) -> None:
        for name in (name for name, known, kernels in ALL if (known, kernels) == (arch, kernel)):
            std = logged(Std(name, arch, kernel=kernel))
            proof = stdproof.prove(stddata.reader_of(std.regions().items()), std.base, layouts.std)
            assert proof.header is not None and proof.header.layout.name == name
