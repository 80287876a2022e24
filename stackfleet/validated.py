# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Volatility's list of valid symbol tables, which it reads when it is imported.

Volatility writes the list over (`schemas.record_cached_validations`): who reads it at that moment finds the
beginning of it, and where the writer is killed then, no Volatility of this user starts again.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time

_TRIES, _PAUSE = 50, 0.1


def load() -> None:
    """Imports the list of Volatility's cache folder, once more where another folder was set.

    A list that stays unreadable is removed: Volatility makes it again.
    """
    for _ in range(_TRIES):
        if _is_read():
            return
        # Another process is writing the list at this moment.
        time.sleep(_PAUSE)
    from volatility3.framework import constants

    path = os.path.join(constants.CACHE_PATH, "valid_isf.hashcache")
    print(f"Volatility's list of valid symbol tables is unreadable and is removed: {path}", file=sys.stderr)
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    _is_read()


def _is_read() -> bool:
    known = sys.modules.get("volatility3.schemas")
    try:
        if known is None:
            importlib.import_module("volatility3.schemas")
        else:
            # Other processes may have validated tables since it was imported.
            importlib.reload(known)
    except (ValueError, TypeError, RecursionError):
        return False
    return True
