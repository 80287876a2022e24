# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Modules: a PE image in memory, and what names it."""

from __future__ import annotations

import dataclasses
from typing import Iterator, Mapping, Optional, Sequence, Union

from . import isf
from .obj import Obj
from .pe import DATA, RDATA, TEXT, TIMESTAMP, Function, Pdb, Pe, Section, guid_of
from .phys import PAGE
from .sections import ImageSection, Sections
from .space import Space


@dataclasses.dataclass
class Spec:
    """What a module is made of; all addresses are RVAs.

    Args:
        size: of the image; default: as the sections need.
        text, rdata, data: bytes of the default sections (.text at 0x1000, .rdata, .data, and
            .pdata where there are functions); ignored if `sections` is given.
        sections: the section table, when the default does not do.
        exports, ordinals, functions: see `pe.Pe`.
        contents: bytes to put into the image by RVA: code, unwind information, variables.
        pdb: the RSDS record; default: one made from the name; False for none.
        symbols: name to RVA: makes a symbol table for that PDB, installed with the image's.
        headers: False leaves the header page out, as if it had been paged out.
        resident: True maps every page; else only those that something was written to.
    """

    size: int = 0
    text: int = 0x4000
    rdata: int = 0x2000
    data: int = 0x1000
    sections: Optional[Sequence[Section]] = None
    exports: Mapping[str, Union[int, str]] = dataclasses.field(default_factory=dict)
    ordinals: Mapping[int, int] = dataclasses.field(default_factory=dict)
    functions: Sequence[Function] = ()
    contents: Mapping[int, bytes] = dataclasses.field(default_factory=dict)
    pdb: Union[Pdb, bool] = True
    symbols: Optional[Mapping[str, int]] = None
    headers: bool = True
    resident: bool = False
    meta_rva: int = 0
    exports_rva: int = 0
    pdata_rva: int = 0
    dll: bool = True
    timestamp: int = TIMESTAMP

    def layout(self) -> Sequence[Section]:
        if self.sections is not None:
            return self.sections
        sizes = [(".text", self.text, TEXT), (".rdata", self.rdata, RDATA)]
        sizes.append((".data", self.data, DATA))
        if self.functions:
            sizes.append((".pdata", 12 * len(self.functions), RDATA))
        rva = PAGE
        sections = []
        for name, size, characteristics in sizes:
            sections.append(Section(name, rva, size, characteristics))
            rva += -(-size // PAGE) * PAGE
        return sections

    def pe(self, name: str, bits: int, base: int) -> Pe:
        """The PE image of this module at `base`."""
        sections = self.layout()
        end = max((section.rva + section.size for section in sections), default=PAGE)
        places = {section.name: section.rva for section in sections}
        pdb = self.pdb
        if pdb is True:
            stem = name.rsplit(".", 1)[0]
            # Other symbols, another PDB: tables of several images may share a directory.
            symbols = None if self.symbols is None else sorted(self.symbols.items())
            pdb = Pdb(f"{stem}.pdb", guid_of(f"{name}-{bits}-{symbols}"))
        return Pe(
            name,
            bits,
            base,
            self.size or -(-end // PAGE) * PAGE,
            sections,
            self.exports,
            self.ordinals,
            self.functions,
            pdb or None,
            self.meta_rva or places.get(".rdata", PAGE // 2),
            self.exports_rva,
            self.pdata_rva or places.get(".pdata", 0),
            dll=self.dll,
            timestamp=self.timestamp,
        )


class Module:
    """A module in memory. `entry` is its loader entry (None if the lists do not have it).

    `pieces` are the bytes of its file by RVA, those of the headers first.
    """

    def __init__(
        self,
        space: Space,
        pe: Pe,
        path: str,
        symbols: Optional[isf.Isf],
        section: Optional[ImageSection] = None,
        pieces: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        self.space = space
        self.pe = pe
        self.path = path
        self.symbols = symbols
        self.section = section
        self.pieces = pieces
        self.entry: Optional[Obj] = None

    @property
    def name(self) -> str:
        return self.pe.name

    @property
    def base(self) -> int:
        return self.pe.base

    @property
    def size(self) -> int:
        return self.pe.size

    def at(self, where: Union[int, str]) -> int:
        """Virtual address of an RVA, of a symbol or of an export."""
        if isinstance(where, int):
            return self.base + where
        if self.symbols is not None and where in self.symbols.symbols:
            return self.base + self.symbols.symbol(where)
        target = self.pe.exports[where]
        if isinstance(target, str):
            raise KeyError(f"{where} is forwarded to {target}")
        return self.base + target

    def write(self, rva: int, data: bytes) -> None:
        self.space.write(self.base + rva, data)


def load(
    space: Space,
    name: str,
    bits: int,
    base: int,
    path: str,
    spec: Spec,
    sections: Optional[Sections] = None,
) -> Module:
    """Puts a module's image into a space, in no list yet.

    Args:
        sections: the image sections of files. Pages that are as in the file are those of its section; None
            gives the module pages of its own.
    """
    pe = spec.pe(name, bits, base)
    table = None
    if spec.symbols is not None and pe.pdb is not None:
        table = isf.new(pe.pdb.name, pe.pdb.guid, bits // 8, dict(spec.symbols), age=pe.pdb.age)
    whole = [*pe.pieces().items(), *spec.contents.items()]
    pieces = [(rva, data) for rva, data in whole if rva or spec.headers]
    section = None if sections is None else _section(sections, path, pe)
    if section is not None:
        _share(space, base, section, _pages(pieces, pe.size if spec.resident else 0))
    if spec.resident:
        space.map(base, pe.size)
    for rva, data in _cut(pieces):
        if not space.shares(base + rva):
            space.write(base + rva, data)
    return Module(space, pe, path, table, section, whole)


def section_of(name: str, base: int, path: str, spec: Spec, sections: Sections) -> tuple[Pe, ImageSection]:
    """The section of a 64-bit module, with all pages of it; no process has mapped it yet."""
    pe = spec.pe(name, 64, base)
    section = _section(sections, path, pe)
    if section is None:
        raise ValueError(f"{path} has a section of another size")
    for rva, data in _pages([*pe.pieces().items(), *spec.contents.items()], 0).items():
        section.put(rva, data)
    return pe, section


def _section(sections: Sections, path: str, pe: Pe) -> Optional[ImageSection]:
    starts = {0, *(section.rva for section in pe.sections if 0 < section.rva < pe.size)}
    return sections.section(path, pe.size, sorted(starts))


def _share(space: Space, base: int, section: ImageSection, pages: Mapping[int, bytes]) -> None:
    """Maps those pages of a module that are as in its file, and are nothing else yet."""
    for rva, data in pages.items():
        section.put(rva, data)
        if section.holds(rva, data) and not space.holds(base + rva):
            space.share(base + rva, section.frames[rva])


def _pages(pieces: Sequence[tuple[int, bytes]], size: int) -> dict[int, bytes]:
    """The pages that hold pieces, and all pages up to a size."""
    pages = {rva: bytearray(PAGE) for rva in range(0, size, PAGE)}
    for rva, data in _cut(pieces):
        page = pages.setdefault(rva & ~(PAGE - 1), bytearray(PAGE))
        page[rva % PAGE : rva % PAGE + len(data)] = data
    return {rva: bytes(page) for rva, page in pages.items()}


def _cut(pieces: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Cuts pieces at the borders of pages."""
    for rva, data in pieces:
        while data:
            room = PAGE - rva % PAGE
            yield rva, data[:room]
            rva, data = rva + room, data[room:]


def fill_entry(entry: Obj, module: Module) -> None:
    """Writes a loader entry (`_LDR_DATA_TABLE_ENTRY` or its kernel twin), links excepted."""
    entry["DllBase"] = module.base
    entry["SizeOfImage"] = module.size
    entry.put(
        EntryPoint=module.base + module.pe.entry_point,
        TimeDateStamp=module.pe.timestamp,
        CheckSum=module.pe.checksum,
        LoadCount=1,
        ObsoleteLoadCount=1,
    )
    entry.text("FullDllName", module.path)
    entry.text("BaseDllName", module.name)
    module.entry = entry
