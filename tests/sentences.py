# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Keeps each sentence of the pages on a line of its own, and finds sentences that are too long.

    python -m tests.sentences [PATH...]            prints lines that hold no sentence, and long sentences
    python -m tests.sentences --update [PATH...]   breaks the lines at sentences

A change of a sentence is then one line of a diff. Tables, code and headings stay as they are.
"""

from __future__ import annotations

import pathlib
import re
import sys
from typing import Iterator, List, NamedTuple, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs")
MOST_WORDS = 35

_END = re.compile(
    r"(?<![ (][a-z])(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bNo)(?<!\*\*\d)"
    r"[.!?][)\"”`]*\s+(?=[A-Z`*\[<(“\"0-9]|--)"
)
"""Where a sentence ends and another begins. Abbreviations and bold text end none."""
_ITEM = re.compile(r"( *)([*-]|\d+\.) +")
_APART = re.compile(r"\s*(?:\||#|<|!\[|>|$|(?:\*\*\*|---)\s*$)")
"""Lines that are no prose: tables, headings, comments, pictures, blank lines."""
_CODE = re.compile(r"`[^`]*`|\]\([^)]*\)")
_WHOLE = re.compile(r"`[^`]*`|\[[^\[\]]*\]\([^)]*\)")
"""Code and links, which no line breaks."""


class Paragraph(NamedTuple):
    """Lines of prose that belong together.

    Attributes:
        number: of the first line, from 1
        first: what stands before the text of the first line: indentation, the mark of an item
        text: the text in one line
        lines: how many lines it takes
    """

    number: int
    first: str
    text: str
    lines: int

    def broken(self) -> List[str]:
        """Returns the lines, one for each sentence."""
        rest = " " * len(self.first)
        return [(rest if place else self.first) + text for place, text in enumerate(sentences(self.text))]


def sentences(text: str) -> List[str]:
    """Returns the sentences of a text. No sentence ends within code or a link."""
    hidden = _WHOLE.sub(lambda found: "`" + "x" * (len(found.group()) - 2) + "`", text)
    ends = [0, *(found.end() for found in _END.finditer(hidden)), len(text)]
    return [text[start:end].strip() for start, end in zip(ends, ends[1:])]


def paragraphs(page: str) -> Iterator[Paragraph]:
    """Yields the paragraphs of a page and the items of its lists."""
    lines = page.split("\n")
    number, fence = 0, False
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith("```"):
            fence = not fence
        if fence or line.lstrip().startswith("```") or _APART.match(line):
            number += 1
            continue
        item = _ITEM.match(line)
        first = item.group() if item else line[: len(line) - len(line.lstrip())]
        start, parts = number, [line[len(first) :].strip()]
        number += 1
        while number < len(lines) and not (
            _APART.match(lines[number]) or _ITEM.match(lines[number]) or "```" in lines[number]
        ):
            parts.append(lines[number].strip())
            number += 1
        yield Paragraph(start + 1, first, " ".join(parts), number - start)


def updated(page: str) -> str:
    """Returns a page whose lines break at sentences."""
    lines = page.split("\n")
    for paragraph in reversed(list(paragraphs(page))):
        begin = paragraph.number - 1
        lines[begin : begin + paragraph.lines] = paragraph.broken()
    return "\n".join(lines)


def words(sentence: str) -> int:
    """Returns the number of words; code, and a link's target, count as one."""
    return len(re.findall(r"\S+", _CODE.sub("x", sentence)))


def files(places: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yields the pages at places below the root, or all."""
    for place in places or PAGES:
        path = ROOT / place
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def faults(path: pathlib.Path) -> Iterator[str]:
    """Yields what is wrong with a page, with the number of the line."""
    page = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    if updated(page) != page:
        yield f"{name}: python -m tests.sentences --update {name}"
    for paragraph in paragraphs(page):
        for sentence in sentences(paragraph.text):
            if words(sentence) > MOST_WORDS:
                yield f"{name}:{paragraph.number}: {words(sentence)} words: {sentence}"


def main(arguments: List[str]) -> int:
    """Prints the faults, or updates the pages; returns the exit code."""
    update = arguments[:1] == ["--update"]
    found = False
    for path in files(arguments[1:] if update else arguments):
        if update:
            page = path.read_text(encoding="utf-8")
            path.write_text(updated(page), encoding="utf-8")
        for fault in faults(path):
            print(fault)
            found = True
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
