# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structures of files, each declared once as a class, and read and written by what the class says.

    class ThreadName(NamedTuple):
        ThreadId: ULONG
        ThreadName: STRING64

    THREAD_NAME = Declared(ThreadName)

A member is declared as in the texts below `symbols/`: type, number of elements, offset. `Annotated[int,
"ULONG @0x14/0x18"]` is an integer of 32 bits at 14h of the 32-bit structure and at 18h of the 64-bit one.
Without an offset a member follows the one before it, without alignment; with `-` the structure lacks it. A
member whose type is declared likewise is a structure within the structure. A member that the structure lacks,
or whose type is none of these, has its default.
"""

from __future__ import annotations

import re
import struct
import sys
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import (
    Annotated,
    Any,
    Callable,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
    Type,
    TypeVar,
)

from .records import NamedTuple

Record = TypeVar("Record", bound=NamedTuple)

UCHAR = Annotated[int, "UCHAR"]
USHORT = Annotated[int, "USHORT"]
ULONG = Annotated[int, "ULONG"]
ULONGLONG = Annotated[int, "ULONGLONG"]
ADDRESS = Annotated[int, "ADDRESS"]
"""An address of a process, as a number of 64 bits. Some writers sign-extend the addresses of 32-bit
processes. Parameters of the exception in one real dump of Breakpad show it; in lists it is forged only."""
MAYBE_ULONG = Annotated[Optional[int], "ULONG"]
MAYBE_ULONGLONG = Annotated[Optional[int], "ULONGLONG"]
"""Numbers that a structure may have without a value."""
STRING = Annotated[Optional[str], "RVA"]
STRING64 = Annotated[Optional[str], "RVA64"]
"""A text elsewhere in the file; None without one, or if it cannot be read."""

FindText = Callable[[int], Optional[str]]
"""Takes the offset of a text in the file, returns the text."""
PutText = Callable[[Optional[str]], int]
"""Takes a text, returns the offset at which it was put."""

_CODES = {
    "UCHAR": "B", "USHORT": "H", "ULONG": "I", "LONG": "i", "ULONGLONG": "Q", "ADDRESS": "Q",
    "RVA": "I", "RVA64": "Q",
}  # fmt: skip
_TEXTS = {"CHAR": (1, "latin-1"), "WCHAR": (2, "utf-16-le")}
"""Size of a character in bytes, and the encoding, of texts that end with a zero."""
_MEMBER = re.compile(r"(?:(\w+)(?:\[(\d+)\])?)? ?(?:@(\w+|-)(?:/(\w+|-))?)?")


class _Member(NamedTuple):
    """How values of `struct` become a member of many structures at once, and a member becomes values.

    Attributes:
        code: of `struct`
        values: number of the values of a member that is a tuple, None for one value
    """

    code: str
    values: Optional[int]
    read: Callable[[Iterable[Any], FindText], Iterable[Any]]
    write: Callable[[Any, PutText], Any]


def _as_it_is(values: Iterable[Any], _: FindText) -> Iterable[Any]:
    return values


_SIGN_EXTENDED = 0xFFFFFFFF80000000, 0xFFFFFFFFFFFF0000
"""The first and the end of the sign-extended addresses of 32-bit processes, which end 64 KB below 4 GB. No
64-bit process has memory there."""


def plain_address(value: int) -> int:
    """Returns an address of a process as the process itself has it."""
    first, end = _SIGN_EXTENDED
    return value & 0xFFFFFFFF if first <= value < end else value


def _member(kind: str, count: int) -> _Member:
    """Returns the member of a type; `count` is the number of its elements, 0 without an array."""
    if kind in _TEXTS:
        size, codec = _TEXTS[kind]
        return _Member(
            f"{size * count}s",
            None,
            lambda texts, _: (data.decode(codec, "replace").partition("\0")[0] for data in texts),
            lambda value, _: (value or "").encode(codec, "replace")[: size * (count - 1)],
        )
    code = _CODES[kind]
    if kind == "UCHAR" and count:
        return _Member(f"{count}s", None, _as_it_is, lambda value, _: value or b"")
    if count:
        return _Member(code * count, count, _as_it_is, lambda value, _: value)
    if kind == "ADDRESS":
        return _Member(code, None, lambda values, _: map(plain_address, values), lambda value, _: value or 0)
    if kind.startswith("RVA"):
        return _Member(code, None, lambda places, find: map(find, places), lambda value, put: put(value))
    return _Member(code, None, _as_it_is, lambda value, _: value or 0)


def _hints(record: Type[NamedTuple]) -> Iterator[Tuple[str, Any]]:
    """Yields name and type of each member; typing.get_type_hints does so with seven times as many calls."""
    scope = vars(sys.modules[record.__module__])
    for name, text in record.__annotations__.items():
        yield name, scope[text] if text in scope else eval(text, scope)


class Declared(Generic[Record]):
    """A structure of fixed size, little-endian. `offsets` and `ends` are the offset of each member, and of
    the first byte behind it.

    Args:
        size: size in bytes, if it does not end with its last member
        least: size of the oldest version of the structure in bytes, if later versions have more members
        wide: whether the second of two offsets counts
    """

    def __init__(self, record: Type[Record], size: int = 0, least: int = 0, wide: bool = True) -> None:
        self.offsets: Dict[str, int] = {}
        self.ends: Dict[str, int] = {}
        self._code: str = ""
        self._count: int = 0
        self._make: Callable[[Iterable[Any]], Record] = partial(tuple.__new__, record)
        known: Dict[str, _Member] = {}
        end = 0
        for name, hint in _hints(record):
            text = " ".join(getattr(hint, "__metadata__", ()))
            kind, count, narrow, other = _MEMBER.findall(text)[0]
            structure, place = getattr(hint, "__origin__", hint), other if wide and other else narrow
            if place == "-":
                continue
            if kind:
                kind = ("ULONG", "ULONGLONG")[wide] if kind == "ULONG_PTR" else kind
                known[name] = _member(kind, int(count or 0))
            elif hasattr(structure, "_fields"):
                inner: Declared[Any] = Declared(structure, wide=wide)
                known[name] = _Member(inner._code, inner._count, inner.records, inner._values)
            else:
                continue
            self.offsets[name] = int(place, 16) if place else end
            self.ends[name] = end = self.offsets[name] + struct.calcsize(f"<{known[name].code}")
        end = 0
        slots: Dict[str, Any] = {}
        for name in sorted(self.offsets, key=self.offsets.__getitem__):
            first, (code, count, _, _) = self._count, known[name]
            self._code += f"{self.offsets[name] - end}x{code}"
            self._count += 1 if count is None else count
            slots[name] = first if count is None else slice(first, self._count)
            end = self.ends[name]
        self.struct = struct.Struct(f"<{self._code}{max(size - end, 0)}x")
        self.size = self.struct.size
        self.least = least or self.size
        names: Tuple[str, ...] = record._fields
        self._slots = [(slots.get(name), known.get(name), record._field_defaults.get(name)) for name in names]
        self._plain = [slot for slot, _, _ in self._slots] == list(range(self._count)) and all(
            member.read is _as_it_is for member in known.values()
        )

    def records(self, rows: Iterable[Tuple[Any, ...]], find: FindText) -> Iterator[Record]:
        """Returns structures from the values that `struct` unpacked of each, many at once."""
        if self._plain:
            return map(self._make, rows)
        whole = list(rows)
        # A structure's members are taken before the next structure's members: its texts are found first.
        members = (
            member.read(map(itemgetter(slot), whole), find)
            if slot is not None and member is not None
            else repeat(default)
            for slot, member, default in self._slots
        )
        return map(self._make, zip(*members))

    def row(self, data: bytes) -> Tuple[Any, ...]:
        """Returns the values of a structure; what an older version lacks is 0."""
        return self.struct.unpack(data[: self.size].ljust(self.size, b"\0"))

    def decode(self, data: bytes, find: FindText = lambda _: None) -> Record:
        """Returns a structure; what an older version lacks is 0."""
        return next(self.records([self.row(data)], find))

    def _values(self, record: Iterable[Any], put: PutText) -> List[Any]:
        values: List[Any] = [None] * self._count
        for value, (slot, member, _) in zip(record, self._slots):
            if slot is not None and member is not None:
                values[slot] = member.write(value, put)
        return values

    def encode(self, record: Record, put: PutText = lambda _: 0) -> bytes:
        """Returns the bytes of a structure; None is written as 0 or as an empty text."""
        return self.struct.pack(
            *(record if self._plain and None not in record else self._values(record, put))
        )


def without(record: Record, names: Iterable[str]) -> Record:
    """Returns a structure without the values of some members: they are None."""
    return record._replace(**dict.fromkeys(names))
