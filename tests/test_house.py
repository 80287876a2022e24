# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How the project is built: which room may import which, and what a module may hold."""

from __future__ import annotations

import ast
import collections
import functools
import io
import os
import pathlib
import re
import sys
import tokenize
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import pytest

from tests.conftest import ROOT
from tests.support.only import only
from winstacks import options
from winstacks.columns import words
from winstacks.memory.decode.machine import Machine

LIBRARY = "winstacks"
PLUGINS = "volatility3_plugins"

FLOORS: Tuple[Set[str], ...] = (
    {"columns"},
    {"memory"},
    {"process"},
    {"names"},
    {"tracedb", "traps"},
    {"heaps", "stacks", "locks", "handles", "objects", "callbacks"},
    {"waits"},
    {"stacklist"},
    {"findings", "minidump"},
    {"rows", "html"},
    {"commands", "opening"},
    {"plugins"},
)
"""From the ground up. A room imports itself and what lies below its floor, never a room beside it."""

LEVELS = {name: number for number, floor in enumerate(FLOORS) for name in floor}

GROUND = "columns"
"""The room whose modules are as pure as decoders."""

OPTIONS = f"{LIBRARY}/options.py"
CHECKED = f"{LIBRARY}/checkedoptions.py"
VERSION = f"{LIBRARY}/__init__.py"
FINDER = "volatility3.plugins.windows.winstacks_library"
FINDER_PATH = f"{PLUGINS}/windows/winstacks_library.py"
ON_THE_GROUND = (OPTIONS, CHECKED, VERSION)
"""They import nothing of the library, but the options import their checks, and the package its room `opening`
when a program asks for it."""

MAY_IMPORT = {
    OPTIONS: {"findings", "rows", "commands", "opening"},
    CHECKED: {"rows"},
    VERSION: set.union(*FLOORS) - {"plugins"},
}
"""The rooms that may import them, decoders apart. Plugins get the options by the finder."""

KNOW_RENDERERS = {"rows"}
ANNOTATE_WITH_RENDERERS = {"commands", "plugins"}
"""These return what `rows` makes: annotations and types at module level name `interfaces.renderers`."""

CHECKS = f"{LIBRARY}/findings/checks/"
"""The modules of the checks. `findings/registry.py` imports them by their names; no module imports one."""

LATE = {
    OPTIONS: "names of columns are looked up only where --columns is given",
    FINDER_PATH: "the options are in the library that it has found; runpy is for spawned workers",
    f"{LIBRARY}/findings/registry.py": "options.CHECKS names the modules of the checks",
    VERSION: "a start of Volatility imports it, and needs nothing of the room opening",
    f"{LIBRARY}/opening/volatility.py": "plugins and layers, once Volatility knows where they are",
    f"{LIBRARY}/memory/workers.py": "imports of the few runs with workers, which take milliseconds",
    f"{LIBRARY}/html/readable.py": "a package that users may install, for pages only",
    f"{LIBRARY}/commands/locks.py": "the walk of stacks, for the few images with waiting threads",
    f"{LIBRARY}/commands/info.py": "a small kernel dump needs no modules for dumps of processes",
    f"{LIBRARY}/handles/events.py": "the kernel's tables and databases, which dumps lack",
    f"{LIBRARY}/stacklist/traces.py": "the owners of recorded stacks, which a small kernel dump lacks",
    f"{LIBRARY}/stacks/walkers.py": "the walker of each processor: most inputs need one",
    f"{LIBRARY}/stacks/cpus.py": "the functions of 32-bit code",
    f"{LIBRARY}/rows/plugin.py": "the widths of the columns of --brief, which most runs do not show",
}
"""Modules that import inside a function or by a text, and why. A plugin's methods import its command."""

SAME_LETTERS = {
    OPTIONS: "the words that options take: a start imports nothing else",
    f"{LIBRARY}/findings/code/relays.py": "names of modules",
    f"{LIBRARY}/stacklist/traces.py": "a part of TraceId",
    f"{LIBRARY}/html/imagepart.py": "what the head of a page says where a fact is unknown",
    f"{LIBRARY}/memory/tables.py": "names of symbol tables",
    f"{LIBRARY}/rows/requested.py": "names of options",
    f"{LIBRARY}/process/threads.py": "names of the values that are read of a thread",
    f"{LIBRARY}/stacks/decode/step_x64.py": "where in a function the code is",
    f"{LIBRARY}/traps/decode/frame.py": "what the value of a member is worth",
    f"{LIBRARY}/traps/decode/trapframe_x86.py": "kinds of entries that are told from the bytes of a frame",
}
"""Modules with texts that a column has as words, too, and what these are there."""

