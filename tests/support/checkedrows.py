# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Has each row of our plugins checked as Volatility's own grid checks rows: number and types of the cells."""

from __future__ import annotations

from typing import Any

from volatility3.framework import renderers

from winstacks.rows.treegrid import RowNode


def install() -> None:
    """Checks them from now on; a wrong row is a TypeError."""
    make: Any = RowNode.__init__

    def initialize(node: RowNode, *arguments: Any) -> None:
        make(node, *arguments)
        renderers.TreeNode._validate_values(node, node.values)

    RowNode.__init__ = initialize  # type: ignore[assignment, method-assign]
