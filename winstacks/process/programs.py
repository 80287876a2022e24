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
from ..memory.decode.status import NOTHING, Status, StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import file_name
from ..memory.image import Image
from .processlist import SYSTEM_PID, process_member
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
    name = process_member(image, eprocess, "SeAuditProcessCreationInfo.ImageFileName")
    path = image.memory(image.kernel).unicode_string_at(name) if name else None
    return file_name(path) if path else None


def control_area_of(image: Image, eprocess: int) -> Optional[int]:
    """Returns the address of the _CONTROL_AREA of a process's program; None if it cannot be read."""
    section = process_member(image, eprocess, "SectionObject")
    if not section:
        return None
    memory, types = image.memory(image.kernel), image.types
    kind = types.first_structure("_SECTION")
    field = None if kind is None else kind.first_member("u1.ControlArea")
    if field is not None:
        value = memory.member(section, field)
        return value & ~_FLAGS if value else None
    older, segment = types.first_structure("_SECTION_OBJECT"), types.first_structure("_SEGMENT")
    to_segment = None if older is None else older.first_member("Segment")
    to_area = None if segment is None else segment.first_member("ControlArea")
    place = None if to_segment is None else memory.member(section, to_segment)
    return memory.member(place, to_area) if place and to_area is not None else None


class ProgramNames:
    """Compares the names of processes. Made as `image.service(ProgramNames)`."""

    def __init__(self, image: Image) -> None:
        process = image.types.first_structure("_EPROCESS")
        self._image = image
        self._memory = image.memory(image.kernel)
        self._name = None if process is None else process.first_member("ImageFileName")
        self._doubts: Memo[int, Status] = Memo(self._compare, MAX_NAMES)

    def doubt(self, eprocess: int) -> Status:
        """Returns `contradicted: ImageFileName` if the process's program has another name, else nothing."""
        return self._doubts[eprocess]

    def _compare(self, eprocess: int) -> Status:
        if self._name is None:
            return NOTHING
        raw = self._memory.read(eprocess + self._name.offset, self._name.size)
        if raw is None:
            return NOTHING
        name, started = raw.split(bytes(1))[0], started_as(self._image, eprocess)
        if not started and process_member(self._image, eprocess, "UniqueProcessId") == SYSTEM_PID:
            started = _SYSTEM
        # A minimal process has no program; a pico process has the name that its provider gave it.
        if not started or process_member(self._image, eprocess, "PicoContext"):
            return NOTHING
        if _is_name_of(name, started) or _is_name_of(name, self._file_of(eprocess)):
            return NOTHING
        return status(StatusItem(StatusCode.CONTRADICTED, members=("ImageFileName",)))

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
