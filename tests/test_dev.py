# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""dev.py, the sample that `dev.py demo` shows, and what both say of themselves."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List

import pytest

from tests.conftest import ROOT
from tests.forge import demo, sample, vol
from tests.support.only import only
from tests.support.pythons import python

DEV = ROOT / "dev.py"


def dev(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(DEV), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def load_dev() -> Any:
    spec = importlib.util.spec_from_file_location("stacktraces_dev", DEV)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], ["lint", "--help"]])
def test_help_lists_the_commands(arguments: List[str]) -> None:
    shown = dev(*arguments)
    assert shown.returncode == 0
    assert not shown.stderr
    for command in ("demo", "test", "lint", "lowest", "coverage", "docs", "install-check"):
        assert re.search(rf"^python3 dev.py {command} ", shown.stdout, re.MULTILINE)


@pytest.mark.parametrize("arguments", [[], ["nonsense"]])
def test_no_such_command(arguments: List[str]) -> None:
    shown = dev(*arguments)
    assert shown.returncode == 2
    assert "python3 dev.py demo" in shown.stderr


def test_python_3_5_can_read_it() -> None:
    """It must get as far as the sentence that says which Python it needs."""
    text = DEV.read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 5))
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.NamedExpr))]
    assert "from __future__" not in text
    before = [node for node in tree.body if not isinstance(node, (ast.Expr, ast.Import))]
    assert isinstance(before[0], ast.If)


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8"])
def test_an_older_python_is_told_what_is_needed(version: str) -> None:
    older = python(version)
    shown = subprocess.run([older, str(DEV), "demo"], stderr=subprocess.PIPE, check=False)
    assert shown.returncode == 1
    line = only(shown.stderr.decode().splitlines())
    assert line.startswith(f"dev.py needs Python 3.9 or newer; this is Python {version}")


@pytest.mark.parametrize("command", ["test", "lint", "lowest"])
def test_python_3_9_is_told_what_the_tests_need(command: str) -> None:
    """The demo needs no more than the plugins do."""
    shown = subprocess.run([python("3.9"), str(DEV), command], stderr=subprocess.PIPE, check=False)
    assert shown.returncode == 1
    line = only(shown.stderr.decode().splitlines())
    assert line.startswith("The tests need Python 3.10 or newer, as stackfleet does; this is Python 3.9")


def test_no_ensurepip(tmp_path: pathlib.Path) -> None:
    code = "import runpy, sys; sys.modules['ensurepip'] = None; sys.argv = ['dev.py', 'demo']; "
    code += f"runpy.run_path({str(copy(tmp_path))!r}, run_name='__main__')"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert "apt install python3-venv" in shown.stderr
    assert "Traceback" not in shown.stderr


