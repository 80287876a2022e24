# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rows of a plugin that runs on a context in this process, in plain Python values."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

from volatility3.framework import interfaces

from tests.forge.context import Opened

Row = Dict[str, Any]

MASK = 0xFFFFFFFFFFFF


class Node(NamedTuple):
    """A row, absent values None, and the rows below it."""

    row: Row
    children: List[Row]


def run(opened: Opened, plugin: Any, **options: Any) -> List[Node]:
    """The grid of a plugin, whose rows are two deep at most."""
    nodes: List[Node] = []
    for depth, row in opened.rows(plugin, **options):
        plain = {name: _plain(value) for name, value in row.items()}
        if depth:
            nodes[-1].children.append(plain)
        else:
            nodes.append(Node(plain, []))
    return nodes


def frames(node: Node, address: str = "Address") -> List[int]:
    """The addresses of the frame rows below a row."""
    return [row[address] for row in node.children if row["Frame"] is not None]


def masked(address: int) -> int:
    """The form of an address that columns have."""
    return address & MASK


def _plain(value: Any) -> Any:
    if isinstance(value, interfaces.renderers.BaseAbsentValue):
        return None
    return int(value) if isinstance(value, int) else value
