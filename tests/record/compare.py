# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Shows what differs between two recordings: equal differences once, with how often and where."""

from __future__ import annotations

import difflib
import hashlib
import json
import lzma
import pathlib
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Pattern, Tuple

EXPLAINED = """a file of differences that are wanted, a line each: `ID reason`, the ID as this command prints
it; `rewrite PATTERN -> TEXT`, a change of both texts before they are compared; `only PATTERN reason`, for
keys of runs that one recording alone has. Lines that start with # are comments."""

MOST_LINES = 40
MOST_WIDTH = 220
MOST_GROUPS = 60

_LOGGER = re.compile(r"^((?:DEBUG|INFO|WARNING|ERROR|CRITICAL) +)volatility3\.plugins\.[\w.]+ *:", re.M)
"""The place in the source from which a warning comes is no part of what it says."""


class Explained(NamedTuple):
    """What the file of explained differences says."""

    known: Dict[str, str]
    rewrites: List[Tuple[Pattern[str], str]]
    lone: List[Pattern[str]]


class Group:
    """Equal differences."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.keys: List[str] = []

    @property
    def name(self) -> str:
        """An ID of the difference itself."""
        return hashlib.sha256(self.text.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def main(before: pathlib.Path, after: pathlib.Path, explained: Optional[pathlib.Path]) -> int:
    """Prints the differences; returns 1 if there are any that are not explained."""
    known = _explained(explained)
    digests = [{entry[0]: entry[1] for entry in entries(each)} for each in (before, after)]
    both = digests[0].keys() & digests[1].keys()
    wanted = {key for key in both if digests[0][key] != digests[1][key]}
    texts = [{entry[0]: entry for entry in entries(each) if entry[0] in wanted} for each in (before, after)]
    groups: Dict[str, Group] = {}
    for key in sorted(wanted):
        text = "\n".join(_difference(texts[0][key], texts[1][key], known))
        if text:
            groups.setdefault(text, Group(text)).keys.append(key)
    failed = 0
    excused = 0
    for group in sorted(groups.values(), key=lambda each: -len(each.keys)):
        if group.name in known.known:
            excused += len(group.keys)
            continue
        failed += 1
        if failed <= MOST_GROUPS:
            _show(group)
    lone = 0
    for mine, others, where in ((0, 1, "before"), (1, 0, "after")):
        keys = sorted(digests[mine].keys() - digests[others].keys())
        keys = [key for key in keys if not any(each.search(key) for each in known.lone)]
        lone += len(keys)
        if keys:
            print(f"=== {len(keys)} runs only {where}, such as")
            print("\n".join(f"    {key[:MOST_WIDTH]}" for key in keys[:10]))
    changed = sum(len(each.keys) for each in groups.values())
    hidden = len(wanted) - changed
    print(
        f"{len(both)} runs in both; {changed} differ in {len(groups)} ways, {excused} of them as explained;"
    )
    print(f"{hidden} differ in names of loggers or as rewritten only; {lone} are in one recording only")
    return 1 if failed or lone else 0


def entries(folder: pathlib.Path) -> Iterator[List[Any]]:
    """Yields the entries of a recording: key, digest, exit code, stdout, stderr, files, seconds."""
    with lzma.open(folder / "entries.jsonl.xz", "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _show(group: Group) -> None:
    print(f"=== {group.name}: {len(group.keys)} runs, such as")
    for key in (group.keys[0], group.keys[-1])[: len(group.keys)]:
        print(f"    {key[:MOST_WIDTH]}")
    lines = group.text.split("\n")
    for line in lines[:MOST_LINES]:
        print(line[:MOST_WIDTH])
    if len(lines) > MOST_LINES:
        print(f"... {len(lines) - MOST_LINES} more lines")


def _explained(path: Optional[pathlib.Path]) -> Explained:
    known = Explained({}, [(_LOGGER, r"\1<logger>:")], [])
    for line in path.read_text("utf-8").splitlines() if path else []:
        first, _, rest = line.strip().partition(" ")
        if first == "rewrite":
            pattern, _, text = rest.partition(" -> ")
            known.rewrites.append((re.compile(pattern, re.M), text))
        elif first == "only":
            known.lone.append(re.compile(rest.split()[0]))
        elif first and not first.startswith("#"):
            known.known[first] = rest
    return known


def _difference(before: List[Any], after: List[Any], known: Explained) -> Iterator[str]:
    """Yields the lines of a difference."""
    if before[2] != after[2]:
        yield f"exit code: {before[2]} -> {after[2]}"
    for place, name in ((3, "stdout"), (4, "stderr")):
        yield from _lines(name, before[place], after[place], known)
    files = [{each[0]: each[1:] for each in entry[5]} for entry in (before, after)]
    for name in sorted({*files[0], *files[1]}):
        old, new = files[0].get(name), files[1].get(name)
        if old == new:
            continue
        if old is None or new is None:
            yield f"file {name}: only {'after' if old is None else 'before'}"
        elif old[2] is None or new[2] is None:
            yield f"file {name}: {old[0]} bytes {old[1][:16]} -> {new[0]} bytes {new[1][:16]}"
        else:
            yield from _lines(f"file {name}", old[2], new[2], known)


def _lines(name: str, before: str, after: str, known: Explained) -> Iterator[str]:
    for pattern, text in known.rewrites:
        before, after = pattern.sub(text, before), pattern.sub(text, after)
    if before != after:
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=0)
        kept = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        yield f"{name}:"
        yield from kept or ["(line ends only)"]
