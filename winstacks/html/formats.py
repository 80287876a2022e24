# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Prefix trees as files that other programs read.

* speedscope: JSON of the published schema of speedscope, a profile for each kind and process.
* folded: lines `kind;process;outermost;...;innermost weight`, as flamegraph.pl and inferno take them.

The first two names of a stack are its kind and its process.
"""

from __future__ import annotations

import json
import re
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from ..memory.decode.records import NamedTuple
from .prefixes import LEVELS, PrefixTree

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
EXPORTER = "volatility3-stacktraces"
UNITS = {"bytes": "bytes"}
"""The units of speedscope for the weights; `none` for all others."""

MAX_LINE = 1 << 20
MAX_LINES = 1 << 20
"""Greatest number of lines of a folded file, and of characters in a line."""

_PID = re.compile(r" \((?:\d+|unreadable)\)\Z")
"""The PID behind the name of a process."""
_ADDRESS = re.compile(r"\A(<[a-z-]+>) 0x[0-9a-f]+\Z")
"""A name that names no module and no file, and the address behind it."""

_LINE = str.maketrans({";": ":", "\n": " ", "\r": " "})


def folded(tree: PrefixTree) -> Iterator[str]:
    texts = [box.text.translate(_LINE) for box in tree.boxes]
    for names, weight, _ in tree.stacks():
        if weight:
            yield f"{';'.join(texts[name] for name in names)} {weight}\n"


class Folded(NamedTuple):
    """The content of a folded file.

    Attributes:
        stacks: names, outermost first, and weight
        cut: whether there are more than MAX_LINES lines
    """

    stacks: List[Tuple[List[str], int]]
    bad: int
    cut: bool


def read_folded(lines: Iterable[str]) -> Folded:
    """Reads a folded file; lines that are not a stack with a weight are counted and left out."""
    stacks: List[Tuple[List[str], int]] = []
    bad = 0
    for number, line in enumerate(lines):
        if number >= MAX_LINES:
            return Folded(stacks, bad, True)
        text, _, weight = line.rstrip("\r\n").rpartition(" ")
        if not line.strip():
            continue
        if (
            not text
            or not weight.isascii()
            or not weight.isdigit()
            or len(weight) > 16
            or len(line) > MAX_LINE
        ):
            bad += 1
            continue
        stacks.append((text.split(";"), int(weight)))
    return Folded(stacks, bad, False)


def comparable(names: Sequence[str]) -> List[str]:
    """Returns the names of a folded stack as a drawing of another image has them: see `merged` of `Drawing`.
    `names` are the names of a stack, outermost first: kind, process, frames."""
    frames = (_ADDRESS.sub(r"\1", name) for name in names[LEVELS:])
    return [*names[:1], *(_PID.sub("", name) for name in names[1:LEVELS]), *frames]


def speedscope(tree: PrefixTree, title: str, weight: str) -> Iterator[str]:
    """Yields the pieces of a file for speedscope. `weight` is the unit of the weights: `count`, `bytes` or
    `threads`."""
    profiles: Dict[Tuple[int, ...], List[Tuple[List[int], int]]] = {}
    for names, own, _ in tree.stacks():
        if not own:
            continue
        profiles.setdefault(tuple(names[:LEVELS]), []).append((names[LEVELS:], own))
    frames = [{"name": box.text, **({"file": box.module} if box.module else {})} for box in tree.boxes]
    head = {"$schema": SCHEMA, "exporter": EXPORTER, "name": title, "activeProfileIndex": 0}
    yield f'{json.dumps(head)[:-1]}, "shared": {json.dumps({"frames": frames})}, "profiles": ['
    # speedscope opens the first profile.
    heaviest = sorted(profiles.items(), key=lambda profile: sum(own for _, own in profile[1]), reverse=True)
    for number, (level, stacks) in enumerate(heaviest):
        profile = {
            "type": "sampled",
            "name": " ".join(tree.boxes[name].text for name in level),
            "unit": UNITS.get(weight, "none"),
            "startValue": 0,
            "endValue": sum(own for _, own in stacks),
            "samples": [names for names, _ in stacks],
            "weights": [own for _, own in stacks],
        }
        yield ("," if number else "") + json.dumps(profile, separators=(",", ":"))
    yield "]}\n"
