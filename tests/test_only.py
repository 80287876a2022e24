# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A failure shows the rows that there were."""

from __future__ import annotations

import ast
import pathlib
from typing import List

import pytest

from tests.conftest import ROOT
from tests.support.only import MOST_SHOWN, only, rows_of


def test_as_many_as_expected() -> None:
    assert only(row for row in [{"PID": 4}]) == {"PID": 4}
    assert rows_of(2, (1, 2)) == [1, 2]
    assert rows_of(0, []) == []


def test_a_failure_shows_what_there_is() -> None:
    with pytest.raises(AssertionError) as failure:
        only([{"PID": 4, "Status": "unreadable"}, {"PID": 1000, "Status": None}])
    first, *others = str(failure.value).splitlines()
    assert first == "expected 1, found 2:"
    assert others == ["  {'PID': 4, 'Status': 'unreadable'}", "  {'PID': 1000, 'Status': None}"]
    with pytest.raises(AssertionError, match=r"^expected 2, found 0$"):
        rows_of(2, [])


def test_of_many_rows_a_failure_shows_some() -> None:
    with pytest.raises(AssertionError) as failure:
        only("a" * 5000 for _ in range(MOST_SHOWN + 3))
    *shown, rest = str(failure.value).splitlines()[1:]
    assert (len(shown), rest) == (MOST_SHOWN, "  and 3 more")
    assert max(map(len, shown)) < 1000


def unpacked(path: pathlib.Path) -> List[str]:
    """The places in a file of tests where a list of one is unpacked: a failure does not say what it held."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], (ast.List, ast.Tuple))
        and len(node.targets[0].elts) == 1
        and "unpack" not in ast.unparse(node.value)
    ]


def test_no_test_unpacks_a_list_of_one() -> None:
    assert not [place for path in (ROOT / "tests").rglob("test_*.py") for place in unpacked(path)]
