# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is said of a row: words in the order in which they were found, and their text."""

from __future__ import annotations

import copy
import pickle

from winstacks.memory.decode.status import NOTHING, StatusItem, has_status, status, text
from winstacks.memory.decode.statuscodes import StatusCode


def test_words_keep_their_order_and_are_said_once() -> None:
    said = status(
        StatusCode.STALE,
        None,
        status(StatusCode.UNREADABLE, StatusCode.STALE),
        NOTHING,
        StatusItem(StatusCode.HASH),
    )
    assert [each.code for each in said] == [StatusCode.STALE, StatusCode.UNREADABLE, StatusCode.HASH]
    assert text(said) == "stale, unreadable, hash"


def test_nothing_is_wrong() -> None:
    assert status() == status(None, NOTHING) == NOTHING
    assert not status()
    assert text(NOTHING) == ""


def test_a_status_says_its_words_only() -> None:
    said = status(StatusCode.PARTLY_UNREADABLE)
    assert has_status(said, StatusCode.PARTLY_UNREADABLE)
    assert has_status(said, StatusCode.STALE, StatusCode.PARTLY_UNREADABLE)
    assert not has_status(said, StatusCode.UNREADABLE)
    assert not has_status(NOTHING, *StatusCode)


def test_a_count_belongs_to_its_word() -> None:
    counted = [word for word in StatusCode if "{}" in word.value]
    assert counted
    for word in counted:
        said = status(StatusItem(word, 3), StatusItem(word, 3), StatusItem(word, 4))
        assert [each.number for each in said] == [3, 4]
        assert text(said) == f"{word.value.format(3)}, {word.value.format(4)}"
        assert has_status(said, word)


def test_no_two_words_have_one_text() -> None:
    texts = [word.value for word in StatusCode]
    assert len(texts) > 100
    assert sorted(texts) == sorted(set(texts))


def test_a_word_stays_the_same_object_where_it_is_copied() -> None:
    said = status(StatusItem(StatusCode.FILE_PARTS_UNREADABLE, 3))
    for copied in (pickle.loads(pickle.dumps(said)), copy.deepcopy(said)):
        assert copied[0].code is StatusCode.FILE_PARTS_UNREADABLE


def test_a_word_says_nothing_that_separates_words() -> None:
    assert not [word for word in StatusCode if ", " in word.value]
