# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grid that passes rows to a renderer: Volatility's, with less work for each row.

Volatility's grid tests the type of each cell, and its nodes copy all cells of a row whenever a renderer asks
for one: a third to a half of the time that printing a row takes. The cells here have the types of their
columns (the tests check each), and a node returns the same list each time.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from volatility3.framework import interfaces, renderers

from .streaming import visitor

_Below = Iterator[Tuple["RowNode", Any]]


class RowNode(renderers.TreeNode):
    """A row of a grid. `path_depth` is 1 for a top-level row."""

    # Attributes instead of Volatility's properties, so that each row can have its own.
    values: List[Any] = []
    path_depth = 1
    # Most rows have none of these: an absent value takes no memory.
    below: List[RowNode] = []
    passed = 0
    """Number of rows below this one that were not kept."""
    _path = ""

    def __init__(
        self, number: int, grid: RowGrid, parent: Optional[RowNode], values: Sequence[object]
    ) -> None:
        self._number = number
        self._treegrid = grid
        self._parent = parent
        self.values = list(values)
        if parent is not None:
            self.path_depth = parent.path_depth + 1

    def __repr__(self) -> str:
        return f"<RowNode [{self.path}] - {self.values}>"

    def __getitem__(self, item: Union[int, slice]) -> Any:
        return self.below[item]

    def __len__(self) -> int:
        # Renderers test the row above for truth, which calls this.
        return len(self.below) or self.passed

    @property
    def path(self) -> str:
        """The numbers of the rows above and of this one, each counted from 0 below its own parent."""
        if not self._path:
            above = "" if self._parent is None else self._parent.path + self._treegrid.path_sep
            self._path = f"{above}{self._number}"
        return self._path

    def asdict(self) -> Dict[str, Any]:
        """Returns the cells by column name in the form of TreeGrid.sanitize_name."""
        found: Dict[str, Any] = self._treegrid.RowStructure(*self.values)._asdict()
        return found


class RowGrid(renderers.TreeGrid):
    """A grid of rows that accepts whatever Volatility's accepts.

    It keeps the rows, unless a renderer populates it that can print each while it is made (`streaming`): then
    a row of the top level is gone when the next one comes, and one below it, too. `level` says whether it is
    known that no row is below another.
    """

    level = False
    _keeps = True

    def populate(
        self, function: Any = None, initial_accumulator: Any = None, fail_on_errors: bool = True
    ) -> Optional[Exception]:
        """Reads the rows as Volatility's grid does."""
        streaming = visitor(self, function, initial_accumulator)
        # Of rows that are not kept: the number of rows so far at each depth, below the last row above it.
        self._counts: List[int] = []
        self._keeps = streaming is None
        return super().populate(streaming or function, initial_accumulator, fail_on_errors)

    def _append(self, parent: Optional[interfaces.renderers.TreeNode], values: Any) -> RowNode:
        """Adds a row below another row, or at top level."""
        above = parent if isinstance(parent, RowNode) else None
        if not self._keeps:
            # The row above does not refer to the one below: only the collector of cycles would free them.
            depth = 0 if above is None else above.path_depth
            number = self._counts[depth] if depth < len(self._counts) else 0
            self._counts[depth:] = [number + 1]
            if above is not None:
                above.passed = number + 1
            return RowNode(number, self, above, values)
        if above is None:
            beside: List[Any] = self._children
        else:
            above.below = beside = above.below or []
        node = RowNode(len(beside), self, above, values)
        beside.append(node)
        return node

    def _find_children(self, node: Optional[interfaces.renderers.TreeNode]) -> _Below:
        return _pairs(node.below if isinstance(node, RowNode) else self._children)


def _pairs(rows: Sequence[Any]) -> _Below:
    return ((row, _pairs(row.below)) for row in rows)
