# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The name of an exception's code, and its parameters in words.

    exception_name(0xC0000005), exception_words(0xC0000005, (1, 0))

Source: Microsoft's "ntstatus.h" and "winnt.h" (codes, FAST_FAIL_*, EXCEPTION_RECORD); "delayimp.h"; the codes
of Visual C++, .NET and Delphi, which their vendors describe; Crashpad and Breakpad ("client/windows").
"""

from __future__ import annotations

from typing import Dict, Sequence

_NAMES: Dict[int, str] = {
    0x40000005: "SEGMENT_NOTIFICATION",
    0x40000015: "FATAL_APP_EXIT",
    0x4000001F: "WX86_BREAKPOINT",
    0x4000001E: "WX86_SINGLE_STEP",
    0x40010005: "DBG_CONTROL_C",
    0x40010006: "DBG_PRINTEXCEPTION_C",
    0x4001000A: "DBG_PRINTEXCEPTION_WIDE_C",
    0x406D1388: "thread name of Visual C++",
    0x80000001: "GUARD_PAGE_VIOLATION",
    0x80000002: "DATATYPE_MISALIGNMENT",
    0x80000003: "BREAKPOINT",
    0x80000004: "SINGLE_STEP",
    0x80000007: "WAKE_SYSTEM_DEBUGGER",
    0xC0000001: "UNSUCCESSFUL",
    0xC0000005: "ACCESS_VIOLATION",
    0xC0000006: "IN_PAGE_ERROR",
    0xC0000008: "INVALID_HANDLE",
    0xC000000D: "INVALID_PARAMETER",
    0xC0000017: "NO_MEMORY",
    0xC000001D: "ILLEGAL_INSTRUCTION",
    0xC0000025: "NONCONTINUABLE_EXCEPTION",
    0xC0000026: "INVALID_DISPOSITION",
    0xC0000027: "UNWIND",
    0xC0000028: "BAD_STACK",
    0xC0000029: "INVALID_UNWIND_TARGET",
    0xC0000044: "QUOTA_EXCEEDED",
    0xC000007B: "INVALID_IMAGE_FORMAT",
    0xC000008C: "ARRAY_BOUNDS_EXCEEDED",
    0xC000008D: "FLOAT_DENORMAL_OPERAND",
    0xC000008E: "FLOAT_DIVIDE_BY_ZERO",
    0xC000008F: "FLOAT_INEXACT_RESULT",
    0xC0000090: "FLOAT_INVALID_OPERATION",
    0xC0000091: "FLOAT_OVERFLOW",
    0xC0000092: "FLOAT_STACK_CHECK",
    0xC0000093: "FLOAT_UNDERFLOW",
    0xC0000094: "INTEGER_DIVIDE_BY_ZERO",
    0xC0000095: "INTEGER_OVERFLOW",
    0xC0000096: "PRIVILEGED_INSTRUCTION",
    0xC00000FD: "STACK_OVERFLOW",
    0xC0000135: "DLL_NOT_FOUND",
    0xC0000138: "ORDINAL_NOT_FOUND",
    0xC0000139: "ENTRYPOINT_NOT_FOUND",
    0xC000013A: "CONTROL_C_EXIT",
    0xC0000142: "DLL_INIT_FAILED",
    0xC0000194: "POSSIBLE_DEADLOCK",
    0xC00002B4: "FLOAT_MULTIPLE_FAULTS",
    0xC00002B5: "FLOAT_MULTIPLE_TRAPS",
    0xC00002C9: "REG_NAT_CONSUMPTION",
    0xC0000374: "HEAP_CORRUPTION",
    0xC0000409: "STACK_BUFFER_OVERRUN",
    0xC0000417: "INVALID_CRUNTIME_PARAMETER",
    0xC0000420: "ASSERTION_FAILURE",
    0xC0000421: "VERIFIER_STOP",
    0xC000041D: "FATAL_USER_CALLBACK_EXCEPTION",
    0xC0000602: "FAIL_FAST_EXCEPTION",
    0xC000070A: "THREADPOOL_HANDLE_EXCEPTION",
    0xC06D007E: "delay load: module not found",
    0xC06D007F: "delay load: procedure not found",
    0xE06D7363: "C++ exception",
    0xE0434352: "CLR exception",
    0xE0434F4D: "CLR exception",
    0x0EEDFADE: "Delphi exception",
    0x0517A7ED: "Crashpad: dump without a crash",
}

_ACCESSES = {0: "read", 1: "write", 8: "execution"}
"""The first parameter of ACCESS_VIOLATION and IN_PAGE_ERROR."""
_ACCESS_VIOLATION, _IN_PAGE_ERROR, _FAST_FAIL = 0xC0000005, 0xC0000006, 0xC0000409

_NO_ADDRESS = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""The address, of 32 and 64 bits, that Windows notes with a read for every general protection fault: also for
a write, and for an address that is not canonical (measured: 19042)."""

