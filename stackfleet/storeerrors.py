# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Faults of the storage of a lake, and the errors of its libraries as such faults."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

import pyarrow as pa

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class StoreError(Exception):
    """A table that cannot be read or written; the text gives the reason."""


class ConflictError(StoreError):
    """Another writer changed rows of the same images."""


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns the errors of Delta, Arrow and the system into a StoreError with one line."""
    from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

    try:
        yield
    except CommitFailedError as error:
        raise ConflictError(first_line(error)) from error
    except (
        DeltaError,
        DeltaProtocolError,
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
    ) as error:
        raise StoreError(first_line(error)) from error


_CAUSE = re.compile(r"\s*(?:\x1b\[\d+m)?\u21b3(?:\x1b\[0m)? (.*)")
"""A line with a cause, below the error of an object store: an arrow, in a color, and the cause."""
MOST_CAUSES = 3
"""Further ones are the text of a server; the code of its error is kept."""
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
"""The code in an answer of S3 or Azure Blob Storage, such as NoSuchBucket."""


def first_line(error: BaseException) -> str:
    """Returns the reason of an error in one line, as the system states it if it does."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    number = _OS_ERROR.search(str(error))
    if number:
        return os.strerror(int(number[1]))
    lines = str(error).splitlines()
    causes = [match[1] for match in map(_CAUSE.fullmatch, lines[1:]) if match]
    return (
        ": ".join([*lines[:1], *causes[:MOST_CAUSES], *_CODE.findall(str(error))[:1]]) or type(error).__name__
    )
