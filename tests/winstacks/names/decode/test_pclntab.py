# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Go's table of functions, in parts of programs that Go compiled, and in forms made of these."""

from __future__ import annotations

import struct
from typing import Dict, Optional

import pytest

from tests.support.goprograms import PROGRAMS, GoProgram
from winstacks.columns.words import EXPORT, PCLNTAB
from winstacks.memory.decode.ranges import Extents
from winstacks.names.decode.pclntab import GoFunction, GoTable, may_be_go
from winstacks.names.decode.pe import MACHINE_AMD64, MEM_DISCARDABLE, MEM_EXECUTE, MEM_WRITE, Headers, Section
from winstacks.names.decode.rules import GoNames

TEXT, RDATA, DATA, END = 0x1000, 0x3000, 0x5000, 0x6000
BASE = 0x140000000


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_have_the_names_that_go_gave_them(name: str) -> None:
    program = GoProgram(name)
    assert {"main.main", "main.work", "main.square.area"} <= set(program.functions)
    for function, (begin, end) in program.functions.items():
        for rva in (begin, end - 1):
            found = program.table.find(rva)
            assert found is not None
            assert found[:3] == (begin, end, function)
    assert program.table.find(0) is None
    assert program.table.find(program.size) is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_read_before_a_function_is_asked(name: str) -> None:
    program = GoProgram(name)
    assert (program.reads, program.searched) == (0, 0)
    begin = program.functions["main.work"][0]
    program.table.find(begin)
    table_is_there, searched = program.reads, program.searched
    assert 0 < table_is_there < 60
    assert searched <= sum(
        part.end - part.start for part in program.headers.sections if part.name == ".rdata"
    )
    program.table.find(begin + 1)
    asked = program.reads
    assert asked - table_is_there < 20
    program.table.find(begin + 1)
    assert program.reads == asked
    assert program.searched == searched


def test_a_module_without_signs_of_go_is_not_searched() -> None:
    plain = Section(TEXT, RDATA, ".text", MEM_EXECUTE)
    assert not may_be_go(_headers(plain), ["main"])
    assert may_be_go(_headers(plain), ["main", "_cgo_dummy_export"])
    assert may_be_go(_headers(plain, Section(RDATA, DATA, ".symtab", 0)), [])
    assert may_be_go(_headers(plain, Section(RDATA, DATA, ".CRT", 0)), [])
    assert may_be_go(GoProgram("amd64-1.19").headers, [])


def test_functions_that_leave_their_stack_are_known() -> None:
    program = GoProgram("amd64-1.19")
    found = (program.table.find(begin) for begin, _ in program.functions.values())
    switching = {function.plain_name for function in found if function is not None and function.switches}
    left = {"runtime.asmstdcall", "runtime.asmcgocall", "runtime.mcall", "runtime.morestack"}
    assert left | {"runtime.systemstack", "runtime.cgocallback"} <= switching
    assert not any(name.startswith(("main.", "syscall.")) for name in switching)


