# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rows of a plugin that runs on a context in this process, in plain Python values."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
from typing import Any, Dict, List, NamedTuple, Optional

from volatility3.cli import CommandLine, text_renderer
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


def rendered(opened: Opened, plugin: Any, output: Optional[pathlib.Path] = None, **options: Any) -> List[Row]:
    """The rows that Volatility's JSON renderer prints, as the command line does; children in `__children`.

    Args:
        opened: the image
        plugin: the plugin's class
        output: where the command line puts the files that the plugin writes
        options: the plugin's
    """
    new_plugin = opened.construct(plugin, **options)
    if output is not None:
        line = CommandLine()
        line.output_dir = str(output)
        new_plugin.set_open_method(line.file_handler_class_factory())
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        text_renderer.JsonRenderer().render(new_plugin.run())
    return list(json.loads(printed.getvalue()))


def frames(node: Node, address: str = "Address") -> List[int]:
    """The addresses of the frame rows below a row."""
    return [row[address] for row in node.children if row["Frame"] is not None]


def of_databases(nodes: List[Node]) -> List[Node]:
    """Returns the rows of databases and traces, without those of spaces where no pointer leads to one."""
    without = {node.row["Status"] for node in nodes if node.row["Database"] is None}
    assert without <= {"no database", "ntdll data incomplete"}
    return [node for node in nodes if node.row["Database"] is not None]


def masked(address: int) -> int:
    """The form of an address that columns have."""
    return address & MASK


def _plain(value: Any) -> Any:
    if isinstance(value, interfaces.renderers.BaseAbsentValue):
        return None
    return int(value) if isinstance(value, int) else value
