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
from functools import partial
from itertools import repeat
from typing import (
    Annotated,
    Any,
    Callable,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Match,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    cast,
    get_type_hints,
)

Record = TypeVar("Record", bound=NamedTuple)

UCHAR = Annotated[int, "UCHAR"]
USHORT = Annotated[int, "USHORT"]
ULONG = Annotated[int, "ULONG"]
ULONGLONG = Annotated[int, "ULONGLONG"]
STRING = Annotated[Optional[str], "RVA"]
STRING64 = Annotated[Optional[str], "RVA64"]
"""A text elsewhere in the file; None without one, or if it cannot be read."""

FindText = Callable[[int], Optional[str]]
"""Takes the offset of a text in the file, returns the text."""
PutText = Callable[[Optional[str]], int]
"""Takes a text, returns the offset at which it was put."""

_CODES = {"UCHAR": "B", "USHORT": "H", "ULONG": "I", "LONG": "i", "ULONGLONG": "Q", "RVA": "I", "RVA64": "Q"}
_MEMBER = re.compile(r"(?:(\w+)(?:\[(\d+)\])?)? ?(?:@(\w+|-)(?:/(\w+|-))?)?")


class _Member(NamedTuple):
    """How values of `struct`, as columns of many structures, become a member, and how a member becomes them.

    Attributes:
        values: number of the values
    """

    code: str
    values: int
    read: Callable[[Sequence[Sequence[Any]], FindText], Iterable[Any]]
    write: Callable[[Any, PutText], Iterable[Any]]


def _column(columns: Sequence[Sequence[Any]], _: FindText) -> Iterable[Any]:
    return columns[0]


def _member(kind: str, count: int) -> _Member:
    """Returns the member of a type; `count` is the number of its elements, 0 without an array."""
    if kind == "WCHAR":
        return _Member(
            f"{2 * count}s",
            1,
            lambda columns, _: map(wide_text, columns[0]),
            lambda value, _: [(value or "").encode("utf-16-le", "replace")[: 2 * count - 2]],
        )
    code = _CODES[kind]
    if kind == "UCHAR" and count:
        return _Member(f"{count}s", 1, _column, lambda value, _: [value or b""])
    if count:
        return _Member(code * count, count, lambda columns, _: zip(*columns), lambda value, _: value)
    if kind.startswith("RVA"):
        return _Member(code, 1, lambda columns, find: map(find, columns[0]), lambda value, put: [put(value)])
    return _Member(code, 1, _column, lambda value, _: [value or 0])


def wide_text(data: bytes) -> str:
    """Returns the text of a zero-terminated array of WCHAR."""
    return data.decode("utf-16-le", "replace").split("\0", 1)[0]


class Declared(Generic[Record]):
    """A structure of fixed size, little-endian.

    Args:
        record: the class that declares it
        size: size in bytes, if it does not end with its last member
        least: size of the oldest version of the structure in bytes, if later versions have more members
        wide: whether the second of two offsets counts

    Attributes:
        offsets, ends: offset of each member, and of the first byte behind it
    """

    def __init__(self, record: Type[Record], size: int = 0, least: int = 0, wide: bool = True) -> None:
        self.offsets: Dict[str, int] = {}
        self.ends: Dict[str, int] = {}
        self._code: str = ""
        self._values: int = 0
        self._make: Callable[[Iterable[Any]], Record] = partial(tuple.__new__, record)
        known: Dict[str, _Member] = {}
        end = 0
        for name, hint in get_type_hints(record, include_extras=True).items():
            text = " ".join(getattr(hint, "__metadata__", ()))
            kind, count, narrow, other = cast(Match[str], _MEMBER.fullmatch(text)).groups()
            structure = getattr(hint, "__origin__", hint)
            place = other if wide and other else narrow
            if place == "-":
                continue
            if kind:
                kind = ("ULONG", "ULONGLONG")[wide] if kind == "ULONG_PTR" else kind
                known[name] = _member(kind, int(count or 0))
            elif hasattr(structure, "_fields"):
                inner: Declared[Any] = Declared(structure, wide=wide)
                known[name] = _Member(inner._code, inner._values, inner._of_columns, inner._flat)
            else:
                continue
            self.offsets[name] = end if place is None else int(place, 16)
            self.ends[name] = end = self.offsets[name] + struct.calcsize(f"<{known[name].code}")
        end = 0
        slots: Dict[str, slice] = {}
        for name in sorted(self.offsets, key=self.offsets.__getitem__):
            self._code += f"{self.offsets[name] - end}x{known[name].code}"
            slots[name] = slice(self._values, self._values + known[name].values)
            self._values, end = slots[name].stop, self.ends[name]
        self._code += f"{max(size - end, 0)}x"
        self.struct = struct.Struct(f"<{self._code}")
        self.size = self.struct.size
        self.least = least or self.size
        names: Tuple[str, ...] = record._fields
        defaults: Dict[str, Any] = record._field_defaults
        self._members = [(known.get(name), slots.get(name, slice(0)), defaults.get(name)) for name in names]
        self._plain = tuple(slots) == names and all(member.read is _column for member in known.values())

    def _of_columns(self, columns: Sequence[Sequence[Any]], find: FindText) -> Iterator[Record]:
        # The members of one structure are taken before those of the next: texts are found in this order.
        return map(
            self._make,
            zip(
                *(
                    repeat(default) if member is None else member.read(columns[slot], find)
                    for member, slot, default in self._members
                )
            ),
        )

    def records(self, rows: Iterable[Sequence[Any]], find: FindText) -> Iterator[Record]:
        """Returns structures from the values that `struct` unpacked of each, many at once."""
        if self._plain:
            return map(self._make, rows)
        columns = list(zip(*rows))
        return self._of_columns(columns, find) if columns else iter(())

    def row(self, data: bytes) -> Tuple[Any, ...]:
        """Returns the values of a structure; what an older version lacks is 0."""
        return self.struct.unpack(data[: self.size].ljust(self.size, b"\0"))

    def decode(self, data: bytes, find: FindText = lambda _: None) -> Record:
        """Returns a structure; what an older version lacks is 0."""
        return next(self.records([self.row(data)], find))

    def _flat(self, record: Sequence[Any], put: PutText) -> List[Any]:
        values: List[Any] = [None] * self._values
        for value, (member, slot, _) in zip(record, self._members):
            if member is not None:
                values[slot] = member.write(value, put)
        return values

    def encode(self, record: Record, put: PutText = lambda _: 0) -> bytes:
        """Returns the bytes of a structure; None is written as 0 or as an empty text."""
        return self.struct.pack(*(record if self._plain and None not in record else self._flat(record, put)))
