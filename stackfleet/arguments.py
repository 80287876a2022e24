# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The values of options: numbers, sizes, times, parts and ports."""

from __future__ import annotations

import argparse
import re

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600}
_MOST_DIGITS = 16


def quantity(units: dict[str, int], text: str) -> float:
    """Returns the value of a number with a unit, such as `90m` or `2G`."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)([a-z]?)i?b?", text.strip().lower())
    if not match or match[2] not in units or not float(match[1]):
        raise argparse.ArgumentTypeError(
            f"{text} is not a number above 0, alone or followed by one of {' '.join(filter(None, units))}"
        )
    return float(match[1]) * units[match[2]]


def seconds(text: str) -> float:
    """Returns the seconds of a time such as `90m`."""
    return quantity(_TIMES, text)


def size(text: str) -> int:
    """Returns the bytes of a size such as `2G`."""
    return int(quantity(_SIZES, text))


def whole(text: str, least: int = 0) -> int:
    """Returns a number from 0, or from another one."""
    if not (text.isdecimal() and len(text) < _MOST_DIGITS and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text} is not a number from {least}")
    return int(text)


def count(text: str) -> int:
    """Returns a number above 0."""
    return whole(text, 1)


def shard(text: str) -> tuple[int, int]:
    """Returns the numbers of a part such as `2/8`."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text} is not a part such as 2/8")
    return int(match[1]), int(match[2])


def port(text: str) -> int:
    """Returns the number of a port; 0 for a free one."""
    if not (text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return int(text)
