# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Texts count in the singular, too: a number before a plural noun comes from `counted`."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Iterator

import pytest

from tests.conftest import ROOT
from winstacks.memory.decode.text import counted

NOUNS = (
    *(
        "stacks",
        "traces",
        "threads",
        "processes",
        "images",
        "files",
        "frames",
        "findings",
        "checks",
        "handles",
    ),
    *("blocks", "entries", "lines", "fields", "drivers", "regions", "locks", "paths", "modules"),
)
_PLURAL = re.compile(rf" (?:\w+ )?(?:{'|'.join(NOUNS)})\b")
_MORE_THAN_ONE = re.compile(r"[A-Z_\d]+|self\.images|len\(lost\)|comparison\.others|count|depth")
"""What is a limit, a total behind `of`, or above 1 where the text is made."""


def plurals(source: str) -> Iterator[str]:
    """Yields the numbers in f-strings before a plural noun."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            before = ""
            for number, behind in zip(node.values, node.values[1:]):
                if isinstance(number, ast.Constant):
                    before = str(number.value)
                elif isinstance(number, ast.FormattedValue) and isinstance(behind, ast.Constant):
                    shown = ast.unparse(number.value)
                    if _PLURAL.match(str(behind.value)) and not before.endswith((" of ", "--")):
                        if not _MORE_THAN_ONE.fullmatch(shown):
                            yield shown + str(behind.value)
                    before = ""


@pytest.mark.parametrize("package", ["winstacks", "stackfleet"])
def test_no_text_has_1_stacks(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for path in sorted(pathlib.Path(ROOT, package).rglob("*.py"))
        for text in plurals(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_a_plural_is_found() -> None:
    assert list(plurals('f"{found} stacks are left out"')) == ["found stacks are left out"]
    assert list(plurals('f"more than {MOST} stacks, {a} of {b} stacks"')) == []


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 stacks"), (1, "1 stack"), (2, "2 stacks"), (1024, "1,024 stacks")]
)
def test_counted(count: int, shown: str) -> None:
    assert counted(count, "stack") == shown


def test_counted_with_a_plural() -> None:
    assert [counted(count, "process has", "processes have") for count in (1, 2)] == [
        "1 process has",
        "2 processes have",
    ]
