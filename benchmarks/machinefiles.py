# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The program files of a forged machine: each is laid out once, and all processes share its pages.

Windows loads a library at the same address in all processes. So a process's page tables, loader entries and
names are put together from what was made once for each file.
"""

from __future__ import annotations

import dataclasses
import random
import struct
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from tests.forge import code, paging
from tests.forge.code import Routine
from tests.forge.isf import Isf
from tests.forge.kernel import Kernel
from tests.forge.module import Module, Spec, section_of
from tests.forge.paging import State
from tests.forge.pe import DATA, RDATA, TEXT, Function, Pe, Section
from tests.forge.phys import PAGE
from tests.forge.process import Process
from tests.forge.sections import ImageSection

MODULES = 0x7FF800000000
"""From where on files are loaded."""
LOADER = 0x6000000000
"""Where the loader's entries and names of a process lie."""

DATA_PAGES = 2
MISSING = 0.05
"""The share of pages that are not in memory."""

_FUNCTION = 0x100
_FIRST = 0x2000
"""RVA of the first function behind those that are on stacks."""
_PLAIN_UNWIND = b"\x01\0\0\0"
_UNWIND_SIZE = 0x1000
_TABLE = 512 * PAGE
_VARIANTS = 8
_ENTRY = "_LDR_DATA_TABLE_ENTRY"


@dataclasses.dataclass
class File:
    """A program file and its section.

    Attributes:
        path, base: of it, the same in all processes
        pe, section: what is in it
        entries: page table entries of its pages in some variants, which miss different pages
        private: RVAs of the pages of which each process has its own
        loader: its loader entry, less the links
        routines: its functions that may be on stacks
    """

    path: str
    base: int
    pe: Pe
    section: ImageSection
    entries: List[bytes]
    private: range
    loader: bytes
    routines: Sequence[Routine]

    @property
    def called(self) -> List[Tuple[int, Routine]]:
        return [(self.base, routine) for routine in self.routines]

    def sites(self, generator: random.Random, count: int) -> List[int]:
        """Return addresses in so many of its functions."""
        chosen = generator.choices(self.pe.functions, k=count)
        return [self.base + function.begin + 0x1D for function in chosen]


