# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes the worst files of 1 MB that are known: parts that share, repeat or contradict each other."""

from __future__ import annotations

import itertools
import pathlib
import struct

from tests.forge.minidump import Module, Writer, WrittenThread

MEGABYTE = 1_000_000
"""The size of a file: the parts that repeat are as many as fit."""

_CODE, _STACK, _TEB = 0x10000000, 0x200000, 0x7FFD0000
_PAGE = 0x1000
_KERNEL = 0xFFFFF80000000000
_STAMP, _BASE, _PATH = 0x5EE7D1E5, 0x7FF800000000, "C:\\Windows\\System32\\ntdll.dll"
_CHECK_SUM = 12345
"""Of a file whose content has another one: the whole file is read to find out."""


def _begun(architecture: int = 9) -> Writer:
    writer = Writer()
    writer.system_info(architecture)
    writer.misc_info(4312)
    return writer


def _text(writer: Writer) -> int:
    """Adds a text of 64 KB, and returns where it is."""
    return writer.string("x" * 0x7FFF)


def _rows(row: int) -> int:
    """How many rows of so many bytes a file has beside a text of 64 KB."""
    return (MEGABYTE - 0x11000) // row


def handles() -> bytes:
    """Handles whose types and names are one text."""
    writer = _begun()
    text, count = _text(writer), _rows(32)
    rows = b"".join(struct.pack("<QIIIIII", 4 * number, text, text, 0, 1, 1, 2) for number in range(count))
    writer.stream(12, struct.pack("<IIII", 16, 32, count, 0) + rows)
    return writer.bytes()


def names() -> bytes:
    """Names of threads that are one text."""
    writer = _begun()
    text, count = _text(writer), _rows(12)
    writer.threads([WrittenThread(100, _TEB, (_STACK, bytes(0x100)), bytes(1232))])
    rows = b"".join(struct.pack("<IQ", 100 + number, text) for number in range(count))
    writer.stream(24, struct.pack("<I", count) + rows)
    return writer.bytes()


def mappings() -> bytes:
    """Mapped files, in the stream of our own, that are one text."""
    writer = _begun()
    text, count = _text(writer), _rows(16)
    rows = b"".join(struct.pack("<QII", 0x10000 * number, text, 0) for number in range(count))
    writer.stream(0x57530002, struct.pack("<IIII", 16, 16, count, 0) + rows)
    return writer.bytes()


def modules() -> bytes:
    """Modules whose paths are one text."""
    writer = _begun()
    text, count = _text(writer), _rows(108)
    version = struct.pack("<II8H28x", 0xFEEF04BD, 0x10000, *range(8)) + bytes(32)
    rows = b"".join(
        struct.pack("<QIIII", _BASE + _PAGE * number, _PAGE, 0, 1, text) + version for number in range(count)
    )
    writer.stream(4, struct.pack("<I", count) + rows)
    return writer.bytes()


def threads(count: int = 20_000) -> bytes:
    """Threads with one CONTEXT of 64 KB."""
    writer = _begun()
    place = writer.put(bytes(48) + struct.pack("<I", 0x10001F) + bytes(0x10000 - 52))
    stack = writer.put(bytes(0x100))
    rows = b"".join(
        struct.pack("<IIIIQQ", 4 + 4 * number, 0, 32, 0, 0x7FF000000000 + 0x2000 * number, 0x10000 * number)
        + struct.pack("<IIII", 0x100, stack, 0x10000, place)
        for number in range(count)
    )
    writer.stream(3, struct.pack("<I", count) + rows)
    return writer.bytes()


