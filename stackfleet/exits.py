# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The exit codes of all commands."""

from __future__ import annotations

DONE, WRONG_USE, INCOMPLETE, INTERRUPTED = 0, 2, 3, 130

HELP = (
    f"Exit codes: {DONE} every image was read, or is part of the answer; {WRONG_USE} the command line is "
    f"wrong, or the lake cannot be used; {INCOMPLETE} some images were not read, are truncated, or are "
    f"damaged and left out; {INTERRUPTED} interrupted by Ctrl-C."
)
"""The text below the help of each command."""
