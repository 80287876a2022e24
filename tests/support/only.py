# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Takes as many rows as a test expects. If there are more or fewer, the failure shows what there was."""

from __future__ import annotations

import reprlib
from typing import Iterable, List, TypeVar

T = TypeVar("T")

MOST_SHOWN = 20
"""The most rows that a failure shows."""

_SHORT = reprlib.Repr()
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = 60
_SHORT.maxlevel = 4
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 300


def only(rows: Iterable[T]) -> T:
    """Returns the one row that there is; an AssertionError shows the rows if there is another number."""
    __tracebackhide__ = True
    return rows_of(1, rows)[0]


def rows_of(count: int, rows: Iterable[T]) -> List[T]:
    """Returns all rows; an AssertionError shows them if they are not as many as expected."""
    __tracebackhide__ = True
    found = list(rows)
    if len(found) != count:
        shown = [f"\n  {_SHORT.repr(row)}" for row in found[:MOST_SHOWN]]
        more = len(found) - len(shown)
        rest = f"\n  and {more} more" if more else ""
        raise AssertionError(
            f"expected {count}, found {len(found)}{':' if found else ''}{''.join(shown)}{rest}"
        )
    return found
