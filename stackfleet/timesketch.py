# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Events for Timesketch: a line of JSON for each stack that has a time, and for each finding."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

from winstacks.memory.decode.text import counted, process_label

from .database import Database

MOST_BYTES = 32766
"""The most bytes of a field that OpenSearch indexes; it refuses an event with a longer field."""

_STACKS = """\
SELECT *, coalesce(ThreadCreateTime, ProcessCreateTime) AS EventTime,
       CASE WHEN ThreadCreateTime IS NULL THEN 'Process started' ELSE 'Thread started' END AS EventKind
FROM traces JOIN (SELECT ImageId, Host FROM hosts) USING (ImageId)
WHERE {} AND EventTime IS NOT NULL
ORDER BY EventTime, ImageId, TraceId"""

_FINDINGS = """\
SELECT f.*, Host, coalesce(ThreadCreateTime, ProcessCreateTime, CaptureTime) AS EventTime,
       CASE WHEN ThreadCreateTime IS NOT NULL THEN 'Thread started'
            WHEN ProcessCreateTime IS NOT NULL THEN 'Process started' ELSE 'Memory captured' END AS EventKind
FROM findings f JOIN (SELECT ImageId, Host FROM hosts) USING (ImageId)
LEFT JOIN (SELECT ImageId, CaptureTime FROM image) USING (ImageId)
LEFT JOIN (SELECT ImageId, TraceId, ThreadCreateTime, ProcessCreateTime FROM traces) USING (ImageId, TraceId)
WHERE Severity IS NOT NULL AND EventTime IS NOT NULL
ORDER BY EventTime, ImageId, Finding, PID, TID, Address"""


class Events:
    """The events of a lake.

    Attributes:
        cut: number of fields that were truncated
    """

    def __init__(self, database: Database, where: str) -> None:
        self._database, self._where = database, where
        self.cut = 0

    def lines(self) -> Iterator[str]:
        """Yields all events: stacks, then findings."""
        for row in self._database.rows(_STACKS.format(self._where)):
            stack = row["Stack"] or row["Status"]
            yield self._line(row, f"{row['Kind']} stack of {_process(row)}: {stack}", "stack")
        for row in self._database.rows(_FINDINGS):
            remarks = f"{row['Severity']} finding {row['Finding']} in {_process(row)}: {row['Symbol'] or ''}"
            yield self._line(row, f"{remarks}; {row['Evidence']}", "finding")

    def messages(self) -> list[str]:
        """Returns messages about stacks without an event, and about truncated fields."""
        stacks = self._database.value(
            "SELECT count(*) FROM traces "
            f"WHERE {self._where} AND ThreadCreateTime IS NULL AND ProcessCreateTime IS NULL"
        )
        messages = [f"left out: {counted(stacks, 'stack')} without a time"] if stacks else []
        return messages + ([f"cut to {MOST_BYTES} bytes: {counted(self.cut, 'field')}"] if self.cut else [])

    def _line(self, row: dict[str, Any], message: str, kind: str) -> str:
        event = {
            "message": message,
            "datetime": row.pop("EventTime"),
            "timestamp_desc": row.pop("EventKind"),
            "data_type": f"windows:stacktraces:{kind}",
            **row,
        }
        # Plain ASCII: no reader mistakes another letter for the end of a line.
        return json.dumps({name: self._value(cell) for name, cell in event.items() if cell is not None})

    def _value(self, value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.isoformat()
        if isinstance(value, str):
            data = value.encode("utf-8", "replace")
            if len(data) > MOST_BYTES:
                self.cut += 1
                return data[:MOST_BYTES].decode("utf-8", "ignore")
        return value


def _process(row: dict[str, Any]) -> str:
    return f"{process_label(row['Process'], row['PID'])} on {row['Host']}"