class Forged:
    """A table of one of the four forms, with three functions. The first form has no flags."""

    def __init__(self, kind: int, own_linker: bool = True, text_word: bool = True) -> None:
        self.memory = bytearray(END)
        names = b"\0main.main\0runtime.mcall\0main.\x1b[31m\0"
        depths = b"\0" + bytes((2, 4, 0x80, 1, 60, 0x7F, 64, 0))
        records: Dict[int, bytes] = {}
        begins = (TEXT + 0x40, TEXT + 0x80, TEXT + 0xC0, TEXT + 0x100)
        first = begins[0]
        old, table, code = kind in (0xFB, 0xFA), RDATA + 0x40, first
        width = 8 if old else 4
        says = lambda rva: BASE + rva if old else rva - code  # noqa: E731
        places = [0x200 + 0x40 * number for number in range(3)]
        origin = 0x800 if kind != 0xFB else 0
        name_at, depth_at = (0x400, 0x500) if kind != 0xFB else (0, 0)
        offsets = [names.index(b"main.main"), names.index(b"runtime"), names.rindex(b"main.")]
        for begin, place, offset in zip(begins, places, offsets):
            flag_at = {0xFA: 33, 0xF0: 33, 0xF1: 37}.get(kind)
            record = bytearray(width + 40)
            struct.pack_into("<Q" if old else "<I", record, 0, says(begin))
            extra = (0x400, 0x500) if kind == 0xFB else (0, 0)
            struct.pack_into("<I", record, width, offset + extra[0])
            struct.pack_into("<I", record, width + 12, 1 + extra[1])
            if flag_at is not None and offset == offsets[0]:
                record[width + flag_at] = 2
            records[place] = bytes(record)
        listed = b"".join(
            struct.pack("<QQ" if old else "<II", says(begin), place)
            for begin, place in zip(begins, [*places, 0])
        )
        header = bytes((kind, 0xFF, 0xFF, 0xFF, 0, 0, 1, 8)) + struct.pack("<Q", 3)
        if kind == 0xFA:
            header += struct.pack("<6Q", 1, name_at, 0, 0, depth_at, origin)
        elif kind != 0xFB:
            text = BASE + code if text_word else 0
            header += struct.pack("<7Q", 1, text, name_at, 0, 0, depth_at, origin)
        parts = {0: header, 0x400: names, 0x500: depths, (16 if kind == 0xFB else origin): listed}
        parts.update({origin + place: record for place, record in records.items()})
        for place, data in parts.items():
            self.memory[table + place : table + place + len(data)] = data
        moduledata = DATA + 0x100
        struct.pack_into("<Q", self.memory, moduledata, BASE + table)
        struct.pack_into("<Q", self.memory, moduledata + 22 * 8, BASE + code)
        sections = [
            Section(first if own_linker else TEXT, RDATA, ".text", MEM_EXECUTE),
            Section(RDATA, DATA, ".rdata", 0),
            Section(DATA, END, ".data", MEM_WRITE),
        ]
        self.headers = _headers(*sections, *([Section(END, END + 4, ".symtab", 0)] if own_linker else []))

    def read(self, rva: int, length: int) -> Optional[bytes]:
        whole = rva >= 0 and rva + length <= len(self.memory)
        return bytes(self.memory[rva : rva + length]) if whole else None

    def load(self, rva: int, length: int) -> Extents:
        return Extents([(rva, bytes(self.memory[rva : rva + length]))])

    def table(self) -> GoTable:
        return GoTable(self.load, self.read, self.headers, BASE)


def _headers(*sections: Section) -> Headers:
    return Headers(MACHINE_AMD64, 0, END, tuple(sections), ())


@pytest.mark.parametrize("own_linker", [True, False])
@pytest.mark.parametrize("kind", [0xFB, 0xFA, 0xF0, 0xF1])
def test_each_form_has_names_and_depths(kind: int, own_linker: bool) -> None:
    table = Forged(kind, own_linker).table()
    found = [table.find(TEXT + at) for at in (0x3F, 0x40, 0x7F, 0x80, 0xC0, 0xFF, 0x100)]
    names = [None if function is None else function.name for function in found]
    assert names[:4] == [None, "main.main", "main.main", "runtime.mcall"]
    assert names[4:] == ["main.\\x1b[31m", "main.\\x1b[31m", None]
    main, mcall = found[1], found[3]
    assert isinstance(main, GoFunction)
    assert isinstance(mcall, GoFunction)
    assert (main.switches, mcall.switches) == (kind != 0xFB, True)
    # +1 for 4 bytes (value 0), +64 for 60 bytes.
    assert [table.depth(main, TEXT + at) for at in (0x40, 0x43, 0x44, 0x7F)] == [0, 0, 64, 64]
    assert table.depth(main, TEXT + 0x3F) is None


def test_without_an_address_in_the_header_moduledata_has_it() -> None:
    forged = Forged(0xF1, own_linker=False, text_word=False)
    assert forged.table().find(TEXT + 0x40) is not None
    forged.memory[DATA + 0x100] ^= 1
    assert forged.table().find(TEXT + 0x40) is None


