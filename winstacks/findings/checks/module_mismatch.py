# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `module_mismatch`: the loader's lists or headers of a frame's module contradict its VAD.

.NET images have a COR20 header (described: ECMA-335, part II, "CLI header").
"""

from __future__ import annotations

import functools
from typing import Callable, Iterator, Optional, Tuple

from ...columns.words import HIGH, IMAGE, LIKELY, LOW, MEDIUM, UNKNOWN, USER, WOW64
from ...memory.decode.pagetable import round_to_pages
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import Status, StatusItem, has_status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.text import cell, file_name
from ...memory.image import AddressSpace, Image
from ...names.decode import exports
from ...names.decode.pe import DIRECTORY_COM_DESCRIPTOR, HeaderError, Headers, read_codeview, read_headers
from ...names.imagereader import ImageReader
from ...names.loaderlists import module_lists
from ...names.usermodules import fits_mapping
from ...process.programs import control_area_of, started_as
from ...process.regions import Region
from ...process.vads import regions
from ...stacklist.modules import ModuleIdentities
from ...stacklist.stack import StackRecord
from ..code.lostways import over_lost_pages
from ..code.relays import is_hooked
from ..facts import NO_VAD, CheckFacts
from ..finding import NONE_KNOWN, OF_MEMORY, Check, Finding, FramePlace, frame_places, place_finding

NAME = "module_mismatch"

_NO_FILE = "T1055.013"
_LISTS = (
    (StatusCode.VAD_WITHOUT_FILE, HIGH, "the loader lists a module where no file is mapped", NONE_KNOWN),
    (StatusCode.VAD_OF_ANOTHER_FILE, HIGH, "the loader names another file than the VAD", NONE_KNOWN),
    (StatusCode.NO_VAD, MEDIUM, "the loader lists a module without a VAD", "the module was just unloaded"),
)
_LINK = "the file has two names (a hard link): the kernel started it by the name that the loader has"
_RENAMED = "the file was renamed, or started by a link: by its own headers it has the loader's name"
_HOTPATCH = (
    "a hotpatch that the kernel mapped: a function of Windows jumps there, the file is Windows' own, and "
    "other processes have it"
)
_PDB = ".pdb"
_SIZE = StatusItem(StatusCode.CONTRADICTED, members=("SizeOfImage",))
_PROTECTOR = "the headers agree with the VAD: protectors of programs change the loader's copy of the size"
_DAMAGED = "the loader's lists cannot be followed"

_NO_LISTS = "the file has no list of modules"
_ONE_LIST = "the file's list of modules contradicts itself, and MemoryInfoListStream does not decide"

_COR20 = 0x48
_OF_DOT_NET = ("clr", "coreclr", "mscorwks", "mono", "mono-2.0-sgen", "mono-2.0-bdwgc")
"""Names of RUNTIMES that map .NET images without the loader."""

Reason = Tuple[str, str, str]
"""Severity, evidence and innocent explanation."""


class _Assessment(NamedTuple):
    """The verdict on an address: `start` of its module; `gone`: whether the module's file is gone."""

    reason: Reason
    start: int
    gone: bool


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in modules about which lists, headers and VADs disagree; one for each module."""
    space = stack.space
    for place in frame_places(stack):
        if not facts.is_user(place.at):
            continue
        assessment = facts.find_once(NAME, space, place.at, functools.partial(_assess, space, place, facts))
        if assessment is None:
            continue
        severity, evidence, innocent = assessment.reason
        files = _files_in_words(space, place, facts)
        evidence = f"{evidence}; {files}; {facts.memory(space, place.address)}"
        group = (space.layer_name, assessment.start)
        if place.guessed:
            place, severity, innocent = over_lost_pages(stack, place, severity, innocent, facts)
        finding = place_finding(stack, place, severity, LIKELY, evidence, innocent, group)
        yield finding._replace(technique=_NO_FILE) if assessment.gone else finding


def _assess(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> Optional[_Assessment]:
    """Judges the module of a frame; None if there is no finding."""
    vad = facts.vad(space, place.at)
    if has_status(place.name.status, StatusCode.NO_LOADER_LIST):
        facts.leave_out(NAME, _DAMAGED, space.process)
    elif place.name.backing == IMAGE and facts.lacks_vad(space, place.at):
        facts.leave_out(NAME, NO_VAD, space.process)
    deleted = "" if vad is None or not vad.image else _file_is_gone(facts.image, vad)
    reason = (HIGH, deleted, NONE_KNOWN) if deleted else _mismatch(space, place, vad, facts)
    if reason is None:
        return None
    known_module = facts.namer(space).module_at(place.at)
    start = known_module.module.base if known_module is not None else place.at if vad is None else vad.start
    return _Assessment(reason, start, bool(deleted))


def _mismatch(
    space: AddressSpace, place: FramePlace, vad: Optional[Region], facts: CheckFacts
) -> Optional[Reason]:
    for word, severity, evidence, innocent in _LISTS:
        if has_status(place.name.status, word):
            if word is StatusCode.VAD_OF_ANOTHER_FILE:
                if _is_linked(space, place, vad, facts):
                    return LOW, evidence, _LINK
                if _is_renamed(space, place, facts):
                    return LOW, evidence, _RENAMED
            return severity, evidence, innocent
    if vad is None or not vad.image:
        return None
    known_module = facts.namer(space).module_at(place.at)
    if known_module is None and place.name.backing == UNKNOWN:
        facts.leave_out(NAME, _NO_LISTS, space.process)
        return None
    overlaps = known_module is None or has_status(place.name.status, StatusCode.OVERLAPS_ANOTHER_MODULE)
    if overlaps and vad.protection is None:
        # The region was made of the same list.
        facts.leave_out(NAME, _ONE_LIST, space.process)
        return None
    if known_module is None:
        return _unlisted(space, place, vad, facts)
    headers = known_module.image.headers
    agreed = headers is not None and known_module.module.base == vad.start
    if headers is not None and agreed:
        reason = _of_headers(headers, vad, facts)
        if reason is not None:
            return reason
    return _of_size(place.name.status, known_module.module.size, agreed)


def _is_linked(space: AddressSpace, place: FramePlace, vad: Optional[Region], facts: CheckFacts) -> bool:
    """Returns whether the kernel started the mapped file by the loader entry's name (a hard link)."""
    known_module = facts.namer(space).module_at(place.at)
    if (
        known_module is None
        or vad is None
        or control_area_of(facts.image, space.eprocess) != vad.control_area
    ):
        return False
    return (started_as(facts.image, space.eprocess) or "").lower() == known_module.module.file.lower()


