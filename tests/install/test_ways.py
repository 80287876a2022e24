# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Each way to install that README names, into an environment that has nothing else."""

from __future__ import annotations

import pathlib
import shutil
import sys

import pytest

from tests.conftest import ROOT
from tests.install.environments import NAME, PLUGIN, Environment, call, readme, succeeds

pytestmark = pytest.mark.install


def test_into_an_environment_without_volatility(index: None, tmp_path: pathlib.Path) -> None:
    """Volatility comes with it; uninstalled again, nothing but Volatility is there."""
    environment = Environment(tmp_path / "made")
    before = {path.name for path in ROOT.iterdir()}
    environment.installs(*readme("pip install .")[2:])
    assert environment.shows_plugin()
    assert {path.name for path in ROOT.iterdir()} - before <= {".pytest_cache", "__pycache__"}
    succeeds(environment.pip(*readme(f"pip uninstall {NAME}")[1:], "--yes"))
    assert not environment.shows_plugin()
    left = environment.tree()
    assert not [place for place in left if "stacktraces" in place or "winstacks" in place]
    assert not [place for place in left if place.endswith("volatility3/symbols/windows")]


def test_editable_for_scripts_and_with_p(index: None, tmp_path: pathlib.Path) -> None:
    """Scripts import library and fleet from the tree, and nothing else of it; `vol` takes -p."""
    environment = Environment(tmp_path / "made")
    environment.installs("volatility3")
    bare, before = environment.tree(), {path.name for path in ROOT.iterdir()}
    environment.installs("--no-deps", *readme("pip install -e .")[2:])
    assert {path.name for path in ROOT.iterdir()} - before <= {".pytest_cache", "__pycache__"}
    code = "import stackfleet, winstacks.options; print(winstacks.__file__, stackfleet.__file__)"
    shown = call(str(environment.python), "-c", code, cwd=tmp_path)
    assert shown.stdout.split() == [str(ROOT / name / "__init__.py") for name in ("winstacks", "stackfleet")]
    assert call(str(environment.python), "-c", "import tests", cwd=tmp_path).returncode
    assert not environment.shows_plugin()
    assert environment.shows_plugin("-p", str(ROOT / "volatility3_plugins"))
    # A plugin folder without a library beside it takes the one that is installed.
    shutil.copytree(ROOT / "volatility3_plugins", tmp_path / "alone" / "volatility3_plugins")
    assert environment.shows_plugin("-p", str(tmp_path / "alone" / "volatility3_plugins"))
    succeeds(environment.pip("uninstall", "--quiet", "--yes", NAME))
    assert environment.tree() == bare


def test_an_editable_install_takes_the_place_of_another_and_back(
    index: None, wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    environment = Environment(tmp_path / "made")
    environment.installs("--no-index", "--find-links", str(wheels), NAME)
    whole = environment.tree()
    environment.installs("--no-deps", "-e", ".")
    assert not environment.shows_plugin()
    assert not [place for place in environment.tree() if place.endswith("windows/gflags.py")]
    environment.installs("--no-index", "--find-links", str(wheels), NAME, "--no-deps", "--force-reinstall")
    assert environment.shows_plugin()
    assert {place for place in environment.tree() ^ whole if "dist-info" not in place} == set()


def test_a_wheel_without_a_network_and_out_again(
    index: None, wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    words = readme("pip install --no-index --find-links wheels volatility3-stacktraces")
    environment = Environment(tmp_path / "made")
    environment.installs("--no-index", "--find-links", str(wheels), "volatility3")
    bare = environment.tree()
    environment.installs(*words[2:], cwd=wheels.parent)
    assert environment.shows_plugin()
    assert bare < environment.tree()
    succeeds(environment.pip("uninstall", "--quiet", "--yes", NAME))
    assert environment.tree() == bare


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
    assert not list((tmp_path / "home" / "venvs").rglob("winstacks*"))


def test_uv(uv: pathlib.Path, tmp_path: pathlib.Path) -> None:
    environment = Environment(tmp_path / "made")
    succeeds(call(str(uv), *readme("uv pip install .")[1:], cwd=ROOT, VIRTUAL_ENV=str(environment.folder)))
    assert environment.shows_plugin()
    words = readme(f"uv pip uninstall {NAME}")[1:]
    succeeds(call(str(uv), *words, cwd=ROOT, VIRTUAL_ENV=str(environment.folder)))
    assert not environment.shows_plugin()
    assert not [place for place in environment.tree() if "stacktraces" in place or "winstacks" in place]
