# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads files below a folder that somebody else may have written, without following links.

Paths are passed as the names below the folder, so that each of them can be checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import re
import stat
import time
from typing import Optional

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NAME_SURROGATE = 0x20000000
"""The bit of a reparse tag that marks a substitute for another name (Microsoft Learn, "Reparse Point Tags");
cloud folders lack it."""
_IN_USE = (5, 32)
"""ERROR_ACCESS_DENIED and ERROR_SHARING_VIOLATION."""
_PAUSES = (0.01, 0.05, 0.2, 0.5, 1.0)
"""Pauses in seconds while another process reads the file."""


class OutsideError(OSError):
    """A name that is not a folder or file, or that is a link, which may lead anywhere."""


def folder(root: pathlib.Path, *names: str) -> Optional[pathlib.Path]:
    """Returns a folder below another folder; None if it does not exist.

    Raises:
        OutsideError: a name on the path is not a folder
        OSError: the folder cannot be examined
    """
    path = root
    for name in names:
        path = path / name
        try:
            info = path.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(info.st_mode) or _leads_away(info):
            raise OutsideError(errno.ENOTDIR, f"{_kind(info)}, not a folder", str(path))
    return path


def make_folder(root: pathlib.Path, *names: str) -> pathlib.Path:
    """Returns a folder below another folder, and creates it if needed; see `folder`."""
    root.mkdir(parents=True, exist_ok=True)
    for count in range(1, len(names) + 1):
        if folder(root, *names[:count]) is None:
            with contextlib.suppress(FileExistsError):
                root.joinpath(*names[:count]).mkdir()
            folder(root, *names[:count])
    return root.joinpath(*names)


def list_names(root: pathlib.Path, *names: str) -> list[str]:
    """Returns the names in a folder below another folder; none if it is a link, or cannot be read."""
    with contextlib.suppress(OSError):
        path = folder(root, *names)
        if path is not None:
            return os.listdir(path)
    return []


def size(root: pathlib.Path, *names: str) -> int:
    """Returns the size in bytes of a regular file below a folder.

    Raises:
        OutsideError: the name is not a regular file, or a name on the path is not a folder
        OSError: the file does not exist, or cannot be examined
    """
    if folder(root, *names[:-1]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root.joinpath(*names)))
    path = root.joinpath(*names)
    info = path.lstat()
    if not stat.S_ISREG(info.st_mode) or _leads_away(info):
        raise OutsideError(errno.EINVAL, f"{_kind(info)}, not a file", str(path))
    return info.st_size


def sizes(root: pathlib.Path, *names: str, form: re.Pattern[str]) -> dict[str, int]:
    """Returns the sizes in bytes of the regular files of a folder whose names have a form; see `size`.

    The path of the folder is examined once, and not for each file.
    """
    path = folder(root, *names)
    if path is None:
        return {}
    found = {}
    with os.scandir(path) as entries:
        for entry in entries:
            if form.fullmatch(entry.name):
                info = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(info.st_mode) or _leads_away(info):
                    raise OutsideError(errno.EINVAL, f"{_kind(info)}, not a file", entry.path)
                found[entry.name] = info.st_size
    return found


def read(root: pathlib.Path, *names: str, most: int) -> bytes:
    """Returns the content of a regular file below a folder; see `size`.

    Args:
        root: the folder
        names: names below the folder
        most: the most bytes that are read

    Raises:
        OSError: see `size`; or the file is larger
    """
    size(root, *names)
    path = root.joinpath(*names)
    with open(os.open(path, _READ | _NO_LINK), "rb") as stream:
        info = os.fstat(stream.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OutsideError(errno.EINVAL, f"{_kind(info)}, not a file", str(path))
        if info.st_size > most:
            raise OSError(errno.EFBIG, f"its {info.st_size} bytes exceed the limit of {most}", str(path))
        return stream.read(most)


def remove(root: pathlib.Path, *names: str) -> None:
    """Removes a file or a link below a folder.

    The target of a link stays as it is. So does a file that cannot be removed.
    """
    with contextlib.suppress(OSError):
        if folder(root, *names[:-1]) is not None:
            root.joinpath(*names).unlink()


def replace(temporary: pathlib.Path, path: pathlib.Path) -> None:
    """Gives a file the name of another in one step.

    Windows refuses this while another process reads the target; a read of a lake's file does not take long.

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


def sync(path: pathlib.Path) -> None:
    """Returns after a file, or the names in a folder, are on the disk, as far as the system reports that.

    Raises:
        OSError: a file cannot be opened or written
    """
    whole = path.is_dir()
    try:
        descriptor = os.open(path, os.O_RDONLY if whole or os.name != "nt" else os.O_RDWR)
    except OSError:
        if whole:
            # Windows does not open folders.
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError:
        # Some network file systems sync files, but not folders.
        if not whole:
            raise
    finally:
        os.close(descriptor)


def _leads_away(info: os.stat_result) -> bool:
    """Returns whether a name is not a link and yet stands for another name, such as a junction of Windows."""
    return bool(getattr(info, "st_reparse_tag", 0) & _NAME_SURROGATE)


def _kind(info: os.stat_result) -> str:
    if _leads_away(info):
        return "a junction"
    kinds = ((stat.S_ISLNK, "a link"), (stat.S_ISDIR, "a folder"), (stat.S_ISREG, "a file"))
    return next((name for test, name in kinds if test(info.st_mode)), "a pipe, socket or device")
