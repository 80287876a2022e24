# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How plugins find their library, what a start of Volatility imports of it, and what users are told."""

from __future__ import annotations

import ast
import configparser
import json
import os
import pathlib
import py_compile
import shutil
import subprocess
import sys
from typing import Any, Callable, Dict, List, Optional

import pytest
import volatility3
from volatility3.framework.configuration.requirements import ListRequirement
from volatility3.plugins.windows import winstacks_library

import winstacks
from benchmarks import smalldumps
from tests.conftest import ROOT, SHARED
from tests.support.only import only
from tests.support.pythons import python
from winstacks import options

PLUGINS = ROOT / "volatility3_plugins"
FINDER = PLUGINS / "windows" / "winstacks_library.py"
THIN = sorted(path for path in PLUGINS.rglob("*.py") if path != FINDER)
NAMES = sorted(f"volatility3.plugins.{path.parent.name}.{path.stem}" for path in THIN)
SITE = pathlib.Path(volatility3.__file__).parents[1]
START = ["winstacks", "winstacks.checkedoptions", "winstacks.options"]
"""Modules of the library that a start of Volatility imports."""
LEFT_OUT = "The stack trace plugins are left out: "

VOL = "import sys; sys.argv[0] = 'vol'; from volatility3.cli import main; main()"
IMPORTED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps({name: str(getattr(module, "__file__", None))
    for name, module in sorted(sys.modules.items())}), file=open(sys.argv[-1], "w")))
"""
PRINTS = "open({mark!r}, 'w').close()\n"


def files(tree: pathlib.Path) -> List[pathlib.Path]:
    return sorted(path for path in tree.rglob("*.py"))


@pytest.mark.parametrize("path", [*THIN, FINDER], ids=lambda path: str(path.relative_to(PLUGINS)))
def test_python_3_8_reads_a_plugin(path: pathlib.Path) -> None:
    """A SyntaxError in one plugin file would end every command of Volatility, also of an older Python."""
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_python_3_9_reads_everything_else() -> None:
    for folder in ("winstacks", "stackfleet", "tests", "benchmarks"):
        for path in files(ROOT / folder):
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))


@pytest.mark.parametrize("path", THIN, ids=lambda path: path.stem)
def test_a_plugin_imports_the_library_when_it_runs(path: pathlib.Path) -> None:
    """At module level it has the finder alone, from where every plugin folder of ours finds it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            assert not [name.name for name in node.names if name.name.startswith(winstacks_library.NAME)]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            assert not str(node.module).startswith(winstacks_library.NAME)
            if any(name.name == FINDER.stem for name in node.names):
                assert node.module == "volatility3.plugins.windows"


