# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Ctrl-C: within the imports, once, twice, within a callback, and where it is ignored."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Dict, Tuple

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
    """Runs a program that imports the `sitecustomize` of a folder."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": hooks},
        capture_output=True,
        text=True,
        timeout=ENDLESS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


PROGRAMS: Dict[str, Tuple[str, Tuple[int, str, str]]] = {
    "the first is an exception": (ASKED, (0, "in order\n", "")),
    "the second ends the program": (
        f"{ASKED}    sys.stdout.flush()\n    {SEND}    time.sleep(1000)\n",
        (130, "in order\n", INTERRUPTED),
    ),
    "an exception that Python would ignore ends the program": (
        f"{CALLBACK}Callback()\ntime.sleep(1000)\n",
        (130, "", INTERRUPTED),
    ),
    "a background job goes on to ignore it": (
        IN_ORDER.replace("interrupts.", "signal.signal(signal.SIGINT, signal.SIG_IGN)\ninterrupts.")
        + f"{SEND}print('unharmed')\n",
        (0, "unharmed\n", ""),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_it_does_to_a_program(name: str) -> None:
    program, expected = PROGRAMS[name]
    assert ran(sys.executable, "-c", program) == expected


@pytest.mark.parametrize("module", ["stackfleet.cli", "pyarrow", "stackfleet.lake"])
def test_within_the_imports(module: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FINDER.format(module))
    done = ran(*COMMAND, "run", "no.raw", "-o", str(tmp_path / "lake"), hooks=str(tmp_path))
    assert done == (130, "", INTERRUPTED)
