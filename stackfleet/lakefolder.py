# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake in a folder: what is checked before Delta reads it, and what waits for the disk after Delta wrote.

The folder may come from somebody else. Links lead out of it, pipes keep a reader waiting, and a log may be
larger than any memory.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Callable, Union

from winstacks.names.filefolders import leads_away

from .storeerrors import StoreError

LOG = "_delta_log"
MOST_FILES = 1 << 20
"""The most files of a lake."""
MOST_LOG_BYTES = 1 << 30
"""The most bytes of the log that are read: its newest checkpoint and later commits."""
MOST_ACTIONS = 1 << 22
"""The most rows of a checkpoint, and values of a column of its row groups."""
UNSYNCED = 60
"""Seconds after which the system has written a commit to the disk, whatever became of its writer."""
MOST_COMMIT_BYTES = 1 << 24
"""The most bytes of another writer's commit that is synced; commits of images are far smaller."""
MOST_UNFOLDED = 1 << 30
"""The most bytes to which a checkpoint unfolds."""

_synced: set[str] = set()
"""Paths of recent commits that this process has synced."""
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint(\.\d{10}\.\d{10})?\.parquet")
_WHOLE = len(f"{0:020}.checkpoint.parquet")
_LATER = re.compile(r"\d{20}\.checkpoint\.(?!(\d{10}\.\d{10}\.)?parquet).*\.(parquet|json)")
"""Names of checkpoints in later forms of Delta, which lead to further files."""
_READ = re.compile(r"\d{20}\.|_last")
"""How the names of what Delta reads in a log begin."""


