# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The page of the library: its programs are short, and its counts of lines are those of its programs.

`test_pages` runs the programs as they stand.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import List

import pytest

from . import pages

PAGE = pages.ROOT / "docs" / "library.md"
MOST_LINES = 10


def programs(section: str) -> List[List[str]]:
    """Returns the lines of the programs of a section, empty lines left out."""
    text = pages.read(PAGE)
    whole = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0] if section else text
    python = [block for block in pages.blocks(whole) if block.language == "python"]
    assert all(block.mark is None for block in python), "it is not run"
    return [[line for line in block.lines if line] for block in python]


def test_there_are_ten_short_programs() -> None:
    found = programs("Ten short programs")
    assert len(found) == 10
    assert all("import winstacks" in lines and len(lines) <= MOST_LINES for lines in found)


def test_the_first_stack_takes_as_many_lines_as_the_page_says() -> None:
    words = {"three": 3}
    said = re.search(r"Its first stack takes (\w+) lines", pages.read(PAGE))
    assert said and len(programs("")[0]) == words[said.group(1)]
    before = re.search(r"Its first stack then takes (\d+) lines", pages.read(PAGE))
    assert before and [len(lines) for lines in programs("What `open` replaces")] == [int(before.group(1))]


@pytest.mark.once
def test_the_short_programs_are_typed(tmp_path: pathlib.Path) -> None:
    """A user's type checker finds no fault in them: what may be absent is asked for."""
    pytest.importorskip("mypy")
    for number, lines in enumerate(programs("Ten short programs")):
        (tmp_path / f"program{number}.py").write_text("\n".join(lines) + "\n")
    options = ["--strict", "--follow-imports=silent", "--ignore-missing-imports", "--config-file="]
    command = [sys.executable, "-m", "mypy", *options, "--explicit-package-bases", "--cache-dir", os.devnull]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=pages.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
