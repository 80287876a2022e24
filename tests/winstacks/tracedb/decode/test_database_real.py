# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Databases that Windows code wrote come back exactly."""

from __future__ import annotations

import hashlib
import pathlib
import struct
from typing import List

import pytest

from tests.forge import real_sets
from tests.forge.real_sets import RealSet
from tests.support import stddata
from winstacks.tracedb.decode import backtraces, proof, status
from winstacks.tracedb.decode import database as stdwalk
from winstacks.tracedb.decode.status import text

LAYOUTS = {"2600": "5.1", "3790": "5.2"}
DUMPS = {"7601.24384-x64-lazy": "0ad629d16eda36b0c02d17e35deffeee71995126befe312c51e9a1d95fbd3b37"}
"""SHA-256 of what Windows' own function returned for a database."""


def dump(database: stdwalk.StdDatabase, arch: str) -> bytes:
    layout = stddata.layouts_of(arch).backtraces()
    return b"".join(backtraces.encode(database.buffer(), database.records(), layout))


@pytest.mark.parametrize("path", stddata.real_cases())
class TestRealDatabase:
    def test_traces(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        assert stddata.shown(stddata.open_set(real)) == stddata.expected_of_set(real.truth)

    def test_status(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        saturated = 0x7FF if real.truth["generation"] == "7" else -1
        for trace in stddata.open_set(real).traces():
            words = [] if trace.trace_index else ["unindexed"]
            words += ["saturated"] if trace.trace_count == saturated else []
            assert text(trace.status) == ", ".join(words)

    def test_layout_and_header(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        header = stddata.open_set(real).header
        assert header.layout.name == LAYOUTS.get(real.name.split(".")[0], "6.1")
        assert header.bucket_stride == real.truth["bucket_stride"]
        assert header.bucket_count == real.truth["header"]["NumberOfBuckets"]
        stored = {name: value for name, value in real.truth["header"].items() if name in header.fields}
        assert {name: header.fields[name] for name in stored} == stored
        assert {"NextFreeUpperMemory", "NumberOfEntriesLookedUp", "EntryIndexArray"} <= set(stored)

    def test_figures(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        entries, freed = real.truth["entries"], real.truth.get("freed", [])
        indexed = sum(entry["index"] != 0 for entry in entries)
        assert stddata.open_set(real).figures() == stdwalk.Figures(
            indexed, len(entries), len(freed), len(entries) - indexed, 0, 0, 0
        )
        assert stddata.open_set(real).status == ()

    def test_freed(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        carved = [trace for trace in stddata.open_set(real).traces(carve=True) if trace.status & status.FREED]
        found = sorted((trace.trace_index or 0, trace.address) for trace in carved)
        assert found == sorted((entry["index"], entry["va"]) for entry in real.truth.get("freed", []))
        modules = [(module["base"], module["base"] + module["size"]) for module in real.truth["modules"]]
        modules.append((real.base, real.base + real.truth["module"]["size"]))
        # Their chain is an _SLIST_ENTRY: 16 bytes on x64, a pointer on x86.
        link = 2 if real.pointer_size == 8 else 1
        for trace in carved:
            assert trace.hash is None
            assert trace.frames[:link] == (None,) * min(link, len(trace.frames))
            for frame in trace.frames[link:]:
                assert any(low <= (frame or 0) < high for low, high in modules)

    def test_dump(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        forged_dump = dump(stddata.open_set(real), real.truth["arch"])
        if real.name in DUMPS:
            assert hashlib.sha256(forged_dump).hexdigest() == DUMPS[real.name]
        elif real.dump is None:
            pytest.skip("Windows' own function was not run on this database")
        if real.dump is not None:
            assert forged_dump == real.dump

    def test_dump_read_again(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        database = stddata.open_set(real)
        layout = stddata.layouts_of(real.truth["arch"]).backtraces()
        buffer, records = backtraces.decode(dump(database, real.truth["arch"]), layout)
        assert buffer == database.buffer()
        seen = {record.trace_index: record.frames() for record in records}
        for entry in real.truth["entries"]:
            assert not entry["index"] or seen[entry["index"] & 0xFFFF] == tuple(entry["frames"])

    def test_a_changed_frame_is_seen(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        entry = real.truth["entries"][len(real.truth["entries"]) // 2]
        place = entry["va"] + real.truth["frames_offset"]
        changed = real.patched(place, struct.pack("<I", (entry["frames"][0] ^ 0x40) & 0xFFFFFFFF))
        assert stddata.shown(stddata.open_set(changed)) != stddata.expected_of_set(real.truth)
        statuses = {trace.address: text(trace.status) for trace in stddata.open_set(changed).traces()}
        assert "bucket" in statuses[entry["va"]]


def _words(real: RealSet) -> List[int]:
    """The aligned pointers that may lead to a database, from the module's data."""
    size = real.pointer_size
    code = "Q" if size == 8 else "I"
    words = set()
    for region in real.regions:
        if region.what.startswith("module"):
            words |= set(struct.unpack(f"<{len(region.data) // size}{code}", region.data))
    return sorted(word for word in words if word and word % (2 * size) == 0)


@pytest.mark.shared
@pytest.mark.parametrize("path", [case for case in stddata.real_cases() if case.marks])
def test_search_finds_it_and_nothing_else(path: pathlib.Path) -> None:
    real = real_sets.load(path)
    reader, std = stddata.reader_of_set(real), stddata.layouts_of(real.truth["arch"]).std
    words = _words(real)
    assert len(words) > 5
    proven = [word for word in words if proof.prove(reader, word, std).header]
    assert proven == [real.truth["database"]]
