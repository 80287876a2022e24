# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grid in which rows reach a renderer: Volatility's, with less work for each row.

Volatility's grid tests the type of each cell, and its nodes copy all cells of a row whenever a renderer asks
for one: a third to a half of what printing a row takes. The cells here are of the types that columns say
(the tests check each), and a node hands out the same list each time.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from volatility3.framework import interfaces, renderers


class RowNode(renderers.TreeNode):
    """A row of a grid.

    Attributes:
        values: its cells
        path_depth: 1 for a row that is below no other
        below: the rows below it, each with what is below that, as `TreeGrid` keeps them
    """

    # In the place of Volatility's properties, so that each row can have its own.
    values: List[Any] = []
    path_depth = 1

    def __init__(
        self, path: str, path_depth: int, grid: RowGrid, parent: Optional[RowNode], values: Sequence[object]
    ) -> None:
        self._treegrid = grid
        self._parent = parent
        self._path = path
        self.path_depth = path_depth
        self.values = list(values)
        self.below: List[Any] = []

    def __repr__(self) -> str:
        return f"<RowNode [{self.path}] - {self.values}>"

    def asdict(self) -> Dict[str, Any]:
        """Returns the cells by the names of their columns, as TreeGrid.sanitize_name has them."""
        found: Dict[str, Any] = self._treegrid.RowStructure(*self.values)._asdict()
        return found


class RowGrid(renderers.TreeGrid):
    """A grid of rows; it takes what Volatility's takes."""

    def _append(self, parent: Optional[interfaces.renderers.TreeNode], values: Any) -> RowNode:
        """Adds a row below another, or below none."""
        if isinstance(parent, RowNode):
            beside = parent.below
            path = f"{parent.path}{self.path_sep}{len(beside)}"
            node = RowNode(path, parent.path_depth + 1, self, parent, values)
        else:
            beside = self._children
            node = RowNode(str(len(beside)), 1, self, None, values)
        beside.append((node, node.below))
        return node
