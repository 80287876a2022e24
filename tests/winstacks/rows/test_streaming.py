# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Text, JSON lines and Parquet of rows that are not kept, against the output of Volatility's own grid."""

from __future__ import annotations

import contextlib
import datetime
import io
import sys
from types import FrameType, SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.cli import text_filter, text_renderer
from volatility3.framework import renderers
from volatility3.framework.renderers import format_hints

from tests.support.only import only
from winstacks.rows import streaming
from winstacks.rows.frames import StackCell
from winstacks.rows.grid import grid_of
from winstacks.rows.plugin import columns_tree
from winstacks.rows.treegrid import RowGrid

COLUMNS: List[Tuple[str, Any]] = [("PID", int), ("Address", format_hints.Hex), ("File output", str)]
ROWS = 100

cells = st.tuples(
    st.integers(0, 9),
    st.one_of(st.integers(0, (1 << 64) - 1).map(format_hints.Hex), st.just(renderers.NotAvailableValue())),
    st.one_of(st.text(max_size=5), st.just(renderers.NotApplicableValue())),
)
level_rows = st.lists(st.tuples(st.just(0), cells), max_size=12)
rows = st.one_of(
    level_rows,
    st.lists(st.tuples(st.integers(0, 3), cells), max_size=12),
    # The first row below another comes late.
    st.tuples(level_rows, st.lists(st.tuples(st.integers(0, 2), cells), max_size=4)).map(
        lambda parts: [*parts[0], *parts[1]]
    ),
)
filters = st.sampled_from([[], ["PID,3"], ["-PID,3"]])
hidden = st.sampled_from([None, ["Address"]])


def parquet_renderer() -> Any:
    """Volatility's renderer, which needs pyarrow."""
    return pytest.importorskip("volatility3.plugins.renderers.parquet_renderer").ParquetRenderer


@pytest.fixture(scope="module")
def parquet() -> Any:
    return parquet_renderer()


def printed(
    renderer: Any, grid: Any, chosen: Optional[List[str]] = None, hide: Optional[List[str]] = None
) -> bytes:
    """The output of a renderer with filters and hidden columns, set as `vol` sets them."""
    made, buffer = renderer(), io.BytesIO()
    made.filter = text_filter.CLIFilter(grid, chosen or [])
    made.column_hide_list = hide
    with contextlib.redirect_stdout(io.TextIOWrapper(buffer, "utf-8", write_through=True)):
        made.render(grid)
        return buffer.getvalue()


def table(file: bytes) -> Any:
    return pytest.importorskip("pyarrow.parquet").read_table(io.BytesIO(file))


@pytest.mark.parametrize("kind", [text_renderer.JsonLinesRenderer, text_renderer.QuickTextRenderer])
@given(rows=level_rows, chosen=filters, hide=hidden)
def test_lines_are_the_same_with_filters_and_hidden_columns(
    kind: Any, rows: Any, chosen: Any, hide: Any
) -> None:
    ours, theirs = (
        printed(kind, make(COLUMNS, iter(rows)), chosen, hide) for make in (RowGrid, renderers.TreeGrid)
    )
    assert ours == theirs


# A column for each type of our tables. A text may have a short form, and another with the same text another.
TYPES: Dict[Any, Any] = {
    int: st.integers(-1, 3),
    format_hints.Hex: st.integers(0, (1 << 64) - 1).map(format_hints.Hex),
    str: st.one_of(st.text(max_size=3), st.builds(StackCell, st.just("<a>"), st.text(max_size=3))),
    bool: st.booleans(),
    datetime.datetime: st.sampled_from([datetime.datetime(2020, 1, day, 3, 4, 5, day) for day in (1, 2)]),
}
absent = st.sampled_from([renderers.NotAvailableValue(), renderers.NotApplicableValue()])
all_cells = st.tuples(*(st.one_of(values, absent) for values in TYPES.values()))


@given(rows=st.lists(st.tuples(st.integers(0, 2), all_cells), max_size=12), chosen=filters)
def test_the_default_text_is_that_of_the_grid_of_volatility(rows: Any, chosen: Any) -> None:
    columns = [(kind.__name__, kind) for kind in TYPES]
    ours, theirs = (
        printed(text_renderer.QuickTextRenderer, make(columns, iter(rows)), chosen)
        for make in (RowGrid, renderers.TreeGrid)
    )
    assert ours == theirs


def test_a_row_of_the_default_text_takes_no_call_for_most_cells() -> None:
    columns = [(f"Column{number}", str if number % 2 else int) for number in range(20)]
    row = [str(number) if number % 2 else number for number in range(20)]
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == text_renderer.__file__

    grid = RowGrid(columns, iter([(0, tuple(row))] * ROWS))
    sys.setprofile(count)
    try:
        printed(text_renderer.QuickTextRenderer, grid)
    finally:
        sys.setprofile(None)
    assert calls < ROWS


