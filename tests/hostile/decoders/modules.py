# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Headers, exports, function tables and unwind data of modules; unload events; text."""

from __future__ import annotations

import contextlib
import functools
import struct
from typing import Iterator, List, Optional

from tests.forge.unloaded import UnloadedDll, unload_trace
from tests.support import bare, namedimage
from tests.support.flatimage import Flat, flat, pe
from winstacks.memory.decode import text
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.memory.decode.ranges import Extents
from winstacks.names.decode import exports, rules, unloadevents, unwindinfo, version
from winstacks.names.decode import pe as peheaders
from winstacks.names.decode.functiontable import FunctionTable
from winstacks.names.decode.peimage import PeFileError, PeImage

from .target import Target

_USER_END = {8: 1 << 47, 4: 0x80000000}


def _image(bits: int) -> bytes:
    spec = namedimage.spec(bits == 64)
    contents = spec.pop("contents", {})
    module = flat(pe(bits, **spec, contents=contents))
    data = bytearray(module.extents.runs[0][1])
    for rva, piece in contents.items():
        data[rva : rva + len(piece)] = piece
    return bytes(data)


def _module(data: bytes, whole: bytes) -> None:
    memory = Flat(data)
    try:
        headers = peheaders.read_headers(memory.read)
    except peheaders.HeaderError:
        return
    assert 0 < headers.size <= peheaders.MAX_IMAGE
    assert len(headers.sections) <= peheaders.MAX_SECTIONS
    peheaders.read_codeview(memory.read, headers)
    listed = exports.read_exports(memory.load, headers)
    for start, name in listed.entries:
        assert 0 < start < headers.size
        assert name.isprintable()
    rva, size = headers.directory(peheaders.DIRECTORY_EXCEPTION)
    found = memory.load(rva, size)
    table = FunctionTable.from_runs([(start - rva, run) for start, run in found.runs], size, memory.read)
    for function in list(table)[:64]:
        _function(table, function)
    rvas, labels = rules.sort_labels(listed.entries)
    names = rules.ExportNames(rvas, labels, headers.sections, table)
    for address in (0, 0x1000, 0x1010, 0x1210, 0x2010, 0x5000, headers.size - 1, headers.size, 1 << 63):
        names.find_label(address)


def _function(table: FunctionTable, function: unwindinfo.RuntimeFunction) -> None:
    table.primary(function)
    table.find_entry(function.begin)
    table.complete_at(function.begin)
    try:
        info = table.unwind_info(table.direct(function))
    except unwindinfo.UnwindDataError:
        return
    assert len(info.codes) <= 255


def _file(data: bytes, whole: bytes) -> None:
    """The same bytes as a file, whose offsets equal RVAs."""
    reads: List[int] = []

    def read(offset: int, length: int) -> bytes:
        found = data[offset : offset + length]
        reads.append(len(found))
        return found

    try:
        file = PeImage(read, len(data))
    except PeFileError as error:
        assert str(error).isprintable()
        return
    assert 0 <= file.content_sum() < len(data) + 0x10000
    for rva in range(0, min(file.headers.size, 0x40000), PAGE_SIZE):
        page = file.page(rva, 0x70000000)
        if page is not None:
            assert len(page.data) == PAGE_SIZE
            for low, high in (*page.known, *page.compared):
                assert 0 <= low < high <= PAGE_SIZE
    assert sum(reads) < 1 << 26


_RESOURCES = peheaders.Headers(0x8664, 0, 0x1000, (), ((0, 0),) * 2 + ((0x100, 0x300),))


def _version(data: bytes, whole: bytes) -> None:
    """A version has its size and its signature; of the directories few entries are read."""
    reads = 0

    def read(rva: int, length: int) -> Optional[memoryview]:
        nonlocal reads
        reads += 1
        return Extents([(0, data)]).read(rva, length)

    found = version.read_fixed_file_info(read, _RESOURCES)
    assert found is None or len(found) == version.SIZE
    assert reads <= 3 * (version.MAX_ENTRIES + 1) + 2
    assert found is not None or not whole or data != whole


