# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Locks a file for one process at a time, on Unix and on Windows."""

from __future__ import annotations

import importlib


def lock(descriptor: int) -> None:
    """Locks an open file for this process until the file is closed.

    Args:
        descriptor: file descriptor, opened for writing

    Raises:
        OSError: another process holds the lock
    """
    try:
        import fcntl
    except ImportError:
        # Windows locks ranges: one byte is enough, even of an empty file.
        windows = importlib.import_module("msvcrt")
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
