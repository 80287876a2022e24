# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Other versions of Python on this machine."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest


def python(version: str) -> str:
    """Returns an interpreter of a version such as 3.8, of PATH or pyenv; skips the test if there is none."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", str(pathlib.Path.home() / ".pyenv")))
    found = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"versions/{version}.*/bin/python"))]
    for path in filter(None, found):
        if subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip(f"there is no Python {version}")
