# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The program that the kernel started in a process: its name at that time, and its section.

The kernel stores both outside the process's memory: SeAuditProcessCreationInfo has the path by which the
program was opened, SectionObject the section from which the process was created. A file with two names (a
hard link) has one section, whose name is the one by which it was opened first. (Source of the members: public
symbols.)
"""

from __future__ import annotations

from typing import Optional

from ..memory.decode.text import file_name
from ..memory.image import Image
from ..process.processlist import process_member

_FLAGS = 7
"""The lower bits of `_SECTION.u1`, which are flags."""


def started_as(image: Image, eprocess: int) -> Optional[str]:
    """Returns the file name under which the kernel started a process; None if it cannot be read."""
    name = process_member(image, eprocess, "SeAuditProcessCreationInfo.ImageFileName")
    kind = image.types.first_structure("_UNICODE_STRING")
    if not name or kind is None:
        return None
    memory = image.memory(image.kernel)
    data = memory.read(name, kind.size)
    path = None if data is None else memory.unicode_string(data)
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
