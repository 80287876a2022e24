# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The bits of a trace's status, and how the status of a damaged header is printed."""

from __future__ import annotations

import pytest

from winstacks.memory.decode.status import StatusItem, has_status
from winstacks.memory.decode.status import status as joined
from winstacks.memory.decode.status import text as joined_text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.tracedb.decode import status

WORDS = ("unindexed", "saturated", "freed", "orphan", "index", "bucket", "depth", "unreadable")


@pytest.mark.parametrize("flags", range(256))
def test_words_come_in_their_fixed_order(flags: int) -> None:
    words = [word for bit, word in enumerate(WORDS) if flags >> bit & 1]
    assert status.text(flags) == ", ".join(words) == joined_text(status.status_of(flags))


def test_nothing_is_said_of_a_live_trace() -> None:
    assert status.status_of(0) == () and status.text(0) == ""
    assert has_status(status.status_of(status.FREED | status.INDEX), StatusCode.FREED)
    assert not has_status(status.status_of(status.UNINDEXED), StatusCode.INDEX), (
        "a word within another is not that word"
    )


def test_a_header_names_the_members_that_contradict_the_rest() -> None:
    failed = StatusItem(StatusCode.HEADER, members=("NumberOfBuckets", "CommitBase"))
    assert joined_text(joined(failed)) == "header: NumberOfBuckets CommitBase"
    assert (
        joined_text(joined(StatusCode.NO_POINTER, failed)) == "no pointer, header: NumberOfBuckets CommitBase"
    )
