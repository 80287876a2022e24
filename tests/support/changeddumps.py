# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A real minidump with some streams changed: what other writers do is done to a file that Windows wrote.

dump = ChangedDump(path.read_bytes())
dump.drop(SYSTEM_INFO)
dump.replace(EXCEPTION, dump.stream(EXCEPTION)[:160])
data = dump.bytes()
"""

from __future__ import annotations

import struct
from typing import Iterator, List, Tuple

from tests.conftest import SHARED
from tests.support.only import only

THREADS, MODULES, MEMORY, EXCEPTION, SYSTEM_INFO = 3, 4, 5, 6, 7
COMMENT, FUNCTIONS, REGIONS = 10, 13, 16

FOLDER = SHARED / "real_minidumps"
OF_WINDOWS = [path for folder in ("", "more") for path in sorted((FOLDER / folder).glob("*.dmp"))]
"""All well-formed files of Windows."""
OTHER_SYSTEMS = sorted((FOLDER / "other_systems").glob("*.dmp"))
BROKEN = sorted((FOLDER / "broken").glob("*.dmp"))

_HEADER = struct.Struct("<4sIIIIIQ")
_THREAD, _THREAD_SIZE = 4, 48


class ChangedDump:
    """A minidump whose streams can be replaced; new streams stand at the end of the file."""

    def __init__(self, data: bytes) -> None:
        self._data = bytearray(data)
        _, _, count, rva, _, _, _ = _HEADER.unpack_from(data)
        self._rows: List[Tuple[int, int, int]] = [
            struct.unpack_from("<III", data, rva + 12 * number) for number in range(count)
        ]

    @classmethod
    def named(cls, name: str) -> ChangedDump:
        """Opens a real file of the reference data, by its name."""
        path = only(path for path in OF_WINDOWS if path.name == name)
        return cls(path.read_bytes())

    def place(self, kind: int) -> int:
        """Returns the offset of a stream."""
        return next(rva for number, _, rva in self._rows if number == kind)

    def stream(self, kind: int) -> bytes:
        """Returns the bytes of a stream."""
        size, rva = next((size, rva) for number, size, rva in self._rows if number == kind)
        return bytes(self._data[rva : rva + size])

    def drop(self, kind: int) -> None:
        """Removes a stream."""
        self._rows = [row for row in self._rows if row[0] != kind]

    def replace(self, kind: int, data: bytes) -> int:
        """Replaces or adds a stream, and returns its offset."""
        self.drop(kind)
        rva = self.append(data)
        self._rows.append((kind, len(data), rva))
        return rva

    def append(self, data: bytes) -> int:
        """Adds bytes to the file, and returns their offset."""
        self._data += bytes(-len(self._data) % 4)
        rva = len(self._data)
        self._data += data
        return rva

    def write(self, rva: int, data: bytes) -> None:
        """Overwrites bytes of the file."""
        self._data[rva : rva + len(data)] = data

    def read(self, rva: int, size: int) -> bytes:
        """Returns bytes of the file."""
        return bytes(self._data[rva : rva + size])

    def thread_rows(self) -> Iterator[int]:
        """Yields the offset of each MINIDUMP_THREAD."""
        start = self.place(THREADS)
        (count,) = struct.unpack_from("<I", self._data, start)
        for number in range(count):
            yield start + _THREAD + _THREAD_SIZE * number

    def bytes(self) -> bytes:
        """Returns the file; its directory stands at the end."""
        data = bytearray(self._data)
        data += bytes(-len(data) % 4)
        struct.pack_into("<II", data, 8, len(self._rows), len(data))
        return bytes(data) + b"".join(struct.pack("<III", *row) for row in self._rows)
