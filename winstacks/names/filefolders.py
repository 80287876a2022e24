# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Folders with files of modules: plain folders, and folders with the layout of a symbol server.

    FOLDER/ntdll.dll
    FOLDER/ntdll.dll/5EE7D1E51f6000/ntdll.dll       build folder: TimeDateStamp and SizeOfImage
    FOLDER/nt/ntdll.dll/5EE7D1E51f6000/ntdll.dll    the same in two tiers

Source of the layouts: Microsoft, "Debugging Tools for Windows", SymStore. The file names come from the image,
so no path is made of them: each is looked up among the names in a folder. Links and junctions below the
folder are not followed. Only regular files are opened, and without waiting.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from ..memory.decode.memo import Memo
from ..memory.decode.pagetable import round_to_pages
from ..memory.decode.records import NamedTuple
from ..memory.decode.text import last_part

MAX_ENTRIES = 1 << 16
"""Maximum number of names that are read of one folder."""

MAX_FILE = 1 << 31
"""Maximum bytes of a file: no image is larger."""

MAX_BUILDS = 1 << 8
"""Maximum number of build folders of one name that are tried if the image has no time stamp."""

MAX_SPELLINGS = 4
"""Maximum number of files in a folder that are tried for one name: their names differ in case only."""

_BUILD = re.compile(r"[0-9a-f]{8}[0-9a-f]{1,8}\Z")
"""The name of a build folder in lower case: TimeDateStamp and SizeOfImage."""
_KEPT = 1 << 10
"""Folders whose listings are kept."""
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NAME_SURROGATE = 0x20000000
"""The bit of a reparse tag that marks a link (Microsoft Learn, "Reparse Point Tags"). Tags of cloud folders
lack the bit."""

_LINK = "is a link, and links are not followed"


class Candidate:
    """A file that may belong to a module. `wrong` is the reason why the file cannot be opened, as the end of
    a sentence about it; empty if it can be."""

    def __init__(self, path: str, wrong: str = "") -> None:
        self.path = path
        self.wrong = wrong
        self._known: Tuple[int, ...] = ()

    def open_file(self) -> int:
        """Checks the file, and returns its size in bytes. The file is closed again. Raises OSError if the
        file is not a regular file, is too large, or cannot be read."""
        descriptor = os.open(self.path, _READ | _NO_LINK)
        try:
            facts = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(0, "it is not a regular file")
        if facts.st_size > MAX_FILE:
            raise OSError(0, f"it has {facts.st_size} bytes")
        self._known = _identity(facts)
        return facts.st_size

    def read(self, offset: int, length: int) -> bytes:
        """Returns bytes of the file; empty if it is gone, or has changed since `open_file`."""
        try:
            descriptor = os.open(self.path, _READ | _NO_LINK)
        except OSError:
            return b""
        try:
            if _identity(os.fstat(descriptor)) != self._known:
                return b""
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, length)
        except OSError:
            return b""
        finally:
            os.close(descriptor)


class _Entry(NamedTuple):
    """A name in a folder: `kind` is one of `_FOLDER`, `_FILE`, `_AWAY` and `_OTHER`."""

    name: str
    kind: str


_FOLDER, _FILE, _AWAY, _OTHER = "folder", "file", "link", "other"

_Builds = Sequence[Tuple[int, int]]

_Listing = Dict[str, List[_Entry]]
"""Names by their lower case: Windows ignores case when it compares names."""


