# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""docs/mcp.md quotes what the tools answer, names each tool, and its configurations start the server."""

from __future__ import annotations

import ast
import json
import os
import re

import pytest

from tests.conftest import ROOT
from tests.support.only import only

from . import answers, pages
from .runs import Runner

TEXT = pages.read(answers.PAGE)


@pytest.mark.cli
@pytest.mark.once
@pytest.mark.skipif(os.name == "nt", reason="the commands are those of a POSIX shell")
@pytest.mark.parametrize("name", list(answers.ASKED))
def test_an_answer_is_the_one_that_stands_there(name: str, runner: Runner) -> None:
    found = answers.answer(name, runner)
    if found is None:
        pytest.skip(f"{answers.REAL.name} is absent")
    quoted = [block.lines for block in pages.blocks(TEXT) if answers.name_of(block) == name]
    assert quoted == [found], f"python3 -m tests.docs update {answers.PAGE.name}"
    assert json.loads("\n".join(found))


def test_each_tool_has_a_row() -> None:
    source = pages.read(ROOT / "stackfleet" / "agent_server.py")
    names = re.search(r"^NAMES = (\(.*?\))$", source, re.MULTILINE | re.DOTALL)
    assert names
    section = TEXT.partition("\n## Tools\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert tuple(rows) == ast.literal_eval(names[1])


def test_the_configurations_are_json_and_name_the_command() -> None:
    blocks = [
        block for block in pages.blocks(TEXT) if block.language == "json" and not answers.name_of(block)
    ]
    assert len(blocks) >= 3
    for block in blocks:
        entry = only(only(json.loads(block.text).values()).values())
        assert entry.get("url", "").endswith("/mcp") or [entry["command"], *entry["args"]] == [
            *("stackfleet", "mcp", "/cases/lake"),
        ]
