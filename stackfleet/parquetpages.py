# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory that a Parquet file unfolds to, by the headers of its pages, before anything decodes it.

A page of 20 KB may unfold to 2 GB, and a dictionary of one text may stand for a million of them, whatever
the footer says. Arrow decodes a page whole, and allocates what its header declares; its codecs stop there.

Source: parquet.thrift of Apache Parquet's format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import thrift

MOST_FOOTER = 1 << 22
"""The most bytes of a footer: Arrow's form of one needs up to 60 times as many."""
MOST_HELD = 1 << 28
"""The most bytes that one row group of a file may need besides its rows: a page and a dictionary of each
column, and the values of lists, which may all be in one row."""
AT_A_TIME, MOST_ROWS = 1 << 26, 1 << 13
"""The bytes, and the most rows, that are decoded at a time."""

_ROWS, _TEXTS, _LETTERS = (1 << 20, 16), (1 << 20, 1), (1 << 30, 1 << 8)
"""Limits of a file of any size, and of each of its bytes beside them: rows, texts of dictionaries, bytes of
all texts of rows, which are also the limit of all pages. Files of `stackfleet` have less than one row or text
for each byte."""

_DATA, _INDEX, _DICTIONARY, _DATA_2 = range(4)
_PLAIN, _OF_DICTIONARIES, _RUNS = 0, (2, 8), 3
"""Encodings of pages. Those that repeat a part of the value before (DELTA_BYTE_ARRAY) are refused."""
_CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}
"""Names of compressions for Arrow by CompressionCodec; empty: the data is as it is."""
_TEXT, _FIXED, _BYTE_ARRAY = 6, 7, "BYTE_ARRAY"
"""Types of columns; Arrow's name of the first."""
_OF_NUMBER, _OF_TEXT = 12, 16
"""Bytes of a value with its levels and offset, without the letters of a text."""
_HEADERS = (1 << 12, 1 << 16)
"""Bytes in which a page's header is looked for: statistics may have long texts."""
_SHORT = 16
"""The size of a dictionary whose texts are not looked at."""


class UnfoldingError(OSError):
    """A file that may need more memory or time than one of its size has to; the text gives the reason."""


class Page(NamedTuple):
    """The header of a page.

    Attributes:
        at: where its data begins, in the file
    """

    type: int
    at: int
    stored: int
    size: int
    values: int
    encoding: int


class Chunk(NamedTuple):
    """The part of a row group that is of one column.

    Attributes:
        type, codec: members of parquet.thrift's Type and CompressionCodec
        values: the number of its values; a list in one row may have many
        at: where its first page begins, in the file
        stored: bytes of its pages
    """

    type: int
    codec: int
    values: int
    at: int
    stored: int


class Group(NamedTuple):
    """A row group."""

    rows: int
    chunks: list[Chunk]


class Footer(NamedTuple):
    """The FileMetaData of a file."""

    rows: int
    groups: list[Group]
    data: bytes

    def plain(self) -> Any:
        """Returns Arrow's form of it, without the types that its writer had in Arrow.

        Views, dictionaries and runs are one value for many rows there; Parquet has texts alone.
        """
        data = self.data.replace(b"ARROW:schema", b"arrow:schema")
        return pq.read_metadata(pa.BufferReader(b"".join([data, len(data).to_bytes(4, "little"), b"PAR1"])))


class Look(NamedTuple):
    """The findings in a file.

    Attributes:
        at_a_time: the most rows that are decoded at a time, so that they need at most AT_A_TIME bytes
    """

    at_a_time: int
    footer: Footer

    @property
    def most_values(self) -> int:
        """The number of its rows, or of values of a column in a row group: one row may have a long list."""
        rows, groups, _ = self.footer
        return max([rows, *(chunk.values for group in groups for chunk in group.chunks)])


def rows_at_a_time(path: str | os.PathLike[str]) -> int:
    """Returns the most rows of a file that are decoded at a time; see `look_at`."""
    with open(path, "rb") as file:
        return look_at(file).at_a_time


