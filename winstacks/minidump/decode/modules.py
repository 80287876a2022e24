# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a minidump: loaded ones with their versions and PDBs, and unloaded ones.

Source: "minidumpapiset.h" (MINIDUMP_MODULE, MINIDUMP_UNLOADED_MODULE), "verrsrc.h" (VS_FIXEDFILEINFO). The
record that names the PDB is the public `CV_INFO_PDB70`.
"""

from __future__ import annotations

from typing import Annotated, Dict, List, Optional, Sequence, Tuple

from ...memory.decode.declared import ADDRESS, STRING, ULONG, Declared
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, contradicted, naming, status
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.pe import MAX_PDB_PATH, CodeView, codeview_of
from .dumpfile import Location, Minidump, overlapping
from .lists import LIST_HEADER, read_counted_list, read_headed_list

MODULE_LIST, _UNLOADED_MODULE_LIST = 4, 14
"""Types of the streams."""

MAX_MODULES = 0x4000
"""Greatest number of modules of a list that are read."""

VERSION_SIGNATURE = 0xFEEF04BD


class FixedFileInfo(NamedTuple):
    """The beginning of VS_FIXEDFILEINFO. The halves of a version are in the order of the file: the lower half
    of each 32-bit word first."""

    Signature: ULONG
    StrucVersion: ULONG
    FileVersion: Annotated[Tuple[int, ...], "USHORT[4]"]
    ProductVersion: Annotated[Tuple[int, ...], "USHORT[4]"]


class MinidumpModule(NamedTuple):
    """MINIDUMP_MODULE.

    Attributes:
        ModuleName: path of the file, None if it cannot be read
        code_view: content of that record, None without a record of kind RSDS
    """

    BaseOfImage: ADDRESS
    SizeOfImage: ULONG
    CheckSum: ULONG
    TimeDateStamp: ULONG
    ModuleName: STRING
    VersionInfo: Annotated[bytes, "UCHAR[52]"]
    CvRecord: Location
    code_view: Optional[CodeView] = None
    status: Status = NOTHING

    @property
    def FileVersion(self) -> Optional[str]:  # noqa: N802
        """The version of the file, such as `10.0.19041.1`; None without the signature of VersionInfo."""
        return self._version(0)

    @property
    def ProductVersion(self) -> Optional[str]:  # noqa: N802
        """The version of the product, likewise."""
        return self._version(1)

    def _version(self, number: int) -> Optional[str]:
        signature, _, *versions = _FIXED_FILE_INFO.decode(self.VersionInfo)
        low = versions[number]
        return f"{low[1]}.{low[0]}.{low[3]}.{low[2]}" if signature == VERSION_SIGNATURE else None


class MinidumpUnloadedModule(NamedTuple):
    """MINIDUMP_UNLOADED_MODULE; the name is a file name, None if it cannot be read."""

    BaseOfImage: ADDRESS
    SizeOfImage: ULONG
    CheckSum: ULONG
    TimeDateStamp: ULONG
    ModuleName: STRING


_FIXED_FILE_INFO, UNLOADED = Declared(FixedFileInfo), Declared(MinidumpUnloadedModule)
MODULE = Declared(MinidumpModule, size=108)
_NOWHERE = Location(0, 0)


def module_list(dump: Minidump) -> Tuple[List[MinidumpModule], Status]:
    """Returns the modules of ModuleListStream, and the status of the stream."""
    found, faults = read_counted_list(dump, MODULE_LIST, MODULE, MAX_MODULES, "NumberOfModules")
    modules = [_judged(dump, module) for module in found]
    unnamed = any(module.ModuleName is None for module in modules)
    shared = overlapping(
        [(module.BaseOfImage, module.BaseOfImage + module.SizeOfImage) for module in distinct(modules)]
    )
    return modules, status(
        faults,
        dump.text_status,
        naming(StatusCode.HEADER, "ModuleNameRva") if unnamed else None,
        contradicted("BaseOfImage", "SizeOfImage") if shared else None,
    )


def distinct(modules: Sequence[MinidumpModule]) -> List[MinidumpModule]:
    """Returns modules without those that are listed a second time alike: a 64-bit writer takes the program of
    a WoW64 process from the loader's lists of both halves (measured: 7601)."""
    found: Dict[MinidumpModule, MinidumpModule] = {}
    for module in modules:
        found.setdefault(module._replace(CvRecord=_NOWHERE), module)
    return list(found.values())


def unloaded_module_list(dump: Minidump) -> Tuple[List[MinidumpUnloadedModule], Status]:
    """Returns the modules of UnloadedModuleListStream, and the status of the stream."""
    modules, faults = read_headed_list(
        dump, _UNLOADED_MODULE_LIST, LIST_HEADER, UNLOADED, MAX_MODULES, "NumberOfEntries"
    )
    return modules, status(faults, dump.text_status)


def _judged(dump: Minidump, module: MinidumpModule) -> MinidumpModule:
    """Returns a module with its PDB and its status."""
    size, rva = module.CvRecord
    return module._replace(
        code_view=codeview_of(dump.available(rva, min(size, 24 + MAX_PDB_PATH))),
        status=status(
            StatusCode.FILE_NAME_UNREADABLE if module.ModuleName is None else None,
            StatusCode.PARTLY_UNREADABLE if size and dump.beyond(rva, size) else None,
        ),
    )
