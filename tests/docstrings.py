# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds arguments and attributes that a docstring describes and the code does not have, and descriptions that
repeat a name.

python -m tests.docstrings     prints FILE:LINE: name; ends with 1 if there are any
"""

from __future__ import annotations

import ast
import re
import sys
from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

from tests.prose import ROOT

FOLDERS = ("winstacks", "stackfleet", "volatility3_plugins", "symbols", "release", "benchmarks", "tests")

TERSE = ("winstacks/", "stackfleet/")
"""Folders in whose docstrings no description repeats the name."""

_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises):\s*$")
_NAMES = re.compile(r" {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*): ")
_ENTRY = re.compile(r" {4}(\w+): (.*)")
_SENTENCE = re.compile(
    r"(?:^|[.]\s+)`(\w+)`(?: and `(\w+)`)? (?:is|are|has|have|says?|names?|counts?|takes) "
)
_ARTICLES = {"the", "a", "an", "its", "their", "of", "this"}

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


def described(docstring: str, section: str) -> List[str]:
    """Returns the names that a section of a docstring describes, in their order."""
    names: List[str] = []
    now = ""
    for line in docstring.splitlines():
        head = _SECTION.match(line)
        if head:
            now = head.group(1)
        elif line and not line.startswith(" "):
            now = ""
        entry = _NAMES.match(line)
        if entry and now == section:
            names += [name.lstrip("*") for name in entry.group(1).split(", ")]
    return names


def told(docstring: str) -> List[str]:
    """Returns the names that sentences of a docstring describe, as "`size` is the size of an entry"."""
    return [name for found in _SENTENCE.findall(docstring) for name in found if name]


def repeated(docstring: str) -> Iterator[str]:
    """Yields the arguments and attributes of which a docstring says no word that is not in the name."""
    lines = docstring.splitlines()
    for line, after in zip(lines, [*lines[1:], ""]):
        entry = _ENTRY.fullmatch(line)
        if entry and not after.startswith(" " * 8):
            words = set(re.findall(r"\w+", entry.group(2).lower())) - _ARTICLES
            if words <= set(entry.group(1).lower().split("_")):
                yield entry.group(1)


def parameters(function: Function) -> Set[str]:
    """Returns the names of a function's parameters."""
    known = function.args
    more = [argument for argument in (known.vararg, known.kwarg) if argument]
    return {argument.arg for argument in (*known.posonlyargs, *known.args, *known.kwonlyargs, *more)}


def attributes(node: ast.ClassDef, classes: Dict[str, ast.ClassDef]) -> Set[str]:
    """Returns the names that a class, or a class of the same module from which it inherits, defines or sets.

    Args:
        node: the class
        classes: the module's classes by name
    """
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            names.add(part.attr)
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
        elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(part.name)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            names.add(part.value)  # of __slots__, or of a functional NamedTuple
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes and base.id != node.name:
            names |= attributes(classes[base.id], classes)
    return names


def identifiers(tree: ast.Module) -> Set[str]:
    """Returns every name that the code of a module has, whatever has the name."""
    values = (getattr(node, kind, None) for node in ast.walk(tree) for kind in ("id", "attr", "arg", "name"))
    return {value for value in values if isinstance(value, str)}


def arguments(node: ast.ClassDef) -> Optional[Set[str]]:
    """Returns the arguments that make an object of a class; None if its base class decides."""
    functions = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    makers = [function for function in functions if function.name in ("__init__", "__new__")]
    if makers:
        return {name for maker in makers for name in parameters(maker)}
    return None if node.bases else attributes(node, {})  # a dataclass takes its fields


def strangers(source: str) -> Iterator[Tuple[int, str]]:
    """Yields (line of the definition, name) of all that is described and does not exist."""
    tree = ast.parse(source)
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    known = identifiers(tree)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        existing: Dict[str, Optional[Set[str]]]
        if isinstance(node, ast.ClassDef):
            existing = {"Attributes": attributes(node, classes), "Args": arguments(node)}
        else:
            existing = {"Args": parameters(node)}
        docstring = ast.get_docstring(node) or ""
        yield from ((node.lineno, name) for name in told(docstring) if name not in known)
        for section, names in existing.items():
            if names is not None:
                yield from (
                    (node.lineno, name) for name in described(docstring, section) if name not in names
                )


def repetitions(source: str) -> Iterator[Tuple[int, str]]:
    """Yields (line of the definition, name) of each description that repeats the name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from ((node.lineno, name) for name in repeated(ast.get_docstring(node) or ""))


def faults() -> Iterator[str]:
    """Yields FILE:LINE: name for the whole tree."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            source, place = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
            found = list(strangers(source))
            if place.startswith(TERSE):
                found += repetitions(source)
            yield from (f"{place}:{line}: {name}" for line, name in found)


if __name__ == "__main__":
    found = list(faults())
    print("\n".join(found))
    sys.exit(bool(found))
