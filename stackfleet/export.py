# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Exports stacks of a lake in formats that other programs read."""

from __future__ import annotations

import datetime
import itertools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from winstacks.columns.dictionary import STACK_SEPARATOR
from winstacks.memory.decode.text import counted, process_label, process_name

from . import output
from .database import Database
from .layout import TABLES, TRACES
from .sqltext import chosen

ECS, FOLDED, JSONL, SPEEDSCOPE, TIMESKETCH = "ecs", "folded", "jsonl", "speedscope", "timesketch"

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
"""The text by which Speedscope recognises its own format."""

_OFFSET = re.compile(r"(!.+)\+0x[0-9a-f]+$")
"""The offset of an address within a function: flame graphs merge all calls from one function."""

_PROFILE = ("Host", "ImageId", "Kind")
"""Columns of stacks whose counts have one unit: blocks of a heap and threads cannot be added."""


class Export:
    """An export of a lake.

    Args:
        table: one of TABLES, for JSON lines
        kinds: kinds of the stacks, which `table` has, too; all when empty
        binaries: folders with files of modules, whose hashes ECS has
    """

    def __init__(
        self, database: Database, table: str = TRACES, kinds: Sequence[str] = (), binaries: Sequence[str] = ()
    ) -> None:
        assert table in TABLES
        self._binaries = binaries
        self._database = database
        self._table = table
        self._where = chosen("Kind", kinds or None)
        self.messages: list[str] = []
        """Messages about left-out and truncated data, complete after all lines were written."""

    def lines(self, form: str) -> Iterator[str]:
        """Yields the lines of a format."""
        return LINES[form](self)

    def jsonl(self) -> Iterator[str]:
        """Yields the rows of a table."""
        return map(
            output.json_line,
            self._database.rows(f"SELECT * FROM {self._table} WHERE {self._where} ORDER BY ImageId, Row"),
        )

    def folded(self) -> Iterator[str]:
        """Yields the input of flame graph tools: kind, host, process, stack outermost first, and count."""
        for row in self._stacks():
            frames = (row["Kind"], row["Host"], process_name(row["Process"]), *_frames(row["Stack"]))
            path = ";".join(output.visible(frame.replace(";", ":")) for frame in frames)
            yield f"{path} {row['Count']}"

    def speedscope(self) -> Iterator[str]:
        """Yields a Speedscope file: a profile for each image and kind; weights are counts of stacks."""
        numbers: dict[str, int] = {}
        yield f'{{"$schema": {json.dumps(_SCHEMA)}, "exporter": "stackfleet", "profiles": ['
        comma = ""
        for (host, image, kind), rows in itertools.groupby(
            self._stacks(), key=operator.itemgetter(*_PROFILE)
        ):
            samples, weights = [], []
            name = host if host == image else f"{host} ({image})"
            for row in rows:
                frames = (process_name(row["Process"]), *_frames(row["Stack"]))
                samples.append([numbers.setdefault(frame, len(numbers)) for frame in frames])
                weights.append(row["Count"])
            profile = {
                "type": "sampled",
                "name": f"{kind} {name}",
                "unit": "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
            yield comma + json.dumps(profile)
            comma = ","
        yield f'], "shared": {{"frames": {json.dumps([{"name": frame} for frame in numbers])}}}}}'

    def timesketch(self) -> Iterator[str]:
        """Yields events of Timesketch."""
        events = Events(self._database, self._where)
        yield from events.lines()
        self.messages += events.messages()

    def ecs(self) -> Iterator[str]:
        """Yields documents of the Elastic Common Schema."""
        # Files of modules are read with Volatility: other commands start faster without it.
        from .ecs import Documents

        documents = Documents(self._database, self._where, self._binaries)
        yield from map(output.json_line, documents.documents())
        self.messages += documents.messages()

    def _stacks(self) -> Iterable[dict[str, Any]]:
        return self._database.rows(
            "SELECT Host, ImageId, coalesce(Kind, 'unknown') AS Kind, Process, Stack, total(Count) AS Count "
            "FROM traces JOIN hosts USING (ImageId) "
            f"WHERE Stack IS NOT NULL AND Count > 0 AND {self._where} GROUP BY ALL "
            f"ORDER BY {', '.join(_PROFILE)}, Process, Stack"
        )


LINES: dict[str, Callable[[Export], Iterator[str]]] = {
    ECS: Export.ecs,
    FOLDED: Export.folded,
    JSONL: Export.jsonl,
    SPEEDSCOPE: Export.speedscope,
    TIMESKETCH: Export.timesketch,
}


def _frames(stack: str) -> list[str]:
    """Returns the functions of a stack, outermost first."""
    return [_OFFSET.sub(r"\1", frame) for frame in reversed(stack.split(STACK_SEPARATOR))]


MOST_BYTES = 32766
"""The most bytes of a field that OpenSearch indexes; it refuses an event with a longer field."""

_STACK_EVENTS = """\
SELECT *, coalesce(ThreadCreateTime, ProcessCreateTime) AS EventTime,
       CASE WHEN ThreadCreateTime IS NULL THEN 'Process started' ELSE 'Thread started' END AS EventKind
FROM traces JOIN (SELECT ImageId, Host FROM hosts) USING (ImageId)
WHERE {} AND EventTime IS NOT NULL
ORDER BY EventTime, ImageId, TraceId"""

_FINDING_EVENTS = """\
SELECT f.*, Host, coalesce(ThreadCreateTime, ProcessCreateTime, CaptureTime) AS EventTime,
       CASE WHEN ThreadCreateTime IS NOT NULL THEN 'Thread started'
            WHEN ProcessCreateTime IS NOT NULL THEN 'Process started' ELSE 'Memory captured' END AS EventKind
FROM findings f JOIN (SELECT ImageId, Host FROM hosts) USING (ImageId)
LEFT JOIN (SELECT ImageId, CaptureTime FROM image) USING (ImageId)
LEFT JOIN (
    SELECT ImageId, TraceId, min(ThreadCreateTime) AS ThreadCreateTime,
           min(ProcessCreateTime) AS ProcessCreateTime
    FROM traces SEMI JOIN findings USING (ImageId, TraceId) GROUP BY ALL
) USING (ImageId, TraceId)
WHERE {} AND Severity IS NOT NULL AND EventTime IS NOT NULL
ORDER BY EventTime, ImageId, Finding, PID, TID, Address"""
"""One event for each finding, however many stacks of a hostile lake share its TraceId."""


class Events:
    """The events of a lake for Timesketch: a stack that has a time is one, and so is a finding.

    Attributes:
        cut: number of fields that were truncated
    """

    def __init__(self, database: Database, where: str) -> None:
        self._database, self._where = database, where
        self.cut = 0

    def lines(self) -> Iterator[str]:
        """Yields all events: stacks, then findings."""
        for row in self._database.rows(_STACK_EVENTS.format(self._where)):
            stack = row["Stack"] or row["Status"]
            yield self._line(row, f"{row['Kind']} stack of {_process(row)}: {stack}", "stack")
        for row in self._database.rows(_FINDING_EVENTS.format(self._where)):
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
