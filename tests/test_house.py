# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How the library is built: which room may import which, and what each start of Volatility pays for it."""

from __future__ import annotations

import ast
import collections
import functools
import io
import os
import pathlib
import re
import shutil
import sys
import tokenize
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

import pytest

from tests.conftest import ROOT

WINDOWS = ROOT / "volatility3_plugins" / "windows"
LIBRARY = "stacktraces"

FLOORS = (
    {"base"},
    {"names", "threads"},
    {"tracedb", "traps"},
    {"heaps", "stacks", "locks", "handles", "objects"},
    {"flat"},
    {"findings"},
    {"rows", "pages"},
    {"plugins"},
)
"""From the ground up. A room imports itself and what lies below its floor, never a room beside it."""

KNOW_RENDERERS = {"rows"}

STANDARD = {
    *sys.builtin_module_names,
    *(each.name.split(".")[0] for each in pathlib.Path(os.__file__).parent.iterdir()),
    *(each.name.split(".")[0] for each in pathlib.Path(os.__file__).parent.glob("lib-dynload/*")),
}
"""The modules of the standard library."""

KNOW_A_CPU = {
    "stacktraces/base/image.py",
    "stacktraces/flat/decode/schema.py",
    "stacktraces/rows/columns.py",
    "trapframes.py",
}
"""Modules whose name does not end in _x64 or _x86, and which may say `x64` or `x86` in code."""

DEAR_RECORDS = {"NamedTuple", "Enum", "IntEnum", "Flag", "IntFlag", "TypedDict"}

MOST_MODULES = 118
MOST_DEAR_RECORDS = 3
"""Volatility imports every file below a plugin folder at every command: a module takes about 0.1 ms, a class
on `Record` (base/decode/record.py) 0.01 ms, one on NamedTuple 0.3 ms."""

_CPU = re.compile(r"\bx(64|86)\b")


class Import(NamedTuple):
    """An import of a module of this library, or of anything else (`target` is dotted then)."""

    path: str
    line: int
    target: str


def modules(windows: pathlib.Path) -> List[pathlib.Path]:
    """Returns the plugins and the modules of the library, those that are packages too."""
    return sorted(path for path in windows.rglob("*.py") if path.name != "__init__.py" or late(path))


def tree(path: pathlib.Path) -> ast.Module:
    """Returns the code of a module, to be read only."""
    return _parsed(path.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=None)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def late(path: pathlib.Path) -> bool:
    """Tells whether a module is a package of its own: Volatility imports none of them at its start.

    Volatility passes over files whose names begin with `__`. A room has an `__init__.py`, too, but modules
    beside it.
    """
    if path.name != "__init__.py" or not path.is_file():
        return False
    return not any(each.is_dir() or each.name != path.name for each in contents(path.parent))


def contents(folder: pathlib.Path) -> List[pathlib.Path]:
    """Returns what a folder holds, compiled files apart."""
    return [each for each in folder.iterdir() if each.name != "__pycache__"]


def imports(windows: pathlib.Path, path: pathlib.Path) -> Iterator[Import]:
    """Yields all imports of a module, those inside functions too, by the path of what they name."""
    name = str(path.relative_to(windows))
    package = path.relative_to(windows).parts[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield Import(name, node.lineno, each.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for each in node.names:
                yield Import(name, node.lineno, f"{node.module}.{each.name}")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - (node.level - 1)]
            parts = (*base, *(node.module or "").split(".")) if node.module else base
            for each in node.names:
                folder = windows.joinpath(*parts)
                places = (folder / f"{each.name}.py", folder / each.name / "__init__.py")
                whole = folder.with_suffix(".py"), folder / "__init__.py"
                found = next(each for each in (*places, *whole) if each.is_file())
                yield Import(name, node.lineno, str(found.relative_to(windows)))


def room(name: str) -> str:
    """Returns the room of a module, `plugins` for a plugin."""
    parts = pathlib.PurePath(name).parts
    return parts[1] if parts[0] == LIBRARY and len(parts) > 2 else "plugins"


def pure(name: str) -> bool:
    """Tells whether a module is a decoder."""
    return "decode" in pathlib.PurePath(name).parts


def violations(windows: pathlib.Path) -> List[str]:
    """Returns the imports that the rooms forbid."""
    level = {each: number for number, floor in enumerate(FLOORS) for each in floor}
    found = []
    for path in modules(windows):
        for each in imports(windows, path):
            ours = each.target.endswith(".py")
            mine = room(each.path)
            where = f"{each.path}:{each.line} imports {each.target}"
            if mine not in level:
                found.append(f"{each.path} is in no room")
            elif ours:
                theirs = room(each.target)
                if theirs != mine and level[theirs] >= level[mine]:
                    found.append(where)
                if pure(each.path) and not pure(each.target):
                    found.append(where)
            else:
                parts = each.target.split(".")
                foreign = pure(each.path) and parts[0] not in STANDARD
                if foreign or ("renderers" in parts and mine not in KNOW_RENDERERS):
                    found.append(where)
    return found


def class_names(windows: pathlib.Path) -> Dict[str, List[str]]:
    """Returns where each public class of the library and of the plugins is."""
    found: Dict[str, List[str]] = collections.defaultdict(list)
    for path in modules(windows):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(windows)))
    return found