LAYERS = {f"{PLUGINS}/minidump/layer.py", f"{PLUGINS}/minidump/bitmaplayer.py"}
"""They decode their files themselves: no command does."""
OF_DUMPS = f"{PLUGINS}/minidump/"
"""Plugins of dumps take their options from the plugin of the same name that reads images."""

NAME_THE_OLD_PLACE = {
    "docs/from-2-to-3.md": "what each import path of 2.0.0 became",
    "tests/test_packaging.py": "what an older version has left is removed",
}

WORDS = "winstacks/memory/decode/statuscodes.py"
"""One enumeration: the list of all words of Status."""

MOST_LINES = 450

STANDARD = {
    *sys.builtin_module_names,
    *(path.name.split(".")[0] for path in pathlib.Path(os.__file__).parent.iterdir()),
    *(path.name.split(".")[0] for path in pathlib.Path(os.__file__).parent.glob("lib-dynload/*")),
}
"""The modules of the standard library."""

KNOW_A_CPU = {
    f"{LIBRARY}/memory/decode/machine.py",
    f"{LIBRARY}/columns/dictionary.py",
    f"{LIBRARY}/columns/words.py",
    f"{PLUGINS}/windows/trapframes.py",
}
"""Modules whose name does not end in _x64, _x86 or _arm64, and which may say one of these in code."""

_CPU = re.compile(r"\b(x(64|86)|arm64)\b")

_MACHINE = re.compile(r'\bMachine\.(AMD64|I386|ARM64)\b|"(Rip|Rsp)"')

Sources = Mapping[str, str]
"""The text of each module by its path in the tree."""


class Import(NamedTuple):
    """An import: `target` is the path of a module of the tree, or dotted for any other."""

    path: str
    line: int
    target: str
    late: bool


