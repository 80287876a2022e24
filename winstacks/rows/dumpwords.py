# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The numbers of a minidump in words, with the number behind: `PROCESSOR_ARCHITECTURE_AMD64 (9)`.

Source of the names: "winnt.h", "ntstatus.h", "minidumpapiset.h", "timezoneapi.h"; PlatformId of other
systems: Breakpad's "minidump_format.h". A number without a name here is shown as a number.
"""

from __future__ import annotations

import datetime
from typing import Callable, Dict, Sequence, Tuple

from ..stacklist.decode.exceptioncodes import exception_name

_ARCHITECTURES = {
    0: "PROCESSOR_ARCHITECTURE_INTEL",
    5: "PROCESSOR_ARCHITECTURE_ARM",
    6: "PROCESSOR_ARCHITECTURE_IA64",
    9: "PROCESSOR_ARCHITECTURE_AMD64",
    12: "PROCESSOR_ARCHITECTURE_ARM64",
    0x8003: "MD_CPU_ARCHITECTURE_ARM64_OLD",
}
_PLATFORMS = {
    1: "VER_PLATFORM_WIN32_WINDOWS",
    2: "VER_PLATFORM_WIN32_NT",
    3: "VER_PLATFORM_WIN32_CE",
    0x8000: "MD_OS_UNIX",
    0x8101: "MD_OS_MAC_OS_X",
    0x8102: "MD_OS_IOS",
    0x8201: "MD_OS_LINUX",
    0x8202: "MD_OS_SOLARIS",
    0x8203: "MD_OS_ANDROID",
    0x8204: "MD_OS_PS3",
    0x8205: "MD_OS_NACL",
    0x8206: "MD_OS_FUCHSIA",
}
_PRODUCTS = {1: "VER_NT_WORKSTATION", 2: "VER_NT_DOMAIN_CONTROLLER", 3: "VER_NT_SERVER"}
_SUITES = (
    (0x1, "VER_SUITE_SMALLBUSINESS"), (0x2, "VER_SUITE_ENTERPRISE"), (0x4, "VER_SUITE_BACKOFFICE"),
    (0x10, "VER_SUITE_TERMINAL"), (0x20, "VER_SUITE_SMALLBUSINESS_RESTRICTED"),
    (0x40, "VER_SUITE_EMBEDDEDNT"), (0x80, "VER_SUITE_DATACENTER"), (0x100, "VER_SUITE_SINGLEUSERTS"),
    (0x200, "VER_SUITE_PERSONAL"), (0x400, "VER_SUITE_BLADE"), (0x2000, "VER_SUITE_STORAGE_SERVER"),
    (0x4000, "VER_SUITE_COMPUTE_SERVER"), (0x8000, "VER_SUITE_WH_SERVER"),
)  # fmt: skip
_INTEGRITY = {
    0: "SECURITY_MANDATORY_UNTRUSTED_RID",
    0x1000: "SECURITY_MANDATORY_LOW_RID",
    0x2000: "SECURITY_MANDATORY_MEDIUM_RID",
    0x2100: "SECURITY_MANDATORY_MEDIUM_PLUS_RID",
    0x3000: "SECURITY_MANDATORY_HIGH_RID",
    0x4000: "SECURITY_MANDATORY_SYSTEM_RID",
}
_DUMP_TYPE = tuple(
    (1 << bit, f"MiniDump{name}")
    for bit, name in enumerate(
        (
            "WithDataSegs", "WithFullMemory", "WithHandleData", "FilterMemory", "ScanMemory",
            "WithUnloadedModules", "WithIndirectlyReferencedMemory", "FilterModulePaths",
            "WithProcessThreadData", "WithPrivateReadWriteMemory", "WithoutOptionalData",
            "WithFullMemoryInfo", "WithThreadInfo", "WithCodeSegs", "WithoutAuxiliaryState",
            "WithFullAuxiliaryState", "WithPrivateWriteCopyMemory", "IgnoreInaccessibleMemory",
            "WithTokenInformation", "WithModuleHeaders", "FilterTriage", "WithAvxXStateContext",
            "WithIptTrace", "ScanInaccessiblePartialPages", "FilterWriteCombinedMemory",
        )
    )
)  # fmt: skip
_TIME_ZONES = {0: "TIME_ZONE_ID_UNKNOWN", 1: "TIME_ZONE_ID_STANDARD", 2: "TIME_ZONE_ID_DAYLIGHT"}
_EXCEPTION_FLAGS = ((0x1, "EXCEPTION_NONCONTINUABLE"),)
_STATES = {0x1000: "MEM_COMMIT", 0x2000: "MEM_RESERVE", 0x10000: "MEM_FREE"}
_TYPES = {0x20000: "MEM_PRIVATE", 0x40000: "MEM_MAPPED", 0x1000000: "MEM_IMAGE"}
_PROTECTIONS = {
    1: "PAGE_NOACCESS",
    2: "PAGE_READONLY",
    4: "PAGE_READWRITE",
    8: "PAGE_WRITECOPY",
    0x10: "PAGE_EXECUTE",
    0x20: "PAGE_EXECUTE_READ",
    0x40: "PAGE_EXECUTE_READWRITE",
    0x80: "PAGE_EXECUTE_WRITECOPY",
}
_MODIFIERS = ((0x100, "PAGE_GUARD"), (0x200, "PAGE_NOCACHE"), (0x400, "PAGE_WRITECOMBINE"))

_YEAR_10000 = 253402300800
"""Seconds from 1970 to the first year that Python cannot show."""


def one_of(names: Dict[int, str], value: int) -> str:
    """Returns the name of a value with the number behind, or the number alone."""
    number = str(value) if value < 0x100 else f"{value:#x}"
    return f"{names[value]} ({number})" if value in names else number


def all_of(names: Sequence[Tuple[int, str]], value: int) -> str:
    """Returns the names of the bits of a value with the number behind; bits without a name as a number."""
    known = [name for bit, name in names if value & bit]
    rest = value & ~sum(bit for bit, _ in names)
    words = [*known, *([f"{rest:#x}"] if rest else [])]
    return f"{' '.join(words)} ({value:#x})" if known else f"{value:#x}"


def moment(seconds: int) -> str:
    """Returns a time in seconds since 1970 as text, with the number behind."""
    if not 0 < seconds < _YEAR_10000:
        return str(seconds)
    when = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC ({seconds:#x})"


def minidump_type(flags: int) -> str:
    """Returns the names of MINIDUMP_TYPE."""
    return all_of(_DUMP_TYPE, flags) if flags else "MiniDumpNormal (0x0)"


def exception_code(code: int) -> str:
    """Returns the name of an ExceptionCode with the number behind, or the number alone."""
    name = exception_name(code)
    return f"{name} ({code:#x})" if name else f"{code:#x}"


def region(state: int, protect: int, kind: int) -> str:
    """Returns the words of a MINIDUMP_MEMORY_INFO: state, protection, type."""
    words = [_STATES.get(state, f"{state:#x}")]
    low = protect & 0xFF
    if low:
        modifiers = [name for bit, name in _MODIFIERS if protect & bit]
        words.append("|".join([_PROTECTIONS.get(low, f"{low:#x}"), *modifiers]))
    if kind:
        words.append(_TYPES.get(kind, f"{kind:#x}"))
    return " ".join(words)


WORDS: Dict[str, Callable[[int], str]] = {
    "ProcessorArchitecture": lambda value: one_of(_ARCHITECTURES, value),
    "PlatformId": lambda value: one_of(_PLATFORMS, value),
    "ProductType": lambda value: one_of(_PRODUCTS, value),
    "SuiteMask": lambda value: all_of(_SUITES, value),
    "ProcessIntegrityLevel": lambda value: one_of(_INTEGRITY, value),
    "ProcessCreateTime": moment,
    "TimeZoneId": lambda value: one_of(_TIME_ZONES, value),
    "ExceptionCode": exception_code,
    "ProcessUserTime": "{} s".format,
    "ProcessKernelTime": "{} s".format,
    "ExceptionFlags": lambda value: all_of(_EXCEPTION_FLAGS, value),
}
"""The words of a member's value, by the name of the member."""
