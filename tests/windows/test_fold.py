# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""--fold: one row a stack, with what its frame rows say in one text."""

from __future__ import annotations

from typing import Any, List

import pytest

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.support import grid
from tests.support.grid import Node
from tests.windows.test_columns import CLASSES, STACKS

FRAME = ("Frame", "Sp", "Address", "Symbol", "Source", "Backing", "How")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("fold"))


def stack(node: Node) -> Any:
    """What Stack says of the frames below a row; those of a thread that waits for a lock are its own."""
    symbols = [
        f"<{row['Status']}>" if row["Symbol"] is None else row["Symbol"]
        for row in node.children
        if row["Frame"] is not None and not _waits(row)
    ]
    return "; ".join(symbols) or None


def _waits(row: Any) -> bool:
    """Whether a row below a lock is of a thread that waits for it."""
    return "OwnerRole" in row and row["TID"] is not None


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_is_one_row(name: str, opened: Opened) -> None:
    plain = grid.run(opened, CLASSES[name])
    folded = grid.run(opened, CLASSES[name], fold=True)
    assert [node.row["Stack"] for node in folded] == [stack(node) for node in plain]
    assert any(node.row["Stack"] for node in folded)
    assert {node.row["Stack"] for node in plain} == {None}
    for before, after in zip(plain, folded):
        changed = {column for column in before.row if before.row[column] != after.row[column]}
        assert changed <= {"Stack", "Status"}
        below = [row for row in before.children if row["Frame"] is None]
        assert below == [{**row, "Stack": None} for row in after.children]
        waiting = [row["Stack"] for row in after.children if row.get("OwnerRole") == "waiter"]
        assert all(waiting)
        if "Status" in changed:
            assert any(row["Status"] == "unsure" for row in before.children)
            assert after.row["Status"].endswith("unsure")


@pytest.mark.parametrize("name", STACKS)
def test_no_row_is_empty(name: str, opened: Opened) -> None:
    """A row of `waits` has the Symbol of its first frame that says something."""
    rows: List[Any] = [node.row for node in grid.run(opened, CLASSES[name], fold=True)]
    frame = [column for column in FRAME if (name, column) != ("waits", "Symbol")]
    for row in rows:
        assert all(row[column] is None for column in frame if column in row)
        assert any(row[column] is not None for column in row if column != "Status")


@pytest.mark.parametrize("name", STACKS)
def test_what_is_selected_is_the_same(name: str, opened: Opened) -> None:
    for options in ({"unbacked": True}, {"find": "*!*a*"}):
        plain = grid.run(opened, CLASSES[name], **options)
        folded = grid.run(opened, CLASSES[name], fold=True, **options)
        assert [node.row["Stack"] for node in folded] == [stack(node) for node in plain]
