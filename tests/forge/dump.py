# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Image files: raw, crash dumps of both bitnesses, and any of them packed.

Header layouts: `crash64.json`, `crash.json` and `crash_common.json` of Volatility; types 1 (full,
runs of pages) and 5 (bitmap, "active memory"). Live dumps: the structures of kdmp-parser, which reads them.
"""

from __future__ import annotations

import bisect
import hashlib
import io
import itertools
import lzma
import pathlib
import random
import struct
from typing import TYPE_CHECKING, BinaryIO, Collection, Optional, Sequence

from .isf import Isf
from .obj import CAPTURED, filetime
from .phys import PAGE

if TYPE_CHECKING:
    from .kernel import Kernel

# Volatility skips a scan window that reaches past the end of a raw file.
_RAW_MINIMUM = {64: 0x2A0000, 32: 0x1030000}
_FULL = 1
BITMAP, BITMAP_KERNEL, BITMAP_AUTOMATIC = 5, 6, 7
"""DumpType of bitmap dumps."""
LIVE = (8, 9, 10)
"""DumpType of live dumps."""
# Bytes of the header that hold the physical memory descriptor.
_DESCRIPTOR_SIZE = 700


class Image:
    """A finished image; made by `Kernel.image`.

    `tables` are the symbol tables that go with it: the kernel's and those of modules that have
    symbols.
    """

    def __init__(self, kernel: Kernel, tables: Sequence[Isf]) -> None:
        self._kernel = kernel
        self._phys = kernel.phys
        self.tables = list(tables)
        self.bits = kernel.bits
        self.dtb = kernel.space.tables.root
        self.kernel_base = kernel.base

    def save(
        self,
        path: pathlib.Path,
        bitmap: int = 0,
        without: Collection[int] = frozenset(),
        seed: Optional[int] = None,
    ) -> pathlib.Path:
        """Writes the file that its name asks for: `.raw` or `.dmp`, each with or without `.xz`.

        `bitmap` is the DumpType of a bitmap dump or a live one, 0 for a full one; such a dump has no page of
        `without` (page frame numbers). A name of another ending is a raw image. No real bitmap dump is known:
        a `seed` draws the signature, a bitmap longer than the memory, and room between it and the pages; of a
        live dump the order of its ranges, room behind them, and 16 bytes that readers do not use.
        """
        packed = path.suffix == ".xz"
        crash = (path.stem if packed else path.name).endswith(".dmp")
        if packed:
            buffer = io.BytesIO()
            self._write(buffer, crash, bitmap, without, seed)
            path.write_bytes(lzma.compress(buffer.getvalue(), preset=1))
            return path
        with path.open("wb") as file:
            self._write(file, crash, bitmap, without, seed)
        return path

    def digest(self) -> str:
        """SHA-256 of all frames with their numbers."""
        digest = hashlib.sha256()
        for number, data in self._phys.pages():
            digest.update(number.to_bytes(8, "little") + bytes(data or PAGE))
        return digest.hexdigest()

    def install(self, symbol_dir: pathlib.Path) -> pathlib.Path:
        """Puts the symbol tables into a directory for `-s`."""
        for table in self.tables:
            table.install(symbol_dir)
        return symbol_dir

    def _write(
        self, file: BinaryIO, crash: bool, bitmap: int, without: Collection[int], seed: Optional[int]
    ) -> None:
        drawn = None if seed is None else random.Random(seed)
        if not crash:
            self._raw(file)
        elif bitmap in LIVE:
            self._live(file, bitmap, without, drawn)
        elif bitmap:
            self._bitmap(file, bitmap, without, drawn)
        else:
            self._full(file)

    def _raw(self, file: BinaryIO) -> None:
        end = 0
        for number, data in self._phys.pages():
            if data is not None:
                file.seek(number * PAGE)
                file.write(data)
            end = (number + 1) * PAGE
        _extend(file, max(end, _RAW_MINIMUM[self.bits]))

    def _full(self, file: BinaryIO) -> None:
        runs = self._phys.runs()
        head, entry = (16, 16) if self.bits == 64 else (8, 8)
        runs = _merged(runs, (_DESCRIPTOR_SIZE - head) // entry)
        pages = sum(count for _, count in runs)
        if self.bits == 64:
            descriptor = struct.pack("<I4xQ", len(runs), pages)
            descriptor += b"".join(struct.pack("<QQ", *run) for run in runs)
        else:
            descriptor = struct.pack("<II", len(runs), pages)
            descriptor += b"".join(struct.pack("<II", *run) for run in runs)
        file.write(self._header(_FULL, descriptor))
        start = file.tell()
        firsts = [first for first, _ in runs]
        before = list(itertools.accumulate((count for _, count in runs), initial=0))
        for number, data in self._phys.pages():
            if data is not None:
                run = bisect.bisect(firsts, number) - 1
                file.seek(start + (before[run] + number - firsts[run]) * PAGE)
                file.write(data)
        _extend(file, start + pages * PAGE)

    def _bitmap(
        self, file: BinaryIO, dump_type: int, without: Collection[int], drawn: Optional[random.Random]
    ) -> None:
        numbers = [number for number, _ in self._phys.pages() if number not in without]
        bits = bytearray(-(-(numbers[-1] + 1) // 32) * 4 + (4 * drawn.randrange(0x1000) if drawn else 0))
        for number in numbers:
            bits[number // 8] |= 1 << number % 8
        start = (2 if self.bits == 64 else 1) * PAGE
        size = start + -(-(56 + len(bits)) // PAGE) * PAGE
        kind = b"FDMP" if dump_type == BITMAP else b"SDMP"
        if drawn:
            kind, size = drawn.choice((b"FDMP", b"SDMP")), size + PAGE * drawn.randrange(4)
        summary = struct.pack("<4s4s24xQQQ", kind, b"DUMP", size, len(numbers), 8 * len(bits))
        descriptor = struct.pack("<I4xQ" if self.bits == 64 else "<II", 0, len(numbers))
        file.write(self._header(dump_type, descriptor))
        file.write((summary + bits).ljust(size - start, b"\0"))
        self._pages(file, numbers)

    def _live(
        self, file: BinaryIO, dump_type: int, without: Collection[int], drawn: Optional[random.Random]
    ) -> None:
        numbers = [number for number, _ in self._phys.pages() if number not in without]
        steps = itertools.groupby(enumerate(numbers), lambda item: item[1] - item[0])
        runs = [[number for _, number in run] for _, run in steps]
        counts = struct.pack("<I4xQ", len(runs), len(numbers))
        room = 0
        if drawn:
            drawn.shuffle(runs)
            room = PAGE * drawn.randrange(4)
            if dump_type != LIVE[-1]:
                counts = drawn.getrandbits(128).to_bytes(16, "little")
        entries = b"".join(struct.pack("<QQ", run[0], len(run)) for run in runs)
        start = 2 * PAGE
        first = start + -(-(48 + len(entries)) // PAGE) * PAGE + room
        head = struct.pack("<I4s4s4xQQ", 0x40, b"RDMP", b"DUMP", first - start - 32, first)
        file.write(self._header(dump_type, struct.pack("<I4xQ", 0, len(numbers))))
        file.write((head + counts + entries).ljust(first - start, b"\0"))
        self._pages(file, [*itertools.chain.from_iterable(runs)])

    def _pages(self, file: BinaryIO, numbers: Sequence[int]) -> None:
        for number in numbers:
            file.write(self._phys.frame(number) if number in self._phys else bytes(PAGE))

    def _header(self, dump_type: int, descriptor: bytes) -> bytes:
        kernel, wide = self._kernel, self.bits == 64
        lists = [kernel.symbol("PsLoadedModuleList"), kernel.symbol("PsActiveProcessHead")]
        block = kernel.symbol("KdDebuggerDataBlock")
        cpus = len(kernel.cpus)
        header = bytearray(b"PAGE" * (2 * PAGE // 4 if wide else PAGE // 4))

        def put(offset: int, form: str, *values: int) -> None:
            struct.pack_into("<" + form, header, offset, *values)

        build = kernel.version[2]
        if wide:
            header[0:8] = b"PAGEDU64"
            put(8, "IIQQQQIII", 15, build, self.dtb, 0, *lists, 0x8664, cpus, 0xE2)
            put(64, "4Q", 0, 0, 0, 0)
            put(128, "Q", block)
            header[136 : 136 + len(descriptor)] = descriptor
            put(3992, "I", dump_type)
            put(4008, "Q", filetime(CAPTURED))
        else:
            header[0:8] = b"PAGEDUMP"
            put(8, "IIIIIIIII", 15, build, self.dtb, 0, *lists, 0x14C, cpus, 0xE2)
            put(44, "4I", 0, 0, 0, 0)
            put(92, "B", 1)
            put(96, "I", block)
            header[100 : 100 + len(descriptor)] = descriptor
            put(3976, "I", dump_type)
            put(4032, "Q", filetime(CAPTURED))
        return bytes(header)


def _extend(file: BinaryIO, size: int) -> None:
    """Fills a file with zeros up to a size, as holes where the file can have them."""
    if file.tell() < size:
        file.seek(size - 1)
        file.write(b"\0")


def _merged(runs: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """At most so many runs, by filling the smallest gaps (with zero pages)."""
    while len(runs) > most:
        gaps = [runs[i + 1][0] - sum(runs[i]) for i in range(len(runs) - 1)]
        index = gaps.index(min(gaps))
        first, following = runs[index], runs[index + 1]
        runs = [*runs[:index], (first[0], sum(following) - first[0]), *runs[index + 2 :]]
    return runs