def look_at(file: BinaryIO) -> Look:
    """Looks at the headers of a file's pages.

    Raises:
        UnfoldingError: it unfolds to more than the limits
        pa.ArrowException, OSError: it cannot be read
    """
    size = file.seek(0, os.SEEK_END)
    found = _footer(file, size)
    try:
        row = _Unfolded(file, size).row(found)
        if _is_beyond(found.rows * row, size, _LETTERS):
            # One text may be far longer than the others: they are summed, without a copy for each row.
            _sum_letters(file, size, found)
    except (IndexError, KeyError, ValueError) as error:
        raise UnfoldingError("the headers of its pages cannot be read") from error
    return Look(max(1, min(MOST_ROWS, AT_A_TIME // max(row, 1))), found)


def _footer(file: BinaryIO, size: int) -> Footer:
    """Returns the footer of a file of a size."""
    file.seek(max(size - 8, 0))
    length = int.from_bytes(file.read(4), "little")
    if length > MOST_FOOTER:
        raise UnfoldingError(f"its footer has more than {MOST_FOOTER:,} bytes")
    file.seek(max(size - 8 - length, 0))
    data = file.read(length)
    try:
        facts, _ = thrift.structure(data)
        groups = [
            Group(thrift.integer(group, 3), list(map(_chunk, thrift.inners(group, 1))))
            for group in thrift.inners(facts, 4)
        ]
        return Footer(thrift.integer(facts, 3), groups, data)
    except (IndexError, ValueError) as error:
        raise UnfoldingError("its footer cannot be read") from error


def _chunk(chunk: thrift.Fields) -> Chunk:
    facts = thrift.inner(chunk, 3)
    at, dictionary = thrift.integer(facts, 9), thrift.integer(facts, 11, 0)
    kind, codec, values, stored = (thrift.integer(facts, number) for number in (1, 4, 5, 7))
    return Chunk(kind, codec, values, dictionary if 0 < dictionary < at else at, stored)


def _sum_letters(file: BinaryIO, size: int, footer: Footer) -> None:
    """Refuses a file whose rows have too many letters in all.

    Parts of structures, which logs have and tables lack, are not summed.
    """
    metadata, letters = footer.plain(), 0
    texts = (column for column in metadata.schema if column.physical_type == _BYTE_ARRAY)
    names = [column.path for column in texts if column.path == column.name]
    with pq.ParquetFile(file, metadata=metadata, read_dictionary=names) as parquet:
        for name in names:
            for batch in parquet.iter_batches(MOST_ROWS, columns=[name]):
                column = batch.column(0)
                lengths = pc.binary_length(column.dictionary).cast(pa.int64())
                letters += pc.sum(lengths.take(column.indices)).as_py() or 0
                _limit(letters, size, _LETTERS, "letters in its rows, or more")


class _Unfolded:
    """Sums what the pages of a file unfold to."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size, self._texts, self._unfolded = file, size, 0, 0

    def row(self, footer: Footer) -> int:
        """Returns the most bytes of a row, if the rows of each page have the same length."""
        heaviest, (rows, groups, _) = 0, footer
        _limit(rows, self._size, _ROWS, "rows")
        if sum(group.rows for group in groups) != rows:
            raise ValueError("row groups with other rows")
        if sum(chunk.stored for group in groups for chunk in group.chunks) > self._size:
            raise UnfoldingError("its columns share bytes")
        for group in groups:
            weights = [self._weight(chunk, group.rows) for chunk in group.chunks]
            held = sum(held for held, _ in weights)
            if held > MOST_HELD:
                raise UnfoldingError(f"its pages unfold to {held:,} bytes, more than {MOST_HELD:,}")
            heaviest = max(heaviest, sum(value for _, value in weights))
        return heaviest

    def _weight(self, chunk: Chunk, rows: int) -> tuple[int, int]:
        """Returns the bytes that a column of a row group needs besides its rows, and the bytes of a value.

        A list has a value at least, also if it is empty; further ones may all be of one row.
        """
        if chunk.type == _FIXED or chunk.codec not in _CODECS:
            raise UnfoldingError("it has a type or a compression that lakes do not use")
        own = _OF_TEXT if chunk.type == _TEXT else _OF_NUMBER
        largest = dictionary = letters = most_letters = values = 0
        for page in _pages(self._file, chunk):
            self._unfolded += page.size
            _limit(self._unfolded, self._size, _LETTERS, "bytes in its unfolded pages, or more")
            if page.type == _DICTIONARY:
                if dictionary:
                    raise ValueError("a second dictionary")
                dictionary = page.size
                if chunk.type == _TEXT and page.size <= MOST_HELD:
                    letters = self._longest(page, _CODECS[chunk.codec])
            elif page.type in (_DATA, _DATA_2):
                largest, values = max(largest, page.size), values + page.values
                if page.encoding in _OF_DICTIONARIES:
                    most_letters = max(most_letters, letters)
                elif page.encoding not in (_PLAIN, _RUNS):
                    raise UnfoldingError("it has an encoding that lakes do not use")
                elif chunk.type == _TEXT:
                    most_letters = max(most_letters, -(-page.size // max(page.values, 1)))
        value = own + most_letters
        return largest + dictionary + max(values - rows, 0) * value, value

    def _longest(self, page: Page, codec: str) -> int:
        """Returns the length of the longest text of a dictionary."""
        if page.size <= _SHORT:
            # Most columns of a file have no value, and an empty dictionary.
            return page.size
        self._texts += page.values
        _limit(self._texts, self._size, _TEXTS, "texts in dictionaries")
        self._file.seek(page.at)
        data = self._file.read(page.stored)
        if codec:
            data = pa.Codec(codec).decompress(data, decompressed_size=page.size, asbytes=True)
        at = longest = 0
        for _ in range(page.values):
            length = int.from_bytes(data[at : at + 4], "little")
            at += 4 + length
            if length > longest:
                longest = length
        if at > len(data):
            raise ValueError("texts beyond their page")
        return longest


def _is_beyond(number: int, size: int, most: tuple[int, int]) -> bool:
    return number > most[0] + most[1] * size


def _limit(number: int, size: int, most: tuple[int, int], what: str) -> None:
    """Refuses a number that is too large for a file of a size."""
    if _is_beyond(number, size, most):
        raise UnfoldingError(f"it has {size:,} bytes and {number:,} {what}")


def _pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """Yields the pages of a column of a row group.

    Raises:
        ValueError, IndexError: they do not fill the column's bytes, or are none
    """
    at = chunk.at
    end = at + chunk.stored
    while at < end:
        fields, length = _header(file, at)
        kind, size, stored = (thrift.integer(fields, number) for number in (1, 2, 3))
        own = thrift.inner(fields, {_DATA: 5, _INDEX: 6, _DICTIONARY: 7, _DATA_2: 8}[kind])
        values = thrift.integer(own, 1, 0)
        encoding = thrift.integer(own, 4 if kind == _DATA_2 else 2, _PLAIN)
        yield Page(kind, at + length, stored, size, values, encoding)
        at += length + stored
    if at != end:
        raise ValueError("a page beyond its column")


def _header(file: BinaryIO, at: int) -> tuple[thrift.Fields, int]:
    """Returns the fields of a page's header by number, and its length."""
    for length in _HEADERS:
        file.seek(at)
        data = file.read(length)
        try:
            return thrift.structure(data)
        except IndexError:
            if len(data) < length or length == _HEADERS[-1]:
                raise
    raise AssertionError("unreachable")
