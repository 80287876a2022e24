# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

"""The constant rows that plugins are measured against have the columns and types of these plugins."""

from __future__ import annotations

import pytest

from benchmarks.plugins.windows.floor import LIKE, Floor
from tests.forge import context, sample


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> context.Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("ours", [False, True])
def test_the_rows_fit_their_columns(like: str, ours: bool, opened: context.Opened) -> None:
    columns, *rows = LIKE[like]
    grid = opened.construct(Floor, like=like, ours=ours, rows=2, children=3, frames=4).run()
    grid.populate()
    assert grid.row_count == 2 * (1 + 3)
    assert [column.name for column in grid.columns] == [name for name, _ in columns]
    assert not {name for row in rows for name in row} - {name for name, _ in columns}
