# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What docs/trust.md says that cannot be told: the only writes that may be silent.

The section "What cannot be detected" has a table. The first cell of a row names members in code spans:
`structure.member`, with `*` for any text; `structure.member unlinked` or `structure.member zero with other`
for what is written to two places at once. The second cell says what was looked for.
"""

from __future__ import annotations

import fnmatch
import pathlib
import re
from typing import Iterable, List, NamedTuple, Sequence, Tuple

from . import judging
from .cases import ALONE, BOTH, UNKNOWN, UNLINKED, UNLISTED, WITH_COUNT, Case
from .members import Member
from .target import Read, Target

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "trust.md"
TITLE = "## What cannot be detected"

_ONE_PLUGIN = re.compile(r"in `windows\.(\w+)`:")
_SPAN = re.compile(r"`([^`]+)`")


class Entry(NamedTuple):
    """Members of which docs/trust.md says that a write to them cannot be told.

    Attributes:
        name: pattern of their names
        kind: `unlinked`, `alone` or `zero with` and a member; empty for a write to one member
        reason: what was looked for; it begins with a plugin if it is about that one only
    """

    name: str
    kind: str
    reason: str

    def covers(self, case: Case) -> bool:
        """Returns whether this is about what a case writes to its first member, or to both."""
        if not self.concerns(case.plugin):
            return False
        paired = case.kind in (ALONE, UNLINKED, UNLISTED, UNKNOWN, BOTH) or case.kind.startswith(WITH_COUNT)
        return self.names(case.members[0]) and fnmatch.fnmatchcase(case.kind if paired else "", self.kind)

    def concerns(self, plugin: str) -> bool:
        """Returns whether this is about the answer of a plugin."""
        only = _ONE_PLUGIN.match(self.reason)
        return only is None or only[1] == plugin

    def names(self, member: Member) -> bool:
        """Returns whether this is about a member; about both links of a list if it names the list."""
        names = member.name, re.sub(r"\.[FB]link$", "", member.name)
        return any(fnmatch.fnmatchcase(name, self.name) for name in names)


def entries(text: str) -> List[Entry]:
    """Returns the entries of the page's table.

    Raises:
        ValueError: when the page has no such section
    """
    section = text[text.index(TITLE) :].split("\n## ")[0]
    entries = []
    for line in section.splitlines():
        cells = [word.strip() for word in line.strip().strip("|").split("|")]
        for span in _SPAN.findall(cells[0]) if line.startswith("| `") and len(cells) == 2 else ():
            name, _, kind = span.partition(" ")
            entries.append(Entry(name, kind, cells[1]))
    return entries


def known() -> List[Entry]:
    """Returns the entries of docs/trust.md."""
    return entries(PAGE.read_text("utf-8"))


def listed(known: Sequence[Entry], target: Target, case: Case, read: Read) -> bool:
    """Returns whether the table has what a case writes.

    Of two members that are written to at once one may mean nothing but itself; then the other alone, which
    comes first, changes nothing.

    Args:
        known: the entries of the table
        target: the image
        case: what is written
        read: what the case's plugin reads
    """
    alone = [entry for entry in known if not entry.kind and entry.concerns(case.plugin)]
    if any(entry.covers(case) for entry in known) or any(entry.names(case.members[0]) for entry in alone):
        return True
    if len(case.members) < 2 or not any(
        entry.names(member) for entry in alone for member in case.members[1:]
    ):
        return False
    first = Case(case.plugin, case.members[:1], "zero", case.writes[:1])
    return judging.judge(target, first, read).word == judging.UNCHANGED


def unread(found: Iterable[Entry], members: Iterable[Member]) -> List[Tuple[str, str]]:
    """Returns (name, kind) of the entries that name no member that any plugin reads."""
    names = list({member.name: member for member in members}.values())
    return [(member.name, member.kind) for member in found if not any(map(member.names, names))]
