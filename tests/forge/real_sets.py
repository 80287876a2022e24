# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stack trace databases that Windows code wrote, put into a forged process or kernel.

A set is a `.tar.xz` of memory regions with `truth.json`, which says what is in them: addresses,
header fields, every live entry. A set without its module's own regions is as good: the pointer to
the database is written in any case.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import tarfile
from typing import Any, Mapping, Optional, Union

from .isf import Isf
from .kept import FEW
from .kernel import Kernel
from .module import Module
from .obj import Obj
from .pe import DATA, Pdb, Section, guid_of, header_size
from .phys import PAGE
from .process import Process
from .vad import Vad
from .wow64 import Wow64

_MODULE_REGION = "module"
# Offsets in a PEB: NumberOfHeaps, ProcessHeaps (public symbols; the same in every version).
_HEAPS = {8: (0xE8, 0xF0), 4: (0x88, 0x90)}


@dataclasses.dataclass(frozen=True)
class Region:
    """`what`: "database", "module .data", "peb", "teb" or "private"."""

    va: int
    data: bytes
    what: str


@dataclasses.dataclass(frozen=True)
class RealSet:
    """A set; `truth` is its `truth.json`, `dump` the buffer that Windows itself made of it."""

    truth: Mapping[str, Any]
    regions: tuple[Region, ...]
    dump: Optional[bytes]

    @property
    def name(self) -> str:
        return str(self.truth["name"])

    @property
    def pointer_size(self) -> int:
        return 8 if self.truth["arch"] == "x64" else 4

    @property
    def base(self) -> int:
        """Base of the module whose database it is."""
        return int(self.truth["module"]["base"])

    @property
    def pointer_name(self) -> str:
        """The global's name as symbols spell it."""
        return "RtlpStackTraceDataBase" if self.truth["generation"] == "5" else "RtlpStackTraceDatabase"

    def without_module(self) -> RealSet:
        """The set less its module's regions, as one may be committed."""
        kept = [region for region in self.regions if not region.what.startswith(_MODULE_REGION)]
        return dataclasses.replace(self, regions=tuple(kept))

    def patched(self, va: int, data: bytes) -> RealSet:
        """The set with other bytes at an address within one region."""
        regions = []
        for region in self.regions:
            start = va - region.va
            if 0 <= start < len(region.data):
                changed = region.data[:start] + data + region.data[start + len(data) :]
                region = dataclasses.replace(region, data=changed)
            regions.append(region)
        return dataclasses.replace(self, regions=tuple(regions))

    def kernel_options(self) -> dict[str, Any]:
        """What a Kernel needs so that the set's addresses are user addresses.

        Some sets' ntdll lies above the 8 TiB that Windows 7 gave to a process.
        """
        ends = [region.va + len(region.data) for region in self.regions]
        top = max(ends + [module["base"] + module["size"] for module in self.truth["modules"]])
        return {"highest_user": 0x7FFFFFFEFFFF} if 0x7FFFFFEFFFF < top < 1 << 47 else {}


@functools.lru_cache(maxsize=FEW)
def load(path: pathlib.Path) -> RealSet:
    """Reads a set in about 20 ms; regions whose file is not in the archive are left out."""
    with tarfile.open(path) as archive:
        files = {}
        for member in archive.getmembers():
            opened = archive.extractfile(member)
            if opened is not None:
                files[pathlib.PurePath(member.name).name] = opened.read()
    truth = json.loads(files["truth.json"])
    regions = [
        Region(region["va"], files[region["file"]], region["what"])
        for region in truth["regions"]
        if region["file"] in files
    ]
    return RealSet(truth, tuple(regions), files.get("process_backtraces.bin"))


