# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The destination of what commands print: a file that the user names, or standard output."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time
import uuid
from collections.abc import Iterator
from typing import IO

from .planning import WrongUseError


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Yields a file for writing; standard output if the path is empty.

    The file gets its name when it is whole: an error leaves no part of it, and an older file as it was.

    Raises:
        WrongUseError: the file cannot be written
        BrokenPipeError: the reader of standard output has closed it
    """
    try:
        with _standard_output() if not path else _file(path) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        where = path or "standard output"
        raise WrongUseError(f"{where} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    if sys.stdout is None:
        raise WrongUseError("standard output cannot be written: it is closed")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError:
        # When the program ends, Python would try again to write what is left, and end with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


@contextlib.contextmanager
def _file(path: str) -> Iterator[IO[bytes]]:
    # A link or a device, such as /dev/stdout, is written itself.
    itself = os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path))
    with open(path, "wb") if itself else whole_file(pathlib.Path(path)) as stream:
        yield stream


@contextlib.contextmanager
def whole_file(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Yields a new file for writing, which then takes a name in one step, also from a link.

    Raises:
        OSError: it cannot be written; what has the name is unchanged
    """
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with unfinished.open("xb") as stream:
            yield stream
        replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


_IN_USE = (5, 32)
"""ERROR_ACCESS_DENIED and ERROR_SHARING_VIOLATION."""
_PAUSES = (0.01, 0.05, 0.2, 0.5, 1.0)
"""Pauses in seconds while another process reads the file."""


def replace(temporary: pathlib.Path, path: pathlib.Path) -> None:
    """Gives a file the name of another in one step; Windows refuses this while another process reads that.

    Raises:
        OSError: the file could not be replaced; it is unchanged
    """
    for pause in _PAUSES:
        try:
            os.replace(temporary, path)
            return
        except OSError as error:
            if getattr(error, "winerror", None) not in _IN_USE:
                raise
        time.sleep(pause)
    os.replace(temporary, path)


def say(text: str) -> None:
    """Writes lines to standard output.

    Raises:
        WrongUseError: they cannot be written
        BrokenPipeError: the reader has closed standard output
    """
    with opened("") as stream:
        stream.write(f"{text}\n".encode("utf-8", "backslashreplace"))