@pytest.mark.parametrize("kind", [0xFB, 0xFA, 0xF0, 0xF1])
def test_a_table_that_contradicts_itself_is_none(kind: int) -> None:
    forged = Forged(kind)
    origin = 0x800 if kind != 0xFB else 0
    forged.memory[RDATA + 0x40 + origin + 0x200] ^= 4
    assert forged.table().find(TEXT + 0x80) is None


def test_the_list_of_depths_is_bounded() -> None:
    forged = Forged(0xF1)
    place = RDATA + 0x40 + 0x500
    lengths = []

    def read(rva: int, length: int) -> Optional[bytes]:
        lengths.append(length)
        return forged.read(rva, length)

    table = GoTable(forged.load, read, forged.headers, BASE)
    function = table.find(TEXT + 0x40)
    assert function is not None
    # No step of it goes on in the code, and it ends far behind.
    forged.memory += bytes(1 << 18)
    forged.memory[place:] = b"\x00\x02" * ((len(forged.memory) - place) // 2)
    lengths.clear()
    assert table.depth(function, TEXT + 0x50) is None
    assert 0 < sum(lengths) <= 1 << 14
    forged = Forged(0xF1)
    # 2 in six bytes, which is +1, for 60 bytes.
    forged.memory[place + 1 : place + 8] = b"\x82\x80\x80\x80\x80\0\x3c"
    assert forged.table().depth(function, TEXT + 0x40) is None


def test_places_of_the_pointer_to_a_table_are_bounded() -> None:
    """Each of a million pointers would be examined, for each of 64 headers."""
    forged = Forged(0xF1, own_linker=False, text_word=False)
    forged.memory[DATA:END] = struct.pack("<Q", BASE + RDATA + 0x40) * ((END - DATA) // 8)
    reads = []

    def read(rva: int, length: int) -> Optional[bytes]:
        reads.append(rva)
        return forged.read(rva, length)

    assert GoTable(forged.load, read, forged.headers, BASE).find(TEXT + 0x40) is None
    assert len(reads) < 80


def test_go_names_come_before_exports() -> None:
    forged = Forged(0xF1)
    names = GoNames(
        [TEXT + 0x40, TEXT + 0x200], ["DllMain", "Go"], forged.headers.sections, None, forged.table()
    )
    assert names.find_label(TEXT + 0x44) == (TEXT + 0x40, "main.main", PCLNTAB)
    label = names.find_label(TEXT + 0x204)
    assert label is not None
    assert label[:2] == (TEXT + 0x200, "Go")
    assert label[2] != EXPORT


def test_debug_information_is_not_searched() -> None:
    """GNU's linker adds it to C programs with .CRT, too: more bytes than all else."""
    forged = Forged(0xF1)
    rdata = forged.headers.sections[1]
    discardable = rdata._replace(characteristics=MEM_DISCARDABLE)
    searched = []

    def load(rva: int, length: int) -> Extents:
        searched.append(rva)
        return forged.load(rva, length)

    headers = _headers(*(discardable if part is rdata else part for part in forged.headers.sections))
    assert GoTable(load, forged.read, headers, BASE).find(TEXT + 0x40) is None
    assert searched == [END]


def test_all_searches_together_are_bounded() -> None:
    """Each header without an address would have the data searched for it."""
    forged = Forged(0xF1, own_linker=False, text_word=False)
    forged.memory[DATA:END] = bytes(END - DATA)
    header = bytes(forged.memory[RDATA + 0x40 : RDATA + 0x80])
    for place in range(RDATA + 0x1000, RDATA + 0x1800, 0x40):
        forged.memory[place : place + 0x40] = header
    large = Section(END, 1 << 30, ".data", MEM_WRITE)
    forged.headers = _headers(*forged.headers.sections, large, large)
    searched = []

    def load(rva: int, length: int) -> Extents:
        searched.append(length)
        return forged.load(rva, length)

    assert GoTable(load, forged.read, forged.headers, BASE).find(TEXT + 0x40) is None
    assert sum(searched) < 1 << 27
