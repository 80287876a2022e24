# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The entries of a dump's lists in `minidump.info`, on request: modules, handles, regions, annotations.

Members have Microsoft's names, apart from two: `image key` is the path of the module's file on a symbol
server, `PDB key` the path of its PDB.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List

from ..memory.decode import text
from ..memory.decode.pagetable import round_to_pages
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, status
from ..memory.decode.statuscodes import StatusCode
from ..minidump.decode.dumpfile import Minidump
from ..minidump.decode.handles import HandleDescriptor, handle_data
from ..minidump.decode.memory import memory_info_list
from ..minidump.decode.modules import MinidumpModule, module_list, unloaded_module_list
from ..minidump.decode.reporters import (
    ASSERTION_TYPES,
    STRING_TYPE,
    Annotation,
    assertion_info,
    breakpad_info,
    crashpad_info,
)
from . import dumpwords
from .dumprows import DumpEntry

MAX_VALUE = 1000
"""Greatest number of characters shown of a comment or an annotation."""


def modules(dump: Minidump) -> Iterator[DumpEntry]:
    """Yields the modules of ModuleListStream: place, version, and the keys of symbol servers."""
    for number, module in enumerate(module_list(dump)[0]):
        path = module.ModuleName
        name = text.cell(path) if path is not None else ""
        yield DumpEntry(1, f"Modules[{number}]", name, module.status, module.BaseOfImage)
        yield DumpEntry(2, "SizeOfImage", f"{module.SizeOfImage:#x}")
        yield from _build(module.TimeDateStamp, module.CheckSum)
        for member, version in (
            ("FileVersion", module.FileVersion),
            ("ProductVersion", module.ProductVersion),
        ):
            if version is not None:
                yield DumpEntry(2, member, version)
        file = text.file_name(path or "")
        if file:
            key = f"{file}/{module.TimeDateStamp:08X}{module.SizeOfImage:x}/{file}"
            yield DumpEntry(2, "image key", text.cell(key, MAX_VALUE))
        yield from _pdb(module)


def _pdb(module: MinidumpModule) -> Iterator[DumpEntry]:
    found = module.code_view
    if found is None:
        if module.CvRecord.DataSize:
            yield DumpEntry(2, "CvRecord", f"{module.CvRecord.DataSize} bytes, no RSDS record")
        return
    yield DumpEntry(2, "PdbFileName", text.cell(found.pdb_name))
    yield DumpEntry(2, "Guid", f"{found.guid}")
    yield DumpEntry(2, "Age", f"{found.age}")
    file = text.file_name(found.pdb_name)
    yield DumpEntry(2, "PDB key", text.cell(f"{file}/{found.guid}{found.age:X}/{file}", MAX_VALUE))


def _build(stamp: int, checksum: int) -> Iterator[DumpEntry]:
    # In a reproducible build the stamp is a hash and no time.
    yield DumpEntry(2, "TimeDateStamp", f"{stamp:#x}")
    yield DumpEntry(2, "CheckSum", f"{checksum:#x}")


def unloaded_modules(dump: Minidump) -> Iterator[DumpEntry]:
    for number, module in enumerate(unloaded_module_list(dump)[0]):
        unnamed = status(StatusCode.FILE_NAME_UNREADABLE) if module.ModuleName is None else NOTHING
        name = text.cell(module.ModuleName or "")
        yield DumpEntry(1, f"UnloadedModules[{number}]", name, unnamed, module.BaseOfImage)
        yield DumpEntry(2, "SizeOfImage", f"{module.SizeOfImage:#x}")
        yield from _build(module.TimeDateStamp, module.CheckSum)


def handles(dump: Minidump) -> Iterator[DumpEntry]:
    """Yields the handles of HandleDataStream by type and name, after the number of each type."""
    by_type: Dict[str, List[HandleDescriptor]] = {}
    for handle in handle_data(dump)[0]:
        by_type.setdefault(handle.TypeName or "", []).append(handle)
    for kind, found in sorted(by_type.items()):
        yield DumpEntry(1, text.cell(kind) or "no TypeName", text.counted(len(found), "handle"))
        for handle in sorted(found, key=lambda one: (one.ObjectName or "", one.Handle)):
            name = "" if handle.ObjectName is None else f"{text.cell(handle.ObjectName)}, "
            value = f"{name}GrantedAccess {handle.GrantedAccess:#x}"
            yield DumpEntry(2, f"Handle {handle.Handle:#x}", value)


