# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stacks of a lake in the forms that other programs read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from winstacks.columns.dictionary import STACK_SEPARATOR

from . import output
from .database import Database, one_of
from .layout import TABLES, TRACES
from .timesketch import Events

FOLDED, JSONL, SPEEDSCOPE, TIMESKETCH = "folded", "jsonl", "speedscope", "timesketch"

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
"""Speedscope knows its own format by this text."""

_OFFSET = re.compile(r"(!.+)\+0x[0-9a-f]+$")
"""Where in a function an address is: pictures merge all calls from one function."""


class Export:
    """What is exported of a lake.

    Args:
        database: the lake
        table: of TABLES, for JSON lines
        kinds: of the stacks; all when empty
    """

    def __init__(self, database: Database, table: str = TRACES, kinds: Sequence[str] = ()) -> None:
        assert table in TABLES
        self._database = database
        self._table = table
        self._where = one_of("Kind", kinds) if kinds else "true"
        self.said: list[str] = []
        """What is to be said of what was left out or cut, when all is written."""

    def lines(self, form: str) -> Iterator[str]:
        """Yields the lines of a form."""
        return LINES[form](self)

    def jsonl(self) -> Iterator[str]:
        """Yields the rows of a table."""
        where = self._where if self._table == TRACES else "true"
        return map(output.json_line, self._database.rows(f"SELECT * FROM {self._table} WHERE {where}"))

    def folded(self) -> Iterator[str]:
        """Yields the lines of which flame graphs are made: stacks outermost first, with their counts."""
        for row in self._stacks():
            frames = (row["Host"], row["Process"], *_frames(row["Stack"]))
            path = ";".join(output.visible(each.replace(";", ":")) for each in frames)
            yield f"{path} {row['Count']}"

    def speedscope(self) -> Iterator[str]:
        """Yields a file of Speedscope: a profile for each image. Weights say how often a stack is there."""
        numbers: dict[str, int] = {}
        yield f'{{"$schema": {json.dumps(_SCHEMA)}, "exporter": "stackfleet", "profiles": ['
        samples: list[list[int]] = []
        weights: list[int] = []
        image, first = "", True
        for row in self._stacks():
            if row["ImageId"] != image and samples:
                yield _profile(image, samples, weights, first)
                samples, weights, first = [], [], False
            image = row["ImageId"]
            frames = (row["Process"], *_frames(row["Stack"]))
            samples.append([numbers.setdefault(each, len(numbers)) for each in frames])
            weights.append(row["Count"])
        if samples:
            yield _profile(image, samples, weights, first)
        yield f'], "shared": {{"frames": {json.dumps([{"name": each} for each in numbers])}}}}}'

    def timesketch(self) -> Iterator[str]:
        """Yields events of Timesketch."""
        events = Events(self._database, self._where)
        yield from events.lines()
        self.said += events.said()

    def _stacks(self) -> Iterable[dict[str, Any]]:
        return self._database.rows(
            "SELECT ImageId, Host, Process, Stack, sum(Count)::BIGINT AS Count "
            "FROM traces JOIN hosts USING (ImageId) "
            f"WHERE Stack IS NOT NULL AND Count > 0 AND {self._where} GROUP BY ALL "
            "ORDER BY Host, ImageId, Process, Stack"
        )


LINES: dict[str, Callable[[Export], Iterator[str]]] = {
    FOLDED: Export.folded,
    JSONL: Export.jsonl,
    SPEEDSCOPE: Export.speedscope,
    TIMESKETCH: Export.timesketch,
}


def _frames(stack: str) -> list[str]:
    """Returns the functions of a stack, outermost first."""
    return [_OFFSET.sub(r"\1", frame) for frame in reversed(stack.split(STACK_SEPARATOR))]


def _profile(name: str, samples: list[list[int]], weights: list[int], first: bool) -> str:
    made = {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    return ("" if first else ",") + json.dumps(made)
