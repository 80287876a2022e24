# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""EFlags and Dr7 in words. Source: Intel SDM volume 1, 3.4.3 and volume 3, 17.2.4."""

from __future__ import annotations

from typing import List

_FLAGS = {
    0: "CF",
    2: "PF",
    4: "AF",
    6: "ZF",
    7: "SF",
    8: "TF",
    9: "IF",
    10: "DF",
    11: "OF",
    14: "NT",
    16: "RF",
    17: "VM",
    18: "AC",
    19: "VIF",
    20: "VIP",
    21: "ID",
}
_IOPL_SHIFT = 12
_ACCESS = ("execute", "write", "io", "read/write")
_LENGTHS = (1, 2, 8, 4)
_DR7_SWITCHES = {8: "LE", 9: "GE", 11: "RTM", 13: "GD"}


def eflags_text(value: int) -> str:
    """Returns the names of the set flags, lowest bit first, and an IOPL that is not 0.

    >>> eflags_text(0x246)
    'PF ZF IF'
    """
    words = [name for bit, name in _FLAGS.items() if value >> bit & 1]
    level = value >> _IOPL_SHIFT & 3
    return " ".join(words + ([f"IOPL={level}"] if level else []))


def dr7_text(value: int) -> str:
    """Returns the enabled breakpoints of Dr7 and its switches.

    >>> dr7_text(0xD0101)
    'Dr0 write 4 local LE'
    """
    words: List[str] = []
    for index in range(4):
        enabled = value >> 2 * index & 3
        if enabled:
            control = value >> 16 + 4 * index & 0xF
            scope = " ".join(name for bit, name in ((1, "local"), (2, "global")) if enabled & bit)
            words.append(f"Dr{index} {_ACCESS[control & 3]} {_LENGTHS[control >> 2]} {scope}")
    switches = " ".join(name for bit, name in _DR7_SWITCHES.items() if value >> bit & 1)
    return ", ".join(words) + (" " if words and switches else "") + switches
