# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The processes of `stackfleet` that read images, for a server of `warm`."""

from __future__ import annotations

import importlib
import os

from stackfleet import child
from tests.forge import warm


def load() -> None:
    """Imports all that such a process imports."""
    warm.load_plugins()
    for name in ("opening", "reading", "versions", "writer"):
        importlib.import_module(f"stackfleet.{name}")
    use_cache = child.use_cache

    def used(folder: "str | None", lake: str) -> None:
        from volatility3.framework import constants

        use_cache(folder, lake)
        warm.use_cache(constants.CACHE_PATH)

    child.use_cache = used
    from tests.support.fleethooks import sitecustomize

    sitecustomize.watch()


def run() -> None:
    """Does what `begin.py` does."""
    os.setsid()
    child.main()
