# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The contents of the archives of a release, compared with the tree: nothing is missing, changed or added."""

from __future__ import annotations

import pathlib
from typing import Callable, Dict, Iterable, List

from . import NAME, archives

IN_WHEEL = {
    "volatility3_plugins/": "volatility3/plugins/",
    "winstacks/": "winstacks/",
    "stackfleet/": "stackfleet/",
    "symbols/windows/stacktraces/": "volatility3/symbols/windows/stacktraces/",
}
"""Folders in the wheel by folder of the tree."""
SOURCES = (".ci", ".github", "benchmarks", "contrib", "docs", "release", "symbols", "tests")
"""Folders of the source archive; of these the wheel has only the pages of docs."""
METADATA = (
    *("setup.py", "MANIFEST.in", "pyproject.toml", "LICENSE", "CITATION.cff"),
    *(".gitignore", ".pre-commit-config.yaml", "dev.py", "mkdocs.yml"),
)
NOTES = ("volatility3/volatility3-stacktraces.txt", "volatility3/symbols/windows/volatility3-stacktraces.txt")


def runs(tree: pathlib.Path) -> Dict[str, bytes]:
    """Returns the files of a tree that run in a user's Volatility, by path in the tree."""
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for folder in IN_WHEEL
        for path in (tree / folder).rglob("*")
        if path.suffix in archives.PLUGIN_SUFFIXES
    }


def pages(tree: pathlib.Path) -> Dict[str, bytes]:
    """Returns the pages of the documentation, which `stackfleet mcp` offers, by path in the wheel."""
    return {f"stackfleet/docs/{path.name}": path.read_bytes() for path in (tree / "docs").glob("*.md")}


def sources(tree: pathlib.Path) -> Dict[str, bytes]:
    """Returns the other files of a tree that its source archive has: tests, pages, and what makes them."""
    found = [tree / name for name in METADATA] + sorted(tree.glob("*.md"))
    for folder in SOURCES:
        found += [path for path in (tree / folder).rglob("*") if path.is_file()]
    left_out = {"__pycache__", "node_modules"}
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in found
        if not left_out & set(path.relative_to(tree).parts) and path.suffix not in (".pyc", ".pyo")
    }


def differences(tree: pathlib.Path, archives_made: Iterable[pathlib.Path]) -> List[str]:
    """Returns a line for each file that an archive lacks, that only the archive has, or that differs."""
    files = runs(tree)
    found = []
    for path in archives_made:
        if path.suffix == ".whl":
            expected = {**{_in_wheel(name): data for name, data in files.items()}, **pages(tree)}
            allowed = _of_wheel
        elif path.suffix == ".gz":
            expected, allowed = {**files, **sources(tree)}, _of_sdist
        else:
            kept = {name: data for name, data in files.items() if name.startswith(archives.PLUGIN_FOLDERS)}
            expected = {f"{NAME}/{name}": data for name, data in kept.items()}
            expected[f"{NAME}/LICENSE"] = (tree / "LICENSE").read_bytes()
            allowed = _of_folder
        found += [f"{path.name}: {line}" for line in _compare(expected, dict(archives.listed(path)), allowed)]
    return found


def _compare(
    expected: Dict[str, bytes], files: Dict[str, bytes], allowed: Callable[[str], bool]
) -> Iterable[str]:
    for name in sorted(expected.keys() | files.keys()):
        if name not in files:
            yield f"{name} is missing"
        elif name in expected:
            if files[name] != expected[name]:
                yield f"{name} is not that of the tree"
        elif not allowed(name):
            yield f"{name} is not in the tree"


def _in_wheel(name: str) -> str:
    folder = next(folder for folder in IN_WHEEL if name.startswith(folder))
    return IN_WHEEL[folder] + name[len(folder) :]


def _of_wheel(name: str) -> bool:
    return name in NOTES or ".dist-info/" in name


def _of_sdist(name: str) -> bool:
    # setuptools adds to setup.cfg an empty section that tags the build.
    return name in ("PKG-INFO", "setup.cfg") or ".egg-info/" in name


def _of_folder(name: str) -> bool:
    return name == f"{NAME}/README.md"
