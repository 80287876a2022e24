# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What several tests of an installation share, made once by each process that runs tests."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from tests.conftest import ROOT
from tests.install.environments import PIP, Environment, call, readme, succeeds, tool
from tests.support.only import only

SETUP_CFG = [line.strip() for line in (ROOT / "setup.cfg").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where packages cannot be had."""
    options = ["--quiet", "--no-deps", "--no-cache-dir", "--timeout", "10", "--retries", "1"]
    requests = call(*PIP, "download", *options, "pefile", cwd=tmp_path_factory.mktemp("index"))
    if requests.returncode:
        pytest.skip("no package index can be reached")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with our wheel and those that it needs, made where there is no Volatility."""
    folder = tmp_path_factory.mktemp("wheels")
    maker = Environment(folder / "maker")
    words = readme("pip wheel . -w wheels")[1:-1]
    succeeds(maker.pip(*words, str(folder / "wheels"), "--quiet"))
    return folder / "wheels"


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Volatility's source tree."""
    folder = tmp_path_factory.mktemp("volatility")
    expected = next(line for line in SETUP_CFG if line.startswith("volatility3"))
    options = ["--quiet", "--no-deps", "--no-binary", "volatility3", "-d", str(folder)]
    done = call(*PIP, "download", *options, expected, cwd=folder)
    if done.returncode:
        pytest.skip(f"no source of Volatility: {done.stderr.splitlines()[-1:]}")
    archive = only(folder.glob("*.tar.gz"))
    shutil.unpack_archive(archive, folder)
    return only(path for path in folder.iterdir() if path.is_dir())


@pytest.fixture(scope="session")
def uv(index: None, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tool("uv", tmp_path_factory)


@pytest.fixture(scope="session")
def pipx(index: None, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tool("pipx", tmp_path_factory)