def _is_renamed(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether the mapped file says itself that its name is the loader entry's.

    A section has the name by which the file was opened first, before it was renamed, or the target of a
    symbolic link. What the file says is read from the section, which no process can write.
    """
    known_module, reader = facts.namer(space).module_at(place.at), facts.copies.original(space, place.at)
    try:
        headers = None if reader is None else read_headers(reader.read)
    except HeaderError:
        return False
    if known_module is None or reader is None or headers is None:
        return False
    module, record = known_module.module, read_codeview(reader.read, headers)
    exported = exports.module_name(reader.load, headers)
    return exported.lower() == module.file.lower() or (
        record is not None and file_name(record.pdb_name).lower() == f"{module.stem}{_PDB}"
    )


def _files_in_words(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> str:
    """Returns the file that the loader's entry names, and the file that is mapped."""
    known_module, vad = facts.namer(space).module_at(place.at), facts.vad(space, place.at)
    base = None if known_module is None else known_module.module.base
    half, entry = facts.namer(space).process.entries.get(base or 0, (space, None))
    path = None if entry is None else facts.image.service(module_lists).details(half, entry).path
    loader = "no entry" if entry is None else cell(path or entry.name or "an entry without a readable name")
    if vad is None:
        return f"the loader has {loader}, and no VAD is there"
    mapped = facts.image.service(regions).file_name(vad.control_area) if vad.control_area else ""
    file = "a file of unknown name" if mapped is None else cell(mapped or "no file")
    return f"the loader has {loader}, the VAD {file}"


def _of_headers(headers: Headers, vad: Region, facts: CheckFacts) -> Optional[Reason]:
    """Compares the headers in a process with its VAD, and with the headers in the image section."""
    room, size = vad.end - vad.start, round_to_pages(headers.size)
    true = facts.image.service(ModuleIdentities).of_section(vad)
    if true is not None and true != (headers.timestamp, size):
        claim = f"the headers say TimeDateStamp {headers.timestamp:#x} SizeOfImage {size:#x}"
        return HIGH, f"{claim}, those of the file {true[0]:#x} and {true[1]:#x}", NONE_KNOWN
    if not fits_mapping(headers.size, room):
        return MEDIUM, f"the headers say SizeOfImage {size:#x}, the VAD has {room:#x} bytes", NONE_KNOWN
    beyond = next((section for section in headers.sections if section.end > room), None)
    if beyond is not None:
        return (
            MEDIUM,
            f"the headers have a section up to {beyond.end:#x}, the VAD {room:#x} bytes",
            NONE_KNOWN,
        )
    return None


def _of_size(size_status: Status, size: int, agreed: bool) -> Optional[Reason]:
    """Judges the loader's SizeOfImage; `agreed`: whether the headers agree with the VAD."""
    if _SIZE not in size_status:
        return None
    evidence = f"the loader's SizeOfImage is not that of the VAD, {size:#x}"
    return (LOW, evidence, _PROTECTOR) if agreed else (MEDIUM, evidence, NONE_KNOWN)


def _unlisted(space: AddressSpace, place: FramePlace, vad: Region, facts: CheckFacts) -> Optional[Reason]:
    """Judges an image that is missing from all loader lists, although the lists are complete."""
    evidence = f"no loader list has the image {place.name.symbol.partition('+')[0]}"
    runtimes = facts.runtimes(space, _OF_DOT_NET)
    if runtimes and _is_managed(
        ImageReader(facts.image, space.layer_name, vad.start, vad.end - vad.start).read
    ):
        return LOW, evidence, f"a .NET image that {', '.join(runtimes)} mapped"
    return (LOW, evidence, _HOTPATCH) if _is_hotpatch(space, place, facts) else (MEDIUM, evidence, NONE_KNOWN)


def _is_hotpatch(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether the kernel may have mapped an image as a hotpatch, which no loader list has.

    Other processes have it, too, its file is Windows' own, and a function of Windows jumps there.
    """
    mapping = facts.copies.mapping(space, place.at)
    if mapping is None or not facts.of_windows(space, place.at) or not facts.copies.others(mapping):
        return False
    return is_hooked(space, place.at, facts)


def _is_managed(read: Callable[[int, int], Optional[bytes]]) -> bool:
    """Returns whether an image has a COR20 header."""
    try:
        return read_headers(read).directory(DIRECTORY_COM_DESCRIPTOR)[1] >= _COR20
    except HeaderError:
        return False


def _file_is_gone(image: Image, vad: Region) -> str:
    """Returns what is wrong with the file of a mapped image; empty if nothing is, or it cannot be read."""
    if image.service(regions).file_name(vad.control_area) == "":
        return "the file of the image has no name"
    area = image.at("_CONTROL_AREA", vad.control_area)
    value = area.first("FilePointer.Value", "FilePointer.Object", "FilePointer") or 0
    # The low bits of an EX_FAST_REF count references.
    deleted = image.at("_FILE_OBJECT", value & ~(2 * image.pointer_size - 1))["DeletePending"]
    return "the file of the image is about to be deleted" if deleted else ""


CHECK = Check(
    NAME,
    "T1055.012",
    (USER, WOW64),
    "A frame is in a module whose entry in the loader's lists, or whose headers in memory, contradict "
    "the VAD or the mapped file.",
    "high if no file is mapped there, or another file, a file without a name or a file that is about to "
    "be deleted, and if the headers belong to another image; medium if a size differs, for an image "
    "that no list has, and for a module without a VAD; low if only the loader's copy of the size "
    "differs, for a .NET image that a loaded runtime mapped, for a file with two names that the kernel "
    "started by the loader's name, for a file whose own headers have the loader's name, for a hotpatch of "
    "Windows, and for frames that a scan found",
    "Protectors of programs map images themselves; while a module is loaded or unloaded, only one side "
    "has it.",
    "Compare windows.ldrmodules with windows.vadinfo, and dump both: windows.vadinfo --dump.",
    "no thread has a stack in user mode",
    head="a module that disagrees with its file",
    command=OF_MEMORY,
    of_stack=check_stack,
)
