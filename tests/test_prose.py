# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The lint of prose: what it finds, and that the tree is free of it."""

from __future__ import annotations

import pytest

from tests import prose
from tests.support.only import only

HARD = '''
"""What a page has."""

# The size is that of the section.
def read(data):
    """Returns a page.

    >>> read(b"that of")
    Those that of a doctest are no prose.

    Args:
        data: bytes, the first of which is the header
        more, rest: who is told of it
    """
    return "a string that of is no prose"
'''


def test_code() -> None:
    """Docstrings, attributes and comments are read; strings and doctests are not."""
    found = list(prose.faults("page.py", prose.sentences(HARD)))
    lines = sorted((fault.line, fault.reason.split(":")[0]) for fault in found)
    assert lines == [
        (2, "begin with a noun"),
        (4, "'that of' has no referent"),
        (12, "'of which' for a possessive"),
        (13, "choose one verb"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Returns the row that names the page.",
        "What does it cost?",
        "The module has no name.",
        "The value is not known.",
    ],
)
def test_plain_sentences(line: str) -> None:
    """Plain sentences, and questions, pass."""
    assert not list(prose.faults("page.py", iter([(1, line, True)])))


def test_pages() -> None:
    """Code in a page is no prose."""
    page = "One line that of tells.\n```\nthat of\n```\nand `that of` code\n"
    assert {fault.line for fault in prose.faults("page.md", prose.paragraphs(page))} == {1}


def test_a_file_may_have_as_many_faults_as_are_known() -> None:
    """One more is found, with all others of its file, and so is a number that is too high."""
    found = [prose.Fault("a.py", 3, "advice", "text"), prose.Fault("a.py", 5, "advice", "more")]
    assert prose.beyond(found, {"a.py": 2}) == []
    assert prose.beyond(found, {"a.py": 1}) == ["a.py:3: advice: text", "a.py:5: advice: more"]
    assert prose.beyond(found, {}) == ["a.py:3: advice: text", "a.py:5: advice: more"]
    assert only(prose.beyond(found, {"a.py": 2, "b.py": 1})).startswith("b.py: 0 faults are left")


def test_the_tree_has_no_more_faults_than_are_known() -> None:
    assert prose.main(()) == 0
