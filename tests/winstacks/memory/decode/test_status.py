# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is said of a row: words in the order in which they were found, and their text."""

from __future__ import annotations

import copy
import pickle

from winstacks.memory.decode.status import NOTHING, StatusItem, has_status, status, text
from winstacks.memory.decode.statuscodes import StatusCode, words_that
from winstacks.memory.decode.statusmeanings import Means


def test_words_keep_their_order_and_are_said_once() -> None:
    row_status = status(
        StatusCode.STALE,
        None,
        status(StatusCode.UNREADABLE, StatusCode.STALE),
        NOTHING,
        StatusItem(StatusCode.HASH),
    )
    assert [status_item.code for status_item in row_status] == [
        StatusCode.STALE,
        StatusCode.UNREADABLE,
        StatusCode.HASH,
    ]
    assert text(row_status) == "stale, unreadable, hash"


def test_nothing_is_wrong() -> None:
    assert status() == status(None, NOTHING) == NOTHING
    assert not status()
    assert text(NOTHING) == ""


def test_a_status_says_its_words_only() -> None:
    row_status = status(StatusCode.PARTLY_UNREADABLE)
    assert has_status(row_status, StatusCode.PARTLY_UNREADABLE)
    assert has_status(row_status, StatusCode.STALE, StatusCode.PARTLY_UNREADABLE)
    assert not has_status(row_status, StatusCode.UNREADABLE)
    assert not has_status(NOTHING, *StatusCode)


def test_a_count_belongs_to_its_word() -> None:
    counted = [word for word in StatusCode if "{}" in word.value]
    assert counted
    for word in counted:
        row_status = status(StatusItem(word, 3), StatusItem(word, 3), StatusItem(word, 4))
        assert [code.number for code in row_status] == [3, 4]
        assert text(row_status) == f"{word.value.format(3)}, {word.value.format(4)}"
        assert has_status(row_status, word)


def test_no_two_words_have_one_text() -> None:
    texts = [word.value for word in StatusCode]
    assert len(texts) > 100
    assert sorted(texts) == sorted(set(texts))


def test_a_word_stays_the_same_object_where_it_is_copied() -> None:
    row_status = status(StatusItem(StatusCode.FILE_PARTS_UNREADABLE, 3))
    for copied in (pickle.loads(pickle.dumps(row_status)), copy.deepcopy(row_status)):
        assert copied[0].code is StatusCode.FILE_PARTS_UNREADABLE


def test_a_word_says_nothing_that_separates_words() -> None:
    assert not [word for word in StatusCode if ", " in word.value]


def test_every_word_has_its_meanings_and_every_meaning_has_words() -> None:
    assert all(isinstance(word.means, Means) for word in StatusCode)
    assert all(words_that(meaning) for meaning in Means)
    assert StatusCode.VADS_INCOMPLETE in words_that(Means.LOWERS_CONFIDENCE)
    assert StatusCode.STALE not in words_that(Means.LOWERS_CONFIDENCE)
