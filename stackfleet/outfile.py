# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The destination of what commands print: a file that the user names, or standard output."""

from __future__ import annotations

import contextlib
import os
import sys
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
    unfinished = path
    # A link or a device, such as /dev/stdout, is written itself.
    if not os.path.islink(path) and (os.path.isfile(path) or not os.path.exists(path)):
        unfinished = f"{path}.{uuid.uuid4().hex}.part"
    try:
        with open(unfinished, "wb") as stream:
            yield stream
        os.replace(unfinished, path)
    finally:
        if unfinished != path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)


def say(text: str) -> None:
    """Writes lines to standard output.

    Raises:
        WrongUseError: they cannot be written
        BrokenPipeError: the reader has closed standard output
    """
    with opened("") as stream:
        stream.write(f"{text}\n".encode("utf-8", "backslashreplace"))
