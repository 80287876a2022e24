# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is absent is counted once for a thing, up to a limit that is said."""

from __future__ import annotations

import pytest

from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.stacklist import imagefacts
from winstacks.stacklist.imagefacts import Totals


def test_a_thing_counts_once_beyond_the_limit_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(imagefacts, "MAX_ABSENT", 2)
    totals = Totals()
    for _ in range(3):
        for thing in ("a", "b", "c"):
            totals.lacks(thing, status(StatusCode.LIST_BROKEN))
    assert totals.absent == {"list broken": 2}
    assert caplog.messages == ["Only the first 2 absent structures are counted"]
