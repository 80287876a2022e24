# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ways to install that README names, and what stops the one that would hide an editable Volatility.

Tests marked `install` make environments and take packages from the index: `dev.py install-check` runs them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from typing import Any, Dict, List, Set

import pytest

from tests.conftest import ROOT

NAME = "volatility3-stacktraces"
PLUGIN = "windows.gflags"
HIDDEN = "cannot import name 'classproperty' from 'volatility3'"
README = (ROOT / "README.md").read_text(encoding="utf-8")
EDITABLE_GROUP = pytest.mark.xdist_group("editable")
"""Tests that share what is made for them, when several processes run the tests."""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def load_setup() -> Any:
    """Returns setup.py as a module; as such it builds nothing."""
    spec = importlib.util.spec_from_file_location("stacktraces_setup", ROOT / "setup.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SETUP = load_setup()


def fill(folder: pathlib.Path, files: Dict[str, str]) -> pathlib.Path:
    """Writes files into a folder, by their names in it."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


EDITABLE = json.dumps({"dir_info": {"editable": True}, "url": "file:///somewhere"})
MADE_EDITABLE = {
    "finder": {"__editable___volatility3_2_28_0_finder.py": ""},
    "path file": {"__editable__.volatility3-2.28.0.pth": "import x; x.install()"},
    "direct url": {"volatility3-2.28.0.dist-info/direct_url.json": EDITABLE},
    "source tree": {"easy-install.pth": "# a comment\n../source\n", "../source/volatility3/__init__.py": ""},
    "beside our files": {
        "volatility3/plugins/windows/gflags.py": "",
        "volatility3-2.28.0.dist-info/direct_url.json": EDITABLE,
    },
}
OTHERS = {
    "nothing": {},
    "regular": {"volatility3/__init__.py": "", "volatility3-2.28.0.dist-info/METADATA": ""},
    "regular, with what an editable one left": {
        "volatility3/__init__.py": "",
        "__editable__.volatility3-2.28.0.pth": "",
    },
    "regular, from a folder": {
        "volatility3/__init__.py": "",
        "volatility3-2.28.0.dist-info/direct_url.json": '{"dir_info": {}, "url": "file:///somewhere"}',
    },
    "this project, as if it were editable": {
        "__editable___volatility3_stacktraces_2_0_0_finder.py": "",
        "__editable__.volatility3_stacktraces-2.0.0.pth": "../ours",
        "volatility3_stacktraces-2.0.0.dist-info/direct_url.json": EDITABLE,
        "../ours/volatility3_plugins/windows/gflags.py": "",
    },
    "another package": {
        "__editable__.other-1.0.pth": "../other",
        "other-1.0.dist-info/direct_url.json": EDITABLE,
    },
    "only our files": {"volatility3/plugins/windows/gflags.py": ""},
    "damaged": {
        "volatility3-2.28.0.dist-info/direct_url.json": "{",
        "a.pth": "\0\n\n../nowhere\nimport os\n",
        "volatility3-2.27.0.dist-info/direct_url.json": "[1]",
    },
}


@pytest.mark.parametrize("case", MADE_EDITABLE)
def test_an_editable_volatility_is_seen(case: str, tmp_path: pathlib.Path) -> None:
    site = fill(tmp_path / "site", MADE_EDITABLE[case])
    assert SETUP.editable_volatility([tmp_path / "absent", site])


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_not_an_editable_volatility(case: str, tmp_path: pathlib.Path) -> None:
    site = fill(tmp_path / "site", OTHERS[case])
    assert SETUP.editable_volatility([tmp_path / "absent", site]) is None


def test_a_regular_volatility_in_any_folder_is_found_before_an_editable_one(tmp_path: pathlib.Path) -> None:
    users = fill(tmp_path / "users", MADE_EDITABLE["finder"])
    system = fill(tmp_path / "system", OTHERS["regular"])
    assert SETUP.editable_volatility([users, system]) is None


def test_the_folders_are_those_of_the_environment_that_runs() -> None:
    assert pathlib.Path(sysconfig.get_path("purelib")) in SETUP.package_folders()


def setup_py(prefix: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs setup.py with the folder of packages of a fake environment."""
    code = f"import site; site.getsitepackages = lambda: [{str(prefix)!r}]; import runpy, sys; "
    code += f"sys.argv = ['setup.py', *{list(arguments)!r}]; runpy.run_path('setup.py', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_wheel_is_refused_in_one_sentence_and_metadata_are_not(tmp_path: pathlib.Path) -> None:
    site = fill(tmp_path / "site", MADE_EDITABLE["finder"])
    wheel = setup_py(site, "--quiet", "bdist_wheel", "-d", str(tmp_path / "wheels"))
    assert wheel.returncode == 1
    assert not (tmp_path / "wheels").exists()
    (said,) = [line for line in wheel.stderr.splitlines() if "editable" in line]
    assert "`vol -p volatility3_plugins`" in said
    assert "vol.json" in said
    assert "plugin_dirs" in said
    assert "Traceback" not in wheel.stderr
    metadata = setup_py(site, "--quiet", "dist_info", "-o", str(tmp_path))
    assert metadata.returncode == 0, metadata.stderr
    assert list(tmp_path.glob("*.dist-info"))


def test_an_editable_install_of_the_plugins_is_refused_in_one_sentence(tmp_path: pathlib.Path) -> None:
    refused = setup_py(tmp_path, "--quiet", "editable_wheel", "-d", str(tmp_path / "wheels"))
    assert refused.returncode == 1
    assert "`vol -p volatility3_plugins`" in refused.stderr
    assert "Traceback" not in refused.stderr


class Environment:
    """A virtual environment without pip: that of the tests installs into it."""

    def __init__(self, folder: pathlib.Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.programs = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.programs / ("python.exe" if os.name == "nt" else "python")

    def pip(self, *arguments: str, cwd: pathlib.Path = ROOT) -> "subprocess.CompletedProcess[str]":
        return call(*PIP, "--python", str(self.python), *arguments, cwd=cwd)

    def installs(self, *arguments: str, cwd: pathlib.Path = ROOT) -> None:
        succeeds(self.pip("install", "--quiet", *arguments, cwd=cwd))

    def vol(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return call(str(self.programs / "vol"), *arguments, cwd=self.folder)

    def shows_plugin(self, *options: str) -> bool:
        """Tells whether Volatility has the plugin. An AssertionError: Volatility itself does not run."""
        succeeds(self.vol("--help"))
        return self.vol(*options, PLUGIN, "--help").returncode == 0

    def tree(self) -> Set[str]:
        """The files and folders in it, without what Python makes when it runs and uv's lock."""
        places = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*"))
        return {place for place in places if "__pycache__" not in place and place != ".lock"}


def call(*command: str, cwd: pathlib.Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command as a user would, without what the tests' own environment adds."""
    added = ("PYTHON", "COVERAGE", "VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(added)}
    clean.update(variables)
    return subprocess.run(
        command,
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
        timeout=300,
    )


def succeeds(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"


def readme(command: str) -> List[str]:
    """Returns a command's words; README must name it so."""
    assert command in README, f"README does not say: {command}"
    return command.split()


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where packages cannot be had."""
    options = ["--quiet", "--no-deps", "--no-cache-dir", "--timeout", "10", "--retries", "1"]
    asked = call(*PIP, "download", *options, "pefile", cwd=tmp_path_factory.mktemp("index"))
    if asked.returncode:
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
    wanted = next(line for line in SETUP_CFG if line.startswith("volatility3"))
    options = ["--quiet", "--no-deps", "--no-binary", "volatility3", "-d", str(folder)]
    done = call(*PIP, "download", *options, wanted, cwd=folder)
    if done.returncode:
        pytest.skip(f"no source of Volatility: {done.stderr.splitlines()[-1:]}")
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    (tree,) = (path for path in folder.iterdir() if path.is_dir())
    return tree


SETUP_CFG = [line.strip() for line in (ROOT / "setup.cfg").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def editable(index: None, source: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with an editable Volatility, which runs: each test leaves it as it was."""
    made = Environment(tmp_path_factory.mktemp("editable") / "made")
    made.installs("-e", str(source))
    assert not made.shows_plugin()
    return made


def tool(name: str, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns a program of a package of the same name; skips where it cannot be had."""
    made = Environment(tmp_path_factory.mktemp(name) / "tool")
    done = made.pip("install", "--quiet", name)
    if done.returncode:
        pytest.skip(f"{name} cannot be had: {done.stderr.splitlines()[-1:]}")
    return made.programs / name


@pytest.fixture(scope="session")
def uv(index: None, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tool("uv", tmp_path_factory)


@pytest.fixture(scope="session")
def pipx(index: None, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tool("pipx", tmp_path_factory)


@pytest.mark.install
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


@pytest.mark.install
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


@pytest.mark.install
@EDITABLE_GROUP
def test_an_editable_volatility_is_refused_and_goes_on(editable: Environment) -> None:
    before = editable.tree()
    refused = editable.pip("install", ".")
    assert refused.returncode
    (said,) = [
        line for line in refused.stdout.splitlines() + refused.stderr.splitlines() if "hide it" in line
    ]
    assert "`vol -p volatility3_plugins`" in said
    assert editable.tree() == before
    assert editable.shows_plugin("-p", str(ROOT / "volatility3_plugins"))
    assert not editable.shows_plugin()


@pytest.mark.install
@EDITABLE_GROUP
def test_vol_json_names_the_plugins(editable: Environment, tmp_path: pathlib.Path) -> None:
    said = re.search(r'\{"plugin_dirs": "[^"]*"\}', README)
    assert said, "README shows a vol.json"
    home = tmp_path / "home"
    text = said.group().replace("/path/to/volatility3_plugins", (ROOT / "volatility3_plugins").as_posix())
    fill(home, {".config/volatility3/vol.json": text, "volatility3/vol.json": text})
    shown = call(
        str(editable.programs / "vol"), PLUGIN, "--help", cwd=home, HOME=str(home), APPDATA=str(home)
    )
    succeeds(shown)


@pytest.mark.install
@EDITABLE_GROUP
def test_a_ready_wheel_beside_an_editable_volatility_is_mended(
    editable: Environment, wheels: pathlib.Path
) -> None:
    before = editable.tree()
    editable.installs("--no-index", "--find-links", str(wheels), NAME)
    assert HIDDEN in editable.vol("--help").stderr
    succeeds(editable.pip(*readme(f"pip uninstall {NAME}")[1:], "--yes"))
    assert editable.tree() == before
    assert not editable.shows_plugin()


@pytest.mark.install
@EDITABLE_GROUP
def test_volatility_made_editable_later_is_mended(
    index: None, source: pathlib.Path, wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    made = Environment(tmp_path / "made")
    made.installs("--no-index", "--find-links", str(wheels), NAME)
    made.installs("-e", str(source))
    assert HIDDEN in made.vol("--help").stderr
    succeeds(made.pip("uninstall", "--quiet", "--yes", NAME))
    assert not made.shows_plugin()


@pytest.mark.install
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


@pytest.mark.install
def test_uv(uv: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = Environment(tmp_path / "made")
    succeeds(call(str(uv), *readme("uv pip install .")[1:], cwd=ROOT, VIRTUAL_ENV=str(made.folder)))
    assert made.shows_plugin()
    words = readme(f"uv pip uninstall {NAME}")[1:]
    succeeds(call(str(uv), *words, cwd=ROOT, VIRTUAL_ENV=str(made.folder)))
    assert not made.shows_plugin()
    assert not [place for place in made.tree() if "stacktraces" in place]


@pytest.mark.install
@EDITABLE_GROUP
def test_uv_cannot_see_an_editable_volatility_and_mends_it(uv: pathlib.Path, editable: Environment) -> None:
    before = editable.tree()
    succeeds(call(str(uv), "pip", "install", ".", cwd=ROOT, VIRTUAL_ENV=str(editable.folder)))
    assert HIDDEN in editable.vol("--help").stderr
    words = readme(f"uv pip uninstall {NAME}")[1:]
    succeeds(call(str(uv), *words, cwd=ROOT, VIRTUAL_ENV=str(editable.folder)))
    assert editable.tree() == before
    assert not editable.shows_plugin()
