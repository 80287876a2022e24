# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The answers of `stackfleet mcp` that docs/mcp.md quotes, made of the sample and of a real dump.

A block of JSON with the mark `not run: tests/docs/test_answers.py asks NAME` is the answer of that name.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Optional, Tuple

from stackfleet import agent_tools
from tests.conftest import SHARED
from tests.support.agents import arguments

from . import pages
from .pages import Block
from .runs import Runner

PAGE = pages.ROOT / "docs" / "mcp.md"
REAL = SHARED / "real_minidumps" / "write_av_non_canonical.dmp"
"""The dump of a process of Windows 10 that crashed, of Breakpad's test data."""

WIDTH = 118
_MARK = "not run: tests/docs/test_answers.py asks "

ASKED: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "sample": ("findings", {"severity": "high", "check": "unbacked", "limit": 1}),
    "nothing": ("stacks", {"find": "amsi!*", "limit": 1}),
    "real": ("crash", {"limit": 1}),
}
"""The questions: their tools and arguments."""


def name_of(block: Block) -> str:
    """Returns the name of the answer that a block quotes; empty for other blocks."""
    mark = block.mark or ""
    return mark[len(_MARK) :] if mark.startswith(_MARK) else ""


def current(text: str, runner: Runner) -> str:
    """Returns the page with the answers that the tools give now; an answer whose file is absent stays."""

    def lines(block: Block) -> List[str]:
        found = answer(name_of(block), runner) if name_of(block) else None
        return block.lines if found is None else found

    return pages.with_blocks(text, lines)


def answer(name: str, runner: Runner) -> Optional[List[str]]:
    """Returns the lines of an answer; None if its file is absent."""
    file, lake = ("sample.dmp", "asked") if name != "real" else (str(REAL), "asked-real")
    if name == "real" and not REAL.exists():
        return None
    runner.output(f"stackfleet run {file} -o {lake}")
    tool, given = ASKED[name]
    found = agent_tools.answered(str(runner.folder / lake), tool, arguments(tool, **given))
    # The folder of an image differs in each run, and the length of its name decides no line.
    return list(_lines(json.loads(json.dumps(found).replace(f"{runner.folder}/", ""))))


def _lines(value: Any, before: str = "", indent: str = "", behind: str = "") -> Iterator[str]:
    """Yields the lines of JSON, with each object and list on one line if it fits."""
    whole = f"{indent}{before}{json.dumps(value, ensure_ascii=False)}{behind}"
    if len(whole) <= WIDTH or not isinstance(value, (dict, list)):
        yield whole
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield f"{indent}{before}{opening}"
    items = list(value.items()) if isinstance(value, dict) else [("", item) for item in value]
    for number, (name, item) in enumerate(items):
        label = f"{json.dumps(name)}: " if isinstance(value, dict) else ""
        yield from _lines(item, label, f"{indent}  ", "," if number + 1 < len(items) else "")
    yield f"{indent}{closing}{behind}"
