# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pure decoders as targets: what Windows wrote in, and nothing but what they declare out."""

from __future__ import annotations

import functools
from typing import Dict

from . import (
    arm64,
    code,
    databases,
    dumps,
    golang,
    heaps,
    images,
    kernelwaits,
    lakes,
    modules,
    objects,
    owners,
    stackparts,
    stacks,
    texts,
    waits,
)
from .target import Target

__all__ = ["Target", "groups", "targets"]


@functools.lru_cache(maxsize=None)
def groups() -> Dict[str, Dict[str, Target]]:
    """Returns the targets by name, by what they decode."""
    kernel = (kernelwaits, databases, owners, objects, images)
    parts = (arm64, code, dumps, golang, heaps, lakes, modules, stackparts, stacks, texts, waits, *kernel)
    return {
        part.__name__.rpartition(".")[2]: {target.name: target for target in part.targets()} for part in parts
    }


def targets() -> Dict[str, Target]:
    """Returns all targets by name."""
    return {name: target for group in groups().values() for name, target in group.items()}
