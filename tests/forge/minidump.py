# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes minidumps, stream by stream, as "minidumpapiset.h" describes them.

writer = Writer()
writer.system_info(machine_number=9, build=19041)
writer.memory64([(0x10000, b"...")])
data = writer.bytes()

The decoder is written from the same declarations: what reads real dumps as two other parsers do is proof, and
this is not. `test_minidump_layouts.py` compares each layout with a real file. `Writer(seed=N)` chooses among
the layouts that the declaration allows: gaps between parts, larger headers and entries than today's, unused
entries and another order in the directory, which may stand behind all streams, spare bytes at the ends. Parts
may share bytes: an entry of the directory stands there twice, a stream of a user holds bytes of other streams
or of the memory, and memory is listed twice or lies in the data of another stream.
"""

from __future__ import annotations

import random
import struct
import uuid
from typing import List, NamedTuple, Optional, Sequence, Tuple

HEADER, DIRECTORY = 32, 12
ALL_MISC = 0x3F7
STAMP = 0x65000000
LAST_RESERVED = 0xFFFF
"""The last type of a stream that is not a user's."""


class Module(NamedTuple):
    """A module of ModuleListStream, or, without a PDB, of UnloadedModuleListStream."""

    base: int
    size: int
    stamp: int
    path: str
    pdb: Optional[Tuple[str, int, str]] = None
    version: Tuple[int, int, int, int] = (10, 0, 19041, 1)


class WrittenThread(NamedTuple):
    """A thread of ThreadListStream; `stack` is (lowest address, bytes)."""

    tid: int
    teb: int
    stack: Tuple[int, bytes]
    context: bytes
    suspended: int = 0


