# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the entries of x86 kernels store, in both maps of the structure."""

from __future__ import annotations

from tests.forge.trapentries import (
    DEBUG_REGISTERS,
    DEVICE,
    EXCEPTION,
    FAULT,
    INT2E,
    NEW,
    NMI,
    SYSENTER,
    X86_BLUE,
    X86_OLD,
    ZW,
    Entry,
    Registers,
    Writer,
    table,
)

ARGUMENT_MARK = 0xBADB0D00

_COMMON_86 = """
    DbgEbp 0 DbgEip 4 DbgArgMark 8 ExceptionList 4c SegFs 50 Edi 54 Esi 58 Ebx 5c Ebp 60
    ErrCode 64 Eip 68 SegCs 6c EFlags 70 HardwareEsp 74 HardwareSegSs 78 V86Es 7c V86Ds 80 V86Fs 84 V86Gs 88
    """
_OLD_86 = """
    DbgArgPointer c TempSegCs 10 TempEsp 14 Dr0 18 Dr1 1c Dr2 20 Dr3 24 Dr6 28 Dr7 2c
    SegGs 30 SegEs 34 SegDs 38 Edx 3c Ecx 40 Eax 44 PreviousPreviousMode 48
    """
_BLUE_86 = """
    FrameType f TempEsp 10 Dr0 14 Dr1 18 Dr2 1c Dr3 20 Dr6 24 Dr7 28
    SegGs 2c SegEs 30 SegDs 34 Edx 38 Ecx 3c Eax 40 PreviousPreviousMode 44
    """
OFFSETS = {X86_OLD: table(_COMMON_86 + _OLD_86), X86_BLUE: table(_COMMON_86 + _BLUE_86)}
_COLUMNS = {
    "Rip": "eip",
    "Rbp": "ebp",
    "Rax": "eax",
    "Rcx": "ecx",
    "Rdx": "edx",
    "Rbx": "ebx",
    "Rsi": "esi",
    "Rdi": "edi",
    "EFlags": "eflags",
    "ErrorCode": "error_code",
    "Rsp": "esp",
    "SegSs": "ss",
    "SegCs": "cs",
    "SegDs": "ds",
    "SegEs": "es",
    "SegFs": "fs",
    "SegGs": "gs",
}


def write(writer: Writer, entry: Entry, registers: Registers, blue: bool) -> None:
    kind, user, v86 = entry.kind, entry.mode != "kernel", entry.mode == "v86"
    if kind == NEW:
        _write_new(writer, entry, registers, blue)
        return
    shown = {"Rip", "SegCs", "EFlags", "Rbp", "Rbx", "Rsi", "Rdi", "Rsp"}
    for member in ("Eip", "SegCs", "EFlags", "Ebp", "Ebx", "Esi", "Edi", "ExceptionList"):
        name = {"SegCs": "cs", "ExceptionList": "exception_list"}.get(member, member.lower())
        writer.put(member, _eip(entry, registers) if member == "Eip" else registers[name], 4)
    if user or kind == NMI:
        writer.put("HardwareEsp", registers["esp"], 4)
        writer.put("HardwareSegSs", registers["ss"], 4)
        shown.add("SegSs")
    for member, name in (("V86Es", "v86_es"), ("V86Ds", "v86_ds"), ("V86Fs", "v86_fs"), ("V86Gs", "v86_gs")):
        if v86 or kind == NMI:
            writer.put(member, registers[name] if v86 else 0, 4)
    writer.put("ErrCode", registers["error_code"] if kind == FAULT else 0, 4)
    writer.put("DbgEbp", registers["ebp"], 4)
    writer.put("DbgEip", _eip(entry, registers), 4)
    writer.put("DbgArgMark", 0 if kind == NMI else ARGUMENT_MARK, 4)
    if not blue:
        writer.put("DbgArgPointer", _argument_pointer(entry, registers), 4)
    if blue:
        services = {SYSENTER: 2, INT2E: 2, ZW: 2, DEVICE: 0}
        writer.put("FrameType", services.get(kind, 1), 1)
    if kind in (SYSENTER, INT2E, ZW):
        writer.put("PreviousPreviousMode", entry.previous_mode, 1 if blue else 4, "PreviousMode")
    if kind in (INT2E, ZW):
        writer.put("Edx", entry.previous, 4)
        writer.put("SegFs", registers["fs"], 4)
        shown.add("SegFs")
    if kind == NMI and not blue:
        # Of the task state segment: no mark, and constants in the place of the debug registers.
        for member in ("TempSegCs", "TempEsp", *DEBUG_REGISTERS):
            writer.put(member, 0, 4)
        writer.put("PreviousPreviousMode", 0xFFFFFFFF, 4)
    if kind in (EXCEPTION, FAULT, DEVICE, NMI):
        for member in ("Eax", "Ecx", "Edx"):
            writer.put(member, registers[member.lower()], 4)
        shown.update(("Rax", "Rcx", "Rdx"))
        # Where nothing names the kind, an interrupt's 0 is shown as an exception's.
        if kind in (EXCEPTION, FAULT) or (kind == DEVICE and not blue):
            shown.add("ErrorCode")
        if user or kind != DEVICE:
            _segments(writer, registers, v86, 2 if kind == DEVICE else 4)
            shown.update(("SegGs", "SegEs", "SegDs", "SegFs"))
    if kind == SYSENTER:
        writer.put("SegFs", 0x3B, 4)
        shown.add("SegFs")
    if kind != NMI and (entry.clears_dr7 or kind == SYSENTER):
        writer.put("Dr7", 0, 4)
    if user and kind != NMI and entry.debug:
        for member in DEBUG_REGISTERS:
            writer.put(member, registers[member.lower()], 4, member)
    for column in shown:
        writer.expected[column] = _truth(column, entry, registers)


