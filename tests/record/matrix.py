# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a replay runs beside what the tests ran: `replay --matrix`.

Each plugin with each of its options alone, with none and with all switches. That takes half a minute for an
image; so it is done for one image of each kind of Windows (version, width, WoW64): that which holds most. Of
each test file the image that holds most is run so with the plugins that the tests run on it. The same images,
one of each form of file and those that no test ran a plugin on are run with each plugin without options. All
others are run as the tests ran them.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

from volatility3.framework.configuration import requirements

from .corpus import Json

EVERY = "*"
"""In the place of the names of plugins: all of them."""
FOREIGN = ("tests/forge/", "tests/test_cost", "tests/hostile/test_amplifiers")
"""Tests of the forge itself, and of what takes long: their images get no matrix for their sake."""

NETWORK = "fetch_symbols"
VALUES: Dict[str, List[List[str]]] = {
    "pid": [["{pid}"], ["{pid}", "{pid2}"], ["0"]],
    "tid": [["{tid}"], ["{tid}", "{tid2}"]],
    "offset": [["{eprocess}"]],
    "index": [["1"], ["2", "3"]],
    "handle": [["4", "8"]],
    "find": [["*!*"], ["nt!*"]],
    "frames_to_skip": [["1"]],
    "frames_to_capture": [["2"]],
    "baseline": [["{baseline}"]],
    "check": [["unbacked"], ["hidden", "kernel_no_module"]],
    "severity": [["high"], ["low"]],
    "explain": [["unbacked"]],
}
"""Options that take values, and which they get (others: 1 or `*`). What an image lacks is left out."""


def select(images: Json, runs: Json) -> Dict[str, Set[str]]:
    """The images for the matrix, by their digests, with the plugins that are given all options."""
    used: Dict[str, Set[str]] = {}
    for each in runs.values():
        used.setdefault(each["run"][0], set()).add(each["run"][4])
    groups: Dict[Tuple[str, str], List[Tuple[int, str]]] = {}
    for name, about in images.items():
        version, _, _ = about["kind"].rpartition(" ")
        tests = [("test", each) for each in about["tests"] if not each.startswith(FOREIGN)]
        for group in (*tests, ("kind", version), ("form", about["kind"])) if tests else ():
            groups.setdefault(group, []).append((about["pages"], name))
    chosen: Dict[str, Set[str]] = {name: set() for name in images if name not in used}
    for (sort, _), members in groups.items():
        name = max(members)[1]
        plugins = {"test": used.get(name, set()), "kind": {EVERY}, "form": set()}[sort]
        chosen.setdefault(name, set()).update(plugins)
    return chosen


def options(plugin: Any, facts: Dict[str, str]) -> Iterator[List[str]]:
    """Yields the options to run a plugin with, as words.

    Args:
        plugin: its class
        facts: what there is in the image for them to name
    """
    yield []
    switches: List[str] = []
    for each in plugin.get_requirements():
        word = "--" + each.name.replace("_", "-")
        if each.name == NETWORK:
            continue
        if isinstance(each, requirements.BooleanRequirement):
            switches.append(word)
            yield [word]
        elif isinstance(each, requirements.ChoiceRequirement):
            yield from ([word, choice] for choice in each.choices)
        elif isinstance(each, (requirements.ListRequirement, requirements.IntRequirement)):
            yield from _filled(word, VALUES.get(each.name, [["1"]]), facts)
        elif isinstance(each, requirements.StringRequirement):
            yield from _filled(word, VALUES.get(each.name, [["*"]]), facts)
    if len(switches) > 1:
        yield switches


def learn(facts: Dict[str, str], rows: List[Dict[str, Any]]) -> None:
    """Notes what options may name in an image, of the rows of Volatility's own pslist and threads."""
    kept = [row for row in rows if row["PID"] not in (0, 4, None)]
    if "ImageFileName" in (rows or [{}])[0]:
        _name(facts, "pid", [row["PID"] for row in kept])
        _name(facts, "eprocess", [row["Offset(V)"] for row in rows[1:]])
    else:
        _name(facts, "tid", [row["TID"] for row in kept])


def _filled(word: str, values: List[List[str]], facts: Dict[str, str]) -> Iterator[List[str]]:
    for each in values:
        with contextlib.suppress(KeyError):
            yield [word, *(value.format_map(facts) for value in each)]


def _name(facts: Dict[str, str], name: str, values: Iterable[Any]) -> None:
    for number, value in zip(("", "2"), values):
        facts[name + number] = str(value)