class Writer:
    """Collects streams; all but the bytes of Memory64ListStream stand before these, as Windows writes them.

    Args:
        flags: MINIDUMP_TYPE
        room: number of entries for which the directory has room
        seed: chooses the layout; None for the layout without gaps

    Attributes:
        streams: (type, bytes of the file, where) of each
    """

    def __init__(self, flags: int = 0, room: int = 32, seed: Optional[int] = None) -> None:
        self.flags = flags
        self.streams: List[Tuple[int, int, int]] = []
        self._random = None if seed is None else random.Random(seed)
        self._data = bytearray(HEADER + DIRECTORY * room)
        self._room = room
        self._tail: List[bytes] = []
        self._base_rva: Optional[int] = None
        self._later: List[Tuple[int, int]] = []

    def put(self, data: bytes) -> int:
        """Adds bytes, and returns where they are."""
        self._data += self._garbage(32)
        self._data += bytes(-len(self._data) % 4)
        at = len(self._data)
        self._data += data
        return at

    def _garbage(self, most: int, unit: int = 1) -> bytes:
        """Returns bytes that no reader may use, a multiple of `unit`; none without a seed."""
        if self._random is None:
            return b""
        return self._random.randbytes(unit * self._random.randrange(most // unit + 1))

    def _headed(self, header: str, rows: Sequence[bytes], *more: int) -> bytes:
        """Returns a list whose header begins with its own size, the size of an entry, and their number."""
        behind, spare = self._garbage(16, 4), self._garbage(24, 8)
        size = struct.calcsize(header) + len(behind)
        entry = (len(rows[0]) if rows else 8) + len(spare)
        packed = b"".join(row + spare for row in rows)
        return struct.pack(header, size, entry, len(rows), *more) + behind + packed

    def string(self, text: str) -> int:
        """Adds a MINIDUMP_STRING."""
        data = text.encode("utf-16-le")
        return self.put(struct.pack("<I", len(data)) + data + b"\0\0")

    def stream(self, kind: int, data: bytes) -> int:
        """Adds a stream, and returns where it is."""
        at = self.put(data)
        self.streams.append((kind, len(data), at))
        return at

    def system_info(
        self, architecture: int = 9, build: int = 19041, version: Tuple[int, int] = (10, 0)
    ) -> None:
        name = self.string("")
        self.stream(
            7,
            struct.pack(
                "<HHHBBIIIIIHH24s", architecture, 6, 0, 4, 1, *version, build, 2, name, 0x100, 0, b""
            ),
        )

    def misc_info(self, pid: int, created: int = STAMP, size: int = 1364, flags: int = ALL_MISC) -> None:
        zone = struct.pack("<i64s16xi64s16xi", 60, _wide("West"), 0, _wide("Summer"), -60)
        whole = struct.pack("<6I5I4I", size, flags, pid, created, 1, 2, *range(3, 8), 0x2000, 13, 0, 1) + zone
        whole += _wide("19041.1.amd64fre").ljust(520, b"\0") + _wide("dbgcore").ljust(80, b"\0")
        whole += struct.pack("<IIQ512xI", 528, 0, 3, 0xC00C1E)
        self.stream(15, whole[:size])

    def threads(self, threads: Sequence[WrittenThread]) -> None:
        rows = b""
        for thread in threads:
            start, stack = thread.stack
            at, context = (self.put(stack) if stack else 0), self.put(thread.context)
            rows += struct.pack("<IIII", thread.tid, thread.suspended, 32, 0)
            rows += struct.pack("<QQIIII", thread.teb, start, len(stack), at, len(thread.context), context)
        self.stream(3, struct.pack("<I", len(threads)) + rows)

    def thread_infos(self, rows: Sequence[Tuple[int, ...]]) -> None:
        self.stream(17, self._headed("<III", [struct.pack("<IIIIQQQQQQ", *row) for row in rows]))

    def thread_names(self, names: Sequence[Tuple[int, str]]) -> None:
        packed = b"".join(struct.pack("<IQ", tid, self.string(name)) for tid, name in names)
        self.stream(24, struct.pack("<I", len(names)) + packed)

    def modules(self, modules: Sequence[Module], padded: bool = False) -> None:
        rows = b""
        for module in modules:
            name, record = self.string(module.path), b""
            if module.pdb is not None:
                guid, age, pdb = module.pdb
                record = b"RSDS" + uuid.UUID(guid).bytes_le + struct.pack("<I", age) + pdb.encode() + b"\0"
            major, minor, build, private = module.version
            words = (minor, major, private, build)
            rows += struct.pack("<QIIII", module.base, module.size, 0, module.stamp, name)
            rows += struct.pack("<II8H28x", 0xFEEF04BD, 0x10000, *words, *words)
            rows += struct.pack("<IIIIQQ", len(record), self.put(record) if record else 0, 0, 0, 0, 0)
        self.stream(4, struct.pack("<I", len(modules)) + bytes(4 * padded) + rows)

    def unloaded_modules(self, modules: Sequence[Module]) -> None:
        rows = [
            struct.pack("<QIIII", module.base, module.size, 0, module.stamp, self.string(module.path))
            for module in modules
        ]
        self.stream(14, self._headed("<III", rows))

    def memory(
        self, ranges: Sequence[Tuple[int, bytes]], within: Sequence[Tuple[int, int, int]] = ()
    ) -> None:
        """Adds memory; of `within` (start, size, offset) the bytes are those of full memory at an offset."""
        rows = []
        for start, data in ranges:
            at = self._lent(data)
            rows.append((start, len(data), at))
            rows += self._again(start, data, at)
        if self._random is not None:
            self._random.shuffle(rows)
        rows += [(start, size, 0) for start, size, _ in within]
        at = self.stream(
            5, struct.pack("<I", len(rows)) + b"".join(struct.pack("<QII", *row) for row in rows)
        )
        first = at + 4 + 16 * (len(rows) - len(within)) + 12
        self._later += [(first + 16 * place, offset) for place, (_, _, offset) in enumerate(within)]

    def _lent(self, data: bytes) -> int:
        """Adds bytes, which may lie in a stream of a user."""
        if self._random is None or self._random.random() < 0.5:
            return self.put(data)
        before, after = self._garbage(16), self._garbage(16)
        return self.stream(LAST_RESERVED + 1, before + data + after) + len(before)

    def _again(self, start: int, data: bytes, at: int) -> List[Tuple[int, int, int]]:
        """Returns further rows (start, size, RVA) of memory that has a row: none without a seed."""
        if self._random is None:
            return []
        low = self._random.randrange(len(data))
        size = self._random.randrange(len(data) - low) + 1
        copied = self.put(data[low : low + size])
        several = [(start, len(data), at), (start + low, size, at + low), (start + low, size, copied)]
        return self._random.sample(several, self._random.randrange(len(several) + 1))

    def memory64(
        self, ranges: Sequence[Tuple[int, bytes]], unwritten: Sequence[Tuple[int, int]] = ()
    ) -> None:
        """Adds full memory: its bytes come last in the file; of `unwritten` (start, size) none do."""
        self.flags |= 2
        known = [*((start, len(data)) for start, data in ranges), *unwritten]
        rows = b"".join(struct.pack("<QQ", *extent) for extent in known)
        self._base_rva = self.stream(9, struct.pack("<QQ", len(known), 0) + rows) + 8
        self._tail += [data for _, data in ranges]

    def memory_infos(self, rows: Sequence[Tuple[int, int, int, int, int, int, int]]) -> None:
        """Adds regions: base, allocation base, allocation protection, size, state, protection, type."""
        self.stream(
            16, self._headed("<IIQ", [struct.pack("<QQIIQIIII", *row[:3], 0, *row[3:], 0) for row in rows])
        )

    def exception(self, tid: int, code: int, address: int, parameters: Sequence[int], context: bytes) -> None:
        at = self.put(context)
        self.stream(
            6,
            struct.pack("<IIIIQQII", tid, 0, code, 0, 0, address, len(parameters), 0)
            + struct.pack("<15Q", *parameters, *(0,) * (15 - len(parameters)))
            + struct.pack("<II", len(context), at),
        )

    def handles(self, rows: Sequence[Tuple[int, str, str]], second: bool = False) -> None:
        packed = []
        for handle, kind, name in rows:
            names = self.string(kind), self.string(name) if name else 0
            packed.append(struct.pack("<QIIIIII", handle, *names, 0, 0x1F0003, 1, 2) + bytes(8 * second))
        self.stream(12, self._headed("<IIII", packed, 0))

    def handle_operations(self, rows: Sequence[Tuple[int, int, int, int, Sequence[int]]]) -> None:
        packed = [
            struct.pack("<QIIIIII", handle, pid, tid, kind, 0, len(frames), 0)
            + struct.pack("<32Q", *frames, *(0,) * (32 - len(frames)))
            for handle, pid, tid, kind, frames in rows
        ]
        self.stream(18, self._headed("<IIII", packed, 0))

    def function_tables(self, tables: Sequence[Tuple[int, int, int, Sequence[Tuple[int, int, int]]]]) -> None:
        native, pad, spare = 88, 0, 0
        if self._random is not None:
            # The native descriptor is of the writing Windows: 112 bytes in 14393, 88 before.
            native, pad = self._random.choice((88, 112, 120)), self._random.choice((0, 4))
            spare = self._random.randrange(9)
        packed = bytes(pad)
        for low, high, base, entries in tables:
            after = 4 if self._random is None else self._random.choice((0, 4))
            packed += struct.pack("<QQQII", low, high, base, len(entries), after) + bytes(native)
            packed += b"".join(struct.pack("<III", *entry) for entry in entries) + bytes(after)
        header = struct.pack("<IIIIII", 24, 32, native, 12, len(tables), pad)
        self.stream(13, header + packed + bytes(spare * len(tables)))

    def tokens(self, tokens: Sequence[Tuple[int, int, bytes]]) -> None:
        behind, spare = self._garbage(16, 4), self._garbage(16, 8)
        packed = b"".join(
            struct.pack("<IIQ", len(data), owner, handle) + spare + data for owner, handle, data in tokens
        )
        sizes = 16 + len(behind) + len(packed), len(tokens), 16 + len(behind), 16 + len(spare)
        self.stream(19, struct.pack("<IIII", *sizes) + behind + packed)

    def crashpad(
        self, simple: Sequence[Tuple[str, str]], objects: Sequence[Tuple[str, int, bytes]], module: int = 0
    ) -> None:
        """Adds Crashpad's annotations: simple ones of the process, and objects of one module."""

        def text(value: str) -> int:
            return self.put(struct.pack("<I", len(value.encode())) + value.encode() + b"\0")

        pairs = struct.pack("<I", len(simple))
        for pair in simple:
            pairs += struct.pack("<II", *map(text, pair))
        rows = struct.pack("<I", len(objects))
        for name, kind, value in objects:
            rows += struct.pack("<IHHI", text(name), kind, 0, self.put(struct.pack("<I", len(value)) + value))
        lists = (0, 0), (0, 0), (len(rows), self.put(rows))
        own = struct.pack("<I", 1) + b"".join(struct.pack("<II", *place) for place in lists)
        links = struct.pack("<IIII", 1, module, len(own), self.put(own))
        places = (len(pairs), self.put(pairs)), (len(links), self.put(links))
        head = struct.pack("<I", 1) + uuid.UUID(int=1).bytes_le + uuid.UUID(int=2).bytes_le
        self.stream(0x43500001, head + b"".join(struct.pack("<II", *place) for place in places))

    def breakpad(self, writer: int, asked: int, assertion: Tuple[str, str, str, int, int]) -> None:
        """Adds Breakpad's threads and assertion."""
        self.stream(0x47670001, struct.pack("<III", 3, writer, asked))
        *texts, line, kind = assertion
        packed = b"".join(str(text).encode("utf-16-le").ljust(256, b"\0") for text in texts)
        self.stream(0x47670002, packed + struct.pack("<II", line, kind))

    def comment(self, text: str, wide: bool = False) -> None:
        data = _wide(text) if wide else text.encode("utf-8")
        ended = self._random is None or self._random.random() < 0.7
        end = bytes(1 + wide) + self._garbage(8, 2) if ended else b""
        self.stream(11 if wide else 10, data + end)

    def bytes(self) -> bytes:
        """Returns the file."""
        rows = list(self.streams)
        directory, within = HEADER, []
        if self._random is not None:
            rows += [(0, 0, 0)] * self._random.randrange(3)
            rows += self._shared()
            within = [b"".join(self._tail)[:8]] * (bool(self._tail) and self._random.randrange(2))
            self._random.shuffle(rows)
            if self._random.random() < 0.5:
                directory = self.put(bytes(DIRECTORY * (len(rows) + len(within))))
        rows += [(LAST_RESERVED + 2, len(data), len(self._data)) for data in within]
        assert len(rows) <= self._room
        if self._base_rva is not None:
            struct.pack_into("<Q", self._data, self._base_rva, len(self._data))
        for place, offset in self._later:
            struct.pack_into("<I", self._data, place, len(self._data) + offset)
        struct.pack_into(
            "<4sIIIIIQ", self._data, 0, b"MDMP", 0xA793, len(rows), directory, 0, STAMP, self.flags
        )
        for place, (kind, size, at) in enumerate(rows):
            struct.pack_into("<III", self._data, directory + DIRECTORY * place, kind, size, at)
        return bytes(self._data) + b"".join(self._tail)

    def _shared(self) -> List[Tuple[int, int, int]]:
        """Returns entries of the directory for bytes that have an entry: none without a seed."""
        if self._random is None or not self.streams:
            return []
        found = []
        for _ in range(self._random.randrange(3)):
            kind, size, at = self._random.choice(self.streams)
            low = self._random.randrange(size)
            part = LAST_RESERVED + 3, self._random.randrange(size - low) + 1, at + low
            found.append(self._random.choice([(kind, size, at), (LAST_RESERVED + 3, size, at), part]))
        return found


def _wide(text: str) -> bytes:
    return text.encode("utf-16-le")
