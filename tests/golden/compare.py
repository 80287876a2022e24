# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Says in words what differs between two records of the same runs."""

from __future__ import annotations

import difflib
import json
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .outputs import Run

MOST_LINES = 60
"""Lines of what differs in a case."""
MOST_WIDTH = 200

Flat = Tuple[str, str]
"""A row: where it is below others, and its cells as JSON."""


def differences(old: Sequence[Run], new: Sequence[Run]) -> List[str]:
    """Lines that say what differs, at most MOST_LINES; none if nothing does."""
    lines = list(_differences(old, new))
    if len(lines) > MOST_LINES:
        return [*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} more lines"]
    return lines


def _differences(old: Sequence[Run], new: Sequence[Run]) -> Iterator[str]:
    before, after = ({run.words: run for run in runs} for runs in (old, new))
    for words in [*before, *(run_words for run_words in after if run_words not in before)]:
        if words not in after:
            yield f"= windows.{words}: is not run any more"
        elif words not in before:
            yield f"= windows.{words}: is new"
        elif before[words] != after[words]:
            yield f"= windows.{words}"
            yield from _run(before[words], after[words])


def _run(old: Run, new: Run) -> Iterator[str]:
    if old.code != new.code:
        yield f"exit code {old.code} -> {new.code}"
    yield from _rows(old.stdout, new.stdout)
    yield from _texts("messages", old.stderr, new.stderr)
    for name in sorted({*old.files, *new.files}):
        if name not in new.files:
            yield f"file {name}: is not written any more"
        elif name not in old.files:
            yield f"file {name}: is new"
        else:
            yield from _texts(f"file {name}", old.files[name], new.files[name])


def _texts(name: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    if list(old) == list(new):
        return
    yield f"{name}:"
    for line in difflib.unified_diff(old, new, lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            yield line[:MOST_WIDTH]


def _rows(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Rows that came and went; cells of rows that changed in their places."""
    before, after = _flat(old), _flat(new)
    matcher = difflib.SequenceMatcher(
        None, [cells for _, cells in before], [cells for _, cells in after], False
    )
    for tag, low, high, start, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        if high - low == end - start:
            for (place, one), (_, other) in zip(before[low:high], after[start:end]):
                yield from _cells(place, one, other)
            continue
        for place, cells in before[low:high]:
            yield f"-row {place}: {cells}"[:MOST_WIDTH]
        for place, cells in after[start:end]:
            yield f"+row {place}: {cells}"[:MOST_WIDTH]


def _cells(place: str, old: str, new: str) -> Iterator[str]:
    before, after = _parsed(old), _parsed(new)
    names = [*before, *(name for name in after if name not in before)]
    if before == after:
        yield f"row {place}: the order of the cells"
    for name in names:
        one, other = (json.dumps(row[name]) if name in row else "no cell" for row in (before, after))
        if one != other:
            common = len(_common(one, other))
            cut = max(0, common - 20) if max(len(one), len(other)) > MOST_WIDTH // 2 else 0
            lead = "..." if cut else ""
            half = MOST_WIDTH // 2
            yield f"row {place} {name}: {lead}{one[cut : cut + half]} -> {lead}{other[cut : cut + half]}"


def _common(one: str, other: str) -> str:
    number = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return one[:number]


def _parsed(text: str) -> Dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"text": value}


def _flat(lines: Sequence[str]) -> List[Flat]:
    """Each row and the rows below it, with their places: `3`, `3.0`."""
    found: List[Flat] = []

    def add(place: str, row: Dict[str, Any]) -> None:
        children = row.pop("__children", [])
        found.append((place, json.dumps(row, ensure_ascii=False)))
        for number, child in enumerate(children):
            add(f"{place}.{number}", child)

    for number, line in enumerate(lines):
        row = _parsed(line)
        if list(row) == ["text"]:
            found.append((str(number), line))
        else:
            add(str(number), row)
    return found
