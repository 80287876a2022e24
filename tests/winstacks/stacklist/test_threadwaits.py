# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The waits of a process end where the symbols lack a member, also of a dump; and what rows of all cost."""

from __future__ import annotations

import types
from typing import Any, List, Set, cast

import pytest

from tests.support import bare
from winstacks.memory.decode.structure import MissingMemberError
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.thread import Thread
from winstacks.stacklist.frames import NamedFrames
from winstacks.stacklist.threadwaits import ThreadWaits
from winstacks.waits.chains import Chains
from winstacks.waits.lister import WaitLister


def test_waits_that_end_are_missing_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def ends(*_: Any) -> None:
        raise MissingMemberError("_KTHREAD has no member WaitBlockList")

    monkeypatch.setattr(WaitLister, "of_process", ends)
    image = bare.image(8)
    symbolizer = Symbolizer(image)
    waits = ThreadWaits(symbolizer, NamedFrames(symbolizer))
    for pid in (4, 8, 12):
        waits.add(cast(Thread, types.SimpleNamespace(space=image.kernel._replace(pid=pid))), ())
    assert list(waits.rows()) == []
    assert [record.message for record in caplog.records if "WaitBlockList" in record.message] == [
        "Rows are missing: this input has no symbols of a kernel, and _KTHREAD has no member WaitBlockList"
    ]


@pytest.mark.parametrize(("tids", "calls"), [(None, 0), ([4], 1)])
def test_only_rows_of_some_threads_need_the_chains_behind_them(
    tids: Any, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long chain would be followed from each of its threads."""
    followed: List[Any] = []

    def reached(*arguments: Any) -> Set[int]:
        followed.append(arguments)
        return set()

    monkeypatch.setattr(Chains, "reached_deadlocks", reached)
    symbolizer = Symbolizer(bare.image(8))
    assert list(ThreadWaits(symbolizer, NamedFrames(symbolizer)).rows(tids)) == []
    assert len(followed) == calls
