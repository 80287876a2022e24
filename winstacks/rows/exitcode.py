# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The exit code of `vol` where all rows were shown but a file could not be written.

Volatility ends with 0 unless an exception passes through the renderer, and an exception would cost the rows
that a renderer prints last.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

FAILURE = 1
"""The exit code of Volatility's own errors."""


def fail_at_exit() -> None:
    """Makes the process end with 1, after everything else that it does at its end."""
    atexit.unregister(_fail)
    atexit.register(_fail)


def _fail() -> None:
    atexit.unregister(_fail)
    # Python offers no way to set the code at this point, so this ends the process itself.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(FAILURE)