def test_one_version() -> None:
    """That of the plugins stands twice, because the finder compares it with what it finds."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    assert config["metadata"]["version"] == "attr: winstacks.VERSION"
    assert winstacks.VERSION == winstacks_library.VERSION


class Copy:
    """A copy of what `vol -p` needs, and Volatility's command line on it, as a user runs it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.home = folder.parent / "home"
        self.home.mkdir(exist_ok=True)
        for name in ("volatility3_plugins", winstacks_library.NAME):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.plugins = folder / "volatility3_plugins"
        self.library = folder / winstacks_library.NAME

    def vol(
        self,
        *arguments: str,
        code: str = VOL,
        options: Optional[List[str]] = None,
        cwd: Optional[pathlib.Path] = None,
        **variables: str,
    ) -> "subprocess.CompletedProcess[str]":
        """Runs `vol -p PLUGINS ARGUMENTS`."""
        known = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COVERAGE"))}
        known.update({"HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **variables})
        command = [sys.executable, *(options or []), "-c", code, "-q", "-p", str(self.plugins), *arguments]
        return subprocess.run(
            command, cwd=cwd or self.home, env=known, capture_output=True, text=True, check=False, timeout=300
        )

    def is_refused(self, reason: str, **how: Any) -> str:
        """Asserts that all goes on without our plugins, and that one line says so; returns the line."""
        shown = self.vol("-h", **how)
        assert shown.returncode == 0, shown.stderr
        assert "windows.pslist.PsList" in shown.stdout
        assert "windows.gflags.GFlags" not in shown.stdout
        assert "Traceback" not in shown.stderr
        line = only(line for line in shown.stderr.splitlines() if LEFT_OUT in line)
        sentence = line.partition(LEFT_OUT)[2]
        assert reason in sentence, line
        assert ". " not in sentence
        assert self.vol("windows.pslist", "-h", **how).returncode == 0
        return sentence


@pytest.fixture()
def tree(tmp_path: pathlib.Path) -> Copy:
    return Copy(tmp_path / "tree")


def imported(tree: Copy, *arguments: str, **how: Any) -> Dict[str, str]:
    """Returns the modules that a command has imported, with their files."""
    listed = tree.home / "imported.json"
    code = IMPORTED.replace("sys.argv[-1]", repr(str(listed))) + VOL
    shown = tree.vol(*arguments, code=code, **how)
    assert shown.returncode == 0, shown.stderr
    assert LEFT_OUT not in shown.stderr
    found: Dict[str, str] = json.loads(listed.read_text(encoding="utf-8"))
    return found


def ours(modules: Dict[str, str], tree: pathlib.Path) -> List[str]:
    return sorted(name for name, file in modules.items() if file.startswith(str(tree) + os.sep))


@pytest.mark.cli
@pytest.mark.parametrize("arguments", [["-h"], ["windows.pslist", "-h"], ["windows.gflags", "-h"]])
def test_a_start_imports_the_plugins_the_finder_and_the_options(tree: Copy, arguments: List[str]) -> None:
    expected = [*NAMES, "volatility3.plugins.windows.winstacks_library", *START]
    assert ours(imported(tree, *arguments), tree.folder) == sorted(expected)


REAL_DUMP = SHARED / "real_minidumps" / "tiny-exe-fastfail.dmp"
OF_KERNELS = ("tracedb.finder", "tracedb.decode.database", "handles.lister", "handles.rings", "names.ntdll")
"""Modules for what a kernel's image has, and a dump lacks."""
OF_PROCESSES = ("rows.dumps", "minidump.process", *(
    f"minidump.decode.{name}" for name in ("modules", "system", "threads", "threadstates", "reporters")
))  # fmt: skip
"""Modules for the streams of a dump of a process."""
OF_SMALL_DUMPS = ("rows.smalldumps", *(
    f"minidump.{name}" for name in ("smalldump", "crash", "drivers", "kernelsymbols", "decode.triage")
))  # fmt: skip
"""Modules for the parts of a small kernel dump."""


@pytest.mark.cli
@pytest.mark.parametrize("plugin", ["minidump.info", "minidump.callstacks"])
@pytest.mark.parametrize("kind", ["small", pytest.param("process", marks=pytest.mark.shared)])
def test_a_dump_does_without_the_modules_for_records_of_a_kernel(
    tree: Copy, tmp_path: pathlib.Path, kind: str, plugin: str
) -> None:
    file = tmp_path / "small.dmp"
    file.write_bytes(smalldumps.dump(1) if kind == "small" else REAL_DUMP.read_bytes())
    modules = imported(tree, "--offline", "-r", "none", "-s", str(ROOT / "symbols"), "-f", str(file), plugin)
    assert "winstacks.stacks.lister" in modules, "the stack was walked"
    absent = (*OF_KERNELS, *(OF_PROCESSES if kind == "small" else OF_SMALL_DUMPS))
    assert not {f"winstacks.{name}" for name in absent}.intersection(modules)


def test_a_start_makes_the_types_of_options_once() -> None:
    """It asks for the options of each plugin, and to make a class costs more than an option."""
    types = [
        [requirement.element_type for requirement in listed if isinstance(requirement, ListRequirement)]
        for listed in (options.stack_list("stacks"), options.stack_list("frames"))
    ]
    assert types[0]
    assert types[0] == types[1]


@pytest.mark.cli
def test_a_start_looks_for_the_library_once(tree: Copy) -> None:
    places = tree.home / "places"
    code = f"""
import importlib.util
real = importlib.util.spec_from_file_location
def located(name, place, **others):
    if name == {winstacks_library.NAME!r}:
        print(place, file=open({str(places)!r}, "a"))
    return real(name, place, **others)
importlib.util.spec_from_file_location = located
{VOL}"""
    assert tree.vol("-h", code=code).returncode == 0
    assert places.read_text().splitlines() == [str(tree.library / "__init__.py")]


@pytest.mark.cli
def test_frameworks_that_list_plugins_import_no_more(tree: Copy) -> None:
    code = f"""
import volatility3.plugins
from volatility3 import framework
from volatility3.framework import constants
volatility3.plugins.__path__ = [{str(tree.plugins)!r}, *constants.PLUGINS_PATH]
framework.import_files(volatility3.plugins, True)
names = framework.list_plugins()
import sys
print([name for name in sys.modules if name.startswith("winstacks")])
print("windows.gflags.GFlags" in names, {str(tree.folder)!r} in sys.path)
"""
    assert tree.vol(code=code).stdout.splitlines() == [str(START), "True False"]


@pytest.mark.cli
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda library: (library / "__init__.py").write_text("def"),
            "__init__.py cannot be read as Python (line 1)",
        ),
        (
            lambda library: (library / "options.py").write_text("\ndef"),
            "options.py cannot be read as Python (line 2)",
        ),
        (lambda library: (library / "options.py").write_bytes(b"x = 1\0"), "install the plugins anew"),
        (lambda library: (library / "options.py").unlink(), "install the plugins anew"),
        (lambda library: (library / "options.py").write_text("import nowhere"), "No module named 'nowhere'"),
        (lambda library: (library / "__init__.py").unlink(), "keep the folder winstacks beside the folder"),
        (lambda library: shutil.rmtree(library), "install it with 'pip install .'"),
        (lambda library: (library / "__init__.py").write_text(""), "is of an unknown version; take both"),
        (lambda library: (library / "__init__.py").write_text("VERSION = '3.1.0'"), "is 3.1.0; take both"),
    ],
)
def test_a_library_that_cannot_be_used_is_said_in_a_sentence(
    tree: Copy, damage: Callable[[pathlib.Path], object], message: str
) -> None:
    damage(tree.library)
    sentence = tree.is_refused(message)
    assert any(word in sentence for word in ("install", "take both"))


