# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the symbols of modules in the PDBs that the examiner gives with --symbols-from.

    image.providing(pdb_files)(GivenPdbs(folders))
    symbols = image.service(pdb_files).find_symbols(code_view)

A module's RSDS record names its PDB, with GUID and age. A file with this name and another GUID or age is not
used, and the log names it. The name comes from the image: it is compared with the names in a folder, and
never opened as a path.
"""

from __future__ import annotations

import logging
from typing import List, Optional, Sequence

from ..memory.decode import text
from ..memory.image import Image
from .decode.pdb import Pdb, PdbError, Symbol
from .decode.pe import CodeView
from .filefolders import Candidate, FileFolder

vollog = logging.getLogger(__name__)


class PdbFiles:
    """Finds no PDBs: the service of an image for which the examiner gives none."""

    def find_symbols(self, pdb: CodeView) -> Optional[List[Symbol]]:
        """Returns the symbols of a PDB, None if there is no file of it that can be read."""
        return None


def pdb_files(image: Image) -> PdbFiles:
    """Makes the service `image.service(pdb_files)` without --symbols-from: it finds no PDBs."""
    return PdbFiles()


class GivenPdbs(PdbFiles):
    """The PDBs in the folders of --symbols-from: plain, or laid out as a symbol server's."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = [FileFolder(path) for path in folders]

    def find_symbols(self, pdb: CodeView) -> Optional[List[Symbol]]:
        name, key = pdb.pdb_name, f"{pdb.guid}{pdb.age:X}"
        for candidate in (found for folder in self._folders for found in folder.keyed(name, key)):
            try:
                return list(_open(candidate, pdb).symbols())
            except PdbError as error:
                vollog.warning(f"{text.cell(candidate.path)} is not used as {_shown(pdb)}: it {error}")
            except OSError as error:
                reason = f"it cannot be read: {error.strerror}"
                vollog.warning(f"{text.cell(candidate.path)} is not used as {_shown(pdb)}: {reason}")
        return None


def _open(candidate: Candidate, wanted: CodeView) -> Pdb:
    """Opens the file of a PDB.

    Raises:
        PdbError: the file is no PDB that can be read, or it is another PDB
        OSError: the file cannot be read
    """
    if candidate.wrong:
        raise PdbError(candidate.wrong)
    found = Pdb(candidate.read, candidate.open_file())
    if (found.guid, found.age) != (wanted.guid.upper(), wanted.age):
        raise PdbError(f"has the ID {found.guid}-{found.age}")
    return found


def _shown(pdb: CodeView) -> str:
    return f"{text.cell(pdb.pdb_name)} {pdb.guid}-{pdb.age}"
