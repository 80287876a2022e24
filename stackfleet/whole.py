# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Queries a lake without its damaged images."""

from __future__ import annotations

from typing import Callable, Optional

from .database import SqlError
from .lake import Contents, Depth, Lake, LakeError


class NothingLeftError(LakeError):
    """No image is left that a query can read.

    Attributes:
        contents: contents of the lake, with the damaged images
    """

    def __init__(self, error: LakeError, contents: Contents) -> None:
        super().__init__(str(error))
        self.contents = contents


def query(
    lake: Lake, run: Callable[[Contents], None], depth: Depth = Depth.SIZE, again: bool = True
) -> Contents:
    """Runs a query on the images of a lake that are not damaged; returns the contents that it had.

    Args:
        again: whether to search for damaged images after an error that files may have caused, and to repeat
            without them

    Raises:
        SqlError: DuckDB rejects the query
        NothingLeftError: the lake has no image that is done and not damaged
    """
    contents = lake.contents(depth)
    while True:
        try:
            run(contents)
            return contents
        except SqlError as error:
            closer_look = _more_damaged(lake, contents, depth) if again and error.of_files else None
            if closer_look is None:
                raise
            contents, depth = closer_look
        except LakeError as error:
            raise NothingLeftError(error, contents) from error


def _more_damaged(lake: Lake, contents: Contents, depth: Depth) -> Optional[tuple[Contents, Depth]]:
    """Returns the contents of a lake after a closer check; None if this finds no more damage."""
    for closer in Depth:
        if closer > depth:
            closer_contents = lake.contents(closer)
            if len(closer_contents.damaged) > len(contents.damaged):
                return closer_contents, closer
    return None
