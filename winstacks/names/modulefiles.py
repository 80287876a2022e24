# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The files of modules that the examiner gives with --binaries: which of them is that of a module.

    image.provide(module_files, GivenFiles(folders))
    file = image.service(module_files).find(claims)

What memory says of a module (`ModuleClaims`) is hostile: a name is only compared with the names of a folder,
and never opened as a path. A file with the name of a module that is not the module's is named in the log,
with the reason, and not used. Where no folder is given no file is looked for; of a dump of one process the
log then names the files that would help.
"""

from __future__ import annotations

import logging
from typing import Dict, NamedTuple, Optional, Sequence, Set, Tuple

from ..memory.decode import text
from ..memory.image import Image
from .decode.pe import CodeView
from .decode.peimage import PeFileError, PeImage
from .filefolders import Candidate, FileFolder

vollog = logging.getLogger(__name__)

MAX_WARNINGS = 32
"""Files that are named in warnings; further ones are named with -v."""

MAX_FILES = 1 << 12
"""Files that are kept open to reading: an image has fewer modules."""

Build = Tuple[int, int]
"""TimeDateStamp, and SizeOfImage in whole pages."""


class ModuleClaims(NamedTuple):
    """What memory says of a module.

    Attributes:
        names: names that its file may have; text of the image
        builds: the builds that its loader's entry and its headers say it is; mostly one
        code_view: its RSDS record, None if it is not in the image
    """

    names: Tuple[str, ...]
    builds: Tuple[Build, ...]
    code_view: Optional[CodeView] = None

    @property
    def shown(self) -> str:
        """The file in words, as symbol servers index it: name, TimeDateStamp and SizeOfImage."""
        said = [text.cell(self.names[0] if self.names else "?")]
        said += [f"TimeDateStamp {stamp:08X} SizeOfImage {size:x}" for stamp, size in self.builds]
        if self.code_view is not None:
            said.append(
                f"PDB {text.cell(self.code_view.pdb_name)} {self.code_view.guid}-{self.code_view.age}"
            )
        return " ".join(said)


class ModuleFiles:
    """Has no files: nothing is given.

    Args:
        advise: whether a file that would help is worth a warning, as in dumps that have no code

    Attributes:
        given: whether there are folders to look in
    """

    given = False

    def __init__(self, advise: bool) -> None:
        self.advise = advise
        self._said: Set[str] = set()

    def find(self, claims: ModuleClaims) -> Optional[PeImage]:
        """Returns the file of a module; None if there is none. Each file that disagrees is logged once."""
        return None

    def refuse(self, path: str, claims: ModuleClaims, reason: str) -> None:
        """Logs that a file is not used."""
        name = text.cell(claims.names[0])
        self._warn(f"{text.cell(path)} is not used as the file of {name}: it {reason}")

    def lacks(self, claims: ModuleClaims) -> None:
        """Logs that the file of a module would help: code, unwind data or names are not in the image."""
        if self.advise and claims.names and (claims.builds or claims.code_view):
            where = "it is in none of the folders of --binaries" if self.given else "give it with --binaries"
            self._warn(f"The file of a module would help, {where}: {claims.shown}")

    def _warn(self, said: str) -> None:
        if said not in self._said and len(self._said) < MAX_FILES:
            self._said.add(said)
            vollog.log(logging.WARNING if len(self._said) <= MAX_WARNINGS else logging.INFO, said)


def module_files(image: Image) -> ModuleFiles:
    """Returns what has the files of modules, for `image.service(module_files)`: here there are none."""
    return ModuleFiles(not image.table_name)


class GivenFiles(ModuleFiles):
    """The files in the folders of --binaries.

    Args:
        folders: their paths
    """

    given = True

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__(True)
        self._folders = [FileFolder(each) for each in folders]
        self._files: Dict[str, PeImage] = {}
        self._wrong: Dict[str, str] = {}

    def find(self, claims: ModuleClaims) -> Optional[PeImage]:
        if not (claims.builds or claims.code_view):
            return None
        for folder in self._folders:
            for candidate in folder.candidates(claims.names, claims.builds):
                found = self._open(candidate)
                reason = self._wrong[candidate.path] if found is None else _disagreement(found, claims)
                if found is not None and not reason:
                    return found
                self.refuse(candidate.path, claims, reason)
        return None

    def _open(self, candidate: Candidate) -> Optional[PeImage]:
        """Returns a file, None if it cannot stand for an image: then `_wrong` has the reason."""
        path = candidate.path
        if path not in self._files and path not in self._wrong:
            if len(self._files) + len(self._wrong) >= MAX_FILES:
                self._files.clear()
                self._wrong.clear()
            try:
                self._files[path] = _parsed(candidate)
            except PeFileError as error:
                self._wrong[path] = str(error)
            except OSError as error:
                self._wrong[path] = f"cannot be read: {error.strerror}"
        return self._files.get(path)


def _parsed(candidate: Candidate) -> PeImage:
    """Parses a file.

    Raises:
        PeFileError: it is no file that could stand for an image
        OSError: it cannot be read
    """
    if candidate.wrong:
        raise PeFileError(candidate.wrong)
    size = candidate.open()
    image = PeImage(candidate.read, size, candidate.path)
    if image.check_sum and image.check_sum != image.content_sum() & 0xFFFFFFFF:
        raise PeFileError(
            f"was changed after it was linked: CheckSum is {image.check_sum:#x}, and not that of its content"
        )
    return image


def _disagreement(file: PeImage, claims: ModuleClaims) -> str:
    """Returns why a file is not that of a module by what both say of themselves; empty if it is.

    Stamp and size have to be those of the image, or else the whole RSDS record.
    """
    build = file.headers.timestamp, rounded(file.headers.size)
    known = claims.code_view
    if build in claims.builds or (known is not None and file.code_view == known):
        return ""
    theirs = f"TimeDateStamp {build[0]:08X} SizeOfImage {build[1]:x}"
    return f"is of another build ({theirs}), the image has {claims.shown}"


def rounded(size: int) -> int:
    """Returns a size in whole pages."""
    return -(-size // 0x1000) * 0x1000
