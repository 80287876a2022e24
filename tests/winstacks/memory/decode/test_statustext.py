# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A status from its text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode.status import StatusItem, status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.decode.statustext import parsed

_MEMBER = st.text("abcXYZ.01_", min_size=1)


def _status_items(word: StatusCode) -> st.SearchStrategy[StatusItem]:
    number = st.integers(0, 1 << 40) if "{}" in word.value else st.none()
    members = st.lists(_MEMBER, min_size=1, max_size=3) if "{members}" in word.value else st.just([])
    return st.builds(lambda count, names: StatusItem(word, count, tuple(names)), number, members)


@given(st.lists(st.sampled_from(StatusCode).flatmap(_status_items), max_size=5))
def test_every_word_comes_back(parts: list[StatusItem]) -> None:
    shown = status(*parts)
    found = parsed(text(shown))
    assert found is not None
    assert text(found) == text(shown)


@pytest.mark.parametrize("word", list(StatusCode))
def test_a_word_alone(word: StatusCode) -> None:
    status_item = StatusItem(
        word, 7 if "{}" in word.value else None, ("A", "B") if "{members}" in word.value else ()
    )
    found = parsed(text((status_item,)))
    assert found is not None
    assert text(found) == text((status_item,))


@pytest.mark.parametrize(
    "shown",
    [
        *("nonsense", "running,", "running, nonsense", "running running", ", running", "running, "),
        *("007 bytes unread", "-0 bytes unread", "contradicted: A  B", "contradicted: "),
        # The text comes from a dump, and is shown.
        *("contradicted: \x1b[31mred", "contradicted: a\r\nb", "contradicted: \u202egnp.exe"),
    ],
)
def test_what_is_no_status(shown: str) -> None:
    assert parsed(shown) is None


def test_nothing_is_the_empty_status() -> None:
    assert parsed("") == ()
