# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The names of the registers that columns have."""

from __future__ import annotations

from .words import LINK_REGISTER

X64_REGISTERS = (
    "Rip", "Rsp", "Rbp", "Rax", "Rcx", "Rdx", "Rbx", "Rsi", "Rdi", "R8", "R9", "R10", "R11", "R12", "R13",
    "R14", "R15", "EFlags", "ErrorCode", "FaultAddress", "SegCs", "SegSs", "SegDs", "SegEs", "SegFs", "SegGs",
    "GsSwap", "PreviousMode", "PreviousIrql", "Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7", "MxCsr",
)  # fmt: skip
"""The registers of x64 and x86. ARM64 has FaultAddress, PreviousMode and PreviousIrql, too."""

ARM64_REGISTERS = ("Pc", "Sp", "Fp", LINK_REGISTER, *(f"X{number}" for number in range(29)), "Cpsr")
"""The registers of ARM64."""

REGISTERS = (*X64_REGISTERS, *ARM64_REGISTERS)
"""The columns of registers, from left to right."""
