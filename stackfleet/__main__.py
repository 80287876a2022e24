# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The entry point of `stackfleet` and `python3 -m stackfleet`, which names missing packages."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # `python3 -m` has put the current folder, where evidence may lie, first on the path, unless an option
    # prevents it. Nothing is imported before that folder is removed, unless it is the folder of the package.
    _HERE = __file__.rpartition("stackfleet")[0].rstrip("/\\")
    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated) and sys.path[0] != _HERE:
        del sys.path[0]

import contextlib
import importlib.util
import os

NEEDED = ("deltalake", "distributed", "duckdb", "psutil", "pyarrow", "rich", "volatility3")
"""The packages of the extra `fleet`."""

LEAST = (3, 10)
"""The lowest Python that deltalake supports; the plugins and their library run on 3.9, too."""


def main() -> int:
    """Runs the command line; returns the exit code."""
    if sys.version_info < LEAST:
        print(f"stackfleet needs Python {LEAST[0]}.{LEAST[1]} or newer", file=sys.stderr)
        return 2
    from . import interrupts

    interrupts.end_at_once()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"stackfleet needs {', '.join(missing)}: pip install '.[fleet]'", file=sys.stderr)
        return 2
    from . import validated

    try:
        validated.load()
    except OSError as error:
        why = f"{error.filename}: {error.strerror}; XDG_CACHE_HOME names another folder for it"
        print(f"stackfleet: Volatility cannot make its cache, {why}", file=sys.stderr)
        return 2
    from . import cli, output

    output.take_standard_streams()
    interrupts.end_in_order()
    code = cli.main()
    interrupts.end_at_once()
    if any("://" in word for word in sys.argv):
        # Threads of Arrow may still hold deltalake's files of an object store, which are objects of Python.
        # To release them while the interpreter ends aborts the process behind its answer.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