def copy(folder: pathlib.Path) -> pathlib.Path:
    """Copies what dev.py reads before it installs, so that no environment is there."""
    for name in ("dev.py", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder / "dev.py"


@pytest.mark.skipif(os.name == "nt", reason="sends a signal that Windows lacks")
def test_ctrl_c_ends_quietly(tmp_path: pathlib.Path) -> None:
    """It reaches dev.py and what dev.py runs, as from a terminal."""
    slow = tmp_path / ".venv" / "test" / "bin" / "python"
    slow.parent.mkdir(parents=True)
    slow.write_text("#!/bin/sh\n: > started\nexec sleep 600\n")
    slow.chmod(0o755)
    program = copy(tmp_path)
    module = load_dev()
    (slow.parents[1] / "installed").write_text(module.fingerprint(module.of_testing()))
    command = [sys.executable, str(program), "test", "-x"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        while not (tmp_path / "started").exists():
            assert child.poll() is None
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=300)
    assert child.returncode == 130
    assert not errors.strip()


def test_the_digest_follows_names_and_contents(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_dev()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.py").write_text("1")
    first = module.digest(["folder"])
    (tmp_path / "folder" / "a.pyc").write_text("1")
    assert module.digest(["folder"]) == first
    (tmp_path / "folder" / "a.py").write_text("2")
    second = module.digest(["folder"])
    (tmp_path / "folder" / "a.py").rename(tmp_path / "folder" / "b.py")
    assert len({first, second, module.digest(["folder"])}) == 3


def test_what_the_wheel_is_made_of_is_there() -> None:
    module = load_dev()
    assert all((ROOT / place).exists() for place in module.PACKAGED)
    assert [line for line in module.build_requirements() if line.startswith("setuptools")]


def test_groups_are_read_as_toml_is() -> None:
    toml = pytest.importorskip("tomllib", reason="Python has a parser of TOML since 3.11")
    groups = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert groups == {name: load_dev().group(name) for name in ("test", "docs", "release", "lint")}


def test_the_lowest_versions() -> None:
    module = load_dev()
    marked = 'a>=3; python_version >= "3.11" and python_version < "3.14"'
    asked = ["volatility3>=2.26.2,<2.29", "rich>=13.7,<16", "moto[server]>=5.1", marked, "rich==15.0.0"]
    assert module.at_lowest(asked) == [
        "volatility3==2.26.2",
        "rich==13.7",
        "moto[server]==5.1",
        'a==3; python_version >= "3.11" and python_version < "3.14"',
    ]
    needed = module.at_lowest(module.requirements("fleet"))
    assert all(re.fullmatch(r"[a-z0-9]+==[0-9.]+", line) for line in needed), needed


def test_the_workflow_has_all_steps() -> None:
    source = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    steps = re.findall(r"^    ([a-z]+)\)", source, re.MULTILINE)
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    assert f"step: [{', '.join(steps)}]" in workflow


def test_a_command_can_be_pasted(capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    """Rows come first, then the warnings; the banner of Volatility is none."""
    (tmp_path / "a file").write_text("")
    message = "import sys; print('a row'); print('Volatility 3 Framework', file=sys.stderr); "
    message += "print('WARNING  a warning', file=sys.stderr)"
    demo.run([sys.executable, "-c", message, "a file"], tmp_path, tmp_path)
    shown = capfd.readouterr().out.strip().splitlines()
    assert shown[1:] == ["a row", "! WARNING  a warning"]
    pasted = subprocess.run(
        shown[0][2:], shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert pasted.stdout == "a row\n"
    if os.name != "nt":
        assert shlex.split(shown[0][2:]) == [sys.executable, "-c", message, "a file"]


def test_paths_are_short_where_the_user_is(tmp_path: pathlib.Path) -> None:
    assert demo.short(tmp_path / "a" / "b", tmp_path) == str(pathlib.Path("a", "b"))
    assert demo.short(tmp_path / "a", tmp_path / "c") == str(tmp_path / "a")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("sample")
    forged_image = sample.build().image()
    return {
        "file": forged_image.save(folder / "sample.dmp"),
        "symbols": forged_image.install(folder / "symbols"),
    }


@pytest.mark.cli
@pytest.mark.once
def test_the_demo_opens_with_what_matters_on_one_screen(image: Dict[str, pathlib.Path]) -> None:
    first = demo.COMMANDS[0]
    assert first.line == "windows.tracefindings --brief"
    shown = vol.run(
        image["file"], *first.line.split(), symbols=image["symbols"], renderer=first.renderer
    ).stdout.splitlines()
    assert max(map(len, shown)) <= 120
    # A screen of 50 lines: Confidence and Innocent make the rows higher.
    assert len(shown) <= 48
    assert shown[2].split("|")[3].split() == ["unbacked"]


@pytest.mark.cli
@pytest.mark.once
def test_the_demo_has_dumps_of_processes(image: Dict[str, pathlib.Path]) -> None:
    folder = image["file"].parent
    demo.write_dumps(image["file"], folder)
    for name, plugin in (("updater.dmp", "minidump.heaptraces"), ("spooler.dmp", "minidump.locks")):
        result = vol.run(folder / name, plugin, symbols=image["symbols"])
        assert result.returncode == 0 and result.rows, result.stderr


@pytest.mark.cli
@pytest.mark.once
@pytest.mark.parametrize("finding", demo.FINDINGS, ids=lambda finding: finding.line)
def test_what_is_said_of_the_sample_is_shown(finding: demo.Finding, image: Dict[str, pathlib.Path]) -> None:
    assert finding.line in [command.line for command in demo.COMMANDS]
    result = vol.run(image["file"], *finding.line.split(), symbols=image["symbols"])
    rows = [
        row
        for row in result.flat
        if all(str(row[name]).startswith(str(cell)) for name, cell in finding.cells.items())
    ]
    assert rows, json.dumps(result.flat, indent=1)
