# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What tests of the database decoders share: layouts, readers over bytes, databases that Windows wrote."""

from __future__ import annotations

import functools
import pathlib
import struct
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import pytest

from tests.conftest import SHARED
from tests.forge.real_sets import RealSet
from tests.forge.std import Std
from tests.support import bare
from winstacks.memory.decode.memory import Reader
from winstacks.memory.decode.ranges import Extents
from winstacks.tracedb.decode import database as stdwalk
from winstacks.tracedb.decode import heaplog
from winstacks.tracedb.decode import proof as stdproof
from winstacks.tracedb.model import Layouts

COMMITTED = sorted((pathlib.Path(__file__).parents[1] / "data" / "real_std").glob("*.tar.xz"))
_SHARED_SETS = sorted((SHARED / "real_std").glob("*.tar.xz"))


def real_cases(kind: str = "") -> List[Any]:
    """Parameters for a test: every real set by its path, those beside the checkout marked as such.

    Args:
        kind: only sets whose name ends so
    """
    committed = [path for path in COMMITTED if _name(path).endswith(kind)]
    shared = [path for path in _SHARED_SETS if _name(path).endswith(kind)]
    return [pytest.param(path, id=f"committed-{_name(path)}") for path in committed] + [
        pytest.param(path, id=_name(path), marks=pytest.mark.shared)
        for path in shared or [SHARED / "real_std" / "none.tar.xz"]
    ]


def heap_cases() -> List[Any]:
    """Those of `real_cases` that hold heaps, in the same form."""
    return [case for case in real_cases() if "-heap" in _name(case.values[0])]


def _name(path: pathlib.Path) -> str:
    return path.name.replace(".tar.xz", "")


POINTERS = {"x64": 8, "x86": 4}


@functools.lru_cache(maxsize=None)
def layouts_of(arch: str) -> Layouts:
    """The layouts of a bitness, from our symbol tables."""
    return Layouts(bare.image(POINTERS[arch]), bare.MACHINES[POINTERS[arch]])


def reader_of(regions: Iterable[Tuple[int, bytes]]) -> Reader:
    """A reader over bytes by address."""
    memory = Extents(regions)

    def read(start: int, length: int) -> Extents:
        return Extents(
            (low, bytes(memory.read(low, high - low) or b""))
            for low, high in memory.covered(start, start + length)
        )

    return read


def reader_of_set(real: RealSet) -> Reader:
    return reader_of((region.va, region.data) for region in real.regions)


def open_set(real: RealSet) -> stdwalk.StdDatabase:
    """Proves and reads the database of a real set."""
    reader = reader_of_set(real)
    proof = stdproof.prove(reader, real.truth["database"], layouts_of(real.truth["arch"]).std)
    assert proof.header is not None, proof.failed
    return stdwalk.StdDatabase(reader, proof.header)


def found_logs(real: RealSet) -> List[int]:
    """Where words of the module's data lead to what proves to be a heap's trace log."""
    reader, layout, size = reader_of_set(real), layouts_of(real.truth["arch"]).heaplogs, real.pointer_size
    words = set()
    for region in real.regions:
        if region.what.startswith("module"):
            code = "Q" if size == 8 else "I"
            words |= set(struct.unpack(f"<{len(region.data) // size}{code}", region.data))
    return sorted(word for word in words if word and heaplog.prove(reader, word, layout))


def log_address(real: RealSet) -> Optional[int]:
    """Where the heap's trace log of a set is: as its truth says, else the one that its ntdll leads to."""
    address = real.truth["heap"].get("heap_stack_trace_log")
    if address is not None:
        return int(address)
    found = found_logs(real)
    assert len(found) <= 1
    return found[0] if found else None


def open_log(real: RealSet, address: int) -> heaplog.HeapLog:
    return heaplog.HeapLog(reader_of_set(real), address, layouts_of(real.truth["arch"]).heaplogs[0])


def open_forged(std: Std) -> stdwalk.StdDatabase:
    """Proves and reads a forged database."""
    return open_regions(std.regions(), std.base, std.arch)


def open_regions(regions: Mapping[int, bytes], address: int, arch: str) -> stdwalk.StdDatabase:
    reader = reader_of(regions.items())
    proof = stdproof.recover(reader, address, layouts_of(arch).std)
    assert proof.header is not None, proof.failed
    return stdwalk.StdDatabase(reader, proof.header)


Shown = Tuple[object, ...]


def shown(database: stdwalk.StdDatabase, carve: bool = False) -> List[Shown]:
    """What a database yields, without its status."""
    return [tuple(trace)[:7] for trace in database.traces(carve)]


def expected(std: Std) -> List[Shown]:
    """What a forged database must yield."""
    return [
        (entry.index, entry.va, entry.count, entry.depth, entry.hash, entry.bucket, entry.frames)
        for entry in std.entries()
    ]


def expected_of_set(truth: Mapping[str, Any]) -> List[Shown]:
    """What the database of a real set must yield: by number, those without one last, by address."""
    entries: List[Dict[str, Any]] = sorted(
        truth["entries"], key=lambda entry: (not entry["index"], entry["index"], entry["va"])
    )
    names = ("index", "va", "count", "depth", "hash", "bucket")
    return [(*(entry[name] for name in names), tuple(entry["frames"])) for entry in entries]
