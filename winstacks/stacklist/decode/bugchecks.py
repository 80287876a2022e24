# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The name of a bug check, and the meaning of its four parameters.

    known = bug_check(0xD1)
    known.name, known.parameters[0]

Source: Microsoft, "Bug Check Code Reference" (Windows debugger documentation), as of 2024. Parameters are
listed for the most frequent codes; where the first parameter decides the meaning of the others, the others
are left out.
"""

from __future__ import annotations

from typing import Dict, Tuple

from ...memory.decode.records import NamedTuple
from .bugchecknames import NAMES

Meanings = Tuple[str, str, str, str]

_NONE: Meanings = ("", "", "", "")
_ADDRESS, _IRQL, _RIP = "address referenced", "IRQL", "address of the code that referenced it"
_ACCESS = "0 read, 1 write, 2 or 8 execute"
_CODE, _AT, _RECORD, _CONTEXT = (
    "exception code", "address of the exception", "address of the EXCEPTION_RECORD",
    "address of the CONTEXT",
)  # fmt: skip
_TRAP_FRAME = "address of the trap frame"
_SOURCE_LINE = "source file and line"
_SUBCODE = "kind of the violation"
_FREED: Meanings = ("address referenced", "0 read, 1 write", _RIP, "")
_FILE_SYSTEM: Meanings = (_SOURCE_LINE, _RECORD, _CONTEXT, "")

_PARAMETERS: Dict[int, Meanings] = {
    0x01: (
        "address of the system function",
        "ApcStateIndex",
        "SpecialApcDisable and KernelApcDisable",
        "",
    ),
    0x0A: (_ADDRESS, _IRQL, "bit 0 write, bit 3 execute", _RIP),
    0x18: ("object type", "object", "", ""),
    0x19: (_SUBCODE, "", "", ""),
    0x1A: (_SUBCODE, "", "", ""),
    0x1E: (_CODE, _AT, "parameter 0 of the exception", "parameter 1 of the exception"),
    0x23: _FILE_SYSTEM,
    0x24: _FILE_SYSTEM,
    0x27: _FILE_SYSTEM,
    0x34: (_SOURCE_LINE, "", "", ""),
    0x3B: (_CODE, _AT, _CONTEXT, ""),
    0x3D: (_RECORD, _CONTEXT, "", ""),
    0x44: ("address of the IRP", "", "", ""),
    0x4E: (_SUBCODE, "", "", ""),
    0x50: (_ADDRESS, _ACCESS, _RIP, "kind of the fault"),
    0x7A: (
        "kind of the lock, or address of the PTE",
        "error status",
        "process or PTE contents",
        "address paged in",
    ),
    0x7B: ("address of the UNICODE_STRING or device object", "error status", "", ""),
    0x7E: (_CODE, _AT, _RECORD, _CONTEXT),
    0x7F: ("trap number", "", "", ""),
    0x8E: (_CODE, _AT, _TRAP_FRAME, ""),
    0x9C: ("bank, or address of the MCA exception", "", "", ""),
    0x9F: (_SUBCODE, "", "", ""),
    0xA0: (_SUBCODE, "", "", ""),
    0xA5: (_SUBCODE, "", "", ""),
    0xBE: ("address of the attempted write", "PTE contents", "", ""),
    0xC1: ("address where it corrupted the pool", "", "", "kind of the corruption"),
    0xC2: (_SUBCODE, "", "", ""),
    0xC4: (_SUBCODE, "", "", ""),
    0xC5: (_ADDRESS, _IRQL, "0 read, 1 write", _RIP),
    0xCC: _FREED,
    0xCD: _FREED,
    0xCE: (_ADDRESS, _ACCESS, _RIP, ""),
    0xD1: (_ADDRESS, _IRQL, _ACCESS, _RIP),
    0xD3: (_ADDRESS, _IRQL, "0 read, 1 write", _RIP),
    0xD5: _FREED,
    0xD6: _FREED,
    0xDA: (_SUBCODE, "", "", ""),
    0xEA: ("thread", "DEFERRED_WATCHDOG", "name of the driver", "1 or how often it occurred"),
    0xEF: ("process", "0 process, 1 thread", "", ""),
    0xF4: ("0x3 process, 0x6 thread", "object that terminated", "name of the image file", "explanation"),
    0xF7: ("security cookie from the stack", "expected cookie", "complement of the expected cookie", ""),
    0xFC: (_ADDRESS, "PTE contents", "", ""),
    0xFE: (_SUBCODE, "", "", ""),
    0x101: ("clock interrupt time-out, in ticks", "", "PRCB of the processor that hangs", "its number"),
    0x109: ("", "", "", "kind of the corrupted region"),
    0x10D: (_SUBCODE, "", "", ""),
    0x113: (_SUBCODE, "", "", ""),
    0x116: ("TDR_RECOVERY_CONTEXT", "address in the responsible driver", "error of the last operation", ""),
    0x117: ("TDR_RECOVERY_CONTEXT", "address in the responsible driver", "", ""),
    0x119: (_SUBCODE, "", "", ""),
    0x124: ("kind of the error source", "WHEA_ERROR_RECORD", "", ""),
    0x12B: ("virtual address of the page", "", "", ""),
    0x133: ("0 a single DPC or ISR, 1 in all", "DPC time, in ticks", "DPC time allotment, in ticks", ""),
    0x139: ("kind of the corruption", _TRAP_FRAME, _RECORD, ""),
    0x13A: ("kind of the corruption", "heap", "address of the corruption", ""),
    0x154: ("store context or data manager", "EXCEPTION_POINTERS", "", ""),
    0x1AA: ("current stack pointer", "type of the stack limits", _CONTEXT, _RECORD),
}

_SAME = {0x1000007E: 0x7E, 0x1000007F: 0x7F, 0x1000008E: 0x8E, 0x100000EA: 0xEA}
"""Codes that small dumps use in place of others, and the codes whose parameters they share."""


class BugCheck(NamedTuple):
    """A bug check: its code, name and parameters.

    Attributes:
        name: Microsoft's name; empty for a code without one
        parameters: meaning of each parameter; empty if it is unknown, or depends on the first parameter
    """

    code: int
    name: str
    parameters: Meanings

    @property
    def shown(self) -> str:
        """The code in hexadecimal, and its name."""
        return f"{self.code:#x} {self.name}".rstrip()


def bug_check(code: int) -> BugCheck:
    """Returns the name and parameters of a code."""
    return BugCheck(code, NAMES.get(code, ""), _PARAMETERS.get(_SAME.get(code, code), _NONE))


def context_parameter(code: int) -> int:
    """Returns the index (from 0) of the parameter with the address of a CONTEXT; -1 if none is."""
    meanings = bug_check(code).parameters
    return meanings.index(_CONTEXT) if _CONTEXT in meanings else -1