def records(windows: pathlib.Path) -> int:
    """Returns how many classes are made at start-up by the standard library's dear ways."""
    count = 0
    for path in modules(windows):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).rsplit(".", 1)[-1] for base in node.bases}
                marks = {ast.unparse(mark).split("(")[0] for mark in node.decorator_list}
                count += bool(bases & DEAR_RECORDS or "dataclass" in "".join(marks))
    return count


def work(windows: pathlib.Path) -> List[str]:
    """Returns the regular expressions that a module compiles when it is imported."""
    found = []
    for path in modules(windows):
        for node in tree(path).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and "re.compile" in ast.unparse(node):
                found.append(f"{path.relative_to(windows)}:{node.lineno}")
    return found


def knows_a_cpu(path: pathlib.Path) -> bool:
    """Tells whether a module's code, its comments and docstrings apart, says `x64` or `x86`."""
    source = path.read_text(encoding="utf-8")
    docs: Set[Tuple[int, int]] = set()
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs.add((node.lineno, node.col_offset))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        said = token.type in (tokenize.STRING, tokenize.NAME) and _CPU.search(token.string)
        if said and token.start not in docs:
            return True
    return False


def test_rooms_import_downwards_only() -> None:
    assert violations(WINDOWS) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("base/bulk.py", "from ..names import symbolizer"),
        ("heaps/lister.py", "from ..stacks import lister as other"),
        ("traps/lister.py", "def late() -> None:\n    from ..stacks import kernel"),
        ("stacks/decode/walk.py", "from ...base import bulk"),
        ("names/decode/rules.py", "import volatility3"),
        ("names/places.py", "from volatility3.framework import renderers"),
        ("names/places.py", "from ..rows import options"),
        ("stacks/lister.py", "from ..flat.decode import schema"),
        ("flat/decode/schema.py", "from ...names.decode import rules\nfrom ...base import space"),
        ("../gflags.py", "from volatility3.framework.renderers import format_hints"),
    ],
)
def test_a_planted_violation_is_found(path: str, line: str, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "windows"
    shutil.copytree(WINDOWS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = violations(copy)
    with (copy / LIBRARY / path).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    (found,) = set(violations(copy)) - set(before)
    assert pathlib.Path(path).name in found


def test_a_public_class_name_is_one_class() -> None:
    assert {name: paths for name, paths in class_names(WINDOWS).items() if len(paths) > 1} == {}


def test_few_modules_know_a_cpu() -> None:
    saying = {str(path.relative_to(WINDOWS)) for path in modules(WINDOWS) if knows_a_cpu(path)}
    named = {name for name in saying if _named_by(name).endswith(("_x64", "_x86"))}
    assert saying - named == KNOW_A_CPU
    assert len(KNOW_A_CPU) <= 12


def _named_by(name: str) -> str:
    """Returns the name of a module without its rooms."""
    path = pathlib.PurePath(name)
    return path.parent.name if path.name == "__init__.py" else path.stem


def test_rooms_have_packages_without_code() -> None:
    """Without an `__init__.py` a room would be mixed with that of an installed older copy."""
    for folder in {path.parent for path in modules(WINDOWS) if not late(path)} - {WINDOWS}:
        body = tree(folder / "__init__.py").body
        assert all(isinstance(node, ast.Expr) for node in body), folder


def test_start_up_stays_small() -> None:
    assert len([path for path in modules(WINDOWS) if not late(path)]) <= MOST_MODULES
    assert records(WINDOWS) <= MOST_DEAR_RECORDS
    assert work(WINDOWS) == []


def test_the_changelog_leads_to_modules_that_there_are() -> None:
    """Who comes from version 1 looks there for what each module became."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, table = text.split("| `volatility3.plugins.windows.tracing` of 1.0.0 |", 1)
    paths = re.findall(r"^\| `[\w.]+` \| `([\w.]+)` \|", table.split("\n\n", 1)[0], re.MULTILINE)
    assert len(paths) > 100
    folder = WINDOWS / LIBRARY
    places = [folder / path.replace(".", "/") for path in paths]
    missing = [
        each for each in places if not each.with_suffix(".py").is_file() and not late(each / "__init__.py")
    ]
    assert missing == []
