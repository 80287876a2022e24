# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names of the streams that programs other than Windows add to a minidump, and who writes each.

Source: Breakpad, "minidump_format.h" (MDStreamType); Crashpad, "minidump_extensions.h"; Chromium's "stability
report"; Mozilla's additions to Breakpad.
"""

from __future__ import annotations

from typing import Dict

FOREIGN: Dict[int, str] = {
    0x43500001: "kMinidumpStreamTypeCrashpadInfo",
    0x47670001: "MD_BREAKPAD_INFO_STREAM",
    0x47670002: "MD_ASSERTION_INFO_STREAM",
    0x47670003: "MD_LINUX_CPU_INFO",
    0x47670004: "MD_LINUX_PROC_STATUS",
    0x47670005: "MD_LINUX_LSB_RELEASE",
    0x47670006: "MD_LINUX_CMD_LINE",
    0x47670007: "MD_LINUX_ENVIRON",
    0x47670008: "MD_LINUX_AUXV",
    0x47670009: "MD_LINUX_MAPS",
    0x4767000A: "MD_LINUX_DSO_DEBUG",
    0x4B6B0002: "kStabilityReportStreamType",
    0x4D7A0001: "MozMacosCrashInfoStream",
    0x4D7A0002: "MozMacosBootargsStream",
    0x4D7A0003: "MozLinuxLimitsStream",
    0x4D7A0004: "MozSoftErrorsStream",
}

_BY_HIGH_HALF = {
    0x4350: "Crashpad",
    0x4767: "Breakpad",
    0x4B6B: "Chromium",
    0x4D7A: "Mozilla",
    0x5753: "winstacks",
}
"""Writers by the upper half of the type: each took two letters for its own streams."""

_WINDOWS_CE = range(0x8000, 0x8010)

LAST_OF_WINDOWS = 0xFFFF
"""LastReservedStream: other programs use larger numbers."""


def writer_of(kind: int) -> str:
    """Returns who writes the streams of a type, in words."""
    if kind in _WINDOWS_CE:
        return "Windows CE"
    if kind <= LAST_OF_WINDOWS:
        return "Windows"
    return _BY_HIGH_HALF.get(kind >> 16, "another program")
