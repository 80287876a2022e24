# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""EXCEPTION_RECORD: the exception, its address and its parameters.

Source: winnt.h (EXCEPTION_RECORD32, EXCEPTION_RECORD64), the same in every version.
"""

from __future__ import annotations

from typing import Annotated, List, Optional, Tuple

from ...memory.decode.declared import ULONG, Declared
from ...memory.decode.records import NamedTuple

MAX_PARAMETERS = 15
"""EXCEPTION_MAXIMUM_PARAMETERS."""


class ExceptionRecord(NamedTuple):
    """EXCEPTION_RECORD32 and EXCEPTION_RECORD64."""

    ExceptionCode: ULONG
    ExceptionFlags: ULONG
    ExceptionRecord: Annotated[int, "ULONG_PTR"]
    ExceptionAddress: Annotated[int, "ULONG_PTR"]
    NumberParameters: ULONG
    ExceptionInformation: Annotated[Tuple[int, ...], "ULONG_PTR[15] @0x14/0x20"]


RECORDS = {wide: Declared(ExceptionRecord, wide=wide) for wide in (True, False)}
"""The record by whether it is an EXCEPTION_RECORD64."""


def exception_record(data: bytes, wide: bool) -> Optional[List[Tuple[str, int]]]:
    """Returns (name, value) of the members of a record in their order; None unless the record is complete.

    Of ExceptionInformation it returns as many elements as NumberParameters counts, at most MAX_PARAMETERS.
    `wide` says whether the record is an EXCEPTION_RECORD64.
    """
    if len(data) < RECORDS[wide].size:
        return None
    record = RECORDS[wide].decode(data)
    parameters = record.ExceptionInformation[: record.NumberParameters]
    return [*zip(record._fields[:-1], record[:-1])] + [
        (f"ExceptionInformation[{number}]", value) for number, value in enumerate(parameters)
    ]