class FullError(OSError):
    """A disk that has too little room."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def has_log(folder: pathlib.Path, partition: str) -> bool:
    """Returns whether a folder has a lake: commits or a checkpoint, torn or whole, or files that lost theirs.

    Delta makes the folder of a log before its first commit, and a writer may be killed between the two.

    Args:
        partition: name of the column by which the table is partitioned
    """
    log = folder / LOG
    if not log.is_dir():
        return False
    try:
        if leads_away(log.lstat()) or any(True for _ in _parts(folder, partition)):
            return True
        return any(form.fullmatch(name) for name in os.listdir(log) for form in (_COMMIT, _CHECKPOINT))
    except OSError:  # The reader that follows says why.
        return True


def look_at_log(folder: pathlib.Path) -> tuple[int, list[str]]:
    """Checks the log of a lake; returns the version of its last whole commit, and the torn ones behind it.

    Raises:
        StoreError: the log has links, needs further logs, or is larger than the limits
        OSError: it cannot be read
    """
    log, torn = folder / LOG, []
    found: dict[str, int] = {}
    if not log.is_dir() or leads_away(log.lstat()):
        raise StoreError(f"there is no lake: it would have a folder '{LOG}'")
    for entry, info in _listed(log):
        if _READ.match(entry.name) and not _is_file(info):
            raise StoreError(f"{LOG}/{entry.name} is a link, not a file")
        found[entry.name] = info.st_size
    look_at_names(found, lambda name: (log / name).open("rb"))
    versions = sorted({int(name[:20]) for name in found if _COMMIT.fullmatch(name)})
    while versions and not _is_whole(log / f"{versions[-1]:020}.json"):
        torn.append(f"{versions.pop():020}.json")
    newest = versions or [int(name[:20]) for name in found if _CHECKPOINT.fullmatch(name)]
    if not newest:
        raise StoreError("none of its commits can be read")
    return max(newest), torn


def look_at_names(found: Mapping[str, int], opened: Callable[[str], BinaryIO]) -> None:
    """Checks what a log has that Delta may read: checkpoints that end later than the newest in one file.

    Delta skips a checkpoint that lacks a part.

    Args:
        found: sizes of its files, by name
        opened: opens a file

    Raises:
        StoreError: it needs further logs, or is larger than the limits
        OSError: it cannot be read
    """
    if any(name == "_sidecars" or _LATER.fullmatch(name) for name in found):
        raise StoreError("it requires features of Delta that lakes do not use")
    checkpoints = [name for name in found if _CHECKPOINT.fullmatch(name)]
    start = max((name for name in checkpoints if len(name) == _WHOLE), default="")[:20]
    if sum(size for name, size in found.items() if name[:20] >= start) > MOST_LOG_BYTES:
        raise StoreError(f"its log has more than {MOST_LOG_BYTES:,} bytes")
    for name in checkpoints:
        if name[:20] >= start:
            with opened(name) as file:
                _look_at_checkpoint(name, file)


def sizes(folder: pathlib.Path, partition: str) -> dict[str, int]:
    """Returns the sizes in bytes of the files of tables, by path below the lake; links are left out.

    Args:
        partition: name of the column by which the table is partitioned

    Raises:
        StoreError: there are more files than the limit
        OSError: a folder cannot be read
    """
    found: dict[str, int] = {}
    for part, is_own in _parts(folder, partition):
        if not is_own:
            continue
        for entry, info in _listed(part):
            if _is_file(info):
                found[f"{part.name}/{entry.name}"] = info.st_size
                if len(found) > 2 * MOST_FILES:
                    raise StoreError(f"it has more than {MOST_FILES:,} files")
    return found


def refuse_links(folder: pathlib.Path, partition: str) -> None:
    """Checks that what is written into the folders of tables stays in the lake.

    Args:
        partition: name of the column by which the table is partitioned

    Raises:
        StoreError: the folder of a table is a link
        OSError: the lake cannot be read
    """
    for part, is_own in _parts(folder, partition):
        if not is_own:
            raise StoreError(f"{part.name} is a link, not a folder")


def refuse_full(folder: pathlib.Path, wanted: int) -> None:
    """Checks that the disk has room before Delta writes: where it ends, Delta's threads panic on stderr.

    Args:
        wanted: bytes

    Raises:
        FullError: the disk has less room
    """
    free = shutil.disk_usage(folder).free
    if free < wanted:
        reason = f"{free >> 10:,} KiB are free on its disk, and {wanted >> 10:,} KiB are wanted"
        raise FullError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {reason}", str(folder))


def refuse_read_only(folder: pathlib.Path) -> None:
    """Checks that a commit can be written, into the log or its folder, before a thread of Delta panics.

    Raises:
        OSError: no file can be made there
    """
    log = folder / LOG
    with tempfile.TemporaryFile(dir=log if log.is_dir() else folder):
        pass


def _parts(folder: pathlib.Path, partition: str) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """Yields the folders of tables, and whether each is a folder of this lake, no link and no file."""
    for part, info in _listed(folder):
        if part.name.startswith(f"{partition}="):
            yield part, stat.S_ISDIR(info.st_mode) and not leads_away(info)


def _listed(folder: Union[str, os.PathLike[str]]) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """Yields what a folder has, without a file that another writer removes meanwhile: its temporary files."""
    for entry in os.scandir(folder):
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield entry, info


def sync_commits(folder: pathlib.Path, before: int, data_file: re.Pattern[str]) -> None:
    """Returns when the commits after a version, their files and their folders are on the disk.

    So are the commits shortly before it, which other writers may not have synced yet.

    Args:
        before: the version
        data_file: the form of the names of files below the lake

    Raises:
        OSError: a file cannot be written
    """
    log, touched = folder / LOG, {folder}
    recent, now = set(), time.time()
    for entry, info in list(_listed(log)):
        match = _COMMIT.fullmatch(entry.name)
        if not match:
            continue
        if now - info.st_mtime < UNSYNCED and info.st_size < MOST_COMMIT_BYTES:
            recent.add(entry.path)
        if int(match[1]) <= before and entry.path not in recent - _synced:
            continue
        for path in filter(data_file.fullmatch, _added(pathlib.Path(entry.path))):
            with contextlib.suppress(FileNotFoundError):
                sync(folder / path)
            touched.add(folder.joinpath(path).parent)
        sync(pathlib.Path(entry.path))
    # The first commit may be in new folders.
    for place in (*touched, log, *(folder.parents if before < 0 else ())):
        sync(place)
    _synced.intersection_update(recent)
    _synced.update(recent)


def _added(commit: pathlib.Path) -> Iterator[str]:
    """Yields the paths of the files that a commit adds; the commit may be somebody else's."""
    for line in commit.read_bytes().splitlines():
        with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
            yield str(json.loads(line)["add"]["path"])


def sync_checkpoints(folder: pathlib.Path) -> None:
    """Returns when the checkpoints of a lake are on the disk, and behind them the file that names the last.

    Raises:
        OSError: a file cannot be written
    """
    log = folder / LOG
    parts = [log / name for name in os.listdir(log) if _CHECKPOINT.fullmatch(name)]
    for place in (*parts, log, log / "_last_checkpoint", log):
        sync(place)


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


def _is_file(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) and not leads_away(info)


def _look_at_checkpoint(name: str, file: BinaryIO) -> None:
    """Checks a checkpoint, which Delta reads whole and without a limit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from .parquetpages import UnfoldingError, look_at

    unfolded = 0
    try:
        looked = look_at(file)
        if looked.most_values > MOST_ACTIONS:
            raise StoreError(f"{name} has more than {MOST_ACTIONS:,} rows, or so many in a list")
        with pq.ParquetFile(file, metadata=looked.footer.plain()) as parquet:
            for batch in parquet.iter_batches(looked.at_a_time):
                unfolded += batch.nbytes
                if unfolded > MOST_UNFOLDED:
                    raise StoreError(f"{name} unfolds to more than {MOST_UNFOLDED:,} bytes")
    except UnfoldingError as error:
        raise StoreError(f"{name}: {error}") from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{name} cannot be read") from error


def _is_whole(path: pathlib.Path) -> bool:
    """Returns whether a commit can be read to its end."""
    try:
        lines = path.read_bytes().splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except (ValueError, RecursionError):
        return False
