# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Additions of Crashpad and Breakpad to a minidump: annotations, assertions, the thread that wrote the dump.

Source: Crashpad, "minidump_extensions.h" (MinidumpCrashpadInfo, MinidumpModuleCrashpadInfo,
MinidumpAnnotation, MinidumpSimpleStringDictionary); Breakpad, "minidump_format.h" (MDRawBreakpadInfo,
MDRawAssertionInfo). Measured: two dumps of Crashpad, of macOS and iOS, and ten of Breakpad.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Iterator, List, Optional

from ...memory.decode.declared import ULONG, USHORT, Declared, Record
from ...memory.decode.memo import Memo
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import Status, StatusItem, status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import unsigned
from .dumpfile import MAX_TEXT, Location, Minidump
from .lists import COUNT, read_structure

CRASHPAD_INFO, BREAKPAD_INFO, ASSERTION_INFO = 0x43500001, 0x47670001, 0x47670002

MAX_ANNOTATIONS = 0x1000
"""Greatest number of annotations of a dump that are read. Crashpad allows 64 simple ones a module."""

MAX_VALUE = 0x5000
"""Greatest number of bytes of an annotation: Crashpad allows 20,480."""

STRING_TYPE = 1
"""Annotation::Type::kString; types from 8000h are of the program."""

_DUMP_THREAD, _REQUESTING_THREAD = 1, 2


class _Info(NamedTuple):
    """MinidumpCrashpadInfo."""

    version: ULONG
    report_id: Annotated[bytes, "UCHAR[16]"]
    client_id: Annotated[bytes, "UCHAR[16]"]
    simple_annotations: Location
    module_list: Location


class _ModuleLink(NamedTuple):
    """MinidumpModuleCrashpadInfoLink."""

    minidump_module_list_index: ULONG
    location: Location


class _ModuleInfo(NamedTuple):
    """MinidumpModuleCrashpadInfo."""

    version: ULONG
    list_annotations: Location
    simple_annotations: Location
    annotation_objects: Location


class _Pair(NamedTuple):
    """MinidumpSimpleStringDictionaryEntry: RVAs of texts in UTF-8."""

    key: ULONG
    value: ULONG


class _AnnotationObject(NamedTuple):
    """MinidumpAnnotation: RVAs of the name and of the bytes of the value."""

    name: ULONG
    type: USHORT
    reserved: USHORT
    value: ULONG


class _Breakpad(NamedTuple):
    """MDRawBreakpadInfo."""

    validity: ULONG
    dump_thread_id: ULONG
    requesting_thread_id: ULONG


class Annotation(NamedTuple):
    """An annotation.

    Attributes:
        module: index of its module in ModuleListStream, None if it is of the whole process
        kind: `SimpleAnnotations`, `AnnotationObjects` or `ListAnnotations`, the list that has it
        name: its key, empty in ListAnnotations; None if it cannot be read
        type: type of a value of AnnotationObjects; STRING_TYPE in the other lists
        value: bytes of the value, UTF-8 for STRING_TYPE; None if they cannot be read
    """

    module: Optional[int]
    kind: str
    name: Optional[str]
    type: int
    value: Optional[bytes]


class CrashpadInfo(NamedTuple):
    """MinidumpCrashpadInfo: IDs of the report and of the installation, all annotations, and the status."""

    report_id: str
    client_id: str
    annotations: List[Annotation]
    status: Status


class BreakpadInfo(NamedTuple):
    """MDRawBreakpadInfo: IDs of the thread that wrote the dump, and of the thread that asked for it; None if
    they are not valid."""

    dump_thread_id: Optional[int]
    requesting_thread_id: Optional[int]


class AssertionInfo(NamedTuple):
    """MDRawAssertionInfo: an assertion, an invalid parameter or a pure virtual call that ended a process."""

    expression: Annotated[str, "WCHAR[128]"]
    function: Annotated[str, "WCHAR[128]"]
    file: Annotated[str, "WCHAR[128]"]
    line: ULONG
    type: ULONG


_INFO, _MODULE_INFO, _LINK = Declared(_Info), Declared(_ModuleInfo), Declared(_ModuleLink)
_PAIR, _ANNOTATION = Declared(_Pair), Declared(_AnnotationObject)
_BREAKPAD, _ASSERTION = Declared(_Breakpad), Declared(AssertionInfo)


ASSERTION_TYPES = {1: "INVALID_PARAMETER", 2: "PURE_VIRTUAL_CALL"}
"""MD_ASSERTION_INFO_TYPE_* of `AssertionInfo.type`."""