def process(
    kernel: Kernel,
    real: RealSet,
    *,
    pid: int = 1000,
    name: str = "app.exe",
    symbols: bool = False,
    session: Optional[int] = None,
) -> Process:
    """Makes a process that holds a user set, at its addresses.

    An x86 set in a 64-bit kernel becomes the 32-bit half of a WoW64 process whose 64-bit ntdll has
    no database. `symbols`: a symbol table for the set's ntdll goes with the image; without, ntdll's
    RSDS record names a PDB that nobody has.
    """
    peb = int(real.truth["peb"])
    if real.pointer_size * 8 == kernel.bits:
        forged_process = kernel.process(name, pid=pid, peb=peb, session=session)
        _fill(forged_process, forged_process, real, symbols)
        forged_process.thread(pid + 4, teb=_teb(real))
        return forged_process
    forged_process = kernel.process(name, pid=pid, session=session)
    forged_process.module("ntdll.dll", 0x7FE80000000)
    wow = forged_process.wow64(peb=peb)
    _fill(forged_process, wow, real, symbols)
    wow.thread(forged_process.thread(pid + 4), teb=_teb(real))
    return forged_process


def kernel_of(real: RealSet, table: Isf, **options: Any) -> Kernel:
    """Makes a kernel that holds a kernel set, at its addresses; for the options see `Kernel`.

    The table's symbols move behind the set's module, whose data they would lie in; its database
    pointer's symbol is where the set has it.
    """
    module = real.truth["module"]
    size = -(-module["size"] // PAGE) * PAGE
    moved = {name: {"address": at["address"] + size} for name, at in table.symbols.items()}
    for name in ("RtlpStackTraceDataBase", "RtlpStackTraceDatabase"):
        moved.pop(name, None)
    end = max(at["address"] for at in moved.values())
    moved[real.pointer_name] = {"address": real.truth["pointer_rva"]}
    table = Isf(dict(table.data, symbols=moved)).renamed(guid_of(f"{table.guid}-{real.name}"))
    sections = [Section(*section) for section in module["sections"]]
    sections.append(Section("FORGED", size, end + PAGE - size, DATA))
    kernel = Kernel(table, **{**options, "base": real.base, "sections": sections})
    for region in real.regions:
        kernel.space.write(region.va, region.data)
    kernel.set(real.pointer_name, real.truth["database"])
    return kernel


def _teb(real: RealSet) -> Optional[int]:
    return next((region.va for region in real.regions if region.what == "teb"), None)


def _fill(owner: Process, half: Union[Process, Wow64], real: RealSet, symbols: bool) -> None:
    truth = real.truth
    owner.vads.append(Vad(truth["database"], truth["header"]["EntryIndexArray"] - truth["database"]))
    if half.peb is None:
        raise ValueError("the process has no PEB")
    for module in truth["modules"]:
        half.module(module["name"], module["base"], size=module["size"])
    _module(half, real, symbols)
    for region in real.regions:
        owner.region(region.va, region.data, vad=not region.what.startswith(_MODULE_REGION))
    owner.space.write_int(real.base + truth["pointer_rva"], truth["database"], real.pointer_size)
    _heaps(owner, half.peb, real)


def _module(half: Union[Process, Wow64], real: RealSet, symbols: bool) -> Module:
    module = real.truth["module"]
    pdb = Pdb(module["pdb"]["database"], module["pdb"]["guid"], module["pdb"]["age"])
    table = None
    if symbols:
        pdb = Pdb(pdb.name, guid_of(real.name))
        table = {real.pointer_name: real.truth["pointer_rva"]}
    sections = [Section(*section) for section in module["sections"]]
    return half.module(
        module["name"],
        module["base"],
        size=module["size"],
        sections=sections,
        pdb=pdb,
        symbols=table,
        meta_rva=header_size(len(sections)),
    )


def _heaps(owner: Process, peb: Obj, real: RealSet) -> None:
    """Writes the array of heaps that the PEB points to: no region of the set holds it."""
    heaps = real.truth.get("heap", {}).get("heaps", [])
    size = real.pointer_size
    count_at, array_at = _HEAPS[size]
    array = owner.space.read_int(peb.address + array_at, size)
    if not heaps or not array:
        return
    owner.space.write_int(peb.address + count_at, len(heaps), 4)
    if not any(vad.covers(array) for vad in owner.vads):
        owner.region(array & ~(PAGE - 1), size=PAGE)
    for index, heap in enumerate(heaps):
        owner.space.write_int(array + index * size, heap["heap"], size)
