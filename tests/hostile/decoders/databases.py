# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stack trace databases of every layout, the heap's trace log, searches; RTL_PROCESS_BACKTRACES."""

from __future__ import annotations

import functools
import struct
from typing import Iterator, List, Tuple

from tests.forge.heaplog import HeapLog
from tests.forge.std import Std
from tests.forge.std_layouts import ALL
from tests.support import bare, stddata
from winstacks.columns.words import HEAPLOG, STD
from winstacks.memory.decode import status as words
from winstacks.memory.image import AddressSpace
from winstacks.tracedb import search
from winstacks.tracedb.decode import backtraces, heaplog, status
from winstacks.tracedb.decode import database as stdwalk
from winstacks.tracedb.decode import proof as stdproof

from .target import Target, Template

_WORD, _MOST_FRAMES = 8, 32
_BASE = 0x20000000


@functools.lru_cache(maxsize=None)
def _forged(name: str, arch: str, kernel: bool) -> Tuple[Std, Template]:
    std = Std(name, arch, _BASE, kernel=kernel, reserve=0x20000, bucket_count=37)
    traces = [[0x400000 + 64 * number + place for place in range(number % 32 + 1)] for number in range(90)]
    for number, trace in enumerate(traces):
        std.log(trace, number=number % 4 != 0)
    for trace in [] if std.layout.old else traces[::9]:
        std.release(trace)
    return std, Template(std.regions().items())


def _database(name: str, arch: str, kernel: bool, data: bytes, whole: bytes) -> None:
    std, template = _forged(name, arch, kernel)
    reader = stddata.reader_of(template.cut(data))
    proof = stdproof.recover(reader, std.base, stddata.layouts_of(arch).std)
    if proof.header is None:
        assert proof.failed
        assert not (whole and _small(std, template, data)), "nothing can be made of one wrong word"
        return
    database = stdwalk.StdDatabase(reader, proof.header)
    carved = list(database.traces(carve=True))
    assert len(carved) < len(data)
    for trace in carved:
        assert len(trace.frames) <= _MOST_FRAMES
        assert status.text(trace.status).isprintable()
        stack = trace.recorded(_MOST_FRAMES)
        assert stack.full == (len(stack.frames) == _MOST_FRAMES)
        assert stack.hash is None or 0 <= stack.hash < 1 << 32
    figures = database.figures()
    assert min(figures) >= 0
    assert words.text(database.status).isprintable()
    layout = stddata.layouts_of(arch).backtraces()
    dumped = b"".join(backtraces.encode(database.buffer(), database.records(), layout))
    header, records = backtraces.decode(dumped, layout)
    assert header.back_traces == len(records)
    if whole and _small(std, template, data):
        shown = {(trace.address, trace.frames) for trace in carved}
        lost = [trace for trace in _intact(std, template, data) if trace not in shown]
        assert not lost, f"one wrong word costs traces that it is not in: {lost[:3]}"


def _small(std: Std, template: Template, data: bytes) -> bool:
    """Returns whether no more is wrong than one word, which is not in the header."""
    changed = template.changed(data)
    low, high = changed[0][0] if changed else 0, changed[-1][1] if changed else 0
    return low >= std.base + std.layout.buckets and high - low // _WORD * _WORD <= _WORD


def _intact(std: Std, template: Template, data: bytes) -> Iterator[Tuple[int, Tuple[int, ...]]]:
    """Yields (address, frames) of the live entries whose own bytes are as they were."""
    changed = template.changed(data)
    for entry in std.entries():
        end = entry.va + std.layout.block_size(entry.depth)
        if not any(low < end and entry.va < high for low, high in changed):
            yield entry.va, entry.frames


@functools.lru_cache(maxsize=None)
def _log(arch: str) -> Tuple[HeapLog, Template]:
    log = HeapLog(arch)
    for number in range(60):
        log.log([0x77001000 + 16 * (number * 7919 % 4001 + depth) for depth in range(number % 32 + 1)])
    return log, Template(log.regions().items())


def _heap_log(arch: str, data: bytes, whole: bytes) -> None:
    forged, template = _log(arch)
    reader = stddata.reader_of(template.cut(data))
    layouts = stddata.layouts_of(arch).heaplogs
    heaplog.prove(reader, forged.address, layouts)
    log = heaplog.HeapLog(reader, forged.address, layouts[0])
    traces = list(log.traces())
    assert len({trace.address for trace in traces}) == len(traces) <= len(data)
    assert min(log.figures()) >= 0
    assert words.text(log.status).isprintable()


