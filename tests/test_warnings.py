# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""No module of ours causes a warning of Python's: none when it is compiled and imported, none when it runs.

The bytecode of earlier runs is not used: the compiler's own warnings would not be repeated.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Dict

import pytest

from tests.conftest import ROOT
from tests.forge import sample, vol

IMPORTS = """
import importlib, pkgutil, warnings
import volatility3.framework, volatility3.plugins
import winstacks
warnings.simplefilter("error")
names = [module.name for module in pkgutil.walk_packages(winstacks.__path__, "winstacks.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
"""Imports all modules of the library; what Volatility imports at its start may have warnings of its own."""


def strict(environment: Dict[str, str], folder: pathlib.Path) -> Dict[str, str]:
    """An environment in which each warning is an error, and in which everything is compiled anew."""
    return {
        **environment,
        "PYTHONWARNINGS": "error",
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
    }


def test_no_module_warns_when_it_is_imported(tmp_path: pathlib.Path) -> None:
    environment = {**strict(dict(os.environ), tmp_path), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    files = [path for path in (ROOT / "winstacks").rglob("*.py") if path.name != "__init__.py"]
    assert int(done.stdout) >= len(files)


@pytest.mark.cli
def test_no_command_warns(tmp_path: pathlib.Path) -> None:
    image = sample.build().image()
    file, symbols = image.save(tmp_path / "image.raw"), image.install(tmp_path / "symbols")
    for plugin in ("gflags", "callstacks", "tracereport"):
        line, environment = vol.prepare(file, f"windows.{plugin}", symbols=symbols, renderer="quick")
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            env=strict(environment, tmp_path),
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # Volatility leaves its index of symbol tables to Python, which closes it and warns from 3.13 on; some
        # versions leave the image's file to it, too.
        known = str(file), "unclosed database in <sqlite3.Connection"
        warned = [line for line in done.stderr.splitlines() if "Warning" in line]
        assert not [line for line in warned if not any(said in line for said in known)]
        assert "PID\t" in done.stdout or "File output" in done.stdout