def _sharing(threads: int, stack: bytes, code: bytes = b"") -> bytes:
    """Threads with one CONTEXT, whose Rsp leads to the stack of the first; code lies at _BASE."""
    writer = _begun()
    context = bytearray(1232)
    struct.pack_into("<I", context, 0x30, 0x10001F)
    struct.pack_into("<Q", context, 0x98, _STACK)
    struct.pack_into("<Q", context, 0xF8, _BASE + 5)
    place, at, text = writer.put(bytes(context)), writer.put(stack), writer.put(code)
    rows = b"".join(
        struct.pack("<IIIIQQ", 4 + 4 * number, 0, 32, 0, 0x7FF000000000 + 0x2000 * number, start)
        + struct.pack("<IIII", 8 if number else len(stack), at, len(context), place)
        for number, start in enumerate(range(_STACK, _STACK + (threads << 24), 1 << 24))
    )
    writer.stream(3, struct.pack("<I", threads) + rows)
    writer.stream(5, struct.pack("<IQII", 1 if code else 0, _BASE, len(code), text))
    return writer.bytes()


def returns(threads: int = 19_000) -> bytes:
    """Threads on one stack of return addresses behind calls: a scan takes each for a frame."""
    return _sharing(threads, struct.pack("<Q", _BASE + 10) * 2000, b"\xe8\0\0\0\0" * 16)


def scanned(threads: int = 19_000) -> bytes:
    """Threads on one stack without a return address: each scan reads as much as it may."""
    return _sharing(threads, b"".join(struct.pack("<Q", _BASE + _PAGE * n) for n in range(1 << 13)))