def _versions() -> List[bytes]:
    """A directory with an icon and a version, a name, a language, the data."""
    data = bytearray(0x400)
    struct.pack_into("<12xHH4I", data, 0x100, 0, 2, 3, 0x80000200, version.RT_VERSION, 0x80000030)
    struct.pack_into("<12xHHII", data, 0x130, 0, 1, 1, 0x80000060)
    struct.pack_into("<12xHHII", data, 0x160, 0, 1, 0x409, 0x90)
    struct.pack_into("<II", data, 0x190, 0x200, 0x5C)
    struct.pack_into("<13I", data, 0x228, version.SIGNATURE, *range(12))
    return [bytes(data)]


def _unwind(data: bytes, whole: bytes) -> None:
    with contextlib.suppress(unwindinfo.UnwindDataError):
        unwindinfo.read_unwind_info(Flat(data).read, 0)


def _unwind_seeds() -> List[bytes]:
    codes = struct.pack("<BBBB6H", 0x19, 0x20, 6, 0x25, 0x0B15, 0x0034, 0x0820, 0x0100, 0x0F64, 0x0044)
    chained = b"\x21\0\0\0" + struct.pack("<III", 0x1000, 0x1100, 0x5800)
    return [
        b"\x01\0\0\0",
        codes + struct.pack("<II", 0x4000, 1),
        chained,
        b"\x02\x04\x02\x05\x04\x03\x01\x50",
    ]


def _events(size: int, data: bytes, whole: bytes) -> None:
    layouts = bare.event_layouts(size)
    for layout in layouts:
        unloadevents.read_events(data, layout, _USER_END[size])
        for event in unloadevents.salvage_events(data, layout, _USER_END[size]):
            assert event.name.isprintable()
            assert event.base + event.size <= _USER_END[size]
    for offset in unloadevents.find_ring(memoryview(data), layouts, _USER_END[size]):
        assert 0 <= offset < len(data)


def _event_seeds(size: int) -> List[bytes]:
    dlls = [
        UnloadedDll(f"library{number}.dll", 0x10000000 + number * 0x100000, 0x8000) for number in range(20)
    ]
    rings = [unload_trace(dlls[:count], 8 * size) for count in (3, 20)]
    return [b"\x11" * 64 + ring + b"\x22" * 32 for ring in rings]


def _text(data: bytes, whole: bytes) -> None:
    for encoding in ("utf-16-le", "latin-1"):
        decoded = data.decode(encoding, "replace")
        # Half a surrogate pair gets through where the bytes are decoded as they are.
        for name in (decoded, data.decode("utf-16-le", "surrogatepass") if len(data) % 2 == 0 else ""):
            shown = text.printable(name)
            assert shown.isprintable() and len(shown) <= 10 * text.MAX_NAME
            for plain in (text.file_name(name), text.module_name(name)):
                assert plain.isprintable() and len(plain) <= 10 * text.MAX_NAME
                assert "/" not in plain


def _text_seeds() -> List[bytes]:
    names = ("C:\\Windows\\System32\\ntdll.dll", "\\SystemRoot\\system32\\drivers\\a b.sys", "x" * 400, "")
    return [name.encode("utf-16-le") for name in names]


def _image_seeds(bits: int) -> List[bytes]:
    return [_image(bits)]


def targets() -> Iterator[Target]:
    for bits in (32, 64):
        yield Target(f"module-{bits}", functools.partial(_image_seeds, bits), _module)
        yield Target(f"modulefile-{bits}", functools.partial(_image_seeds, bits), _file)
        seeds = functools.partial(_event_seeds, bits // 8)
        yield Target(f"unloadevents-{bits}", seeds, functools.partial(_events, bits // 8))
    yield Target("version", _versions, _version)
    yield Target("unwindinfo", _unwind_seeds, _unwind)
    yield Target("text", _text_seeds, _text)
