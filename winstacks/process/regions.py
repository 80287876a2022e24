# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory regions of a process: their content, the file behind each, and their protection.

    for region in image.service(regions).list_regions(space)[0]: ...

`regions` of `process/vads` is the kernel's provider. Other inputs provide their own: the dump of one process
has MemoryInfoListStream.
"""

from __future__ import annotations

from typing import List, Optional, Protocol, Tuple

from ..memory.decode.records import NamedTuple
from ..memory.image import AddressSpace

PROTECTIONS = (
    "PAGE_NOACCESS", "PAGE_READONLY", "PAGE_EXECUTE", "PAGE_EXECUTE_READ",
    "PAGE_READWRITE", "PAGE_WRITECOPY", "PAGE_EXECUTE_READWRITE", "PAGE_EXECUTE_WRITECOPY",
)  # fmt: skip
"""The names of the lower 3 bits of VadFlags.Protection (described: MmProtectToValue in ReactOS)."""
_MODIFIERS = ("", "PAGE_NOCACHE", "PAGE_GUARD", "PAGE_WRITECOMBINE")
"""The names of the upper 2 bits of VadFlags.Protection. With PAGE_NOACCESS they have no further meaning."""


UNKNOWN_PROTECTION = "protection unknown"
"""The protection of memory that no stream of a dump describes."""


class PageRange(NamedTuple):
    """Pages of a region that are committed with one protection now. Addresses are canonical."""

    start: int
    end: int
    protection: int

    @property
    def protection_name(self) -> str:
        """The protection as Volatility's windows.vadinfo names it."""
        return protection_name(self.protection)

    @property
    def executable(self) -> bool:
        """Whether code can run there."""
        return _executes(self.protection)


class Region(NamedTuple):
    """A range of a process's addresses. Addresses are canonical.

    Attributes:
        control_area: argument for `Regions.file_name`; 0 for private memory. From a kernel: address of the
            _CONTROL_AREA, or, if that is not in the image, a negative number, at which nothing can be read
        image: whether an image is mapped: a program or a DLL
        address: address of the _MMVAD or _MMVAD_SHORT, 0 without a kernel
        protection: the first protection, as VadFlags.Protection: an index into PROTECTIONS in the lower 3
            bits, modifiers above; None if it is unknown
        state: MEM_COMMIT or MEM_RESERVE; empty if the region may hold pages of both, as a VAD may
        pages: its committed pages with their present protection, by address, if the input lists them. An
            image has page tables instead
        charge: bytes of private memory for which it is charged, committed or copied on write; None if it is
            unknown. From a kernel: VadFlags.CommitCharge
    """

    start: int
    end: int
    control_area: int
    image: bool
    address: int = 0
    protection: Optional[int] = 0
    state: str = ""
    pages: Tuple[PageRange, ...] = ()
    charge: Optional[int] = None

    @property
    def private(self) -> Optional[int]:
        """Bytes of private memory: `charge`, or the committed pages of a region without a control area."""
        if self.charge is not None or self.control_area or not self.pages:
            return self.charge
        return sum(part.end - part.start for part in self.pages)

    @property
    def protection_name(self) -> str:
        """The first protection as Volatility's windows.vadinfo names it, or UNKNOWN_PROTECTION."""
        return UNKNOWN_PROTECTION if self.protection is None else protection_name(self.protection)

    @property
    def executable(self) -> Optional[bool]:
        """Whether the first protection lets code run; None if it is unknown."""
        return None if self.protection is None else _executes(self.protection)


def protection_name(protection: int) -> str:
    """Returns a VadFlags.Protection as Volatility's windows.vadinfo names it."""
    low, high = PROTECTIONS[protection & 7], _MODIFIERS[protection >> 3 & 3]
    return f"{low}|{high}" if high and protection & 7 else low


def _executes(protection: int) -> bool:
    return "EXECUTE" in PROTECTIONS[protection & 7]


class Regions(Protocol):
    """Lists the memory regions of processes."""

    def list_regions(self, space: AddressSpace) -> Tuple[List[Region], bool]:
        """Returns the regions of a process, ascending by their starts, and whether these are all."""

    def file_name(self, control_area: int) -> Optional[str]:
        """Returns the path of the file behind a mapping: "" if none is, None if its name cannot be read."""


WINDOWS = ("\\windows\\",)
"""The usual folder of Windows on its drive; `windowsfolder` knows others."""
_DEVICE = ("\\systemroot\\", "\\??\\", "\\device\\")
"""Begin of paths below Windows' folder, of paths with a drive, and of the kernel's paths."""


def is_beneath(path: str, folders: Tuple[str, ...]) -> bool:
    r"""Returns whether a file lies in one of some folders of its drive.

    Args:
        path: path of the file: as Windows shows it, as the kernel names it, or without the drive
        folders: lower-case paths without the drive; \SystemRoot counts as Windows' folder
    """
    return path.lower().startswith(_DEVICE[0]) or on_drive(path).startswith(folders)


def on_drive(path: str) -> str:
    """Returns the path of a file without its drive, in lower case; see `is_beneath` for the path."""
    plain = path.lower()
    rest = plain[len(_DEVICE[1]) :] if plain.startswith(_DEVICE[1]) else plain
    if rest.startswith(_DEVICE[2]):
        rest = "\\" + rest[len(_DEVICE[2]) :].partition("\\")[2]
    return rest[2 if rest[1:2] == ":" else 0 :]


def mapped_path(known: Regions, region: Optional[Region]) -> Optional[str]:
    """Returns the path of the file that a region maps, as `Regions.file_name`; None for private memory."""
    return known.file_name(region.control_area) if region and region.control_area else None


def image_path(known: Regions, region: Optional[Region]) -> str:
    """Returns the path of the file whose image a region maps; "" for no image, and if it cannot be read."""
    return (known.file_name(region.control_area) or "") if region and region.image else ""
