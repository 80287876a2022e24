# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""EXCEPTION_RECORD: the exception, its address and its parameters.

Source: winnt.h (EXCEPTION_RECORD32, EXCEPTION_RECORD64), the same in every version.
"""

from __future__ import annotations

import struct
from typing import List, Optional, Tuple

MAX_PARAMETERS = 15
"""EXCEPTION_MAXIMUM_PARAMETERS."""

_WIDE, _NARROW = struct.Struct("<IIQQI4x"), struct.Struct("<IIIII")


def exception_record(data: bytes, wide: bool) -> Optional[List[Tuple[str, int]]]:
    """Returns (name, value) of the members of a record in their order; None unless the record is complete.

    Of ExceptionInformation it returns as many elements as NumberParameters counts, at most MAX_PARAMETERS.

    Args:
        wide: whether the record is an EXCEPTION_RECORD64
    """
    head, pointer = (_WIDE, 8) if wide else (_NARROW, 4)
    if len(data) < head.size + MAX_PARAMETERS * pointer:
        return None
    code, flags, record, address, count = head.unpack_from(data)
    members = [
        ("ExceptionCode", code),
        ("ExceptionFlags", flags),
        ("ExceptionRecord", record),
        ("ExceptionAddress", address),
        ("NumberParameters", count),
    ]
    values = struct.unpack_from(f"<{MAX_PARAMETERS}{'Q' if wide else 'I'}", data, head.size)
    parameters = values[: min(count, MAX_PARAMETERS)]
    return members + [(f"ExceptionInformation[{number}]", value) for number, value in enumerate(parameters)]