_FAST_FAILS: Dict[int, str] = {
    0: "LEGACY_GS_VIOLATION",
    1: "VTGUARD_CHECK_FAILURE",
    2: "STACK_COOKIE_CHECK_FAILURE",
    3: "CORRUPT_LIST_ENTRY",
    4: "INCORRECT_STACK",
    5: "INVALID_ARG",
    6: "GS_COOKIE_INIT",
    7: "FATAL_APP_EXIT",
    8: "RANGE_CHECK_FAILURE",
    9: "UNSAFE_REGISTRY_ACCESS",
    10: "GUARD_ICALL_CHECK_FAILURE",
    11: "GUARD_WRITE_CHECK_FAILURE",
    12: "INVALID_FIBER_SWITCH",
    13: "INVALID_SET_OF_CONTEXT",
    14: "INVALID_REFERENCE_COUNT",
    18: "INVALID_JUMP_BUFFER",
    19: "MRDATA_MODIFIED",
    20: "CERTIFICATION_FAILURE",
    21: "INVALID_EXCEPTION_CHAIN",
    22: "CRYPTO_LIBRARY",
    23: "INVALID_CALL_IN_DLL_CALLOUT",
    24: "INVALID_IMAGE_BASE",
    25: "DLOAD_PROTECTION_FAILURE",
    26: "UNSAFE_EXTENSION_CALL",
    57: "CONTROL_INVALID_RETURN_ADDRESS",
}
"""FAST_FAIL_*: the first parameter of STACK_BUFFER_OVERRUN."""


def exception_name(code: int) -> str:
    """Returns the name of a code; empty for a code without one."""
    return _NAMES.get(code, "")


def exception_words(code: int, parameters: Sequence[int]) -> str:
    """Returns an exception with its name and its parameters in words, as one line."""
    shown = f"{code:#x} {exception_name(code)}".rstrip()
    meaning = _meaning(code, parameters)
    if not meaning and parameters:
        meaning = " ".join(f"{parameter:#x}" for parameter in parameters)
    return f"{shown}: {meaning}" if meaning else shown


def _meaning(code: int, parameters: Sequence[int]) -> str:
    """Returns what the parameters mean; empty if that is unknown."""
    if code in (_ACCESS_VIOLATION, _IN_PAGE_ERROR) and len(parameters) >= 2 and parameters[0] in _ACCESSES:
        access = f"{_ACCESSES[parameters[0]]} of {parameters[1]:#x}"
        if code == _ACCESS_VIOLATION and parameters[0] == 0 and parameters[1] in _NO_ADDRESS:
            access += ", or an access whose address the processor did not report"
        failed = f", status {parameters[2]:#x}" if code == _IN_PAGE_ERROR and len(parameters) > 2 else ""
        return access + failed
    if code == _FAST_FAIL and parameters:
        return f"fast fail {parameters[0]} {_FAST_FAILS.get(parameters[0], '')}".rstrip()
    return ""
