# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stack trace databases of every layout, the heap's trace log, RTL_PROCESS_BACKTRACES."""

from __future__ import annotations

import functools
from typing import Iterator, List, Tuple

from tests.forge.heaplog import HeapLog
from tests.forge.std import Std
from tests.forge.std_layouts import ALL
from tests.support import stddata
from winstacks.memory.decode import status as words
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
        dump = functools.partial(_dump, arch)
        yield Target(f"backtraces-{arch}", functools.partial(_dump_seeds, arch), dump)
