# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stories: findings that are about one thing, and a head line for them.

    heads([(check, finding), ...], facts)       # a head line for each

The findings of a process are one story. Code that the kernel ran belongs to no process, whatever thread ran
it: there, findings in one block of addresses are one. The head line names the worst finding, what it
opened, and what else was found.
"""

from __future__ import annotations

from typing import Dict, Hashable, List, Sequence, Tuple

from ..memory.decode.text import counted
from .facts import CheckFacts, list_in_words
from .finding import Check, Finding

_BLOCK = 1 << 16
"""Bytes of the kernel's memory whose findings are one story: pool and drivers are allocated in pages."""

Told = Tuple[Check, Finding]


def heads(found: Sequence[Told], facts: CheckFacts) -> List[str]:
    """Returns for each finding the head line of its story. `found` are findings with their checks, the worst
    first."""
    stories: Dict[Hashable, List[Told]] = {}
    for check, finding in found:
        stories.setdefault(_key(finding, facts), []).append((check, finding))
    lines = {key: _head(story, facts) for key, story in stories.items()}
    return [lines[_key(finding, facts)] for _, finding in found]


def _key(finding: Finding, facts: CheckFacts) -> Hashable:
    address = finding.address
    if finding.frame is not None and address is not None and not facts.is_user(address):
        return address // _BLOCK
    return finding.space.layer_name, finding.space.eprocess


def _head(story: Sequence[Told], facts: CheckFacts) -> str:
    """Returns the head line of a story, whose worst finding is the first."""
    check, worst = story[0]
    place = "" if worst.address is None else f" at {facts.image.machine.masked(worst.address):#x}"
    opened = list(dict.fromkeys(finding.acted_on for _, finding in story if finding.acted_on))
    which = f", which opened {list_in_words(opened)}" if opened else ""
    others = [head for head in dict.fromkeys(each.head for each, _ in story) if head != check.head]
    also = f"; also {list_in_words(others)}" if others else ""
    return f"{counted(len(story), 'finding')} in {worst.space.label}: {check.head}{place}{which}{also}"