_NTDLL, _DATA = 0x70000000, 0x70002000


@functools.lru_cache(maxsize=None)
def _searched(arch: str) -> Tuple[Std, HeapLog, Template]:
    """The data of an ntdll with pointers to a small database and to a small log, and these."""
    std, log = Std("6.1", arch, _BASE, reserve=0x8000, bucket_count=7), HeapLog(arch)
    for number in range(9):
        std.log([0x400000 + 64 * number + place for place in range(number + 1)])
        log.log([0x77001000 + 16 * number])
    form, near = "<10Q" if arch == "x64" else "<10I", std.base + 0x10000
    data = struct.pack(form, 0, _NTDLL + 0x1000, 0x12345, std.base, 1, log.address, near, near + 8, 0, 7)
    return std, log, Template([(_DATA, data), *std.regions().items(), *log.regions().items()])


def _search(arch: str, data: bytes, whole: bytes) -> None:
    """Words are tried up to the limit, each once; words at remembered places come first."""
    std, log, template = _searched(arch)
    regions, layouts = template.cut(data), stddata.layouts_of(arch)
    reader, machine = stddata.reader_of(regions), bare.MACHINES[stddata.POINTERS[arch]]
    space, found = AddressSpace(4, "a.exe", machine, ""), search.Search()
    for kind in (STD, HEAPLOG, STD, HEAPLOG):
        tried, _ = found.words(space, kind, _NTDLL, 0x10000, [reader(_DATA, 0x1000)])
        assert len(set(tried.values())) == len(tried) <= search.MAX_CANDIDATES[kind]
        hits, nearly = found.prove_words(tried, kind, reader, layouts)
        hits += found.recover_words(nearly, {hit.address for hit in hits}, reader, layouts)
        assert len({hit.address for hit in hits}) == len(hits) <= len(tried)
        for hit in hits:
            assert tried[hit.rva] == hit.address and (hit.proof is None) == (kind == HEAPLOG)
            found.remember(space, kind, hit.rva)
        if whole and data == whole:
            assert (std.base if kind == STD else log.address) in {hit.address for hit in hits}
    starts = [start - start % search.ALLOCATION_GRANULARITY for start, _ in regions]
    logs, _ = search.find_logs(starts, reader, layouts)
    assert len(logs) <= search.LOG_PLACES * len(starts)
    for start, _ in regions:
        search.recover_checked(reader, start, layouts)


def _search_seeds(arch: str) -> List[bytes]:
    return [_searched(arch)[2].bytes]


def _dump(arch: str, data: bytes, whole: bytes) -> None:
    layout = stddata.layouts_of(arch).backtraces()
    try:
        buffer, records = backtraces.decode(data, layout)
    except backtraces.MalformedBuffer:
        return
    again = b"".join(backtraces.encode(buffer, records, layout))
    assert backtraces.decode(again, layout) == (buffer, records)
    assert all(len(record.frames()) == record.depth for record in records)


def _dump_seeds(arch: str) -> List[bytes]:
    std, template = _forged("6.1", arch, False)
    reader = stddata.reader_of(template.cut(template.bytes))
    header = stdproof.recover(reader, std.base, stddata.layouts_of(arch).std).header
    assert header is not None
    database = stdwalk.StdDatabase(reader, header)
    return [
        b"".join(
            backtraces.encode(database.buffer(), database.records(), stddata.layouts_of(arch).backtraces())
        )
    ]


def _database_seeds(name: str, arch: str, kernel: bool) -> List[bytes]:
    return [_forged(name, arch, kernel)[1].bytes]


def _log_seeds(arch: str) -> List[bytes]:
    return [_log(arch)[1].bytes]


def targets() -> Iterator[Target]:
    for name, arch, kernel in ALL:
        title = f"std-{name}-{arch}{'-kernel' if kernel else ''}"
        seeds = functools.partial(_database_seeds, name, arch, kernel)
        yield Target(title, seeds, functools.partial(_database, name, arch, kernel))
    for arch in ("x64", "x86"):
        log = functools.partial(_heap_log, arch)
        yield Target(f"heaplog-{arch}", functools.partial(_log_seeds, arch), log)
        places = functools.partial(_search, arch)
        yield Target(f"search-{arch}", functools.partial(_search_seeds, arch), places)
        dump = functools.partial(_dump, arch)
        yield Target(f"backtraces-{arch}", functools.partial(_dump_seeds, arch), dump)
