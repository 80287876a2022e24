# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grid of the plugins, against Volatility's own."""

from __future__ import annotations

import contextlib
import io
import weakref
from typing import Any, Iterator, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.cli import text_renderer
from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from tests.support.only import only
from winstacks.rows.treegrid import RowGrid, RowNode

COLUMNS: List[Tuple[str, Any]] = [("PID", int), ("Address", format_hints.Hex), ("File output", str)]
RENDERERS: List[Any] = [
    text_renderer.QuickTextRenderer,
    text_renderer.NoneRenderer,
    text_renderer.CSVRenderer,
    text_renderer.PrettyTextRenderer,
    text_renderer.JsonRenderer,
    text_renderer.JsonLinesRenderer,
]

STREAMING: List[Any] = [*RENDERERS[:3], text_renderer.JsonLinesRenderer]

cells = st.tuples(
    st.integers(0, 9),
    st.one_of(st.integers(0, 1 << 64).map(format_hints.Hex), st.just(renderers.NotAvailableValue())),
    st.one_of(st.text(max_size=5), st.just(renderers.NotApplicableValue())),
)
rows = st.lists(st.tuples(st.integers(0, 3), cells), max_size=12)


def printed(renderer: Any, grid: interfaces.renderers.TreeGrid) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        renderer().render(grid)
    return stream.getvalue()


@pytest.mark.parametrize("renderer", RENDERERS, ids=lambda renderer_class: str(renderer_class.name))
@given(rows=rows)
def test_renderers_print_the_same(renderer: Any, rows: List[Any]) -> None:
    assert printed(renderer, RowGrid(COLUMNS, iter(rows))) == printed(
        renderer, renderers.TreeGrid(COLUMNS, iter(rows))
    )


@pytest.mark.parametrize("renderer", RENDERERS, ids=lambda renderer_class: str(renderer_class.name))
def test_rows_that_are_printed_at_once_are_not_kept(renderer: Any) -> None:
    """While the last row is made, the grid has few rows before it; other renderers come back to all."""
    alive: List[int] = []
    nodes: List["weakref.ref[RowNode]"] = []
    paths: List[str] = []

    class Watched(RowGrid):
        def _append(self, parent: Any, values: Any) -> RowNode:
            node = super()._append(parent, values)
            nodes.append(weakref.ref(node))
            paths.append(node.path)
            return node

    def made() -> Iterator[Any]:
        for number in range(100):
            yield 0, (number, format_hints.Hex(number), "")
            yield 1, (number, format_hints.Hex(number), "below")
            yield 1, (number, format_hints.Hex(number), "below")
            yield 2, (number, format_hints.Hex(number), "deep")
        alive.append(sum(node() is not None for node in nodes))

    grid = Watched(COLUMNS, made())
    text = printed(renderer, grid)
    assert grid.row_count == 400
    streams = renderer in STREAMING
    assert (only(alive) <= 4) == streams
    assert (len(grid.children(None)) == 0) == streams
    # A row that is not kept has the path that it would have.
    kept = RowGrid(COLUMNS, made())
    kept.populate()
    assert paths == kept.visit(None, lambda node, found: [*found, node.path], [])
    assert text == printed(renderer, kept)


def _nodes(grid: interfaces.renderers.TreeGrid) -> Iterator[Tuple[Any, ...]]:
    every: List[Any] = grid.visit(None, lambda node, found: [*found, node], [])
    for node in every:
        children = [child.path for child in grid.children(node)]
        parent = node.parent.path if node.parent else None
        yield node.path, node.path_depth, node.values, node.asdict(), parent, children, len(node)
        assert [child.path for child in node[0:]] == children


@given(rows=rows)
def test_a_grid_can_be_visited_after_it_was_read(rows: List[Any]) -> None:
    ours, theirs = RowGrid(COLUMNS, iter(rows)), renderers.TreeGrid(COLUMNS, iter(rows))
    ours.populate()
    theirs.populate()
    assert list(_nodes(ours)) == list(_nodes(theirs))
    assert (ours.row_count, ours.max_depth()) == (theirs.row_count, theirs.max_depth())
    key, other = renderers.ColumnSortKey(ours, "PID"), renderers.ColumnSortKey(theirs, "PID")

    def collect(node: Any, found: List[str]) -> List[str]:
        return [*found, node.path]

    assert ours.visit(None, collect, [], key) == theirs.visit(None, collect, [], other)


def test_a_node_says_what_it_is() -> None:
    grid = RowGrid(COLUMNS, iter([(0, (4, format_hints.Hex(16), ""))]))
    grid.populate()
    node = only(grid.children(None))
    assert isinstance(node, RowNode)
    assert repr(node) == "<RowNode [0] - [4, 16, '']>"
