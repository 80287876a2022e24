# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pages of the documentation as text: blocks of code, parts that are made by a program, links.

A block of code is one of these:

* `console`: every line with `$ ` is a command that reads the sample image. It is run, and what it prints
  stands below.
* `python`: a script. It is run; what it prints is the `text` block behind it.
* `sql`: a statement for DuckDB, which reads files that a command of the page has written. Its result is the
  `text` block behind it.
* any other, and those that cannot be run here: the line before the block says why, in a comment.

    <!-- not run: REASON -->
    <!-- run by dev.py install-check -->

A part that is made by a program stands between two comments: `<!-- made: WHAT -->` and `<!-- made: end -->`.
"""

from __future__ import annotations

import pathlib
import re
from typing import Callable, Iterator, List, NamedTuple, Optional, Set

ROOT = pathlib.Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(```+)(\w*)$")
_MADE = re.compile(r"(<!-- made: (?!end)(.+?) -->\n).*?(<!-- made: end -->)", re.DOTALL)
_MARK = re.compile(r"^<!-- (not run: .{10,}|run by dev\.py install-check) -->$")
_LINK = re.compile(r"!?\[(?:[^\]`]|`[^`]*`)*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`]*`")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$")
INSTALL_CHECK = "run by dev.py install-check"
PRINTING = ("python", "sql")
"""The languages of blocks whose output is the `text` block behind them."""


class Block(NamedTuple):
    """A block of code.

    Attributes:
        language: what stands behind the opening fence
        lines: those between the fences
        start: number of the first line of code, from 0
        mark: why the block is not run here, or who else runs it; None: it is run here
    """

    language: str
    lines: List[str]
    start: int
    mark: Optional[str]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def documents() -> List[pathlib.Path]:
    """Returns README and the pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def read(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[Block]:
    """Yields the blocks of code of a page."""
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            number += 1
            continue
        end = lines.index(opening.group(1), number + 1)
        mark = _MARK.match(lines[number - 1]) if number else None
        yield Block(opening.group(2), lines[number + 1 : end], number + 1, mark.group(1) if mark else None)
        number = end + 1


def with_blocks(text: str, change: Callable[[Block], List[str]]) -> str:
    """Returns a page whose blocks have the lines that a function gives for each."""
    lines = text.split("\n")
    for block in reversed(list(blocks(text))):
        lines[block.start : block.start + len(block.lines)] = change(block)
    return "\n".join(lines)


def with_parts(text: str, make: Callable[[str], str]) -> str:
    """Returns a page whose made parts are what a function gives for the words of their comment."""
    return _MADE.sub(lambda found: found.group(1) + make(found.group(2)) + found.group(3), text)


def part_words(text: str) -> List[str]:
    """Returns the words of the comments of all made parts."""
    return [found.group(2) for found in _MADE.finditer(text)]


def commands(block: Block) -> Iterator[List[int]]:
    """Yields the numbers of the lines of each command of a console block; `\\` continues one."""
    number = 0
    while number < len(block.lines):
        if not block.lines[number].startswith("$ "):
            number += 1
            continue
        first = number
        while block.lines[number].endswith("\\"):
            number += 1
        number += 1
        yield list(range(first, number))


def prose(text: str) -> List[str]:
    """Returns the lines of a page, those of blocks empty."""
    lines = text.split("\n")
    for block in blocks(text):
        lines[block.start : block.start + len(block.lines)] = [""] * len(block.lines)
    return lines


def links(text: str) -> List[str]:
    """Returns the targets of a page's links and pictures."""
    return [found.group(1) for line in prose(text) for found in _LINK.finditer(line)]


def anchors(text: str) -> Set[str]:
    """Returns the anchors of a page's headings, as GitHub and MkDocs make them."""
    found: Set[str] = set()
    for line in prose(text):
        heading = _HEADING.match(line)
        if heading:
            found.add(anchor(heading.group(1)))
    return found


def anchor(heading: str) -> str:
    """Returns the anchor of a heading."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