def _eip(entry: Entry, registers: Registers) -> int:
    """What the frame holds as Eip: sysenter and the Zw stubs go back to fixed places."""
    if entry.kind == SYSENTER:
        return registers["system_call_return"]
    return entry.linkage if entry.kind == ZW else registers["eip"]


def _argument_pointer(entry: Entry, registers: Registers) -> int:
    """What Edx held, or what the entry code makes of it; NMI clears it, virtual-8086 traps store DS."""
    if entry.kind in (SYSENTER, ZW):
        return registers["esp"] + (8 if entry.kind == SYSENTER else 4)
    if entry.kind == NMI:
        return 0
    return registers["v86_ds" if entry.mode == "v86" and entry.kind != INT2E else "edx"]


def _segments(writer: Writer, registers: Registers, v86: bool, size: int) -> None:
    for member, name in (("SegGs", "gs"), ("SegEs", "es"), ("SegDs", "ds"), ("SegFs", "fs")):
        writer.put(member, registers[f"v86_{name}" if v86 else name], size)


def _truth(column: str, entry: Entry, registers: Registers) -> int:
    """The register that a column must show: of the processor, but for what sysenter loses."""
    if column == "Rip":
        return _eip(entry, registers)
    if entry.kind == SYSENTER and column == "SegFs":
        return 0x3B
    name = _COLUMNS[column]
    if entry.mode == "v86" and entry.kind != INT2E and column in ("SegDs", "SegEs", "SegFs", "SegGs"):
        name = f"v86_{name}"
    if column == "ErrorCode" and entry.kind != FAULT:
        return 0
    return registers[name]


def _write_new(writer: Writer, entry: Entry, registers: Registers, blue: bool) -> None:
    """The first frame of a thread: zeros, then the CONTEXT. `entry.debug`: the kernel marks it for
    debuggers."""
    writer.data[:] = bytes(len(writer.data))
    for column, name in _COLUMNS.items():
        member = {"Rip": "Eip", "Rsp": "HardwareEsp", "SegSs": "HardwareSegSs"}.get(column, column)
        member = member.replace("R", "E", 1) if column.startswith("R") and member == column else member
        if column not in ("EFlags", "ErrorCode"):
            writer.put(member, registers[name], 4)
            writer.expected[column] = registers[name]
    writer.put("EFlags", 0x200, 4, "EFlags")
    writer.put("ExceptionList", 0xFFFFFFFF, 4)
    writer.put("PreviousPreviousMode", 1, 1 if blue else 4)
    if entry.debug:
        writer.put("DbgArgMark", ARGUMENT_MARK, 4)
        writer.put("DbgEbp", registers["ebp"], 4)
        writer.put("DbgEip", registers["eip"], 4)
