# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How plugins and library reach Volatility: as a wheel, and from a plain copy of the tree."""

from __future__ import annotations

import email
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from typing import Dict, List, Set

import pefile
import pytest
import volatility3

from tests.conftest import ROOT
from tests.forge import sample
from tests.support.only import only
from tests.support.pythons import python

PLUGINS = ROOT / "volatility3_plugins"
LIBRARY = ROOT / "winstacks"
FINDER = "winstacks_library"
NO_PLUGINS = (FINDER, "layer", "bitmaplayer")
OURS = sorted(
    f"{path.parent.name}.{path.stem}" for path in PLUGINS.glob("*/*.py") if path.stem not in NO_PLUGINS
)


@pytest.mark.cli
def test_python_3_8_imports_the_plugins(bare: pathlib.Path) -> None:
    """Syntax is not all that a Python has or lacks: the plugins get as far as to say what is needed."""
    older = python("3.8")
    environment = {"HOME": str(bare.parent), "PYTHONPATH": str(bare), "PATH": os.environ["PATH"]}
    code = "import sys; from volatility3.cli import main; sys.argv[0] = 'vol'; main()"
    command = [older, "-S", "-c", code, "-p", str(PLUGINS), "-h"]
    shown = subprocess.run(
        command, env=environment, cwd=bare.parent, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    reported_line = only(line for line in shown.stderr.splitlines() if "winstacks" in line)
    assert "needs Python 3.9" in reported_line


def test_our_plugins_are_there() -> None:
    assert {"windows.gflags", "windows.stacktracedb"} <= set(OURS)


def test_no_package_marker_where_volatility_has_its_own() -> None:
    assert not (PLUGINS / "__init__.py").exists()
    assert not list(PLUGINS.glob("*/__init__.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", ".*_cache", ".demo", "build", "node_modules"
    )
    shutil.copytree(ROOT, source, ignore=ignored)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    # What an earlier build left must not go into the wheel.
    for stale in ("volatility3/plugins/windows/stacktraces/base/spaces.py", "winstacks/memory/gone.py"):
        left = source / "build" / "lib" / stale
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text("raise SystemExit('an old file')", encoding="utf-8")
    subprocess.run([sys.executable, *build, str(source)], check=True, cwd=folder)
    return only(folder.glob("*.whl"))


_SUFFIXES = (".py", ".pyi", ".json", ".typed", ".js", ".css")


def test_the_wheel_holds_the_tree_and_nothing_else(wheel: pathlib.Path) -> None:
    sources = {
        "volatility3/plugins": PLUGINS,
        "volatility3/symbols/windows": ROOT / "symbols" / "windows",
        "winstacks": LIBRARY,
        "stackfleet": ROOT / "stackfleet",
        "stackfleet/docs": ROOT / "docs",
    }
    expected = {
        f"{prefix}/{path.relative_to(folder).as_posix()}"
        for prefix, folder in sources.items()
        for path in folder.rglob("*")
        if path.suffix in ((".md",) if folder.name == "docs" else _SUFFIXES)
    }
    note = "volatility3-stacktraces.txt"
    expected |= {f"volatility3/{note}", f"volatility3/symbols/windows/{note}"}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


def test_what_the_wheel_says_of_itself(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = only(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        stated = email.message_from_bytes(archive.read(name))
    assert stated["License-Expression"] == "LicenseRef-VSL-1.0"
    assert stated.get_all("Provides-Extra") == ["names", "fleet", "mcp"]
    # Without a marker for Python: where one of these cannot be had, pip says so and installs nothing.
    needed = [line for line in stated.get_all("Requires-Dist") or () if 'extra == "fleet"' in line]
    assert len(needed) == 6
    assert not [line for line in needed if "python_version" in line]


@pytest.fixture()
def bare(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with Volatility and pefile in it, and nothing else."""
    site = tmp_path / "site"
    package = pathlib.Path(volatility3.__file__).parent
    mine = {(path.parent.name, path.name) for path in PLUGINS.glob("*/*")} | {("windows", "stacktraces")}
    mine |= {("plugins", path.name) for path in PLUGINS.iterdir() if path.name != "windows"}

    def installed(folder: str, names: List[str]) -> List[str]:
        place = os.path.basename(folder)
        return [name for name in names if name == "__pycache__" or (place, name) in mine]

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
    shutil.copytree(LIBRARY, copy.parent / LIBRARY.name)
    image = sample.build().image()
    options = ["-q", "--offline", "-s", str(image.install(tmp_path / "symbols")), "-p", str(copy)]
    options += ["-r", "json", "-f", str(image.save(tmp_path / "a.dmp"))]
    result = vol(bare, *options, "windows.stacktracedb")
    assert result.returncode == 1, result.stderr
    assert "[" not in result.stdout
    lines = [line for line in result.stderr.splitlines() if "symbol table" in line]
    assert len(lines) == 1
    assert "copy the 'symbols' folder beside the plugin folder" in lines[0]
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
    assert len(json.loads(result.stdout)) == 17


@pytest.mark.cli
def test_each_name_on_the_command_line_is_ours_alone(bare: pathlib.Path) -> None:
    names = plugins_listed(bare, "-p", str(PLUGINS))
    for mine in OURS:
        assert len([name for name in names if mine in name]) == 1


def test_the_decoders_need_no_volatility() -> None:
    """Pipelines may use the decoders alone: the standard library is all they import."""
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in LIBRARY.glob("*/decode/[!_]*.py")
    )
    assert len(modules) > 30
    code = "; ".join(f"import {module}" for module in modules)
    code += "; import sys; assert 'volatility3' not in sys.modules and 'pefile' not in sys.modules"
    subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(ROOT)}, check=True)


PAGE = """
import sys
sys.path.insert(0, {folder!r})
from winstacks.html import formats, htmlpage, lists, prefixes
assert not [name for name in sys.modules if name.startswith("pefile") or name.startswith("volatility3")]
tree = prefixes.PrefixTree()
tree.add([tree.name("kind"), tree.name("process"), tree.name("nt!NtCreateFile")], 3)
made = lists.PageLists()
made.heap(8, 1, "a (1)", made.frames([("nt!NtCreateFile", False, False)]), "")
text = "".join(htmlpage.page("A title", {{"flame": htmlpage.flame_data(tree, "stacks"), **made.data()}}))
assert "class Flame" in text and ".flame" in text and "nt!NtCreateFile" in text
assert list(formats.folded(tree)) == ["kind;process;nt!NtCreateFile 3\\n"]
"""


def test_pages_are_made_without_volatility() -> None:
    """Whoever has data makes pages of it: the standard library is all that is imported."""
    code = PAGE.format(folder=str(ROOT))
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def test_the_wheel_has_what_pages_are_made_of(wheel: pathlib.Path, bare: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(bare)
    code = PAGE.format(folder=str(bare))
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


RAISES = "raise SystemExit('a file of an older copy ran')\n"
OLD_FILES = {
    "1.0.0": {
        "volatility3/plugins/windows/gflags.py": RAISES,
        "volatility3/plugins/windows/tracing/__init__.py": "",
        "volatility3/plugins/windows/tracing/spaces.py": "",
        "volatility3/plugins/windows/tracing/decode/memo.py": "",
        "volatility3/symbols/windows/tracing/std-6.1-x64.json": "{}",
    },
    "2.0.0": {
        "stackfleet/__init__.py": "",
        "stackfleet/gone.py": "",
        "volatility3/volatility3-stacktraces.txt": "",
        "volatility3/plugins/windows/gflags.py": RAISES,
        "volatility3/plugins/windows/stacktraces/__init__.py": "",
        "volatility3/plugins/windows/stacktraces/py.typed": "",
        "volatility3/plugins/windows/stacktraces/base/__init__.py": "",
        "volatility3/plugins/windows/stacktraces/base/decode/__init__.py": "",
        "volatility3/plugins/windows/stacktraces/base/decode/memo.py": "",
        "volatility3/plugins/windows/stacktraces/base/spaces.py": "",
        "volatility3/plugins/windows/stacktraces/findings/gadget/__init__.py": "",
        "volatility3/plugins/windows/stacktraces/pages/flame.js": "",
        "volatility3/symbols/windows/volatility3-stacktraces.txt": "",
        "volatility3/symbols/windows/stacktraces/std-6.1-x64.json": "{}",
        "volatility3/symbols/windows/stacktraces/gone.json": "{}",
    },
}
"""What earlier versions put into the folder of packages, in small."""


def write_wheel(folder: pathlib.Path, version: str, files: Dict[str, str]) -> pathlib.Path:
    """Writes a wheel of this project that has no metadata but what pip needs."""
    info = f"volatility3_stacktraces-{version}.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: volatility3-stacktraces\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    whole[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*whole, f"{info}/RECORD"])
    path = folder / f"volatility3_stacktraces-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in whole.items():
            archive.writestr(name, content)
    return path


def places(folder: pathlib.Path) -> Set[str]:
    """Returns all files and folders below a folder, bytecode too."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("older", sorted(OLD_FILES))
def test_an_upgrade_leaves_nothing_of_the_old_version(
    wheel: pathlib.Path, tmp_path: pathlib.Path, older: str
) -> None:
    """pip compiles what it installs: bytecode and empty folders go, too, also at the end."""
    installed = {}
    old = write_wheel(tmp_path, older, OLD_FILES[older])
    for name, wheels in (("new", [wheel]), ("upgraded", [old, wheel])):
        folder = tmp_path / name
        venv.create(folder, with_pip=False)
        target = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        pip = [sys.executable, "-m", "pip", "--python", str(target)]
        empty = places(folder)
        for wheel_file in wheels:
            install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel_file)]
            subprocess.run([*pip, *install], check=True, cwd=tmp_path)
        installed[name] = places(folder)
        uninstall = ["uninstall", "--quiet", "--yes", "volatility3-stacktraces"]
        subprocess.run([*pip, *uninstall], check=True, cwd=tmp_path)
        assert {place for place in places(folder) - empty if "tmp" not in place} == set()
    assert installed["upgraded"] == installed["new"]
    assert any(place.endswith("site-packages/winstacks/options.py") for place in installed["new"])
    assert not any("windows/stacktraces/base" in place for place in installed["new"])


@pytest.mark.cli
@pytest.mark.parametrize("older", sorted(OLD_FILES))
def test_a_plain_copy_uses_nothing_of_an_installed_older_one(bare: pathlib.Path, older: str) -> None:
    for name, content in OLD_FILES[older].items():
        (bare / name).parent.mkdir(parents=True, exist_ok=True)
        (bare / name).write_text(content, encoding="utf-8")
    shown = vol(bare, "-p", str(PLUGINS), "windows.gflags", "--help")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "NtGlobalFlag" in shown.stdout
    assert "left out" not in shown.stderr


def old_paths() -> Dict[str, str]:
    """Returns the import paths of 2.0.0 and what each became, as the page for 3.0.0 has them."""
    text = (ROOT / "docs" / "from-2-to-3.md").read_text(encoding="utf-8")
    _, table = text.split("| import path in 2.0.0 | in 3.0.0 | |", 1)
    return dict(re.findall(r"^\| `([\w.]+)` \| `([\w.]+)`", table.split("\n\n", 1)[0], re.MULTILINE))


def test_the_page_for_3_leads_to_modules_that_there_are() -> None:
    """Who comes from 2.0.0 looks there for what each module became."""
    paths = old_paths()
    assert len(paths) >= 40
    assert all(old.startswith("volatility3.plugins.windows.stacktraces") for old in paths)
    for new in paths.values():
        place = ROOT.joinpath(*new.split("."))
        assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file(), new
