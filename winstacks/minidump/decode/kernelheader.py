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

from typing import Annotated, Any, Dict, Optional, Tuple

from ...memory.decode.declared import MAYBE_ULONG, Declared, without
from ...memory.decode.machine import Machine, machine_of
from ...memory.decode.memory import ReadFile
from ...memory.decode.records import NamedTuple

SIGNATURE = b"PAGE"
_VALID = {b"DU64": True, b"DUMP": False}
"""Whether the header is the 64-bit one, by ValidDump."""

TRIAGE = 4
"""DumpType of small kernel dumps."""

FILLER = int.from_bytes(b"PAGE", "little")
FILLERS = (FILLER, FILLER << 32 | FILLER)
"""Windows fills a header with `PAGE` first: a member with this value was never written."""

KERNEL_START = {True: 0xFFFF800000000000, False: 0x80000000}
"""Lowest address of the kernel's half, by whether the header is DUMP_HEADER64: x64 and ARM64, or x86."""

_POINTER = Annotated[Optional[int], "ULONG_PTR"]
_POINTERS = ("PsLoadedModuleList", "PsActiveProcessHead", "KdDebuggerDataBlock")


class NotAKernelDumpError(ValueError):
    """The file does not have the header of a kernel crash dump; the text is a sentence for users."""


class KernelDumpHeader(NamedTuple):
    """DUMP_HEADER or DUMP_HEADER64. A member that Windows did not write, or that the file lacks, is None.

    Attributes:
        wide: whether the header is DUMP_HEADER64
        present: bytes of the header that the file has
        context_offset, exception_offset: offsets of ContextRecord and Exception, the header's own CONTEXT and
            EXCEPTION_RECORD
        MajorVersion: 15 for a free build, 12 for a checked build
        MinorVersion: the build number
        BugCheckParameters: the four parameters of KeBugCheckEx, numbers of pointer width
        SystemUpTime: in units of 100 ns
        Comment: text of the comment, empty without one
    """

    wide: bool
    size: int
    present: int
    context_offset: int
    exception_offset: int
    MajorVersion: Annotated[Optional[int], "ULONG @0x8"]
    MinorVersion: MAYBE_ULONG
    DirectoryTableBase: _POINTER
    PfnDataBase: _POINTER
    PsLoadedModuleList: _POINTER
    PsActiveProcessHead: _POINTER
    MachineImageType: MAYBE_ULONG
    NumberProcessors: MAYBE_ULONG
    BugCheckCode: MAYBE_ULONG
    BugCheckParameters: Annotated[Tuple[int, ...], "ULONG_PTR[4] @0x2c/0x40"]
    KdDebuggerDataBlock: Annotated[Optional[int], "ULONG_PTR @0x60/0x80"]
    DumpType: Annotated[Optional[int], "ULONG @0xf88/0xf98"]
    RequiredDumpSpace: Annotated[Optional[int], "ULONGLONG @0xfa0"]
    SystemTime: Annotated[Optional[int], "ULONGLONG @0xfc0/0xfa8"]
    SystemUpTime: Annotated[Optional[int], "ULONGLONG @0xfb8/0x1030"]
    MiniDumpFields: Annotated[Optional[int], "ULONG @0xf8c/0x1038"]
    ProductType: Annotated[Optional[int], "ULONG @0xf94/0x1040"]
    SuiteMask: MAYBE_ULONG
    Comment: Annotated[str, "CHAR[128] @0x820/0xfb0"]

    @property
    def machine(self) -> Machine:
        """The machine that crashed. Raises UnsupportedMachineError if the machine is not supported; the text
        is a sentence for users."""
        return machine_of(self.MachineImageType or 0)


_HEADERS = {wide: Declared(KernelDumpHeader, 0x2000 if wide else 0x1000, wide=wide) for wide in (True, False)}


def read_header(read: ReadFile) -> KernelDumpHeader:
    """Reads the header of a dump. Raises NotAKernelDumpError if the file has no such header, or ends before
    its bug check."""
    begin = read(0, 8)
    if begin[:4] != SIGNATURE or begin[4:] not in _VALID:
        raise NotAKernelDumpError(
            "The file does not begin as a crash dump of a kernel (PAGEDU64 or PAGEDUMP)"
        )
    wide = _VALID[begin[4:]]
    form = _HEADERS[wide]
    data = read(0, form.size)
    if len(data) < form.ends["BugCheckParameters"]:
        raise NotAKernelDumpError(
            f"The file ends within the header of a crash dump, before its bug check: it has {len(data)} bytes"
        )
    header = form.decode(data)
    unknown = (name for name in form.ends if form.ends[name] > len(data) or getattr(header, name) in FILLERS)
    comment, header = header.Comment, without(header, unknown)
    if not wide:
        pointers = ((name, getattr(header, name)) for name in _POINTERS)
        known: Dict[str, Any] = {name: value and Machine.I386.canonical(value) for name, value in pointers}
        header = header._replace(**known)
    return header._replace(
        wide=wide,
        size=form.size,
        present=len(data),
        context_offset=0x348 if wide else 0x320,
        exception_offset=0xF00 if wide else 0x7D0,
        Comment="" if comment.startswith("PAGE") else comment,
    )