@given(rows=rows, most=st.integers(1, 5))
def test_parquet_has_the_same_rows_in_parts(parquet: Any, rows: Any, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "ROW_GROUP", most)
        ours = table(printed(parquet, RowGrid(COLUMNS, iter(rows))))
    theirs = table(printed(parquet, renderers.TreeGrid(COLUMNS, iter(rows))))
    assert ours.schema == theirs.schema
    assert ours.to_pylist() == theirs.to_pylist()


@given(rows=level_rows, chosen=filters, hide=hidden, level=st.booleans())
def test_parquet_of_one_part_is_the_same_file(
    parquet: Any, rows: Any, chosen: Any, hide: Any, level: bool
) -> None:
    theirs = printed(parquet, renderers.TreeGrid(COLUMNS, iter(rows)), chosen, hide)
    assert printed(parquet, grid_of(COLUMNS, iter(rows), level), chosen, hide) == theirs


@given(rows=level_rows, most=st.integers(1, 5))
def test_parquet_that_goes_out_at_once_is_the_same_file(parquet: Any, rows: Any, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "ROW_GROUP", most)
        at_once, kept = (printed(parquet, grid_of(COLUMNS, iter(rows), level)) for level in (True, False))
    assert at_once == kept


def test_flat_tables_are_known_to_have_one_level() -> None:
    plugin = SimpleNamespace(config={})
    for table, level in (("traces", True), ("callstacks", False)):
        assert columns_tree(plugin, COLUMNS, (), iter(()), table).level is level


def made(depths: Tuple[int, ...], end: Callable[[], None]) -> Iterator[Any]:
    for number in range(ROWS):
        for depth in depths:
            yield depth, (number, format_hints.Hex(number), "x" * depth)
    end()


@pytest.mark.parametrize(
    ("depths", "level"), [((0,), False), ((0,), True), ((0, 1, 1, 2), False)], ids=["one", "level", "below"]
)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_collected_rows_are_printed_and_let_go(
    kind: str, depths: Tuple[int, ...], level: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the last row was made, the renderer has the rows of one part, and has printed those before."""
    monkeypatch.setattr(streaming, "ROW_GROUP", 8)
    renderer = text_renderer.JsonLinesRenderer if kind == "jsonl" else parquet_renderer()
    counted: List[int] = []
    written: List[int] = []
    stream = io.BytesIO()

    class Watched(RowGrid):
        collected: Any = None

        def populate(self, function: Any = None, initial_accumulator: Any = None, *more: Any) -> Any:
            self.collected = initial_accumulator
            return super().populate(function, initial_accumulator, *more)

    def end() -> None:
        counted.append(sum(map(len, grid.collected)))
        written.append(len(stream.getvalue()))

    grid = Watched(COLUMNS, made(depths, end))
    grid.level = level
    with contextlib.redirect_stdout(io.TextIOWrapper(stream, "utf-8", write_through=True)):
        renderer().render(grid)
        text = stream.getvalue()
    assert grid.row_count == ROWS * len(depths)
    # By path and at the top level: of JSON lines one row of the top level, of Parquet one part.
    assert only(counted) <= (len(depths) + 1 if kind == "jsonl" else 2 * (8 + len(depths)))
    held = kind == "parquet" and depths == (0,) and not level
    # Only a Parquet file that may still get two more columns waits for its end.
    assert (only(written) == 0) == held
    assert held or only(written) > len(text) // 4
    if kind == "parquet":
        groups = pytest.importorskip("pyarrow.parquet").ParquetFile(io.BytesIO(text)).num_row_groups
        assert groups >= ROWS * len(depths) // (8 + len(depths))
    else:
        assert text == printed(renderer, renderers.TreeGrid(COLUMNS, made(depths, lambda: None)))


@pytest.mark.parametrize("base", [text_renderer.JsonRenderer, text_renderer.JsonLinesRenderer])
def test_a_renderer_that_is_not_known_gets_all_rows_at_once(base: Any) -> None:
    outputs: List[int] = []

    class Other(base):
        def output_result(self, outfd: Any, result: Any) -> None:
            outputs.append(len(result))

    printed(Other, RowGrid(COLUMNS, made((0, 1), lambda: None)))
    assert outputs == [ROWS]


def test_a_row_that_cannot_be_made_ends_the_output_after_the_rows_before_it() -> None:
    def fail() -> None:
        raise ValueError("no row")

    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), pytest.raises(ValueError, match="no row"):
        text_renderer.JsonLinesRenderer().render(RowGrid(COLUMNS, made((0,), fail)))
    # The first line is empty; the last row would have been complete with the one behind it.
    assert len(stream.getvalue().splitlines()) == ROWS