@functools.lru_cache(maxsize=1)
def sources() -> Dict[str, str]:
    """Returns the modules of the plugins and of the library, each read once."""
    paths = [path for name in (PLUGINS, LIBRARY) for path in sorted((ROOT / name).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@functools.lru_cache(maxsize=None)
def parsed(source: str) -> ast.Module:
    """Returns the code of a module, to be read only."""
    return ast.parse(source)


def imports(modules: Sources, path: str) -> Iterator[Import]:
    """Yields all imports of a module, those inside functions too."""
    top = set(map(id, parsed(modules[path]).body))
    for node in ast.walk(parsed(modules[path])):
        late = id(node) not in top
        if isinstance(node, ast.Import):
            for member in node.names:
                yield Import(path, node.lineno, _found(modules, member.name) or member.name, late)
        elif isinstance(node, ast.ImportFrom):
            base = _base(path, node)
            for member in node.names:
                dotted = f"{base}.{member.name}"
                yield Import(path, node.lineno, _found(modules, dotted, base) or dotted, late)


def _base(path: str, node: ast.ImportFrom) -> str:
    """Returns the dotted name of what an import names before `import`."""
    if not node.level:
        return node.module or ""
    package = pathlib.PurePath(path).parts[:-1]
    kept = package[: len(package) - (node.level - 1)]
    return ".".join((*kept, node.module) if node.module else kept)


def _found(modules: Sources, *names: str) -> Optional[str]:
    """Returns the path of the first of several dotted names that is a module of the tree."""
    for name in names:
        folder = name.replace(".", "/")
        for path in (f"{folder}.py", f"{folder}/__init__.py"):
            if path in modules:
                return path
    return None


def room(path: str) -> str:
    """Returns the room of a module, `plugins` for a plugin."""
    parts = pathlib.PurePath(path).parts
    return "plugins" if parts[0] == PLUGINS else parts[1]


def pure(path: str) -> bool:
    """Returns whether a module is a decoder or an encoder, or of the room that all of these may use."""
    return not {"decode", "encode", GROUND}.isdisjoint(pathlib.PurePath(path).parts)


def by_text(source: str) -> bool:
    """Returns whether a module imports what a text names."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")
        for node in ast.walk(parsed(source))
    )


def violations(modules: Sources, paths: Optional[Iterable[str]] = None) -> Set[str]:
    """Returns what the order of the rooms forbids, of all modules or of some."""
    plugins = {pathlib.PurePath(path).stem for path in modules if room(path) == "plugins"}
    found = set()
    for path in modules if paths is None else paths:
        if path not in ON_THE_GROUND and room(path) not in LEVELS:
            found.add(f"{path} is in no room")
            continue
        for import_ in imports(modules, path):
            allowed = _allowed_inside if import_.target.endswith(".py") else _allowed_outside
            if not allowed(path, import_, plugins):
                found.add(f"{path}:{import_.line} imports {import_.target}")
        for line in _renderers(path, modules[path]):
            found.add(f"{path}:{line} has to do with renderers")
    return found


def _allowed_inside(path: str, import_: Import, _plugins: Set[str]) -> bool:
    """Returns whether a module may import another of the tree."""
    if import_.target.startswith(CHECKS):
        return False
    if path == VERSION:
        return import_.late and room(import_.target) == "opening"
    if path in ON_THE_GROUND:
        late = import_.late and room(import_.target) == GROUND
        return path == OPTIONS and (import_.target == CHECKED or late)
    if import_.target in ON_THE_GROUND:
        return room(path) in MAY_IMPORT[import_.target] and not pure(path)
    mine, theirs = room(path), room(import_.target)
    if mine == "plugins":
        rooms = {"minidump"} if path in LAYERS else {"commands"}
        return import_.late and theirs in rooms and path != FINDER_PATH
    return (theirs == mine or LEVELS[theirs] < LEVELS[mine]) and (pure(import_.target) or not pure(path))


def _allowed_outside(path: str, import_: Import, plugins: Set[str]) -> bool:
    """Returns whether a module may import what is not of the tree, or a plugin."""
    parts = import_.target.split(".")
    if parts[:3] == ["volatility3", "plugins", "windows"] and plugins.intersection(parts[3:4]):
        sibling = path.startswith(OF_DUMPS) and parts[3] == pathlib.PurePath(path).stem
        return (import_.target == FINDER or sibling) and room(path) == "plugins" and not import_.late
    if parts[0] in STANDARD:
        return path == FINDER_PATH or room(path) != "plugins" or not import_.late
    renderers = "renderers" in parts and (path in ON_THE_GROUND or room(path) not in KNOW_RENDERERS)
    late = import_.late and room(path) == "plugins"
    return parts[0] == "volatility3" and not (
        renderers or late or pure(path) or path in (FINDER_PATH, VERSION)
    )


def _renderers(path: str, source: str) -> Iterator[int]:
    """Yields the lines on which a module has to do with `interfaces.renderers`, annotations apart."""
    if (path not in ON_THE_GROUND and room(path) in KNOW_RENDERERS) or "renderers" not in source:
        return
    tree, types = parsed(source), set()
    if path not in ON_THE_GROUND and room(path) in ANNOTATE_WITH_RENDERERS:
        kinds = [node.value for node in tree.body if isinstance(node, ast.Assign)]
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
                kinds.append(node.returns)
            elif isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
                kinds.append(node.annotation)
        types = {id(node) for kind in kinds for node in ast.walk(kind)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "renderers" and id(node) not in types:
            yield node.lineno


def knows_a_cpu(source: str) -> bool:
    """Returns whether a module's code, its comments and docstrings apart, says `x64`, `x86` or `arm64`."""
    docs: Set[Tuple[int, int]] = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs.add((node.lineno, node.col_offset))
    return any(
        token.type in (tokenize.STRING, tokenize.NAME)
        and _CPU.search(token.string)
        and token.start not in docs
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
    )


@pytest.fixture(scope="module", autouse=True)
def _parsed_for_this_module_only() -> Iterator[None]:
    """Lets go of the parsed modules, which take 80 MB, when all these tests have run."""
    yield
    parsed.cache_clear()


def test_rooms_import_downwards_only() -> None:
    assert violations(sources()) == set()


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("winstacks/memory/bulk.py", "from ..names import symbolizer"),
        ("winstacks/memory/bulk.py", "from ..process import spaces"),
        ("winstacks/heaps/lister.py", "from ..stacks import lister as other"),
        ("winstacks/traps/lister.py", "def late() -> None:\n    from ..stacks import kernel"),
        ("winstacks/stacks/decode/walk.py", "from ...memory import bulk"),
        ("winstacks/stacks/decode/walk.py", "from ... import options"),
        ("winstacks/heaps/decode/block.py", "from ...heaps import lister"),
        ("winstacks/names/decode/rules.py", "import volatility3"),
        ("winstacks/names/places.py", "from volatility3.framework import renderers"),
        ("winstacks/names/places.py", "from ..rows import requested"),
        ("winstacks/stacks/lister.py", "from ..stacklist.decode import keys"),
        ("winstacks/stacklist/decode/keys.py", "from ...process import spaces"),
        ("winstacks/columns/words.py", "from ..memory.decode import status"),
        ("winstacks/columns/words.py", "import volatility3"),
        ("winstacks/stacklist/traces.py", "import stackfleet"),
        ("winstacks/findings/checks/gadget.py", "from .no_call import NAME"),
        ("winstacks/findings/code/returns.py", "from ..checks import modified_code"),
        ("winstacks/findings/registry.py", "from .checks import unbacked"),
        ("winstacks/commands/locks.py", "from ..findings.checks.hidden import CHECK"),
        ("winstacks/rows/plugin.py", f"from {FINDER} import find"),
        ("winstacks/html/htmlpage.py", "from ..rows import grid"),
        ("winstacks/options.py", "from .memory import bulk"),
        ("winstacks/options.py", "from .columns import tables"),
        ("winstacks/options.py", "def late() -> None:\n    from .memory import bulk"),
        ("winstacks/options.py", "from volatility3.framework import renderers"),
        ("winstacks/options.py", "import yara"),
        ("winstacks/__init__.py", "from .opening import opened"),
        ("winstacks/__init__.py", "def late() -> None:\n    from .memory import image"),
        ("winstacks/commands/locks.py", "from ..opening import opened"),
        ("winstacks/__init__.py", "from volatility3.framework import interfaces"),
        ("winstacks/names/places.py", "from .. import options"),
        ("winstacks/stacklist/traces.py", "import yara"),
        ("winstacks/stacklist/traces.py", "from volatility3.plugins.windows import traces"),
        ("winstacks/commands/locks.py", "from volatility3.plugins.windows.locks import Locks"),
        ("winstacks/commands/locks.py", "from volatility3.framework.renderers import format_hints"),
        ("winstacks/commands/locks.py", "isinstance(None, interfaces.renderers.BaseAbsentValue)"),
        ("winstacks/names/places.py", "def none() -> interfaces.renderers.TreeGrid: ..."),
        ("volatility3_plugins/windows/gflags.py", "from winstacks.commands import gflags"),
        ("volatility3_plugins/windows/gflags.py", "from winstacks import options"),
        ("volatility3_plugins/windows/gflags.py", "def late() -> None:\n    from winstacks.rows import grid"),
        ("volatility3_plugins/windows/gflags.py", "from volatility3.framework.renderers import format_hints"),
        ("volatility3_plugins/windows/gflags.py", "from volatility3.plugins.windows import locks"),
        ("volatility3_plugins/windows/gflags.py", "def late() -> None:\n    import json"),
        ("volatility3_plugins/windows/gflags.py", "def late() -> None:\n    from volatility3 import cli"),
        ("volatility3_plugins/windows/winstacks_library.py", "from volatility3.framework import interfaces"),
        ("volatility3_plugins/windows/winstacks_library.py", "import winstacks"),
        ("winstacks/elsewhere/new.py", "import re"),
    ],
)
def test_a_planted_violation_is_found(path: str, line: str) -> None:
    modules = {**sources(), path: f"{sources().get(path, '')}\n{line}\n"}
    before = violations(sources(), [path]) if path in sources() else set()
    found = only(violations(modules, [path]) - before)
    assert found.startswith(path)


