# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Ctrl-C: within the imports, once, twice, within a callback, and where it is ignored."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from typing import Tuple

import pytest

from tests.conftest import ROOT
from tests.support.fleetrun import COMMAND, ENDLESS

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(os.name == "nt", reason="a signal to one process is no Ctrl-C on Windows"),
]

SEND = "os.kill(os.getpid(), signal.SIGINT)\n"
IN_ORDER = "import os, signal, sys, time\nfrom stackfleet import interrupts\ninterrupts.end_in_order()\n"
ASKED = f"{IN_ORDER}try:\n    {SEND}    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('in order')\n"
CALLBACK = f"{IN_ORDER}class Callback:\n    def __del__(self):\n        {SEND}        time.sleep(1000)\n"
FINDER = f"""
import importlib.abc, os, signal, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "{{}}":
            {SEND}
sys.meta_path.insert(0, Finder())
"""
INTERRUPTED = "stackfleet: interrupted\n"


def ran(*command: str, hooks: str = "") -> Tuple[int, str, str]:
    """Runs a program for which Ctrl-C is as in a shell; it imports the `sitecustomize` of a folder."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": hooks},
        capture_output=True,
        text=True,
        timeout=ENDLESS,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    return done.returncode, done.stdout, done.stderr


def python(program: str) -> Tuple[int, str, str]:
    return ran(sys.executable, "-c", program)


def test_the_first_is_an_exception() -> None:
    assert python(ASKED) == (0, "in order\n", "")


def test_the_second_ends_the_program() -> None:
    again = f"{ASKED}    sys.stdout.flush()\n    {SEND}    time.sleep(1000)\n"
    assert python(again) == (130, "in order\n", INTERRUPTED)


def test_an_exception_that_python_would_ignore_ends_the_program() -> None:
    assert python(f"{CALLBACK}Callback()\ntime.sleep(1000)\n") == (130, "", INTERRUPTED)


def test_a_background_job_goes_on_to_ignore_it() -> None:
    ignored = IN_ORDER.replace("interrupts.", "signal.signal(signal.SIGINT, signal.SIG_IGN)\ninterrupts.")
    assert python(f"{ignored}{SEND}print('unharmed')\n") == (0, "unharmed\n", "")


@pytest.mark.parametrize("module", ["stackfleet.cli", "pyarrow", "stackfleet.lake"])
def test_within_the_imports(module: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FINDER.format(module))
    done = ran(*COMMAND, "run", "no.raw", "-o", str(tmp_path / "lake"), hooks=str(tmp_path))
    assert done == (130, "", INTERRUPTED)
