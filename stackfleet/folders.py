# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Files below a folder that somebody else may have written: no link is followed, nothing but files is opened.

Paths are given as the names below the folder, so that each of them can be looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import stat
import time
from typing import Optional

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NAME_SURROGATE = 0x20000000
"""The bit of a reparse tag that says so (Microsoft Learn, "Reparse Point Tags"); cloud folders lack it."""
_IN_USE = (5, 32)
"""ERROR_ACCESS_DENIED and ERROR_SHARING_VIOLATION."""
_PAUSES = (0.01, 0.05, 0.2, 0.5, 1.0)
"""Seconds to wait for a reader."""


class OutsideError(OSError):
    """A name that is no folder or no file, or a link, which may lead anywhere."""


def folder(root: pathlib.Path, *names: str) -> Optional[pathlib.Path]:
    """Returns a folder below another one; None if there is none.

    Raises:
        OutsideError: on the way there is something else than a folder
        OSError: it cannot be looked at
    """
    path = root
    for name in names:
        path = path / name
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(found.st_mode) or _leads_away(found):
            raise OutsideError(errno.ENOTDIR, f"{_kind(found)} and no folder", str(path))
    return path


def make_folder(root: pathlib.Path, *names: str) -> pathlib.Path:
    """Returns a folder below another one, which is made where there is none; see `folder`."""
    root.mkdir(parents=True, exist_ok=True)
    for count in range(1, len(names) + 1):
        if folder(root, *names[:count]) is None:
            with contextlib.suppress(FileExistsError):
                root.joinpath(*names[:count]).mkdir()
            folder(root, *names[:count])
    return root.joinpath(*names)


def listed(root: pathlib.Path, *names: str) -> list[str]:
    """Returns the names in a folder below another one; none if it is a link, or cannot be read."""
    with contextlib.suppress(OSError):
        found = folder(root, *names)
        if found is not None:
            return os.listdir(found)
    return []


def size(root: pathlib.Path, *names: str) -> int:
    """Returns the bytes of a regular file below a folder.

    Raises:
        OutsideError: it is something else, or on the way there is something else than a folder
        OSError: there is none, or it cannot be looked at
    """
    if folder(root, *names[:-1]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root.joinpath(*names)))
    path = root.joinpath(*names)
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or _leads_away(found):
        raise OutsideError(errno.EINVAL, f"{_kind(found)} and no file", str(path))
    return found.st_size


def read(root: pathlib.Path, *names: str, most: int) -> bytes:
    """Returns the content of a regular file below a folder; see `size`.

    Args:
        root: the folder
        names: those below it
        most: more bytes than these are not read

    Raises:
        OSError: see `size`, or the file is larger
    """
    size(root, *names)
    path = root.joinpath(*names)
    with open(os.open(path, _READ | _NO_LINK), "rb") as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OutsideError(errno.EINVAL, f"{_kind(found)} and no file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"{found.st_size} bytes are more than {most}", str(path))
        return stream.read(most)


def remove(root: pathlib.Path, *names: str) -> None:
    """Removes a file or a link below a folder.

    What lies behind a link stays as it is, and what cannot be removed does, too.
    """
    with contextlib.suppress(OSError):
        if folder(root, *names[:-1]) is not None:
            root.joinpath(*names).unlink()


def replace(temporary: pathlib.Path, path: pathlib.Path) -> None:
    """Gives a file the name of another in one step.

    Windows refuses that while somebody reads the other one; who reads a file of a lake soon has it read.

    Raises:
        OSError: it cannot be done; the file that has the name is as it was
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


def sync(path: pathlib.Path) -> None:
    """Returns when a file, or the names in a folder, are on the disk, where the system can say that.

    Raises:
        OSError: a file cannot be opened or written
    """
    whole = path.is_dir()
    try:
        held = os.open(path, os.O_RDONLY if whole or os.name != "nt" else os.O_RDWR)
    except OSError:
        if whole:
            # Windows opens no folders.
            return
        raise
    try:
        os.fsync(held)
    except OSError:
        # Some network file systems sync files, and no folders.
        if not whole:
            raise
    finally:
        os.close(held)


def _leads_away(found: os.stat_result) -> bool:
    """Returns whether a name stands for another one without being a link: a junction of Windows."""
    return bool(getattr(found, "st_reparse_tag", 0) & _NAME_SURROGATE)


def _kind(found: os.stat_result) -> str:
    if _leads_away(found):
        return "a junction"
    kinds = ((stat.S_ISLNK, "a link"), (stat.S_ISDIR, "a folder"), (stat.S_ISREG, "a file"))
    return next((name for test, name in kinds if test(found.st_mode)), "a pipe, socket or device")
