# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The exit code of a process whose standard output is read or not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")

_PROGRAM = """
import os
from winstacks.rows import exitcode
exitcode.end_without_reader()
reader, writer = os.pipe()
os.close(reader)
os.write(writer, b"to a worker")
"""


@pytest.mark.parametrize("code", [0, 1])
def test_only_standard_output_without_a_reader_ends_the_process_in_order(code: int) -> None:
    """Rows are missing where any other pipe breaks."""
    reader, writer = os.pipe()
    if not code:
        os.close(reader)
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    os.close(writer)
    if code:
        os.close(reader)
    assert (done.returncode, "BrokenPipeError" in done.stderr) == (code, bool(code)), done.stderr
