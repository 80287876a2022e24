# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `section_not_code`: code runs in a section of an image that its file does not mark as code.

The characteristics of sections are in the file's headers (Microsoft, "PE Format", "Section Flags"). The
linker gives IMAGE_SCN_MEM_EXECUTE to every section with code, so a frame in another section is code that
somebody put there. A section for code and for writing is what Mockingjay uses (Security Joes, 2023): there,
a frame counts where the image describes its functions, and none of them is at the frame, in a private copy
of the page.
"""

from __future__ import annotations

import functools
from typing import Callable, Iterator, Optional

from ...columns.words import CALLBACK, CERTAIN, HIGH, IMAGE, LIKELY, MEDIUM, SCAN, THREAD_KINDS, TRAP
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.image import AddressSpace
from ...names.decode.pe import MEM_EXECUTE, MEM_WRITE, HeaderError, Headers, read_headers
from ...names.symbolizer import KnownModule
from ...stacklist.stack import StackRecord
from ..code.copies import NOT_IN_MEMORY
from ..code.lostsections import leave_out_section
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, OF_MEMORY, Check, Finding, FramePlace, frame_places, place_finding

NAME = "section_not_code"

_HEADERS, _OF_KERNEL = f"{NAME}, headers", f"{NAME}, kernel"
_UNPACKED = "a program that unpacks itself into this section, and describes no function there"


class _Section(NamedTuple):
    """The section of an image at an address: its name, its RVA and its flags."""

    name: str
    start: int
    flags: int


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in sections that are not for code; one for each section of a process."""
    for place in frame_places(stack):
        user = facts.is_user(place.at)
        # A scan takes values for return addresses: what it finds in data is data.
        if place.how == SCAN or (user and place.name.backing != IMAGE):
            continue
        space = stack.space if user else facts.image.kernel
        # Stacks share most of their code, and no page is in two sections.
        page = place.at // PAGE_SIZE * PAGE_SIZE
        found = functools.partial(_section_at, space, place.at, facts)
        section = facts.find_once(NAME if user else _OF_KERNEL, space, page, found)
        if section is None or section.flags & (MEM_EXECUTE | MEM_WRITE) == MEM_EXECUTE:
            continue
        known_module = facts.namer(space).module_at(place.at)
        if known_module is None:
            continue
        if not section.flags & MEM_EXECUTE:
            severity, innocent = HIGH, NONE_KNOWN
            claim = "is not for code"
        elif user and section.flags & MEM_WRITE and _is_undescribed(space, known_module, place, facts):
            severity, innocent = MEDIUM, _UNPACKED
            claim = "is for code and for writing, and no function of the image is there"
        else:
            continue
        name = section.name or "without a name"
        evidence = (
            f"section {name} of {known_module.module.file} {claim}: Characteristics {section.flags:#x}; "
        )
        evidence += facts.memory(space, place.address)
        confidence = CERTAIN if place.how == TRAP else LIKELY
        group = (space.layer_name, known_module.module.base + section.start)
        yield place_finding(stack, place, severity, confidence, evidence, innocent, group)


def _section_at(space: AddressSpace, at: int, facts: CheckFacts) -> Optional[_Section]:
    """Returns the section at an address; None if there is none, or the headers are not in the image.

    The headers of the file are preferred, which no process can write.
    """
    known_module = facts.namer(space).module_at(at)
    if known_module is None:
        return None
    headers = known_module.image.headers
    original = facts.copies.original(space, at) if facts.is_user(at) else None
    if original is not None:
        base = known_module.module.base
        headers = facts.find_once(_HEADERS, space, base, lambda: _headers(original.read)) or headers
    if headers is None:
        facts.leave_out(NAME, NOT_IN_MEMORY, known_module.module.file)
        return None
    rva = at - known_module.module.base
    for section in headers.sections:
        if section.start <= rva < section.end:
            return _Section(section.name, section.start, section.characteristics)
    return None


def _headers(read: Callable[[int, int], Optional[bytes]]) -> Optional[Headers]:
    """Returns the headers of an image; None if they cannot be read."""
    try:
        return read_headers(read)
    except HeaderError:
        return None


def _is_undescribed(
    space: AddressSpace, known_module: KnownModule, place: FramePlace, facts: CheckFacts
) -> bool:
    """Returns whether an image describes its functions, but none at a frame, whose page is a private copy."""
    table = known_module.image.functions
    if table is None or table.find_entry(place.at - known_module.module.base) is not None:
        return False
    leave_out_section(NAME, space, place.at, known_module.module.file, facts)
    return facts.copies.is_private(space, place.at)


CHECK = Check(
    NAME,
    "T1055",
    (*THREAD_KINDS, CALLBACK),
    "A frame or a callback is in a section of an image, of a process or of the kernel, that its file does "
    "not mark as code (IMAGE_SCN_MEM_EXECUTE); or in a section for code and for writing, where the image "
    "describes no function.",
    "high; medium in a section that is for code and for writing",
    "Programs that unpack or protect themselves run code in such sections.",
    "Compare the memory there with the module's file: --binaries; dump it with windows.dlllist --dump.",
    "no stack of a thread could be walked",
    head="code in a section that is not for code",
    command=OF_MEMORY,
    of_stack=check_stack,
)
