# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What stops an installation that would hide an editable Volatility: setup.py looks for one."""

from __future__ import annotations

import ast
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile
from typing import Any, Dict

import pytest

from tests.conftest import ROOT
from tests.support.only import only


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
    "this project, editable": {
        "__editable___volatility3_stacktraces_3_0_0_finder.py": "",
        "__editable__.volatility3_stacktraces-3.0.0.pth": "../ours",
        "volatility3_stacktraces-3.0.0.dist-info/direct_url.json": EDITABLE,
        "../ours/volatility3_plugins/windows/gflags.py": "",
        "../ours/winstacks/__init__.py": "",
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
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_wheel_is_refused_in_one_sentence_and_metadata_are_not(tmp_path: pathlib.Path) -> None:
    site = fill(tmp_path / "site", MADE_EDITABLE["finder"])
    wheel = setup_py(site, "--quiet", "bdist_wheel", "-d", str(tmp_path / "wheels"))
    assert wheel.returncode == 1
    assert not (tmp_path / "wheels").exists()
    reported_line = only(line for line in wheel.stderr.splitlines() if "editable" in line)
    assert "`vol -p volatility3_plugins`" in reported_line
    assert "vol.json" in reported_line
    assert "plugin_dirs" in reported_line
    assert "Traceback" not in wheel.stderr
    metadata = setup_py(site, "--quiet", "dist_info", "-o", str(tmp_path))
    assert metadata.returncode == 0, metadata.stderr
    assert list(tmp_path.glob("*.dist-info"))


@pytest.mark.parametrize("volatility", [OTHERS["regular"], MADE_EDITABLE["finder"]])
def test_an_editable_wheel_maps_the_library_and_lays_nothing_into_volatility(
    volatility: Dict[str, str], tmp_path: pathlib.Path
) -> None:
    """It is all that it can do, also where Volatility is editable: then it is no danger."""
    before = {path.name for path in ROOT.iterdir()}
    site = fill(tmp_path / "site", volatility)
    result = setup_py(site, "--quiet", "editable_wheel", "-d", str(tmp_path / "wheels"))
    assert result.returncode == 0, result.stderr
    wheel = only((tmp_path / "wheels").glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        finder = only(name for name in names if name.endswith("_finder.py"))
        text = archive.read(finder).decode()
    assert all(name.startswith("__editable__") for name in names)
    mapping = only(re.findall(r"^MAPPING\b[^=]*= (\{.*\})$", text, re.MULTILINE))
    assert ast.literal_eval(mapping) == {name: str(ROOT / name) for name in ("winstacks", "stackfleet")}
    assert {path.name for path in ROOT.iterdir()} == before
