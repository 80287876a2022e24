# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The process that answers the programs of `stackfleet mcp`. Its input and output are lines of JSON.

    in   {"lake": ..., "tool": "findings", "arguments": {...}, "folder": ...}
    out  {"answer": {...}} or {"failed": "the reason"}

A query can need any time and memory: the parent process ends this one when it needs too much, and removes
the folder, which has the temporary files. The end of the input means that the parent process is gone.
"""

from __future__ import annotations

import tempfile

from . import agent_tools
from .child import Line
from .database import SqlError
from .lake import LakeError
from .planning import WrongUseError


def main() -> None:
    """Answers questions until the input ends."""
    line = Line()
    while True:
        message = line.hear()
        tempfile.tempdir = message["folder"]
        try:
            line.send(answer=agent_tools.answered(message["lake"], message["tool"], message["arguments"]))
        except (LakeError, SqlError, WrongUseError) as error:
            line.send(failed=str(error))