class FileFolder:
    """Finds files in a folder of --binaries. `path` is the path of the folder. A link in this place is
    followed, because the examiner chose it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._listings: Memo[str, _Listing] = Memo(_list_folder, _KEPT)

    def candidates(self, names: Sequence[str], builds: Sequence[Tuple[int, int]]) -> Iterator[Candidate]:
        """Yields the files that may belong to a module, and links in place of such files.

        Args:
            names: file names from the image: only the last component of each counts
            builds: pairs of TimeDateStamp and SizeOfImage in bytes; if empty, all builds are tried. Sizes
                are compared in whole pages: a loader's list has them rounded, a symbol server does not
        """
        pages = [(stamp, round_to_pages(size)) for stamp, size in builds]
        for name in dict.fromkeys(map(last_component, names)):
            if not name:
                continue
            yield from self._files_in_folder(self._path, name, pages)
            for tier in self._listings[self._path].get(name[:2], ()):
                if tier.kind == _FOLDER and tier.name.lower() != name:
                    yield from self._files_in_folder(os.path.join(self._path, tier.name), name, pages)

    def keyed(self, name: str, key: str) -> Iterator[Candidate]:
        """Yields the files with a name, plain or in the folder `key` of a symbol server, as PDBs have. `key`
        is the name of the build folder, in any case."""
        last = last_component(name)
        folders = [self._path] if last else []
        for tier in self._listings[self._path].get(last[:2], ()) if last else ():
            if tier.kind == _FOLDER and tier.name.lower() != last:
                folders.append(os.path.join(self._path, tier.name))
        for folder in folders:
            for entry in self._listings[folder].get(last, ()):
                path = os.path.join(folder, entry.name)
                if entry.kind == _FOLDER:
                    yield from self._in_builds(path, last, [key.lower()])
                else:
                    yield _candidate(path, entry.kind)

    def _files_in_folder(self, folder: str, name: str, builds: _Builds) -> Iterator[Candidate]:
        """Yields the files with a name in a folder, or in build folders below it."""
        for number, entry in enumerate(self._listings[folder].get(name, ())):
            path = os.path.join(folder, entry.name)
            if number >= MAX_SPELLINGS:
                yield Candidate(
                    path, f"is one of more than {MAX_SPELLINGS} files whose names differ in case only"
                )
            elif entry.kind == _FOLDER:
                yield from self._files_in_builds(path, name, builds)
            else:
                yield _candidate(path, entry.kind)

    def _files_in_builds(self, folder: str, name: str, builds: _Builds) -> Iterator[Candidate]:
        """Yields the files with a name in the build folders of a symbol server's folder."""
        listing = self._listings[folder]
        keys = [key for key in listing if _build(key) in builds] if builds else list(listing)[:MAX_BUILDS]
        yield from self._in_builds(folder, name, keys)

    def _in_builds(self, folder: str, name: str, keys: Sequence[str]) -> Iterator[Candidate]:
        """Yields the files with a name in some build folders, whose names are in lower case."""
        listing = self._listings[folder]
        for key in keys:
            for build in listing.get(key, ()):
                path = os.path.join(folder, build.name)
                if build.kind == _AWAY:
                    yield Candidate(path, _LINK)
                elif build.kind == _FOLDER:
                    for entry in self._listings[path].get(name, ())[:MAX_SPELLINGS]:
                        yield _candidate(os.path.join(path, entry.name), entry.kind)


def _build(name: str) -> Optional[Tuple[int, int]]:
    """Returns the TimeDateStamp, and the SizeOfImage in whole pages, of a build folder; else None."""
    if not _BUILD.match(name):
        return None
    return int(name[:8], 16), round_to_pages(int(name[8:], 16))


def last_component(name: str) -> str:
    """Returns the last component of a name in lower case; empty if no file can have the name.

    Separators of Windows and of Unix count; a name with a drive, a stream or a control character is not
    valid.
    """
    last = last_part(name).lower()
    invalid = last in ("", ".", "..") or len(last) > 255 or not last.isprintable()
    return "" if invalid or set(last) & set(':*?"<>|') else last


def _candidate(path: str, kind: str) -> Candidate:
    return Candidate(path, {_FILE: "", _AWAY: _LINK}.get(kind, "is not a regular file"))


def _list_folder(folder: str) -> _Listing:
    """Returns the entries of a folder; empty if it cannot be read."""
    listing: _Listing = {}
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_ENTRIES:
                    break
                listing.setdefault(entry.name.lower(), []).append(_Entry(entry.name, _entry_kind(entry)))
    except OSError:
        return {}
    for same_names in listing.values():
        same_names.sort()
    return listing


def _entry_kind(entry: os.DirEntry[str]) -> str:
    """Returns the kind of a name in a folder, without following links."""
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError:
        return _OTHER
    if leads_away(facts):
        return _AWAY
    if stat.S_ISDIR(facts.st_mode):
        return _FOLDER
    return _FILE if stat.S_ISREG(facts.st_mode) else _OTHER


def leads_away(facts: os.stat_result) -> bool:
    """Returns whether a name is a link, or another substitute for a name, such as a junction of Windows."""
    return stat.S_ISLNK(facts.st_mode) or bool(getattr(facts, "st_reparse_tag", 0) & _NAME_SURROGATE)


def _identity(facts: os.stat_result) -> Tuple[int, ...]:
    """Returns the values that change if a path leads to another file, or the file is written."""
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns
