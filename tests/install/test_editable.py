# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Installations beside an editable Volatility, which they would hide: refused, or mended as README says."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.conftest import ROOT
from tests.install.environments import HIDDEN, NAME, PLUGIN, README, Environment, call, readme, succeeds
from tests.support.only import only
from tests.test_install import fill

pytestmark = pytest.mark.install


@pytest.fixture(scope="session")
def editable(index: None, source: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with an editable Volatility, which runs: each test leaves it as it was."""
    environment = Environment(tmp_path_factory.mktemp("editable") / "made")
    environment.installs("-e", str(source))
    assert not environment.shows_plugin()
    return environment


def test_an_editable_volatility_is_refused_and_goes_on(editable: Environment) -> None:
    before = editable.tree()
    refused = editable.pip("install", ".")
    assert refused.returncode
    reported_line = only(
        line for line in refused.stdout.splitlines() + refused.stderr.splitlines() if "hide it" in line
    )
    assert "`vol -p volatility3_plugins`" in reported_line
    assert editable.tree() == before
    assert editable.shows_plugin("-p", str(ROOT / "volatility3_plugins"))
    assert not editable.shows_plugin()


def test_both_are_editable(editable: Environment) -> None:
    before = editable.tree()
    editable.installs("--no-deps", *readme("pip install -e .")[2:])
    assert editable.shows_plugin("-p", str(ROOT / "volatility3_plugins"))
    succeeds(editable.pip("uninstall", "--quiet", "--yes", NAME))
    assert editable.tree() == before


def test_vol_json_names_the_plugins(editable: Environment, tmp_path: pathlib.Path) -> None:
    match = re.search(r'\{"plugin_dirs": "[^"]*"\}', README)
    assert match, "README shows a vol.json"
    home = tmp_path / "home"
    text = match.group().replace("/path/to/volatility3_plugins", (ROOT / "volatility3_plugins").as_posix())
    fill(home, {".config/volatility3/vol.json": text, "volatility3/vol.json": text})
    shown = call(
        str(editable.programs / "vol"), PLUGIN, "--help", cwd=home, HOME=str(home), APPDATA=str(home)
    )
    succeeds(shown)


def test_a_ready_wheel_beside_an_editable_volatility_is_mended(
    editable: Environment, wheels: pathlib.Path
) -> None:
    before = editable.tree()
    editable.installs("--no-index", "--find-links", str(wheels), NAME)
    assert HIDDEN in editable.vol("--help").stderr
    succeeds(editable.pip(*readme(f"pip uninstall {NAME}")[1:], "--yes"))
    assert editable.tree() == before
    assert not editable.shows_plugin()


def test_volatility_made_editable_later_is_mended(
    index: None, source: pathlib.Path, wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    environment = Environment(tmp_path / "made")
    environment.installs("--no-index", "--find-links", str(wheels), NAME)
    environment.installs("-e", str(source))
    assert HIDDEN in environment.vol("--help").stderr
    succeeds(environment.pip("uninstall", "--quiet", "--yes", NAME))
    assert not environment.shows_plugin()


def test_uv_cannot_see_an_editable_volatility_and_mends_it(uv: pathlib.Path, editable: Environment) -> None:
    before = editable.tree()
    succeeds(call(str(uv), "pip", "install", ".", cwd=ROOT, VIRTUAL_ENV=str(editable.folder)))
    assert HIDDEN in editable.vol("--help").stderr
    words = readme(f"uv pip uninstall {NAME}")[1:]
    succeeds(call(str(uv), *words, cwd=ROOT, VIRTUAL_ENV=str(editable.folder)))
    assert editable.tree() == before
    assert not editable.shows_plugin()
