# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stacks that are stored as an array of fixed length, padded with zeros."""

from __future__ import annotations

from typing import Tuple


def without_padding(stack: Tuple[int, ...]) -> Tuple[int, ...]:
    """Returns the frames before the padding; a zero between frames was recorded and stays."""
    depth = len(stack)
    while depth and not stack[depth - 1]:
        depth -= 1
    return stack[:depth]
