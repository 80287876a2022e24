# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
from __future__ import annotations

import datetime

import pytest

from winstacks.memory.decode.text import MAX_FILETIME, is_time, moment

UTC = datetime.timezone.utc


@pytest.mark.parametrize(
    ("filetime", "when"),
    [
        (116444736000000000, datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        (133536816001234567, datetime.datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)),
        (MAX_FILETIME, datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        (MAX_FILETIME + 1, None),
        (1, datetime.datetime(1601, 1, 1, tzinfo=UTC)),
        (0, None),
        (-1, None),
    ],
)
def test_moments(filetime: int, when: datetime.datetime) -> None:
    assert moment(filetime) == when
    assert is_time(filetime) == (when is not None)
