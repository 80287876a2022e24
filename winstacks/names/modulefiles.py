# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the file of a module among the files that the examiner gives with --binaries.

    image.providing(module_files)(GivenFiles(folders))
    file = image.service(module_files).find_file(claims)

Memory says which file a module has (`ModuleClaims`), and may be hostile: a name is only compared with the
names in a folder, and never opened as a path. A file with a module's name that is not the module's file is
not used, and the log names it with the reason. Without --binaries no file is searched; for a dump of one
process the log then names the files that would help.
"""

from __future__ import annotations

import logging
from typing import Dict, Optional, Sequence, Set, Tuple

from ..memory.decode import text
from ..memory.decode.memo import Memo
from ..memory.decode.pagetable import round_to_pages
from ..memory.decode.records import NamedTuple
from ..memory.image import Image
from .decode.pe import CodeView
from .decode.peimage import PeFileError, PeImage
from .filefolders import Candidate, FileFolder

vollog = logging.getLogger(__name__)

MAX_WARNINGS = 32
"""Messages that are logged as warnings; further ones appear with -v."""

MAX_FILES = 1 << 12
"""Parsed or rejected files that are kept, and messages that are logged: an image has fewer modules."""

MAX_SUMMED = 1 << 32
"""Maximum bytes of all files whose CheckSum is compared with their content: modules of an image have less."""

Build = Tuple[int, int]
"""TimeDateStamp, and SizeOfImage in whole pages."""


class ModuleClaims(NamedTuple):
    """The name and the build of a module's file, as memory states them.

    Attributes:
        names: possible names of the file; hostile text from the image
        builds: builds according to the loader's entry and the headers; usually one
    """

    names: Tuple[str, ...]
    builds: Tuple[Build, ...]
    code_view: Optional[CodeView] = None

    @property
    def shown(self) -> str:
        """The file as text for messages: name, builds in the form of symbol servers, and PDB."""
        words = [text.cell(self.names[0] if self.names else "?")]
        words += [f"TimeDateStamp {stamp:08X} SizeOfImage {size:x}" for stamp, size in self.builds]
        if self.code_view is not None:
            words.append(
                f"PDB {text.cell(self.code_view.pdb_name)} {self.code_view.guid}-{self.code_view.age}"
            )
        return " ".join(words)


class ModuleFiles:
    """Finds no files: the service of an image for which the examiner gives none. `advise` says whether to
    warn that a file would help, as for dumps without code."""

    given = False

    def __init__(self, advise: bool) -> None:
        self.advise = advise
        self._warned: Set[str] = set()

    def find_file(self, claims: ModuleClaims) -> Optional[PeImage]:
        """Returns the file of a module, None if there is none. Another module's file is logged once."""
        return None

    def refuse(self, path: str, claims: ModuleClaims, reason: str) -> None:
        """Logs that a file is not used.

        Args:
            claims: the module whose name the file has; it must have a name
            reason: reason, as the end of a sentence about the file
        """
        name = text.cell(claims.names[0])
        self._warn(f"{text.cell(path)} is not used as the file of {name}: it {reason}")

    def lacks(self, claims: ModuleClaims) -> None:
        """Logs that the file of a module would help, as code, unwind data or names are not in the image."""
        if self.advise and claims.names and (claims.builds or claims.code_view):
            where = "it is in none of the folders of --binaries" if self.given else "give it with --binaries"
            self._warn(f"The file of a module would help, {where}: {claims.shown}")

    def _warn(self, message: str) -> None:
        """Logs a message once: the first MAX_WARNINGS messages as warnings."""
        if message not in self._warned and len(self._warned) < MAX_FILES:
            self._warned.add(message)
            vollog.log(logging.WARNING if len(self._warned) <= MAX_WARNINGS else logging.INFO, message)


def module_files(image: Image) -> ModuleFiles:
    """Makes the service `image.service(module_files)` without --binaries: it finds no files."""
    return ModuleFiles(not image.table_name)


class GivenFiles(ModuleFiles):
    """The files in the folders of --binaries."""

    given = True

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__(True)
        self._folders = [FileFolder(path) for path in folders]
        self._files: Dict[str, PeImage] = {}
        self._wrong: Dict[str, str] = {}
        self._changed: Memo[str, str] = Memo(self._find_change, MAX_FILES)
        self._summed = 0

    def find_file(self, claims: ModuleClaims) -> Optional[PeImage]:
        if not (claims.builds or claims.code_view):
            return None
        for folder in self._folders:
            for candidate in folder.candidates(claims.names, claims.builds):
                file = self._open(candidate)
                reason = self._wrong[candidate.path] if file is None else _disagreement(file, claims)
                reason = reason or self._changed[candidate.path]
                if file is not None and not reason:
                    return file
                self.refuse(candidate.path, claims, reason)
        return None

    def _open(self, candidate: Candidate) -> Optional[PeImage]:
        """Returns the parsed file, None if it cannot be mapped as an image: then `_wrong` has the reason."""
        path = candidate.path
        if path not in self._files and path not in self._wrong:
            if len(self._files) + len(self._wrong) >= MAX_FILES:
                self._files.clear()
                self._wrong.clear()
            try:
                self._files[path] = _parse_file(candidate)
            except PeFileError as error:
                self._wrong[path] = str(error)
            except OSError as error:
                self._wrong[path] = f"cannot be read: {error.strerror}"
        return self._files.get(path)

    def _find_change(self, path: str) -> str:
        """Returns why the content of a parsed file is not trusted, as the end of a sentence about it; else an
        empty text."""
        file = self._files[path]
        if not file.check_sum:
            return ""
        if self._summed + file.file_size > MAX_SUMMED:
            return f"is not compared with its CheckSum: the files before it have {self._summed} bytes"
        self._summed += file.file_size
        if file.check_sum == file.content_sum() & 0xFFFFFFFF:
            return ""
        return (
            f"was changed after it was linked: CheckSum is {file.check_sum:#x}, and not that of its content"
        )


def _parse_file(candidate: Candidate) -> PeImage:
    """Parses a file.

    Raises:
        PeFileError: the file cannot be mapped as an image
        OSError: the file cannot be read
    """
    if candidate.wrong:
        raise PeFileError(candidate.wrong)
    size = candidate.open_file()
    return PeImage(candidate.read, size, candidate.path)


def _disagreement(file: PeImage, claims: ModuleClaims) -> str:
    """Returns why a file does not belong to a module, as the end of a sentence about it; empty if it does.

    Either TimeDateStamp and SizeOfImage must equal the values in memory, or the whole RSDS record must. A
    stamp of 0, which some linkers write, is the same in all builds: then the record must be equal.
    """
    build = file.headers.timestamp, round_to_pages(file.headers.size)
    code_view = claims.code_view
    if (build[0] and build in claims.builds) or (code_view is not None and file.code_view == code_view):
        return ""
    if build in claims.builds and (code_view is None or file.code_view is None):
        return "has TimeDateStamp 0, as the image has: without the RSDS records of both its build is unknown"
    file_build = f"TimeDateStamp {build[0]:08X} SizeOfImage {build[1]:x}"
    return f"is of another build ({file_build}), the image has {claims.shown}"
