# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pure decoders as targets: what Windows wrote in, and nothing but what they declare out."""

from __future__ import annotations

import functools
from typing import Dict

from .databases import targets as databases
from .heaps import targets as heaps
from .modules import targets as modules
from .owners import targets as owners
from .stacks import targets as stacks
from .target import Target

__all__ = ["Target", "targets"]


@functools.lru_cache(maxsize=None)
def targets() -> Dict[str, Target]:
    """Returns all targets by name."""
    found = [each for part in (databases, heaps, modules, owners, stacks) for each in part()]
    return {each.name: each for each in found}
