# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is said of a row: words in the order in which they were found, and their text."""

from __future__ import annotations

import copy
import pickle

from winstacks.memory.decode.status import NOTHING, Said, says, status, text
from winstacks.memory.decode.statuswords import Word


def test_words_keep_their_order_and_are_said_once() -> None:
    said = status(Word.STALE, None, status(Word.UNREADABLE, Word.STALE), NOTHING, Said(Word.HASH))
    assert [each.word for each in said] == [Word.STALE, Word.UNREADABLE, Word.HASH]
    assert text(said) == "stale, unreadable, hash"


def test_nothing_is_wrong() -> None:
    assert status() == status(None, NOTHING) == NOTHING
    assert not status()
    assert text(NOTHING) == ""


def test_a_status_says_its_words_only() -> None:
    said = status(Word.PARTLY_UNREADABLE)
    assert says(said, Word.PARTLY_UNREADABLE)
    assert says(said, Word.STALE, Word.PARTLY_UNREADABLE)
    assert not says(said, Word.UNREADABLE)
    assert not says(NOTHING, *Word)


def test_a_count_belongs_to_its_word() -> None:
    counted = [word for word in Word if "{}" in word.value]
    assert counted
    for word in counted:
        said = status(Said(word, 3), Said(word, 3), Said(word, 4))
        assert [each.number for each in said] == [3, 4]
        assert text(said) == f"{word.value.format(3)}, {word.value.format(4)}"
        assert says(said, word)


def test_no_two_words_have_one_text() -> None:
    texts = [word.value for word in Word]
    assert len(texts) > 100
    assert sorted(texts) == sorted(set(texts))


def test_a_word_stays_the_same_object_where_it_is_copied() -> None:
    said = status(Said(Word.FILE_PARTS_UNREADABLE, 3))
    for copied in (pickle.loads(pickle.dumps(said)), copy.deepcopy(said)):
        assert copied[0].word is Word.FILE_PARTS_UNREADABLE


def test_a_word_says_nothing_that_separates_words() -> None:
    assert not [word for word in Word if ", " in word.value]
