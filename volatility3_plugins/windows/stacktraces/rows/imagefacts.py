# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The row of `windows.traceimage`."""

from __future__ import annotations

import datetime
from typing import Any, Dict, Iterator, List, Tuple

from volatility3.framework import interfaces, renderers

from ..base.decode.status import text
from ..base.decode.times import moment
from ..flat.decode import schema
from ..flat.imagefacts import ImageFacts
from .columns import Hex
from .grid import NOT_AVAILABLE, Cells, Row

TYPES: Dict[str, type] = {
    schema.STR: str,
    schema.INT: int,
    schema.BOOL: bool,
    schema.HEX: Hex,
    schema.HEXSTR: str,
    schema.TIME: datetime.datetime,
}
"""Volatility's types for those of the schema."""


def columns(table: str) -> List[Tuple[str, type]]:
    """Returns the columns of a table as Volatility's grid takes them."""
    return [(column.name, TYPES[column.type]) for column in schema.TABLES[table]]


def tree(table: str, rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of a table."""
    return renderers.TreeGrid(columns(table), rows)


def values(facts: ImageFacts) -> Tuple[object, ...]:
    """Returns the row of what an image is in plain values of Python, None for what is not known."""
    return tuple(map(_value, schema.IMAGE, facts))


def row(facts: ImageFacts) -> Cells:
    """Returns the cells of what an image is. What is not known is absent; types are always the same."""
    return tuple(NOT_AVAILABLE if value is None else value for value in values(facts))


def _value(column: schema.Column, value: Any) -> object:
    if column.name == "Status":
        return text(value)
    if value is None or (column.nullable and value == ""):
        return None
    return moment(value) if column.type == schema.TIME else value