def code() -> bytes:
    """A stack of x86 whose return addresses lie in 240 pages of code without an end."""
    count, body = 240, b"\x40"
    head, tail = b"\xc3\x41" * 12, b"\xff\xd0" + body * 14
    page = head + body * (_PAGE - len(head) - len(tail)) + tail
    memory = page * count + body * 2 * _PAGE + b"\xc3"
    place = _PAGE - len(tail) + 2
    stack = b"".join(struct.pack("<II", 0, _CODE + _PAGE * number + place) for number in range(count))
    stack += bytes(64)
    context = bytearray(716)
    struct.pack_into("<I", context, 0, 0x1007F)
    struct.pack_into("<IIIIII", context, 0xB4, 0, _CODE + place, 0x1B, 0x202, _STACK, 0x23)
    teb = bytearray(_PAGE)
    struct.pack_into("<III", teb, 4, _STACK + len(stack), _STACK, 0)
    struct.pack_into("<I", teb, 0x18, _TEB)
    writer = _begun(architecture=0)
    writer.threads([WrittenThread(100, _TEB, (_STACK, stack), bytes(context))])
    parts = (_STACK, stack, 4), (_CODE, memory, 0x40), (_TEB, bytes(teb), 4)
    writer.memory_infos(
        [(at, at, kind, -(-len(data) // _PAGE) * _PAGE, _PAGE, kind, 0x20000) for at, data, kind in parts]
    )
    writer.memory64([(at, data) for at, data, _ in parts])
    return writer.bytes()


def _kernel_header(kind: int) -> bytearray:
    header = bytearray(0x2000)
    header[:8] = b"PAGEDU64"
    struct.pack_into("<IIQQQ", header, 8, 15, 19041, 0x1AD000, _KERNEL - (1 << 44), _KERNEL)
    struct.pack_into("<QIII", header, 0x28, _KERNEL + _PAGE, 0x8664, 1, 10)
    struct.pack_into("<Q", header, 0x80, _KERNEL + 2 * _PAGE)
    struct.pack_into("<I", header, 0xF98, kind)
    return header


def blocks(count: int) -> bytes:
    """A small kernel dump with data blocks; two of the blocks share bytes of the file."""
    at = 0x2200
    first = at + 16 * count
    size = first + 16 * count
    data = bytearray(size)
    data[:0x2000] = _kernel_header(4)
    struct.pack_into("<3I", data, 0x2000, 0, size, size - 4)
    struct.pack_into("<Q16xQIIIIII", data, 0x2048, 0, 0, 0, 0, 0, 0, at, count)
    for number in range(count):
        place = first + 16 * max(number, 1)
        struct.pack_into("<QII", data, at + 16 * number, _KERNEL + 0x100000 + 0x100 * number, place, 16)
    return bytes(data)


def bitmap() -> bytes:
    """A bitmap dump of a kernel, whose bits alternate, with one page."""
    begin = struct.pack("<4s4s24xQQQ", b"SDMP", b"DUMP", 0x2038 + MEGABYTE, 1, 8 * MEGABYTE)
    return bytes(_kernel_header(6)) + begin + b"\x55" * MEGABYTE + bytes(_PAGE)


def sparse(path: pathlib.Path, size: int = 40 << 30) -> None:
    """Writes a bitmap dump whose bitmap is a hole of the file."""
    begin = struct.pack("<4s4s24xQQQ", b"SDMP", b"DUMP", 0x2038 + size, 1, 8 * size)
    with path.open("wb") as file:
        file.write(bytes(_kernel_header(6)) + begin)
        file.truncate(0x2038 + size + _PAGE)


def _pe_file(pages: int, relocations: bytes, check_sum: int = 0) -> bytes:
    text = pages * _PAGE
    size = _PAGE + text + (len(relocations) + _PAGE - 1 & -_PAGE)
    header = bytearray(_PAGE)
    header[:2] = b"MZ"
    struct.pack_into("<I", header, 0x3C, 0x80)
    struct.pack_into("<4sHHIIIHH", header, 0x80, b"PE\0\0", 0x8664, 2, _STAMP, 0, 0, 240, 0x2022)
    optional = 0x98
    struct.pack_into("<H", header, optional, 0x20B)
    struct.pack_into("<QII", header, optional + 24, 0x180000000, _PAGE, 0x200)
    struct.pack_into("<III", header, optional + 56, size, _PAGE, check_sum)
    struct.pack_into("<I", header, optional + 108, 16)
    struct.pack_into("<II", header, optional + 152, _PAGE + text, len(relocations))
    parts = ((b".text", text, _PAGE, 0x60000020), (b".reloc", len(relocations), _PAGE + text, 0x42000040))
    for number, (name, length, at, flags) in enumerate(parts):
        struct.pack_into(
            "<8sIIIIIIHHI", header, optional + 240 + 40 * number,
            name, length, at, length, at, 0, 0, 0, 0, flags
        )  # fmt: skip
    return bytes(header) + bytes(text) + relocations


def relocated() -> bytes:
    """A file of a module with as many relocations for each page as are read."""
    pages, length = MEGABYTE // (2 * _PAGE) - 1, _PAGE
    entries = struct.pack("<H", 0xA008) * ((length - 8) // 2)
    rows = [struct.pack("<II", _PAGE + _PAGE * page, length) + entries for page in range(pages)]
    return _pe_file(pages, b"".join(rows))


def spelled(folder: pathlib.Path, count: int = 24) -> None:
    """Writes sparse files of 2 GB whose names differ in case only, and whose CheckSum is wrong."""
    data = _pe_file(1, b"", _CHECK_SUM)
    for letters in itertools.islice(itertools.product(*((c, c.upper()) for c in "ntdll")), count):
        with (folder / f"{''.join(letters)}.dll").open("wb") as file:
            file.write(data)
            file.truncate((1 << 31) - _PAGE)


def without_code(of: bytes) -> bytes:
    """A process dump whose stacks lead to each page of a module, whose code is in a file alone."""
    size = struct.unpack_from("<I", of, 0x98 + 56)[0]
    writer = _begun()
    places = range(_BASE + _PAGE, _BASE + size, _PAGE)
    stack = b"".join(struct.pack("<QQ", 0, place + 0x100) for place in places) + bytes(64)
    context = bytearray(1232)
    struct.pack_into("<I", context, 0x30, 0x10000F)
    struct.pack_into("<Q", context, 0x98, _STACK)
    struct.pack_into("<Q", context, 0xF8, _BASE + _PAGE + 0x100)
    writer.threads([WrittenThread(100, _TEB, (_STACK, stack), bytes(context))])
    writer.modules([Module(_BASE, size, _STAMP, _PATH)])
    writer.memory([(_STACK, stack)])
    return writer.bytes()