def test_all_modules_are_read() -> None:
    rooms = {path.name for path in (ROOT / LIBRARY).iterdir() if (path / "__init__.py").exists()}
    assert (
        {room(path) for path in sources() if path not in ON_THE_GROUND} == rooms | {"plugins"} == set(LEVELS)
    )
    decoders = {path.parent.name for path in (ROOT / LIBRARY).glob("*/decode")}
    assert {room(path) for path in sources() if pure(path)} == {GROUND, *decoders}


def test_a_public_class_name_is_one_class() -> None:
    """A command has the name of its plugin, as has the plugin that shows the same of a dump."""
    found: Dict[str, List[str]] = collections.defaultdict(list)
    for path, source in sources().items():
        for node in parsed(source).body:
            counts = room(path) != "commands" and not path.startswith(OF_DUMPS)
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and counts:
                found[node.name].append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_few_modules_know_a_cpu() -> None:
    saying = {path for path, source in sources().items() if knows_a_cpu(source)}
    named = {path for path in saying if pathlib.PurePath(path).stem.endswith(("_x64", "_x86", "_arm64"))}
    assert saying - named == KNOW_A_CPU


def test_architecture_names_the_places_of_a_machine() -> None:
    """A reader who adds a machine finds each module that names a machine or its registers."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("**Add a machine")[2].partition("**Add a kind of input")[0]
    for path, source in sources().items():
        name, folder = pathlib.PurePath(path).name, path.partition("/")[2].partition("/")[0]
        if name[:-3].endswith(("_x64", "_x86", "_arm64")) or folder == "findings":
            continue
        if _MACHINE.search(source):
            assert re.search(rf"[/`]{re.escape(name)}`", section), path


def test_a_module_is_one_subject_that_a_reader_can_hold() -> None:
    assert [
        path for path, source in sources().items() if source.count("\n") > MOST_LINES and path != WORDS
    ] == []


def test_rooms_have_packages_without_code() -> None:
    for path, source in sources().items():
        if path.endswith("/__init__.py"):
            docstring, *rest = parsed(source).body
            assert isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant), path
            assert path == VERSION or not rest, path
    for path in sources():
        if path.startswith(f"{LIBRARY}/"):
            assert f"{os.path.dirname(path)}/__init__.py" in sources(), path


def test_imports_stand_at_the_top() -> None:
    late = {import_.path for path in sources() for import_ in imports(sources(), path) if import_.late}
    late |= {path for path, source in sources().items() if by_text(source)}
    plugins = {path for path in sources() if room(path) == "plugins" and path != FINDER_PATH}
    assert late - plugins == set(LATE)
    assert not [path for path, source in sources().items() if "TYPE_CHECKING" in source]


def test_nothing_names_the_place_where_the_library_was() -> None:
    named = re.compile(
        r"plugins[./]windows[./]stacktraces|from \.stacktraces|(?<!symbols/)windows/stacktraces/\w+\.py"
    )
    folders = ("stackfleet", "tests", "benchmarks", "docs", LIBRARY, PLUGINS)
    paths = [path for name in folders for kind in ("*.py", "*.md") for path in (ROOT / name).rglob(kind)]
    found = {path.relative_to(ROOT).as_posix() for path in paths if named.search(path.read_text("utf-8"))}
    assert found == set(NAME_THE_OLD_PLACE)


def test_words_of_options_are_those_of_the_rooms() -> None:
    assert tuple(words.KINDS) == options.KINDS
    assert words.SEVERITIES == options.SEVERITIES
    assert tuple(words.ARCHES) == tuple(machine.arch for machine in Machine)
    checks = {
        path
        for path, source in sources().items()
        if room(path) == "findings" and any(_is_check(node) for node in parsed(source).body)
    }
    assert {f"{CHECKS}{name}.py" for name in options.CHECKS} == checks
    assert {path for path in sources() if path.startswith(CHECKS)} == {*checks, f"{CHECKS}__init__.py"}


def test_a_word_of_a_column_is_defined_once() -> None:
    """What has the same letters and is no word of a column has a reason."""
    lists = (value for name, value in vars(words).items() if name.isupper() and isinstance(value, dict))
    known = {word for texts in lists for word in (*texts, *texts.values()) if isinstance(word, str) and word}
    known.update(words.SEVERITIES, words.CONFIDENCES, words.ROLES)
    found = {
        path
        for path, source in sources().items()
        if path.startswith(LIBRARY) and path != f"{LIBRARY}/columns/words.py"
        for node in parsed(source).body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and known.intersection(_texts(node.value))
    }
    assert found == set(SAME_LETTERS)


def _texts(value: Optional[ast.expr]) -> Iterator[str]:
    """Yields the texts that are a value, or the elements of one."""
    elements = value.elts if isinstance(value, (ast.Tuple, ast.Set, ast.List)) else [value]
    for element in elements:
        if isinstance(element, ast.Constant) and isinstance(element.value, str):
            yield element.value


def _is_check(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and ast.unparse(node).startswith(
        ("CHECK =", "CHECK:")
    )
