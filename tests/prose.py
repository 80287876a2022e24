# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds sentences that readers stumble over, in docstrings, comments and pages.

    python -m tests.prose [PATH...]     prints FILE:LINE: advice: the line; ends with 1 if there are any

Without a path it prints the faults of each file that has more than `prose_known.json` allows: tests and
benchmarks were written before this lint read them. Their numbers only become less.

CONTRIBUTING.md has the rule: the subject first, at most one negation in a sentence, names instead of "it".
These patterns broke the rule most often. They are few, and each is wrong in nearly every sentence; a sentence
in which one is right is better written in another way, too.
"""

from __future__ import annotations

import ast
import io
import json
import pathlib
import re
import sys
import tokenize
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = (
    *("winstacks", "stackfleet", "volatility3_plugins", "symbols", "release"),
    *("tests", "benchmarks", "contrib"),
)
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs")

KNOWN = ROOT / "tests" / "prose_known.json"
"""The number of faults that a file may have, by its path; of all others, none."""

PATTERNS = {
    "'that of' has no referent: repeat the noun": r"\b(?:that|those) of\b",
    "'of which' for a possessive: write 'whose', or two sentences": r"\bof (?:which|whom)\b",
    "write 'does not have', 'lacks' or 'is not'": r"\b(?:has|have|had) not (?!been\b|yet\b|to\b|\w+ed\b)",
    "repeat the noun": r"\bthe (?:former|latter)\b",
    "choose one verb: says, decides, recognises, reports, shows": r"\b[Tt](?:ells?|old|elling)\b",
    "write who says it: 'the row says', 'Status names'": r"\b(?:is|are|was|were|be) said\b|\bsaid of\b",
    "subject first: 'X does not prove', not 'nothing proves'": r"\b[Nn]othing (?:proves|says|shows|knows)\b",
}
"""What is wrong by the expression that finds it in a line."""

START = re.compile(r"(?:What|Who|Whose|Whom|That which|Those that|Those which|Where) (?!.*\?)")
"""How the text of a docstring, an attribute or a comment must not begin: a clause that has no noun."""

_ENTRY = re.compile(r"\s+(?:\w+(?:, \w+)*: )(\S.*)")
"""An entry of Args, Attributes or Raises."""


class Fault(NamedTuple):
    """A line that is hard to read.

    Attributes:
        path: file, from the root of the checkout
        line: number of the line, from 1
        reason: advice
        text: the line
    """

    path: str
    line: int
    reason: str
    text: str


def sentences(source: str) -> Iterator[Tuple[int, str, bool]]:
    """Yields the lines of prose in Python code: number, text, and whether a sentence begins with the line."""
    previous = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: "), token.start[0] != previous + 1
            previous = token.start[0]
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            code = False
            for number, text in enumerate(node.value.value.split("\n")):
                code = text.lstrip().startswith(">>>") or (code and bool(text.strip()))
                entry = _ENTRY.match(text)
                if not code:
                    yield node.lineno + number, entry[1] if entry else text.strip(), not number or bool(entry)


def paragraphs(page: str) -> Iterator[Tuple[int, str, bool]]:
    """Yields the lines of a Markdown page that are prose, without code."""
    fence = False
    for number, text in enumerate(page.split("\n"), 1):
        if text.lstrip().startswith("```"):
            fence = not fence
        elif not fence:
            yield number, re.sub(r"`[^`]*`", "`code`", text), False


def faults(path: str, lines: Iterator[Tuple[int, str, bool]]) -> Iterator[Fault]:
    """Yields the faults of a file's prose."""
    for number, text, begins in lines:
        for reason, pattern in PATTERNS.items():
            if re.search(pattern, text):
                yield Fault(path, number, reason, text)
        if begins and START.match(text):
            yield Fault(path, number, "begin with a noun", text)


def files(places: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yields the files of code and pages at places below the root, or all of them."""
    for place in places or (*CODE, *PAGES):
        path = ROOT / place
        if path.is_dir():
            found = (file for file in path.rglob("*") if file.suffix in (".py", ".md"))
            # Packages of others, with which scripts of pages are tested, lie below tests/pages.
            yield from sorted(file for file in found if "node_modules" not in file.parts)
        else:
            yield path


def search(places: Sequence[str]) -> List[Fault]:
    """Returns the faults at places below the root, or in all code and pages."""
    found: List[Fault] = []
    for path in files(places):
        text = path.read_text(encoding="utf-8")
        lines = sentences(text) if path.suffix == ".py" else paragraphs(text)
        found.extend(sorted(faults(path.relative_to(ROOT).as_posix(), lines), key=lambda fault: fault.line))
    return found


def beyond(found: Sequence[Fault], known: Dict[str, int]) -> List[str]:
    """Returns the faults of files that have more than is known, and the files that have fewer."""
    by_file: Dict[str, List[Fault]] = {path: [] for path in known}
    for fault in found:
        by_file.setdefault(fault.path, []).append(fault)
    lines: List[str] = []
    for path, faulty in sorted(by_file.items()):
        if len(faulty) > known.get(path, 0):
            lines += map(_line, faulty)
        elif len(faulty) < known[path]:
            lines.append(f"{path}: {len(faulty)} faults are left: write that number into {KNOWN.name}")
    return lines


def _line(fault: Fault) -> str:
    return f"{fault.path}:{fault.line}: {fault.reason}: {fault.text}"


def main(places: Sequence[str]) -> int:
    """Prints the faults; returns the exit code."""
    found = search(places)
    known: Dict[str, int] = {} if places else json.loads(KNOWN.read_text(encoding="utf-8"))
    lines = beyond(found, known)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
