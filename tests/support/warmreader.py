# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The processes of `stackfleet` that read images, for a server of `warm`."""

from __future__ import annotations

import importlib
import os
import sys

from tests.forge import warm

_MODULES = ("opening", "reading", "versions", "warm", "writer")


def load() -> None:
    """Imports all that such a process imports."""
    warm.load_plugins()
    # PyArrow imports pandas with the first array.
    for name in ("pandas", "pyarrow.dataset", *map("stackfleet.{}".format, _MODULES)):
        importlib.import_module(name)
    from tests.support.fleethooks import sitecustomize

    sitecustomize.watch()


def run() -> None:
    """Does what `begin.py` does."""
    os.setsid()
    importlib.import_module(sys.argv[2]).main()