def crashpad_info(dump: Minidump) -> Optional[CrashpadInfo]:
    """Returns the annotations of Crashpad, None without its stream, or if the stream is too short."""
    info = _stream(dump, CRASHPAD_INFO, _INFO)
    if info is None:
        return None
    reader = _Reader(dump)
    found = [*reader.simple(None, info.simple_annotations), *reader.of_modules(info.module_list)]
    kept = found[:MAX_ANNOTATIONS]
    return CrashpadInfo(
        str(uuid.UUID(bytes_le=info.report_id)),
        str(uuid.UUID(bytes_le=info.client_id)),
        kept,
        status(
            StatusCode.LIMIT if len(kept) < len(found) or reader.limited else None,
            StatusItem(StatusCode.BEYOND_THE_FILE, reader.missing) if reader.missing else None,
        ),
    )


def breakpad_info(dump: Minidump) -> Optional[BreakpadInfo]:
    """Returns Breakpad's threads, None without its stream, or if the stream is too short."""
    info = _stream(dump, BREAKPAD_INFO, _BREAKPAD)
    if info is None:
        return None
    valid, writer, requester = info
    return BreakpadInfo(
        writer if valid & _DUMP_THREAD else None, requester if valid & _REQUESTING_THREAD else None
    )


def assertion_info(dump: Minidump) -> Optional[AssertionInfo]:
    """Returns the assertion that Breakpad recorded, None without its stream, or if that is too short."""
    return _stream(dump, ASSERTION_INFO, _ASSERTION)


def _stream(dump: Minidump, kind: int, form: Declared[Record]) -> Optional[Record]:
    read = read_structure(dump, kind, form)
    return None if read is None else read[0]


class _Reader:
    """Reads the lists of annotations.

    Attributes:
        missing: bytes of lists that lie beyond the end of the file
        limited: whether the annotations name more bytes than the file has, so that some were left out
    """

    def __init__(self, dump: Minidump) -> None:
        self._dump = dump
        self._left = MAX_ANNOTATIONS + 1
        self.missing = 0
        self.limited = False
        self._values: Memo[int, Optional[bytes]] = Memo(self._read)
        self._texts: Memo[int, Optional[str]] = Memo(self._decoded)
        # Two values share no byte of the file.
        self._bytes_left = min(dump.size, MAX_TEXT)

    def simple(self, module: Optional[int], place: Location) -> Iterator[Annotation]:
        """Yields the pairs of a MinidumpSimpleStringDictionary."""
        for key, value in self._rows(place, _PAIR):
            yield Annotation(module, "SimpleAnnotations", self._texts[key], STRING_TYPE, self._values[value])

    def of_modules(self, place: Location) -> Iterator[Annotation]:
        """Yields the annotations of all modules, from a MinidumpModuleCrashpadInfoList."""
        for index, at in self._rows(place, _LINK):
            data = self._dump.read(at.Rva, _MODULE_INFO.size) if at.DataSize >= _MODULE_INFO.size else None
            if data is None:
                self.missing += self._dump.beyond(at.Rva, at.DataSize)
                continue
            _, listed, simple, objects = _MODULE_INFO.decode(data)
            for (rva,) in self._rows(listed, COUNT):
                yield Annotation(index, "ListAnnotations", "", STRING_TYPE, self._values[rva])
            yield from self.simple(index, simple)
            for name, kind, _, value in self._rows(objects, _ANNOTATION):
                yield Annotation(index, "AnnotationObjects", self._texts[name], kind, self._values[value])

    def _rows(self, place: Location, form: Declared[Record]) -> Iterator[Record]:
        """Yields the entries of a list that is a 32-bit count and an array, MAX_ANNOTATIONS in all."""
        count = self._dump.read(place.Rva, COUNT.size) if place.DataSize >= COUNT.size else None
        if count is None:
            self.missing += self._dump.beyond(place.Rva, place.DataSize)
            return
        fitting = min(COUNT.decode(count)[0], (place.DataSize - COUNT.size) // form.size)
        for number in range(fitting):
            self._left -= 1
            row = self._dump.read(place.Rva + COUNT.size + number * form.size, form.size)
            if row is None or self._left < 0:
                self.missing += 0 if row is not None else form.size
                return
            yield form.decode(row)

    def _read(self, rva: int) -> Optional[bytes]:
        """Returns the bytes behind a 32-bit length: MinidumpUTF8String or MinidumpByteArray."""
        size = unsigned(self._dump.read(rva, 4)) if rva else None
        if size is None or size > MAX_VALUE:
            return None
        if size > self._bytes_left:
            self.limited = True
            return None
        self._bytes_left -= size
        return self._dump.read(rva + 4, size)

    def _decoded(self, rva: int) -> Optional[str]:
        data = self._values[rva]
        return None if data is None else data.decode("utf-8", "backslashreplace")