class Files:
    """The files of a machine.

    Args:
        kernel: the kernel
        generator: decides which pages are missing
    """

    def __init__(self, kernel: Kernel, generator: random.Random) -> None:
        self._kernel = kernel
        self._random = generator
        self._next = MODULES
        self._names = bytearray()

    def add(
        self,
        path: str,
        functions: int,
        exports: int,
        routines: Sequence[Routine] = (),
        named: Mapping[str, int] = {},
        contents: Mapping[int, bytes] = {},
        complete: bool = False,
    ) -> File:
        """Lays out a file.

        Args:
            path: of the file
            functions: how many functions it has
            exports: how many of these are exported
            routines: functions that may be on stacks, below RVA 2000h
            named: other exports
            contents: other bytes, by RVA
            complete: no page of the section is missing
        """
        name = path.rsplit("\\", 1)[-1]
        spec = Spec(**_options(name.split(".")[0], functions, exports, routines, named, contents))
        pe, section = section_of(name, self._next, path, spec, self._kernel.sections)
        if not complete:
            for rva in list(section.frames):
                if self._random.random() < MISSING:
                    section.set_state(rva, PAGE, State.PROTOTYPE)
        data = next(section for section in pe.sections if section.name == ".data")
        private = range(data.rva, data.rva + DATA_PAGES * PAGE, PAGE)
        entries = [self._entries(section) for _ in range(_VARIANTS)]
        loader = self._loader_entry(path, name, pe)
        self._next += -(-pe.size // 0x10000) * 0x10000
        return File(path, pe.base, pe, section, entries, private, loader, routines)

    def load(self, process: Process, files: Sequence[File], variant: int) -> Dict[str, Module]:
        """Loads files into a process, the program first; returns the modules by name without ending."""
        space, loader = process.space, process.loader
        assert loader is not None
        tables: Dict[int, bytearray] = {}
        for file in files:
            _put(tables, file.base, file.entries[variant % _VARIANTS])
            own = b"".join(
                struct.pack("<Q", paging.private_entry(space.phys.allocate())) for _ in file.private
            )
            _put(tables, file.base + file.private.start, own)
        for address, table in tables.items():
            space.tables.put_table(address, bytes(table))
        size = len(files[0].loader)
        names = LOADER + -(-size * len(files) // PAGE) * PAGE
        entries = b"".join(_relocated(process.kernel.isf, file.loader, names) for file in files)
        process.region(LOADER, entries.ljust(names - LOADER, b"\0") + self._names)
        loaded = {}
        for number, file in enumerate(files):
            module = Module(space, file.pe, file.path, None, file.section)
            loader.adopt(module, LOADER + number * size)
            process.image_range(module)
            loaded[module.name.rsplit(".", 1)[0]] = module
        return loaded

    def _entries(self, section: ImageSection) -> bytes:
        """The page table entries of a file in a process; some lead to the prototype PTE only."""
        entries = [0] * section.count
        for rva, frame in section.frames.items():
            missing = self._random.random() < MISSING
            entries[rva // PAGE] = paging.IN_THE_VAD if missing else paging.shared_entry(frame)
        return struct.pack(f"<{len(entries)}Q", *entries)

    def _loader_entry(self, path: str, name: str, pe: Pe) -> bytes:
        members: Dict[str, int] = {
            "DllBase": pe.base,
            "SizeOfImage": pe.size,
            "EntryPoint": pe.base + pe.entry_point,
            "TimeDateStamp": pe.timestamp,
        }
        for member, text in (("FullDllName", path), ("BaseDllName", name)):
            data = text.encode("utf-16-le")
            members[f"{member}.Length"] = len(data)
            members[f"{member}.MaximumLength"] = len(data) + 2
            members[f"{member}.Buffer"] = len(self._names)
            self._names += data + bytes(-len(data) % 8 or 8)
        return packed(self._kernel.isf, _ENTRY, members)


def data_rva(functions: int, exports: int) -> int:
    """The RVA of .data in a file with so many functions and exports."""
    # Of each export there is room for its name, two RVAs and the ordinal, and for those of few more.
    return _end_of_code(functions) + _UNWIND_SIZE + -(-(0x400 + 48 * exports) // PAGE) * PAGE


def _end_of_code(functions: int) -> int:
    return -(-(_FIRST + functions * _FUNCTION) // PAGE) * PAGE


def packed(isf: Isf, type_name: str, members: Mapping[str, int]) -> bytes:
    """The bytes of a structure with some numbers in it."""
    data = bytearray(isf.size(type_name))
    for path, value in members.items():
        place = isf.place(type_name, path)
        position = 0 if place.bits is None else place.bits[0]
        held = int.from_bytes(data[place.offset : place.offset + place.size], "little") | value << position
        data[place.offset : place.offset + place.size] = held.to_bytes(place.size, "little")
    return bytes(data)


def _relocated(isf: Isf, entry: bytes, names: int) -> bytes:
    """A loader entry whose names lie at an address."""
    moved = bytearray(entry.ljust(-(-len(entry) // 16) * 16, b"\0"))
    for member in ("FullDllName.Buffer", "BaseDllName.Buffer"):
        offset = isf.offset(_ENTRY, member)
        (place,) = struct.unpack_from("<Q", moved, offset)
        struct.pack_into("<Q", moved, offset, names + place)
    return bytes(moved[: len(entry)])


def _put(tables: Dict[int, bytearray], address: int, entries: bytes) -> None:
    """Puts page table entries of an address and the following ones into the tables of 2 MiB each."""
    while entries:
        start = address & ~(_TABLE - 1)
        table = tables.setdefault(start, bytearray(PAGE))
        offset = (address - start) // PAGE * 8
        part = entries[: PAGE - offset]
        table[offset : offset + len(part)] = part
        address, entries = start + _TABLE, entries[len(part) :]


def _options(
    stem: str,
    functions: int,
    exports: int,
    routines: Sequence[Routine],
    named: Mapping[str, int],
    contents: Mapping[int, bytes],
) -> Dict[str, Any]:
    text = _end_of_code(functions)
    data = data_rva(functions, exports)
    pdata = data + DATA_PAGES * PAGE
    module_options = code.module_options(routines, text + 0x10, 64)
    starts = range(_FIRST, _FIRST + functions * _FUNCTION, _FUNCTION)
    every = max(functions // max(exports, 1), 1)
    sections = [
        Section(".text", PAGE, text - PAGE, TEXT),
        Section(".rdata", text, data - text, RDATA),
        Section(".data", data, DATA_PAGES * PAGE, DATA),
        Section(".pdata", pdata, 12 * (functions + len(routines)), RDATA),
    ]
    return {
        "sections": sections,
        "exports": {
            **{f"{stem}Function{rva:06x}": rva for rva in starts[: exports * every : every]},
            **named,
        },
        "functions": [
            *module_options["functions"],
            *(Function(rva, rva + _FUNCTION - 8, text) for rva in starts),
        ],
        "contents": {**module_options["contents"], text: _PLAIN_UNWIND, **contents},
        "meta_rva": text + _UNWIND_SIZE,
    }
