# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Keeps the outcome of each write of `tests.hostile.tamper` in a file: a run goes on where it was ended.

    python3 -m tests.hostile.tamper --runs 1000 --seed fresh-c --record outcomes.jsonl --images win10-x64
    python3 -m tests.hostile.outcomes outcomes.jsonl

The second command prints the table of docs/trust.md.
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys
from typing import Counter, Dict, List, NamedTuple, Sequence

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)

from .judging import EFFECTS, SAID, SILENT, UNCHANGED

COLUMNS = ("no output changed", "reported", "not reported, listed", "not reported", "another process changed")


class Outcome(NamedTuple):
    """A line of the file.

    Attributes:
        image: name of the image
        plugin: the plugin that was judged
        key: what was written, as the case says it
        what: the same in words
        effect: one of judging.EFFECTS
        listed: docs/trust.md says that the write cannot be detected; asked of silent ones only
        harmed: a row of another process is missing, or differs in what must be the same
    """

    image: str
    plugin: str
    key: str
    what: str
    effect: str
    listed: bool
    harmed: bool

    @property
    def column(self) -> str:
        """The column of the table that counts it."""
        if self.effect not in SILENT:
            return {UNCHANGED: COLUMNS[0], SAID: COLUMNS[1]}[self.effect]
        return COLUMNS[2] if self.listed else COLUMNS[3]


def read(path: pathlib.Path) -> List[Outcome]:
    """Returns what a file has; nothing if there is no file yet."""
    if not path.exists():
        return []
    return [Outcome(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def add(path: pathlib.Path, outcome: Outcome) -> None:
    """Appends a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(outcome._asdict()) + "\n")


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns the outcomes of each plugin as a Markdown table."""
    assert all(outcome.effect in EFFECTS for outcome in outcomes)
    counts: Dict[str, Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        for title in (f"`windows.{outcome.plugin}`", "all"):
            counts[title][outcome.column] += 1
            counts[title][COLUMNS[4]] += outcome.harmed
    lines = ["| plugin | writes | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for title in (*sorted(set(counts) - {"all"}), "all"):
        cells = [sum(counts[title][column] for column in COLUMNS[:4])]
        cells += [counts[title][column] for column in COLUMNS]
        lines.append(f"| {title} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([outcome for path in sys.argv[1:] for outcome in read(pathlib.Path(path))]))
