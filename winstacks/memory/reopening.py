# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The files of an image in a process that was forked.

A file that is open at a fork has one position for both processes: each moves the position of the other
between seeking and reading, and both read wrong bytes. So a forked process opens each file again.
"""

from __future__ import annotations

from volatility3.framework import interfaces
from volatility3.framework.layers import physical

_WITHOUT_FILES = (physical.BufferDataLayer,)


def unknown_layers(context: interfaces.context.ContextInterface) -> str:
    """Returns the names of the layers that a forked process cannot open again; empty if there are none.

    A layer that rests on no other may hold a connection or a device (`leechcore`, a cloud's store).
    """
    known = (physical.FileLayer, *_WITHOUT_FILES)
    layers = context.layers
    roots = [name for name in layers if not layers[name].dependencies]
    return ", ".join(name for name in roots if not isinstance(layers[name], known))


def reopen_files(context: interfaces.context.ContextInterface) -> None:
    """Opens each file of an image again; called once in a process that was forked, before any reading."""
    for name in context.layers:
        layer = context.layers[name]
        if isinstance(layer, physical.FileLayer):
            # Volatility opens the file when the layer is next read. The other process keeps its own.
            layer._file_ = None
