# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a minidump: loaded ones with their versions and PDBs, and unloaded ones.

Source: "minidumpapiset.h" (MINIDUMP_MODULE, MINIDUMP_UNLOADED_MODULE), "verrsrc.h" (VS_FIXEDFILEINFO). The
record that names the PDB is the public `CV_INFO_PDB70`.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from ...memory.decode.status import Status, StatusItem, status
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.pe import MAX_PDB_PATH, CodeView, codeview_of
from .dumpfile import FixedStruct, Location, Minidump, overlapping, read_counted_list, read_headed_list

MODULE_LIST, _UNLOADED_MODULE_LIST = 4, 14
"""Types of the streams."""

MAX_MODULES = 0x4000
"""Greatest number of modules of a list that are read."""

MODULE = FixedStruct("QIIIIIIHHHHHHHH28sIIIIQQ")
VERSION_SIGNATURE = 0xFEEF04BD
UNLOADED_HEADER = FixedStruct("III")
UNLOADED = FixedStruct("QIIII")


class MinidumpModule(NamedTuple):
    """MINIDUMP_MODULE. Addresses are as the writer stored them.

    Attributes:
        ModuleName: path of the file, None if it cannot be read
        FileVersion, ProductVersion: versions of VersionInfo, such as `10.0.19041.1`; None without its
            signature
        CvRecord: file range of the record that names the PDB
        code_view: content of that record, None without a record of kind RSDS
    """

    BaseOfImage: int
    SizeOfImage: int
    CheckSum: int
    TimeDateStamp: int
    ModuleName: Optional[str]
    FileVersion: Optional[str]
    ProductVersion: Optional[str]
    CvRecord: Location
    code_view: Optional[CodeView]
    status: Status


class MinidumpUnloadedModule(NamedTuple):
    """MINIDUMP_UNLOADED_MODULE; the name is a file name, None if it cannot be read."""

    BaseOfImage: int
    SizeOfImage: int
    CheckSum: int
    TimeDateStamp: int
    ModuleName: Optional[str]


def module_list(dump: Minidump) -> Tuple[List[MinidumpModule], Status]:
    """Returns the modules of ModuleListStream, and the status of the stream."""
    found, faults = read_counted_list(dump, MODULE_LIST, MODULE, MAX_MODULES, "NumberOfModules")
    modules = [_module(dump, row) for row in found]
    unnamed = any(module.ModuleName is None for module in modules)
    shared = overlapping(
        [(module.BaseOfImage, module.BaseOfImage + module.SizeOfImage) for module in modules]
    )
    return modules, status(
        faults,
        dump.text_status,
        StatusItem(StatusCode.HEADER, None, ("ModuleNameRva",)) if unnamed else None,
        StatusItem(StatusCode.CONTRADICTED, None, ("BaseOfImage", "SizeOfImage")) if shared else None,
    )


def unloaded_module_list(dump: Minidump) -> Tuple[List[MinidumpUnloadedModule], Status]:
    """Returns the modules of UnloadedModuleListStream, and the status of the stream."""
    found, faults = read_headed_list(
        dump, _UNLOADED_MODULE_LIST, UNLOADED_HEADER, UNLOADED, MAX_MODULES, "NumberOfEntries"
    )
    modules = [MinidumpUnloadedModule._make((*row, dump.string(rva))) for *row, rva in found]
    return modules, status(faults, dump.text_status)


def _module(dump: Minidump, row: Tuple) -> MinidumpModule:
    base, size, checksum, stamp, name_rva, signature, _, *versions = row[:15]
    name, known = dump.string(name_rva), signature == VERSION_SIGNATURE
    record = Location(row[16], row[17])
    data = dump.available(record.Rva, min(record.DataSize, 24 + MAX_PDB_PATH))
    return MinidumpModule(
        base,
        size,
        checksum,
        stamp,
        name,
        _version(versions[:4]) if known else None,
        _version(versions[4:]) if known else None,
        record,
        codeview_of(data),
        status(
            StatusCode.FILE_NAME_UNREADABLE if name is None else None,
            StatusCode.PARTLY_UNREADABLE
            if dump.beyond(record.Rva, record.DataSize) and record.DataSize
            else None,
        ),
    )


def _version(parts: List[int]) -> str:
    """Returns a version from the halves of two 32-bit words, the lower half of each first."""
    return f"{parts[1]}.{parts[0]}.{parts[3]}.{parts[2]}"
