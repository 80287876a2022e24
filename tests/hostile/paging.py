# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Takes pages out of an image's memory, and asks for each stack that this costs: is there a row that says so?

    python3 -m tests.hostile.paging --patterns 20

A stack is lost if no row of the same kind and owner has its frames. It is said if a row of its kind and
process stands for stacks that cannot be read; of a process to which nothing leads any more, if a row of the
same kind says that the list of processes is damaged.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import random
import sys
import tempfile
from typing import Any, Counter, Dict, FrozenSet, Iterator, List, NamedTuple, Sequence, Set

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)
from tests.forge.phys import PAGE

from . import memory
from .target import BUILDERS, Answer, Target

PATTERNS = 20
LEAST, MOST = 0.03, 0.3
"""The shares of the pages that are taken away: that of the first pattern and of the last one."""

Row = Dict[str, Any]

_PRESENT, _LARGE, _FRAME = 1, 0x80, 0xFFFFFFFFF000


class HoledMemory(memory.Memory):
    """Memory without some pages.

    Attributes:
        holes: the numbers of the pages that are absent
    """

    holes: FrozenSet[int] = frozenset()

    def is_valid(self, offset: int, length: int = 1) -> bool:
        pages = range(offset // PAGE, (offset + length - 1) // PAGE + 1)
        return super().is_valid(offset, length) and self.holes.isdisjoint(pages)


class Pattern(NamedTuple):
    """What became of an image's stacks.

    Attributes:
        lost: the stacks that are not shown any more
        silent: those of them of which no row says so
    """

    lost: List[Row]
    silent: List[Row]


class Paging:
    """An x64 image from which pages are taken.

    Args:
        name: of BUILDERS
        folder: where its file goes
    """

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.target = Target(BUILDERS[name](), folder)
        self.target._physical.__class__ = HoledMemory
        used = (number for number, data in self.target.kernel.phys.pages() if data is not None)
        tables = set(self._tables())
        self._pages = [number for number in used if number not in tables]

    def holes(self, seed: int, share: float) -> FrozenSet[int]:
        """Returns the pages of a pattern: any but those of page tables, which cost whole processes."""
        chance = random.Random(f"{self.target.kernel.version} {seed}")
        return frozenset(page for page in self._pages if chance.random() < share)

    def run(self, plugin: str, holes: FrozenSet[int]) -> Answer:
        """Runs a plugin on the image without some pages."""
        physical = self.target._physical
        assert isinstance(physical, HoledMemory)
        physical.holes = holes
        try:
            return self.target.run(plugin)
        finally:
            physical.holes = frozenset()

    def pattern(self, seed: int, share: float) -> Pattern:
        """Returns what a pattern costs."""
        before, after = rows(self.target.clean("traces")), rows(self.run("traces", self.holes(seed, share)))
        there = collections.Counter(map(_stack, after))
        lost = [row for row in before if row["Stack"] and not there[_stack(row)]]
        unreadable = set(_unreadable(after, {row["TraceId"]: row["Status"] for row in before}))
        present = {row["ProcessOffset"] for row in after}
        return Pattern(lost, [row for row in lost if not _is_shown_unreadable(row, unreadable, present)])

    def _tables(self) -> Iterator[int]:
        """Yields the numbers of the pages that are page tables."""
        kernel = self.target.kernel
        roots = [int(process.eprocess["Pcb.DirectoryTableBase"]) for process in kernel.processes]
        waiting = [(self.target.opened.layer.config["page_map_offset"], 3), *((root, 3) for root in roots)]
        seen: Set[int] = set()
        while waiting:
            base, level = waiting.pop()
            number = (base & _FRAME) // PAGE
            if number in seen:
                continue
            seen.add(number)
            yield number
            data = self.target.data[number * PAGE : number * PAGE + PAGE]
            for at in range(0, len(data) if level else 0, 8):
                entry = int.from_bytes(data[at : at + 8], "little")
                if entry & _PRESENT and not entry & _LARGE:
                    waiting.append((entry & _FRAME, level - 1))


def rows(answer: Answer) -> List[Row]:
    """Returns rows by their columns."""
    return [dict(zip(answer.columns, row)) for row in answer.rows]


def shares(patterns: int) -> List[float]:
    """Returns the share of the pages that each pattern takes away."""
    return [LEAST + (MOST - LEAST) * number / max(patterns - 1, 1) for number in range(patterns)]


def _stack(row: Row) -> Any:
    """Returns what tells a stack from others, whatever its frames are called and its object is."""
    return row["Kind"], row["ProcessOffset"], row["Owner"], row["Depth"], row["BackTraceHash"]


def _unreadable(found: Sequence[Row], before: Dict[str, str]) -> Iterator[Any]:
    """Yields (kind, process) of the rows that stand for stacks that cannot be read, or not to their ends."""
    for row in found:
        new = row["Status"] and before.get(row["TraceId"]) != row["Status"]
        if new and (row["Count"] is None or row["Incomplete"]):
            yield row["Kind"], row["ProcessOffset"]


def _is_shown_unreadable(lost: Row, unreadable: Set[Any], present: Set[Any]) -> bool:
    if (lost["Kind"], lost["ProcessOffset"]) in unreadable:
        return True
    return lost["ProcessOffset"] not in present and (lost["Kind"], None) in unreadable


def main(arguments: List[str]) -> int:
    """Prints how many stacks each pattern costs, and of how many no row says so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--patterns", type=int, default=PATTERNS)
    parser.add_argument("--image", choices=[name for name in BUILDERS if "x64" in name], default="win10-x64")
    chosen = parser.parse_args(arguments)
    counts: Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="paging-") as folder:
        paging = Paging(chosen.image, pathlib.Path(folder))
        for seed, share in enumerate(shares(chosen.patterns)):
            found = paging.pattern(seed, share)
            counts.update(lost=len(found.lost), silent=len(found.silent))
            silent = sorted({(row["Kind"], row["PID"]) for row in found.silent})
            print(f"{share:5.0%} of the pages: {len(found.lost)} lost, {len(found.silent)} silent {silent}")
    print(f"all: {counts['lost']} lost, {counts['silent']} silent")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
