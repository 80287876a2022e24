# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The identity of files: probes, digests of whole files, times in the form of manifests."""

from __future__ import annotations

import datetime
import errno
import hashlib
import os
import pathlib
import stat
from typing import IO, Callable, Union

CHUNK = 1 << 20
_PIECE = 1 << 16
_PIECES = 64


_NO_WAIT = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _opened(path: Union[str, pathlib.Path]) -> IO[bytes]:
    """Returns a file opened for reading; a pipe, which could block its reader forever, is refused.

    Raises:
        OSError: the path is no file, or cannot be read
    """
    descriptor = os.open(path, _NO_WAIT)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return open(descriptor, "rb")


def shown(text: str) -> str:
    """Returns a path or an argument as a text that UTF-8 can encode: other bytes are escaped."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def now() -> str:
    """Returns the time in UTC, in ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")


def sha256(path: Union[str, pathlib.Path], poll: Callable[[], None] = lambda: None) -> str:
    """Returns the SHA-256 of a whole file, as `sha256sum` prints it.

    Args:
        poll: function that is called regularly; may raise to end the computation

    Raises:
        OSError: the file cannot be read
    """
    whole = hashlib.sha256()
    with _opened(path) as stream:
        while data := stream.read(CHUNK):
            whole.update(data)
            poll()
    return whole.hexdigest()


def probe(path: str) -> str:
    """Returns a digest of a file's size, ends and some pieces, to compare the file on two machines.

    Raises:
        OSError: the file cannot be read
    """
    with _opened(path) as stream:
        size = stream.seek(0, os.SEEK_END)
        whole = hashlib.sha256(size.to_bytes(8, "little"))
        for number in range(_PIECES + 1):
            stream.seek(max(size - _PIECE, 0) * number // _PIECES)
            whole.update(stream.read(_PIECE if number in (0, _PIECES) else 4096))
    return whole.hexdigest()[:32]


def difference(path: str, size: int, seen: str) -> str:
    """Returns in words how a file differs from the file at the start of the run; empty if it does not.

    Args:
        size: size in bytes at the start of the run
        seen: probe then
    """
    try:
        size_here = os.stat(path).st_size
        if size_here != size:
            return f"{path} has {size_here} bytes, but {size} at the start of the run"
        if probe(path) != seen:
            return f"{path} has other content than at the start of the run"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return ""
