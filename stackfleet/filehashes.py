# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Hashes of the files of modules, where the examiner gives the files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from winstacks.memory.decode.memo import Memo
from winstacks.names.filefolders import last_component
from winstacks.names.modulefiles import GivenFiles, ModuleClaims

from .provenance import sha256

_MOST = 1 << 14
"""Hashes that are kept."""

_Build = tuple[str, int, int]
"""Name of a file, TimeDateStamp, SizeOfImage."""


class FileHashes:
    """Finds the file of a module by name and build; a file of another build is not used, and logged.

    Args:
        folders: folders as `--binaries` of the plugins takes them; empty: no module has a hash
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._files = GivenFiles(folders) if folders else None
        self._known: Memo[_Build, Optional[str]] = Memo(self._hash, _MOST)

    def sha256(self, frame: dict[str, Any]) -> Optional[str]:
        """Returns the SHA-256 of the file of a frame's module; None if it was not given."""
        stamp, size = frame["ModuleStamp"], frame["ModuleSize"]
        name = last_component(frame["ModulePath"] or frame["Module"] or "")
        if self._files is None or not (name and stamp and size):
            return None
        return self._known[name, stamp, size]

    def _hash(self, build: _Build) -> Optional[str]:
        name, stamp, size = build
        assert self._files is not None
        file = self._files.find_file(ModuleClaims((name,), ((stamp, size),)))
        if file is None:
            return None
        try:
            return sha256(file.path)
        except OSError:
            return None
