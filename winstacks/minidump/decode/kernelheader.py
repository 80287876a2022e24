# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The header of a crash dump of a kernel: DUMP_HEADER (x86, `PAGEDUMP`) and DUMP_HEADER64 (`PAGEDU64`).

    header = read_header(read)          # raises NotAKernelDumpError
    header.BugCheckCode

A file may end within the header: collectors of bug checks keep only its first 4 or 8 KB. What the file lacks
is None.

Source: `crash.json` and `crash64.json` of Volatility; the names of the members come from these structures.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from ...memory.decode.machine import Machine, machine_of

SIGNATURE = b"PAGE"
_VALID = {b"DU64": True, b"DUMP": False}
"""Whether the header is the 64-bit one, by ValidDump."""

TRIAGE = 4
"""DumpType of small kernel dumps."""

FILLER = int.from_bytes(b"PAGE", "little")
"""Windows fills a header with `PAGE` first: a member with this value was never written."""

_COMMENT = 128

KERNEL_START = {True: 0xFFFF800000000000, False: 0x80000000}
"""Lowest address of the kernel's half, by whether the header is DUMP_HEADER64: x64 and ARM64, or x86."""

Read = Callable[[int, int], bytes]
"""Takes an offset and a length, returns the bytes of the file from there: fewer at the end of the file."""

_WIDE: Dict[str, Tuple[int, int]] = {
    "MajorVersion": (0x8, 4),
    "MinorVersion": (0xC, 4),
    "DirectoryTableBase": (0x10, 8),
    "PfnDataBase": (0x18, 8),
    "PsLoadedModuleList": (0x20, 8),
    "PsActiveProcessHead": (0x28, 8),
    "MachineImageType": (0x30, 4),
    "NumberProcessors": (0x34, 4),
    "BugCheckCode": (0x38, 4),
    "KdDebuggerDataBlock": (0x80, 8),
    "DumpType": (0xF98, 4),
    "RequiredDumpSpace": (0xFA0, 8),
    "SystemTime": (0xFA8, 8),
    "SystemUpTime": (0x1030, 8),
    "MiniDumpFields": (0x1038, 4),
    "ProductType": (0x1040, 4),
    "SuiteMask": (0x1044, 4),
}
_NARROW: Dict[str, Tuple[int, int]] = {
    "MajorVersion": (0x8, 4),
    "MinorVersion": (0xC, 4),
    "DirectoryTableBase": (0x10, 4),
    "PfnDataBase": (0x14, 4),
    "PsLoadedModuleList": (0x18, 4),
    "PsActiveProcessHead": (0x1C, 4),
    "MachineImageType": (0x20, 4),
    "NumberProcessors": (0x24, 4),
    "BugCheckCode": (0x28, 4),
    "KdDebuggerDataBlock": (0x60, 4),
    "DumpType": (0xF88, 4),
    "RequiredDumpSpace": (0xFA0, 8),
    "SystemTime": (0xFC0, 8),
    "SystemUpTime": (0xFB8, 8),
    "MiniDumpFields": (0xF8C, 4),
    "ProductType": (0xF94, 4),
    "SuiteMask": (0xF98, 4),
}
"""Offset and size in bytes of the members that are read."""

_POINTERS = ("PsLoadedModuleList", "PsActiveProcessHead", "KdDebuggerDataBlock")


class NotAKernelDumpError(ValueError):
    """The file does not have the header of a kernel crash dump; the text is a sentence for users."""


class KernelDumpHeader(NamedTuple):
    """DUMP_HEADER or DUMP_HEADER64. A member that Windows did not write, or that the file lacks, is None.

    Attributes:
        wide: whether the header is DUMP_HEADER64
        size: size of the header in bytes; the data of the dump's type follow
        present: bytes of the header that the file has
        context_offset, exception_offset: offsets of ContextRecord and Exception, the header's own CONTEXT and
            EXCEPTION_RECORD
        MajorVersion: 15 for a free build, 12 for a checked build
        MinorVersion: the build number
        BugCheckParameters: the four parameters of KeBugCheckEx, numbers of pointer width
        SystemTime: a FILETIME
        SystemUpTime: in units of 100 ns
        Comment: text of the comment, empty without one
    """

    wide: bool
    size: int
    present: int
    context_offset: int
    exception_offset: int
    MajorVersion: Optional[int]
    MinorVersion: Optional[int]
    DirectoryTableBase: Optional[int]
    PfnDataBase: Optional[int]
    PsLoadedModuleList: Optional[int]
    PsActiveProcessHead: Optional[int]
    MachineImageType: Optional[int]
    NumberProcessors: Optional[int]
    BugCheckCode: Optional[int]
    BugCheckParameters: Tuple[int, ...]
    KdDebuggerDataBlock: Optional[int]
    DumpType: Optional[int]
    RequiredDumpSpace: Optional[int]
    SystemTime: Optional[int]
    SystemUpTime: Optional[int]
    MiniDumpFields: Optional[int]
    ProductType: Optional[int]
    SuiteMask: Optional[int]
    Comment: str

    @property
    def machine(self) -> Machine:
        """The machine that crashed.

        Raises:
            UnsupportedMachineError: the machine is not supported; the text is a sentence for users
        """
        return machine_of(self.MachineImageType or 0)


def read_header(read: Read) -> KernelDumpHeader:
    """Reads the header of a dump.

    Raises:
        NotAKernelDumpError: the file has no such header, or ends before its bug check
    """
    begin = read(0, 8)
    if begin[:4] != SIGNATURE or begin[4:] not in _VALID:
        raise NotAKernelDumpError(
            "The file does not begin as a crash dump of a kernel (PAGEDU64 or PAGEDUMP)"
        )
    wide = _VALID[begin[4:]]
    size = 0x2000 if wide else 0x1000
    data = read(0, size)
    parameters_at, form, comment_at = (0x40, "<4Q", 0xFB0) if wide else (0x2C, "<4I", 0x820)
    if len(data) < parameters_at + struct.calcsize(form):
        raise NotAKernelDumpError(
            f"The file ends within the header of a crash dump, before its bug check: it has {len(data)} bytes"
        )
    members = {name: _number(data, *place) for name, place in (_WIDE if wide else _NARROW).items()}
    parameters, comment = struct.unpack_from(form, data, parameters_at), data[comment_at:][:_COMMENT]
    if not wide:
        for name in _POINTERS:
            value = members[name]
            members[name] = None if value is None else Machine.I386.canonical(value)
    written = not comment.startswith(SIGNATURE)
    return KernelDumpHeader(
        wide=wide,
        size=size,
        present=len(data),
        context_offset=0x348 if wide else 0x320,
        exception_offset=0xF00 if wide else 0x7D0,
        BugCheckParameters=parameters,
        Comment=comment.partition(b"\0")[0].decode("latin-1") if written else "",
        **members,
    )


def _number(data: bytes, offset: int, size: int) -> Optional[int]:
    """Returns a member, None if Windows did not write it or the file ends before it."""
    if len(data) < offset + size:
        return None
    value = int.from_bytes(data[offset : offset + size], "little")
    return None if value in (FILLER, FILLER << 32 | FILLER) else value
