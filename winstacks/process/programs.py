# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The program that the kernel started in a process: its names at that time, and its section.

The kernel stores both outside the process's memory: SeAuditProcessCreationInfo has the path by which the
program was opened, SectionObject the section from which the process was created. A file with two names (a
hard link) has one section, whose name is the one by which it was opened first. (Source of the members: public
symbols.)

EPROCESS.ImageFileName has the last component of such a path, cut to 14 characters; Volatility's
`windows.malware.pebmasquerade` compares it, too. None of these changes afterwards, also if the file is
renamed.
"""

from __future__ import annotations

from typing import Optional

from ..memory.decode.memo import Memo
from ..memory.decode.status import NOTHING, Status, contradicted
from ..memory.decode.text import file_name
from ..memory.image import Image
from .kernelobjects import IMAGE_FILE_NAME, process_at
from .processlist import SYSTEM_PID
from .vads import regions

_FLAGS = 7
"""The lower bits of `_SECTION.u1`, which are flags."""
_CUT = (14, 15)
"""Characters of a name that is cut: the member has room for 15."""
_SYSTEM = "System"
"""The name of the kernel's process in every version."""
MAX_NAMES = 1 << 16
"""The most processes whose names are kept."""


def started_as(image: Image, eprocess: int) -> Optional[str]:
    """Returns the file name under which the kernel started a process; None if it cannot be read."""
    name = process_at(image, eprocess)["SeAuditProcessCreationInfo.ImageFileName"]
    path = image.memory(image.kernel).unicode_string_at(name) if name else None
    return file_name(path) if path else None


def control_area_of(image: Image, eprocess: int) -> Optional[int]:
    """Returns the address of the _CONTROL_AREA of a process's program; None if it cannot be read."""
    address = process_at(image, eprocess)["SectionObject"]
    section = image.at("_SECTION", address)
    if section.lack("u1.ControlArea"):
        return image.at("_SEGMENT", image.at("_SECTION_OBJECT", address)["Segment"])["ControlArea"]
    area = section["u1.ControlArea"]
    return area & ~_FLAGS if area else None


class ProgramNames:
    """Compares the names of processes. Made as `image.service(ProgramNames)`."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._doubts: Memo[int, Status] = Memo(self._compare, MAX_NAMES)

    def doubt(self, eprocess: int) -> Status:
        """Returns `contradicted: ImageFileName` if the process's program has another name, else nothing."""
        return self._doubts[eprocess]

    def _compare(self, eprocess: int) -> Status:
        process = process_at(self._image, eprocess)
        raw = process.data(IMAGE_FILE_NAME)
        if raw is None:
            return NOTHING
        name, started = raw.split(bytes(1))[0], started_as(self._image, eprocess)
        if not started and process["UniqueProcessId"] == SYSTEM_PID:
            started = _SYSTEM
        # A minimal process has no program; a pico process has the name that its provider gave it.
        if not started or process["PicoContext"]:
            return NOTHING
        if _is_name_of(name, started) or _is_name_of(name, self._file_of(eprocess)):
            return NOTHING
        return contradicted(IMAGE_FILE_NAME)

    def _file_of(self, eprocess: int) -> str:
        """Returns the name of the file behind a process's section, empty if unknown."""
        area = control_area_of(self._image, eprocess)
        return file_name(self._image.service(regions).file_name(area) or "") if area else ""


def _is_name_of(name: bytes, file: str) -> bool:
    """Returns whether ImageFileName is the name of a file, or its begin.

    Characters outside ASCII are in a code page that is unknown: such a name is not compared.
    """
    full = file.encode("ascii", "replace")
    return b"?" in full or (bool(full) and name == full) or (len(name) in _CUT and full.startswith(name))
