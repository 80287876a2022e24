# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structures in the compact protocol of Apache Thrift, as Parquet's footers and pages have them.

Arrow's own view of a column's part of a footer ends the whole process where its statistics are wrong.

Source: "Thrift Compact protocol encoding" of Apache Thrift.
"""

from __future__ import annotations

from typing import Any

Fields = dict[int, Any]
"""The fields of a structure by number: an integer, a Fields, a list of these; None for what is not kept."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_NUMBERS, _LISTS, _BOOLS = (_I16, _I32, _I64), (_LIST, _SET), (_TRUE, _FALSE)
_FIXED = {_BYTE: 1, _DOUBLE: 8}
_DEEPEST = 8
_LONG_LIST = 15


def structure(data: bytes, at: int = 0, depth: int = 0) -> tuple[Fields, int]:
    """Returns the fields of a structure, and where it ends.

    Raises:
        IndexError: the data ends before
        ValueError: it is none, is deep, or has a field twice: a reader may take parts of both
    """
    if depth > _DEEPEST:
        raise ValueError("deep structures")
    fields: Fields = {}
    number = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            number += step
        else:
            number, at = _number(data, at)
        if number in fields:
            raise ValueError(f"field {number} twice")
        if kind in _BOOLS:
            fields[number] = None
        else:
            fields[number], at = _value(data, at, kind, depth)
    return fields, at + 1


def integer(fields: Fields, number: int, default: Any = None) -> int:
    """Returns a field that is a number from 0.

    Raises:
        ValueError: it is none, or is missing without a default
    """
    value = fields.get(number, default)
    if type(value) is not int or value < 0:
        raise ValueError(f"field {number} is no number from 0")
    return value


def inner(fields: Fields, number: int) -> Fields:
    """Returns a field that is a structure.

    Raises:
        ValueError: it is none, or is missing
    """
    return _fields(fields.get(number))


def inners(fields: Fields, number: int) -> list[Fields]:
    """Returns a field that is a list of structures.

    Raises:
        ValueError: it is none, or is missing
    """
    found = fields.get(number)
    if not isinstance(found, list):
        raise ValueError(f"field {number} is no list")
    return list(map(_fields, found))


def _fields(value: object) -> Fields:
    if not isinstance(value, dict):
        raise ValueError("no structure")
    return value


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Returns a value, and where it ends."""
    if kind in _NUMBERS:
        return _number(data, at)
    if kind == _STRUCT:
        return structure(data, at, depth + 1)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind in _LISTS:
        return _list(data, at, depth + 1)
    if kind in _FIXED:
        return None, at + _FIXED[kind]
    raise ValueError(f"type {kind}, which Parquet does not use")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise ValueError("deep lists")
    length, kind = data[at] >> 4, data[at] & 15
    at += 1
    if length == _LONG_LIST:
        length, at = _varint(data, at)
    if length > len(data) - at:
        raise ValueError("a list of more values than bytes")
    if kind in _BOOLS:
        return [None] * length, at + length
    values = []
    for _ in range(length):
        value, at = _value(data, at, kind, depth)
        values.append(value)
    return values, at


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