@pytest.mark.cli
def test_damaged_bytecode_is_said_in_a_sentence(tree: Copy) -> None:
    written = pathlib.Path(py_compile.compile(str(tree.library / "options.py"), doraise=True) or "")
    written.write_bytes(written.read_bytes()[:40])
    tree.is_refused("install the plugins anew")


@pytest.mark.cli
@pytest.mark.parametrize("deep", ["commands/gflags.py", "memory/image.py", "rows/__init__.py"])
def test_what_lies_deeper_is_met_by_who_runs_it(tree: Copy, deep: str) -> None:
    (tree.library / deep).write_text("def", encoding="utf-8")
    shown = tree.vol("-h")
    assert shown.returncode == 0
    assert "windows.gflags.GFlags" in shown.stdout
    assert LEFT_OUT not in shown.stderr


OLDER = "sys.version_info = collections.namedtuple('V', 'major minor micro')(3, 8, 18); main()"


@pytest.mark.cli
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_every_python_imports_the_decoders(version: str) -> None:
    """They need the standard library alone. A named tuple with another base is refused before Python 3.11."""
    code = """
import importlib, pathlib
for path in sorted(pathlib.Path("winstacks").rglob("*.py")):
    if {"decode", "encode", "columns"}.intersection(path.parts):
        importlib.import_module(".".join(path.with_suffix("").parts))
"""
    done = subprocess.run(
        [python(version), "-B", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_an_older_python_is_told_what_the_library_needs(tree: Copy) -> None:
    tree.is_refused(
        "needs Python 3.9 or newer, and this is Python 3.8; run",
        code=f"import collections, sys; {VOL.replace('main()', OLDER)}",
    )


@pytest.mark.cli
def test_a_real_python_3_8_is_told_so(tree: Copy, tmp_path: pathlib.Path) -> None:
    older = python("3.8")
    code = f"import sys; sys.path.append({str(SITE)!r}); {VOL}"
    command = [older, "-S", "-B", "-c", code, "-p", str(tree.plugins), "-h"]
    shown = subprocess.run(
        command,
        env={"HOME": str(tree.home), "PATH": os.environ["PATH"]},
        cwd=tree.home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    line = only(line for line in shown.stderr.splitlines() if LEFT_OUT in line)
    assert "needs Python 3.9 or newer, and this is Python 3.8" in line


def plant(folder: pathlib.Path) -> pathlib.Path:
    """Puts a library into a folder that leaves a mark when it is imported; returns the mark."""
    mark = folder / "mark"
    planted = folder / winstacks_library.NAME
    planted.mkdir(parents=True)
    text = PRINTS.format(mark=str(mark)) + f"VERSION = {winstacks_library.VERSION!r}\n"
    (planted / "__init__.py").write_text(text, encoding="utf-8")
    (planted / "options.py").write_text(PRINTS.format(mark=str(mark)), encoding="utf-8")
    return mark


@pytest.mark.cli
@pytest.mark.parametrize("beside", [True, False])
def test_a_library_beside_evidence_is_not_imported(tree: Copy, tmp_path: pathlib.Path, beside: bool) -> None:
    """`python3 -c` and `python3 -m` look into the current directory first."""
    mark = plant(tmp_path / "evidence")
    if beside:
        modules = imported(tree, "windows.gflags", "-h", cwd=mark.parent)
        assert modules["winstacks.options"] == str(tree.library / "options.py")
    else:
        shutil.rmtree(tree.library)
        tree.is_refused("their library is missing", cwd=mark.parent)
        tree.is_refused("their library is missing", cwd=mark.parent, PYTHONPATH=str(mark.parent))
    assert not mark.exists()


@pytest.mark.cli
def test_a_copy_beside_the_plugins_wins_over_an_installed_one(tree: Copy, tmp_path: pathlib.Path) -> None:
    mark = plant(tmp_path / "installed")
    modules = imported(tree, "-h", PYTHONPATH=str(mark.parent))
    assert modules["winstacks"] == str(tree.library / "__init__.py")
    assert not mark.exists()


@pytest.mark.cli
def test_an_installed_library_serves_a_plugin_folder_alone(tree: Copy, tmp_path: pathlib.Path) -> None:
    tree.library.rename(tmp_path / "packages-winstacks")
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages-winstacks").rename(tmp_path / "packages" / winstacks_library.NAME)
    modules = imported(tree, "-h", PYTHONPATH=str(tmp_path / "packages"))
    assert modules["winstacks"] == str(tmp_path / "packages" / "winstacks" / "__init__.py")


@pytest.mark.cli
def test_a_library_that_was_imported_from_elsewhere_is_refused(tree: Copy, tmp_path: pathlib.Path) -> None:
    mark = plant(tmp_path / "elsewhere")
    code = f"import sys; sys.path.append({str(mark.parent)!r}); import winstacks; {VOL}"
    sentence = tree.is_refused("was already imported from", code=code)
    assert str(mark.parent) in sentence
    assert str(tree.library) in sentence
    for nothing in ("None", "type(sys)('winstacks')"):
        code = f"import sys; sys.modules['winstacks'] = {nothing}; {VOL}"
        if nothing == "None":
            assert tree.vol("-h", code=code).returncode == 0
        else:
            tree.is_refused("was already imported from elsewhere", code=code)


@pytest.mark.cli
def test_the_same_library_imported_before_is_used(tree: Copy) -> None:
    code = f"import sys; sys.path.append({str(tree.folder)!r}); import winstacks; {VOL}"
    assert "windows.gflags.GFlags" in tree.vol("-h", code=code).stdout


@pytest.mark.cli
@pytest.mark.parametrize("link", ["folder", "file"])
def test_links_lead_to_the_copy_that_they_are_of(tree: Copy, tmp_path: pathlib.Path, link: str) -> None:
    linked = tmp_path / "linked"
    if link == "folder":
        linked.symlink_to(tree.plugins, target_is_directory=True)
    else:
        (linked / "windows").mkdir(parents=True)
        for path in (tree.plugins / "windows").glob("*.py"):
            (linked / "windows" / path.name).symlink_to(path)
    plugins, tree.plugins = tree.plugins, linked
    shown = tree.vol("windows.gflags", "-h")
    assert shown.returncode == 0, shown.stderr
    assert LEFT_OUT not in shown.stderr
    tree.plugins = plugins


SECOND = '''
from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class Second(interfaces.plugins.PluginInterface):
    """Is in another folder of plugins: {options}."""

    _required_framework_version = (2, 0, 0)

    @classmethod
    def get_requirements(cls):
        return [*options.shown("gflags")]

    def run(self):
        raise NotImplementedError
'''


@pytest.mark.cli
@pytest.mark.parametrize("installed", [True, False])
def test_another_folder_of_plugins_has_the_same_finder(
    tree: Copy, tmp_path: pathlib.Path, installed: bool
) -> None:
    name = "volatility3_plugins"
    (tree.plugins / "minidump").mkdir(exist_ok=True)
    (tree.plugins / "minidump" / "second.py").write_text(SECOND, encoding="utf-8")
    variables = {}
    if installed:
        # As in site-packages: the folders of plugins in Volatility's own, the library beside Volatility.
        site = tmp_path / "site"
        shutil.copytree(
            SITE / "volatility3", site / "volatility3", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copytree(tree.plugins, site / "volatility3" / "plugins", dirs_exist_ok=True)
        tree.library.rename(site / winstacks_library.NAME)
        tree.library = site / winstacks_library.NAME
        shutil.rmtree(tree.folder / name)
        variables["PYTHONPATH"] = str(site)
    modules = imported(tree, "minidump.second", "-h", **variables)
    assert modules["winstacks.options"] == str(tree.library / "options.py")
    assert modules["volatility3.plugins.minidump.second"].endswith("second.py")


@pytest.mark.cli
def test_a_plugin_of_another_copy_is_left_out(tree: Copy, tmp_path: pathlib.Path) -> None:
    """The first copy on the path has the finder, and so its library; a plugin that only the second one has
    has no other."""
    second = Copy(tmp_path / "second")
    (second.plugins / "windows" / "second.py").write_text(SECOND, encoding="utf-8")
    shown = tree.vol("-h", "-p", f"{tree.plugins};{second.plugins}")
    assert shown.returncode == 0
    assert "windows.gflags.GFlags" in shown.stdout
    assert "windows.second" not in shown.stdout.partition("could not be loaded")[0]
    line = only(line for line in shown.stderr.splitlines() if LEFT_OUT in line)
    assert "was already imported from" in line


@pytest.mark.cli
def test_nothing_is_written_and_nothing_need_be(tree: Copy) -> None:
    before = sorted(tree.folder.rglob("*"))
    for path in [tree.folder, *before]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert "windows.gflags.GFlags" in tree.vol("-h").stdout
        assert sorted(tree.folder.rglob("*")) == before
    finally:
        for path in [tree.folder, *before]:
            path.chmod(0o755)


@pytest.mark.cli
def test_bytecode_that_cannot_be_written_is_done_without(tree: Copy) -> None:
    """A file stands where the folder of the bytecode would be: not even root can write there."""
    for folder in {path.parent for path in files(tree.folder)}:
        (folder / "__pycache__").write_text("")
    shown = tree.vol("-h", PYTHONDONTWRITEBYTECODE="")
    assert "windows.gflags.GFlags" in shown.stdout
    assert LEFT_OUT not in shown.stderr


WORKERS = """
import multiprocessing, pickle, sys
import volatility3.plugins
from volatility3.framework import constants
volatility3.plugins.__path__ = [{plugins!r}, *constants.PLUGINS_PATH]
from volatility3.plugins.windows import gflags, winstacks_library

if __name__ == "__main__":
    from winstacks.memory.decode.ranges import Extents
    from winstacks.memory.decode.statuscodes import StatusCode
    assert pickle.loads(pickle.dumps(StatusCode.FREED)) is StatusCode.FREED
    initializer, arguments = winstacks_library.spawned()
    with multiprocessing.get_context({method!r}).Pool(1, initializer, arguments) as pool:
        print(pool.apply(StatusCode, [StatusCode.FREED.value]) is StatusCode.FREED)
        print(pool.apply(eval, ["__import__('winstacks').__file__"]))
        print(pool.apply(eval, ["{folder!r} in __import__('sys').path"]))
"""


@pytest.mark.cli
@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.skipif(os.name == "nt", reason="Windows only spawns, and from a file")
def test_a_spawned_worker_finds_the_same_library(tree: Copy, tmp_path: pathlib.Path, method: str) -> None:
    mark = plant(tmp_path / "installed")
    code = WORKERS.format(plugins=str(tree.plugins), method=method, folder=str(tree.folder))
    done = tree.vol(code=code, PYTHONPATH=str(mark.parent))
    assert done.stdout.splitlines() == ["True", str(tree.library / "__init__.py"), "False"], done.stderr
    assert not mark.exists()


FROZEN = """
import importlib.abc, importlib.machinery, importlib.util, sys


class Frozen(importlib.abc.MetaPathFinder):
    # As PyInstaller's: modules have files that are not there.
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "winstacks":
            return None
        places = path if "." in name else [{packages!r}]
        spec = importlib.machinery.PathFinder.find_spec(name, places)
        loader = Loader(spec.loader.get_code(name))
        origin = spec.origin.replace("packages", "absent") + "c"
        made = importlib.util.spec_from_file_location(
            name, origin, loader=loader, submodule_search_locations=spec.submodule_search_locations)
        return made


class Loader(importlib.abc.Loader):
    def __init__(self, code):
        self.code = code

    def exec_module(self, module):
        exec(self.code, module.__dict__)


sys.frozen = True
sys.meta_path.insert(0, Frozen())
"""


@pytest.mark.cli
def test_a_frozen_program_may_carry_the_library(tree: Copy, tmp_path: pathlib.Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    tree.library.rename(packages / winstacks_library.NAME)
    code = FROZEN.format(packages=str(packages)) + VOL
    shown = tree.vol("windows.gflags", "-h", code=code)
    assert shown.returncode == 0, shown.stderr
    assert LEFT_OUT not in shown.stderr


def test_a_process_of_stackfleet_takes_the_copy_of_its_parent(tmp_path: pathlib.Path) -> None:
    """Neither one that is installed nor what lies in the current directory, where evidence may be."""
    program = ROOT / "stackfleet" / "begin.py"
    for name in ("parent", "installed", "evidence"):
        for package in ("stackfleet", "winstacks"):
            (tmp_path / name / package).mkdir(parents=True)
            (tmp_path / name / package / "__init__.py").write_text("", encoding="utf-8")
        (tmp_path / name / "json.py").write_text("raise SystemExit('not that of Python')")
        text = "import winstacks\n\n\ndef main() -> None:\n    print(__file__, winstacks.__file__)\n"
        (tmp_path / name / "stackfleet" / "child.py").write_text(text, encoding="utf-8")
    for known, expected in (("", "parent"), ("installed", "parent"), ("parent", "parent")):
        done = subprocess.run(
            [sys.executable, str(program), str(tmp_path / "parent"), "stackfleet.child"],
            cwd=tmp_path / "evidence",
            env={"PYTHONPATH": str(tmp_path / known) if known else ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert all(pathlib.Path(word).parents[1].name == expected for word in done.stdout.split())


def test_windows_paths_differ_in_case_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "normcase", str.lower)
    assert winstacks_library._same("/A/winstacks/__init__.py", "/a/Winstacks/__init__.py")
