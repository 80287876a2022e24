# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""FILETIMEs: 64 bits that count 100 ns since 1601-01-01, UTC."""

from __future__ import annotations

import datetime
from typing import Optional

_EPOCH = datetime.datetime(1601, 1, 1, tzinfo=datetime.timezone.utc)
_PER_MICROSECOND = 10

MAX_FILETIME = 2650467743999999999
"""The last moment of the year 9999, beyond which Python and SQL have no times."""


def is_time(filetime: int) -> bool:
    """Tells whether a FILETIME is set, and one that can be shown."""
    return 0 < filetime <= MAX_FILETIME


def moment(filetime: int) -> Optional[datetime.datetime]:
    """Returns a FILETIME in microseconds; None for 0, which stands for no time, and beyond the year 9999."""
    if not is_time(filetime):
        return None
    return _EPOCH + datetime.timedelta(microseconds=filetime // _PER_MICROSECOND)
