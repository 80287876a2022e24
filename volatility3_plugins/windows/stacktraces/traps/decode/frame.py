# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames (_KTRAP_FRAME): which registers an entry into the kernel saved, and which slots are stale.

An entry writes only a part of the structure; the rest is what the stack held before. What is written
depends on the kind of entry, and the kind shows in the frame's own bytes (`trapkinds64`, `trapkinds32`).

Sources: execution of the entry code of real kernels (x64 5.2.3790.3959; x86 5.1.2600.5512 and
5.2.3790.3959) and a real crash of 10.0.19041.804; for Windows 7 and later, public disassembly of
KiSystemCall64, KiServiceInternal, KiPageFault and KxIsrLinkage; layouts from public symbols.
"""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from . import kinds_x64, kinds_x86
from .members import (
    COMPUTED,
    NO_FACTS,
    PARTIAL,
    SAVED,
    UNSURE,
    UNWRITTEN,
    Facts,
    Layout,
    Verdict,
    number,
    words,
)

USER = "user"
KERNEL = "kernel"

COLUMNS = words(
    "Rip Rsp Rbp Rax Rcx Rdx Rbx Rsi Rdi R8 R9 R10 R11 R12 R13 R14 R15 EFlags ErrorCode FaultAddress"
    " SegCs SegSs SegDs SegEs SegFs SegGs GsSwap PreviousMode PreviousIrql Dr0 Dr1 Dr2 Dr3 Dr6 Dr7 MxCsr"
)
X86_MEMBERS = {
    "Rip": "Eip",
    "Rsp": "HardwareEsp",
    "Rbp": "Ebp",
    "Rax": "Eax",
    "Rcx": "Ecx",
    "Rdx": "Edx",
    "Rbx": "Ebx",
    "Rsi": "Esi",
    "Rdi": "Edi",
    "ErrorCode": "ErrCode",
    "SegSs": "HardwareSegSs",
    "PreviousMode": "PreviousPreviousMode",
}
_SEGMENT_MASK = 0xFFFF
_PARTIAL_MASK = 0xFFFF
_NOT_WRITTEN = Verdict(UNWRITTEN)


class TrapFrame(NamedTuple):
    """What a trap frame tells.

    `kind` is syscall, service, interrupt or exception, or empty where the bytes do not tell (`mode` is
    user or kernel). `registers` holds, under their x64 names, the registers that this entry saved, those
    named in `unsure` included: the frame cannot decide whether these were written. What is not in
    `registers` was not saved.
    """

    address: int
    arch: str
    kind: str
    mode: str
    registers: Mapping[str, int]
    unsure: Tuple[str, ...]
    verdicts: Mapping[str, Verdict]


class MemberValue(NamedTuple):
    """One member of the structure: `value` is None where nothing was written."""

    name: str
    offset: int
    size: int
    value: Optional[int]
    validity: str
    note: str


def decode(layout: Layout, address: int, data: bytes, facts: Facts = NO_FACTS) -> TrapFrame:
    """Decodes a trap frame.

    Args:
        layout: the members of this image's _KTRAP_FRAME
        address: where the frame is (canonical virtual address)
        data: its bytes, layout.size of them at least
        facts: what is known from outside the frame

    Returns:
        The registers and their validity. Nothing is checked: `trapscan` tells a frame from other bytes.
    """
    if layout.arch == "x64":
        kind = kinds_x64.kind_of(layout, address, data, facts)
        verdicts = kinds_x64.verdicts(layout, address, data, kind, facts)
    else:
        entry = kinds_x86.entry_of(layout, data, facts)
        kind = kinds_x86.kind_of(entry, kinds_x86.from_user(layout, data))
        verdicts = kinds_x86.verdicts(layout, data, entry, facts)
    registers: Dict[str, int] = {}
    unsure = []
    for column in COLUMNS:
        member = column if layout.arch == "x64" else X86_MEMBERS.get(column, column)
        verdict = verdicts.get(member, _NOT_WRITTEN)
        if member in layout.members and verdict.validity in (SAVED, COMPUTED, UNSURE):
            value = number(layout, data, member)
            registers[column] = value & _SEGMENT_MASK if column.startswith("Seg") else value
            if verdict.validity == UNSURE:
                unsure.append(column)
    user = is_user(layout, data)
    if layout.arch == "x86" and not user and "Rsp" not in registers:
        # From kernel mode the processor pushes no stack pointer: it was just above what it did push.
        registers["Rsp"] = address + layout.members["HardwareEsp"].offset
    return TrapFrame(address, layout.arch, kind, USER if user else KERNEL, registers, tuple(unsure), verdicts)


def is_user(layout: Layout, data: bytes) -> bool:
    """Tells whether the processor was in user mode (or virtual-8086 mode) when the frame was made."""
    if layout.arch == "x64":
        return kinds_x64.from_user(layout, data)
    return kinds_x86.from_user(layout, data)


def members(frame: TrapFrame, layout: Layout, data: bytes) -> Iterator[MemberValue]:
    """Yields every member that the layout has, by offset, with its validity.

    A member that shares its bytes with one that the entries are known to write (the unions of the
    structure) takes that one's validity.
    """
    ordered = sorted(layout.members.items(), key=lambda item: item[1].offset)
    known = [(name, place) for name, place in ordered if name in frame.verdicts]
    for name, place in ordered:
        verdict = frame.verdicts.get(name)
        if verdict is None:
            verdict = _NOT_WRITTEN
            for other, span in known:
                if span.offset < place.offset + place.size and place.offset < span.offset + span.size:
                    verdict = Verdict(frame.verdicts[other].validity, f"the bytes of {other}")
                    break
        value = None if verdict.validity == UNWRITTEN else number(layout, data, name)
        if value is not None and verdict.validity == PARTIAL:
            value &= _PARTIAL_MASK
        yield MemberValue(name, place.offset, place.size, value, verdict.validity, verdict.note)
