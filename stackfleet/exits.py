# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The exit codes of all commands."""

from __future__ import annotations

DONE, WRONG_USE, INCOMPLETE, INTERRUPTED = 0, 2, 3, 130

HELP = (
    f"Exit codes: {DONE} all images are done, or in the answer; {WRONG_USE} wrong command line, or a lake "
    "that cannot be used; "
    f"{INCOMPLETE} some images are not done, or are damaged and left out; {INTERRUPTED} Ctrl-C."
)
"""The text below the help of each command."""
