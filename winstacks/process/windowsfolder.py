# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The folder of Windows: which images are Windows' own.

    if image.service(WindowsFolders).has_image(space, region): ...

Its name is \\Windows on most machines. A setup may have chosen another (\\WINNT of machines that had Windows
2000, \\ReactOS), and the processes of a container map the files of a layer, whose folder \\Windows lies below
others (described: Microsoft, "Isolation Modes"; on the host \\ProgramData\\...\\Files\\Windows, in a utility
VM \\VSMB-...\\os\\Windows). The kernel maps ntdll into each process before any of its code runs: the folder
with the System32 of that file is Windows' own for the process.
"""

from __future__ import annotations

from typing import Optional, Tuple

from ..memory.decode.memo import Memo
from ..memory.image import AddressSpace, Image
from .regions import WINDOWS, Region, image_path, is_beneath, on_drive
from .vads import regions

_NTDLL = "\\system32\\ntdll.dll"
_MOST = 1 << 12
"""The most processes whose folders are kept."""


class WindowsFolders:
    """Decides which images and files are Windows' own."""

    def __init__(self, image: Image) -> None:
        self._regions = image.service(regions)
        self._folders: Memo[AddressSpace, Tuple[str, ...]] = Memo(self._of_process, _MOST)

    def has_image(self, space: AddressSpace, region: Optional[Region]) -> bool:
        """Returns whether a region of a process is an image whose file lies in Windows' own folder."""
        path = image_path(self._regions, region)
        return is_beneath(path, WINDOWS) or is_beneath(path, self._folders[space])

    def has_file(self, space: AddressSpace, path: str) -> bool:
        """Returns whether a file lies in Windows' own folder for sure; see `is_beneath` for the path.

        Of a process with ntdlls of several folders this is known of \\Windows only: one of the others may be
        an implant's.
        """
        folders = self._folders[space]
        return is_beneath(path, WINDOWS) or (len(folders) == 1 and is_beneath(path, folders))

    def _of_process(self, space: AddressSpace) -> Tuple[str, ...]:
        """Returns the folders with the System32 of each ntdll that a process has mapped as an image.

        A process that maps another file of this name adds a folder, and takes none away.
        """
        listed, _ = self._regions.list_regions(space)
        paths = [image_path(self._regions, region) for region in listed if region.image]
        found = {on_drive(path) for path in paths if path.lower().endswith(_NTDLL)}
        return tuple(sorted(path[: 1 - len(_NTDLL)] for path in found))
