# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the entries of x64 kernels store (5.2; later ones where `mitigated`)."""

from __future__ import annotations

from typing import Tuple

from tests.forge.trapentries import (
    DEBUG_REGISTERS,
    DEVICE,
    FAULT,
    NEW,
    NMI,
    PAGE_FAULT,
    SOFTWARE,
    SYSCALL,
    ZW,
    Entry,
    Registers,
    Writer,
    table,
)

OFFSETS = table(
    """
    PreviousMode 28 PreviousIrql 29 FaultIndicator 2a ExceptionActive 2b MxCsr 2c
    Rax 30 Rcx 38 Rdx 40 R8 48 R9 50 R10 58 R11 60 GsSwap 68
    Xmm0 70 Xmm1 80 Xmm2 90 Xmm3 a0 Xmm4 b0 Xmm5 c0 FaultAddress d0
    Dr0 d8 Dr1 e0 Dr2 e8 Dr3 f0 Dr6 f8 Dr7 100 TrapFrame 138
    Rbx 140 Rdi 148 Rsi 150 Rbp 158 ErrorCode 160 Rip 168 SegCs 170 EFlags 178 Rsp 180 SegSs 188
    """
)
_VOLATILE = ("Rax", "Rcx", "Rdx", "R8", "R9", "R10", "R11")


def write(writer: Writer, entry: Entry, registers: Registers) -> None:
    kind, user = entry.kind, entry.mode != "kernel"
    if kind == NEW:
        _write_new(writer, registers)
        return
    # The processor (or the stub in its place) pushes quadwords.
    if kind == ZW:
        pushed: Tuple[Tuple[str, int], ...] = (
            ("SegCs", 0x10),
            ("Rsp", registers["rsp"]),
            ("Rip", entry.linkage),
            ("EFlags", registers["eflags"] & ~0x200),
        )
    else:
        names = (("SegSs", "ss"), ("SegCs", "cs"), ("Rsp", "rsp"), ("Rip", "rip"), ("EFlags", "eflags"))
        pushed = tuple((member, registers[name]) for member, name in names)
    for member, value in pushed:
        writer.put(member, value, 8, member)
    writer.save(registers, 8, "Rbp")
    if kind == ZW:
        writer.save(registers, 8, "Rbx", "Rdi", "Rsi")
        writer.put("PreviousMode", entry.previous_mode, 1, "PreviousMode")
        writer.put("TrapFrame", entry.previous, 8)
        return
    writer.put("ExceptionActive", {SYSCALL: 2, DEVICE: 0, SOFTWARE: 0, NMI: 0}.get(kind, 1), 1)
    writer.put("MxCsr", registers["mxcsr"], 4, "MxCsr")
    if kind == SYSCALL:
        writer.save(registers, 8, "Rbx", "Rdi", "Rsi")
        if entry.debug or entry.mitigated:
            writer.save(registers, 8, "Rax", "Rdx")
            writer.put("Rcx", registers["r10"], 8)
        if entry.debug:
            writer.save(registers, 8, "R8", "R9")
    else:
        writer.save(registers, 8, *_VOLATILE)
        for index in range(6):
            writer.put(f"Xmm{index}", registers.get(f"xmm{index}", 0), 16)
    if kind in (DEVICE, SOFTWARE, NMI):
        writer.put("PreviousIrql", registers["irql"], 1, "PreviousIrql")
    if kind == DEVICE:
        writer.save(registers, 8, "Rsi")
        writer.put("ErrorCode", registers["rax"], 8)
    if kind in (FAULT, PAGE_FAULT):
        writer.put("ErrorCode", registers["error_code"], 8, "ErrorCode")
    if kind == PAGE_FAULT:
        writer.put("FaultIndicator", registers["error_code"] >> 1 & 9, 1)
        writer.put("FaultAddress", registers["cr2"], 8, "FaultAddress")
        if registers["cs"] == 0x33:
            writer.put("GsSwap", registers["gs_base_user"], 8, "GsSwap")
    if kind == NMI and not user:
        writer.put("FaultAddress", registers["cr2"], 8, "FaultAddress")
        writer.put("GsSwap", registers["gs_base_kernel"], 8, "GsSwap")
    if user:
        writer.put("Dr7", 0, 2)
        if entry.debug:
            writer.save(registers, 8, *DEBUG_REGISTERS)


def _write_new(writer: Writer, registers: Registers) -> None:
    """The first frame of a thread, as a kernel of ReactOS left it: zeros, then the CONTEXT."""
    writer.data[:] = bytes(len(writer.data))
    writer.save(registers, 8, *_VOLATILE, "Rbx", "Rdi", "Rsi", "Rbp", "Rip", "Rsp")
    for member, name in (("SegCs", "cs"), ("SegSs", "ss")):
        writer.put(member, registers[name], 8, member)
    writer.put("EFlags", 0x200, 8, "EFlags")
    writer.put("MxCsr", 0x1F80, 4, "MxCsr")
    writer.put("PreviousMode", 1, 1)
