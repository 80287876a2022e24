# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How the plugins reach Volatility: as an overlay wheel, and from a plain copy of the tree."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile
from typing import Dict, List

import pefile
import pytest
import volatility3

from tests.conftest import ROOT
from tests.forge import sample

PLUGINS = ROOT / "volatility3_plugins"
OURS = sorted(f"windows.{path.stem}" for path in (PLUGINS / "windows").glob("*.py"))
SOURCES = sorted(PLUGINS.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_source_is_python_3_8(path: pathlib.Path) -> None:
    """A SyntaxError in one plugin file would end every command of Volatility."""
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_our_plugins_are_there() -> None:
    assert {"windows.gflags", "windows.stacktracedb"} <= set(OURS)


def test_no_package_marker_where_volatility_has_its_own() -> None:
    assert not (PLUGINS / "__init__.py").exists()
    assert not (PLUGINS / "windows" / "__init__.py").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".demo", "build")
    shutil.copytree(ROOT, source, ignore=ignored)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, *build, str(source)], check=True, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture()
def bare(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with Volatility and pefile in it, and nothing else."""
    site = tmp_path / "site"
    package = pathlib.Path(volatility3.__file__).parent
    mine = {path.name for path in (PLUGINS / "windows").iterdir()} | {"stacktraces"}

    def installed(folder: str, names: List[str]) -> List[str]:
        ours = folder.endswith((os.path.join("plugins", "windows"), os.path.join("symbols", "windows")))
        return [name for name in names if name == "__pycache__" or (ours and name in mine)]

    shutil.copytree(package, site / "volatility3", ignore=installed)
    pefile_folder = pathlib.Path(pefile.__file__).parent
    shutil.copy(pefile.__file__, site)
    shutil.copytree(pefile_folder / "ordlookup", site / "ordlookup")
    return site


def vol(site: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs Volatility from a folder, without the packages of the environment that runs the tests."""
    home = site.parent / "home"
    home.mkdir(exist_ok=True)
    environment: Dict[str, str] = {"HOME": str(home), "PYTHONPATH": str(site), "PATH": os.environ["PATH"]}
    code = "import sys; from volatility3.cli import main; sys.argv[0] = 'vol'; main()"
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )


def plugins_listed(site: pathlib.Path, *arguments: str) -> List[str]:
    """Returns the names of the plugins that the help lists."""
    shown = vol(site, *arguments, "--help")
    assert shown.returncode == 0, shown.stderr
    words = (line.split() for line in shown.stdout.splitlines() if line.startswith("    "))
    return [line[0] for line in words if line and line[0].count(".") >= 2]


def module_names(plugins: List[str]) -> List[str]:
    return [name.rsplit(".", 1)[0] for name in plugins]


@pytest.mark.cli
def test_the_wheel_adds_our_plugins_and_hides_none(wheel: pathlib.Path, bare: pathlib.Path) -> None:
    before = plugins_listed(bare)
    assert not set(OURS) & set(module_names(before))
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if (bare / name).exists()]
        archive.extractall(bare)
    after = plugins_listed(bare)
    assert set(before) <= set(after)
    assert sorted(module_names(sorted(set(after) - set(before)))) == OURS


@pytest.mark.cli
def test_a_plain_copy_adds_our_plugins_and_hides_none(bare: pathlib.Path) -> None:
    before = plugins_listed(bare)
    after = plugins_listed(bare, "-p", str(PLUGINS))
    assert set(before) <= set(after)
    assert sorted(module_names(sorted(set(after) - set(before)))) == OURS


@pytest.mark.cli
def test_a_copy_without_our_symbol_tables_gets_one_clear_line(
    bare: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    copy = tmp_path / "copy" / "volatility3_plugins"
    shutil.copytree(PLUGINS, copy)
    image = sample.build().image()
    options = ["-q", "--offline", "-s", str(image.install(tmp_path / "symbols")), "-p", str(copy)]
    options += ["-r", "json", "-f", str(image.save(tmp_path / "a.dmp"))]
    result = vol(bare, *options, "windows.stacktracedb")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == []
    said = [line for line in result.stderr.splitlines() if "symbol table" in line]
    assert len(said) == 1
    assert "copy the 'symbols' folder beside the plugin folder" in said[0]
    assert "Traceback" not in result.stderr


@pytest.mark.cli
def test_tables_beside_the_code_win_over_an_installed_copy(
    wheel: pathlib.Path, bare: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(bare)
    for path in (bare / "volatility3" / "symbols" / "windows" / "stacktraces").glob("*.json"):
        path.write_text("an older copy", encoding="utf-8")
    image = sample.build().image()
    options = ["-q", "--offline", "-s", str(image.install(tmp_path / "symbols")), "-p", str(PLUGINS)]
    options += ["-r", "json", "-f", str(image.save(tmp_path / "a.dmp"))]
    result = vol(bare, *options, "windows.stacktracedb")
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)) == 14


@pytest.mark.cli
def test_each_name_on_the_command_line_is_ours_alone(bare: pathlib.Path) -> None:
    names = plugins_listed(bare, "-p", str(PLUGINS))
    for mine in OURS:
        assert len([name for name in names if mine in name]) == 1


def test_the_decoders_need_no_volatility(bare: pathlib.Path) -> None:
    """Pipelines may use the decoders alone: the standard library is all they import."""
    library = PLUGINS / "windows" / "stacktraces"
    modules = sorted(
        ".".join(path.relative_to(library.parent).with_suffix("").parts)
        for path in library.glob("*/decode/[!_]*.py")
    )
    code = "; ".join(f"import {module}" for module in modules)
    code += "; import sys; assert 'volatility3' not in sys.modules and 'pefile' not in sys.modules"
    subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(PLUGINS / "windows")},
        check=True,
    )
