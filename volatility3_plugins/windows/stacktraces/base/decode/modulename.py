# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Module names as WinDbg writes them."""

from __future__ import annotations

from . import text
from .memo import late_pattern

MAX_LENGTH = 255
"""Characters of a part of a path that Windows' file systems allow."""
_FOREIGN = late_pattern(r"\W")


def file_name(path: str) -> str:
    """Returns the last part of a Windows path, printable: `\\Windows\\System32\\ntdll.dll` -> `ntdll.dll`."""
    return text.printable(path.replace("/", "\\").rstrip("\\").rsplit("\\", 1)[-1]).replace(";", "\\x3b")


def module_name(path: str) -> str:
    """Returns the module name of a file: no folder, no extension, `_` for characters that no name has.

    `C:\\Windows\\mscorlib.ni.dll` -> `mscorlib_ni`. The case stays as the loader has it. The kernel's own
    name, `nt`, is not derived from its file and not made here. An empty name becomes `unknown`.
    """
    name = path.replace("/", "\\").rstrip("\\").rsplit("\\", 1)[-1]
    stem, dot, _ = name.rpartition(".")
    return _FOREIGN.sub("_", (stem if dot and stem else name))[:MAX_LENGTH] or "unknown"
