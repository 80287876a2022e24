# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Each way to install that README names, into an environment that has nothing else."""

from __future__ import annotations

import pathlib
import sys

import pytest

from tests.conftest import ROOT
from tests.install.environments import NAME, PLUGIN, Environment, call, readme, succeeds

pytestmark = pytest.mark.install


def test_into_an_environment_without_volatility(index: None, tmp_path: pathlib.Path) -> None:
    """Volatility comes with it; uninstalled again, nothing but Volatility is there."""
    made = Environment(tmp_path / "made")
    before = {path.name for path in ROOT.iterdir()}
    made.installs(*readme("pip install .")[2:])
    assert made.shows_plugin()
    assert {path.name for path in ROOT.iterdir()} - before <= {".pytest_cache", "__pycache__"}
    succeeds(made.pip(*readme(f"pip uninstall {NAME}")[1:], "--yes"))
    assert not made.shows_plugin()
    left = made.tree()
    assert not [place for place in left if "stacktraces" in place]
    assert not [place for place in left if place.endswith("volatility3/symbols/windows")]


def test_a_wheel_without_a_network_and_out_again(
    index: None, wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    words = readme("pip install --no-index --find-links wheels volatility3-stacktraces")
    made = Environment(tmp_path / "made")
    made.installs("--no-index", "--find-links", str(wheels), "volatility3")
    bare = made.tree()
    made.installs(*words[2:], cwd=wheels.parent)
    assert made.shows_plugin()
    assert bare < made.tree()
    succeeds(made.pip("uninstall", "--quiet", "--yes", NAME))
    assert made.tree() == bare


def test_pipx(pipx: pathlib.Path, tmp_path: pathlib.Path) -> None:
    places = {"PIPX_HOME": "home", "PIPX_BIN_DIR": "bin", "PIPX_MAN_DIR": "man"}
    variables = {name: str(tmp_path / folder) for name, folder in places.items()}
    variables["PIPX_DEFAULT_PYTHON"] = sys.executable
    succeeds(call(str(pipx), "install", "volatility3", cwd=ROOT, **variables))
    succeeds(call(str(pipx), *readme("pipx inject volatility3 .")[1:], cwd=ROOT, **variables))
    succeeds(call(str(tmp_path / "bin" / "vol"), PLUGIN, "--help", cwd=tmp_path))
    succeeds(call(str(pipx), *readme(f"pipx uninject volatility3 {NAME}")[1:], cwd=ROOT, **variables))
    succeeds(call(str(tmp_path / "bin" / "vol"), "--help", cwd=tmp_path))
    assert not list((tmp_path / "home" / "venvs").rglob("*stacktraces*"))


def test_uv(uv: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = Environment(tmp_path / "made")
    succeeds(call(str(uv), *readme("uv pip install .")[1:], cwd=ROOT, VIRTUAL_ENV=str(made.folder)))
    assert made.shows_plugin()
    words = readme(f"uv pip uninstall {NAME}")[1:]
    succeeds(call(str(uv), *words, cwd=ROOT, VIRTUAL_ENV=str(made.folder)))
    assert not made.shows_plugin()
    assert not [place for place in made.tree() if "stacktraces" in place]