def regions(dump: Minidump) -> Iterator[DumpEntry]:
    """Yields the regions of MemoryInfoListStream, with the name of the module in each."""
    named = {module.BaseOfImage: module for module in module_list(dump)[0]}
    for info in memory_info_list(dump)[0]:
        words = dumpwords.region(info.State, info.Protect, info.Type)
        module = named.get(info.AllocationBase)
        if module is not None and info.BaseAddress < info.AllocationBase + round_to_pages(module.SizeOfImage):
            words = f"{words} {text.cell(text.file_name(module.ModuleName or ''))}"
        yield DumpEntry(1, f"{info.RegionSize:#x} bytes", words, NOTHING, info.BaseAddress)


def crashpad_annotations(dump: Minidump) -> Iterator[DumpEntry]:
    """Yields the annotations of Crashpad: first for the process, then for each module."""
    info = crashpad_info(dump)
    if info is None:
        yield DumpEntry(1, "version", "", status(StatusCode.UNREADABLE))
        return
    yield DumpEntry(1, "report_id", info.report_id, info.status)
    yield DumpEntry(1, "client_id", info.client_id)
    listed = module_list(dump)[0]
    for found in info.annotations:
        owner = ""
        if found.module is not None:
            known = listed[found.module] if found.module < len(listed) else None
            owner = text.file_name(known.ModuleName or "") if known is not None else f"module {found.module}"
        name = found.name if found.name is not None else "?"
        place = "/".join(part for part in (owner, found.kind, name) if part)
        unreadable = found.name is None or found.value is None
        yield DumpEntry(
            1, text.cell(place), _value(found), status(StatusCode.UNREADABLE) if unreadable else NOTHING
        )


def _value(found: Annotation) -> str:
    """Returns the value of an annotation: text, or hexadecimal bytes of a type only its program knows."""
    data = found.value or b""
    if found.type == STRING_TYPE:
        return text.cell(data.decode("utf-8", "backslashreplace"), MAX_VALUE)
    return text.printable(f"type {found.type:#x}: {data.hex(' ')}", MAX_VALUE)


def breakpad_threads(dump: Minidump) -> Iterator[DumpEntry]:
    """Yields the thread that wrote a dump, and the thread that asked for it."""
    info = breakpad_info(dump)
    if info is None:
        yield DumpEntry(1, "validity", "", status(StatusCode.UNREADABLE))
        return
    for name, tid in info._asdict().items():
        if tid is not None:
            yield DumpEntry(1, name, str(tid), NOTHING, None, tid)


def breakpad_assertion(dump: Minidump) -> Iterator[DumpEntry]:
    """Yields the members of an assertion; none if the stream has no assertion."""
    info = assertion_info(dump)
    if info is None:
        yield DumpEntry(1, "expression", "", status(StatusCode.UNREADABLE))
        return
    for name, value in info._asdict().items():
        if name == "type" and value:
            yield DumpEntry(1, name, dumpwords.one_of(ASSERTION_TYPES, value))
        elif value:
            yield DumpEntry(1, name, text.cell(value, MAX_VALUE) if isinstance(value, str) else str(value))


class Listing(NamedTuple):
    """The entries of a stream. `option` is the option of `minidump.info` that shows them; empty if they are
    always shown."""

    option: str
    entries: Callable[[Minidump], Iterator[DumpEntry]]


LISTINGS: Dict[str, Listing] = {
    "ModuleListStream": Listing("modules", modules),
    "UnloadedModuleListStream": Listing("unloaded", unloaded_modules),
    "HandleDataStream": Listing("handles", handles),
    "MemoryInfoListStream": Listing("regions", regions),
    "kMinidumpStreamTypeCrashpadInfo": Listing("annotations", crashpad_annotations),
    "MD_BREAKPAD_INFO_STREAM": Listing("annotations", breakpad_threads),
    "MD_ASSERTION_INFO_STREAM": Listing("annotations", breakpad_assertion),
}
"""Streams whose entries have rows of their own, by their names."""
