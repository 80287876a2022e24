# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes single values into images, and tells whether the plugins say so.

    python3 -m tests.hostile.tamper --runs 600 --seed 1
    python3 -m tests.hostile.tamper --images win10-x64 --plugins locks --show

Every member that a plugin reads of an undamaged image (see `members`) is overwritten: with 0, with the
address of its own structure, with what a like structure has there, and with nonsense. A case is `unchanged`
if the plugin prints the same; `said` if a Status or, where the row is gone, a warning is new; `silent`
otherwise: `lost` if a row is gone, `shown` if all rows are there and some value is what was written.
"""

from __future__ import annotations

import argparse
import collections
import functools
import gc
import logging
import pathlib
import random
import sys
import tempfile
from typing import Any, Callable, Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)
from tests.forge import context, sample
from tests.forge.kernel import Kernel
from tests.windows.test_owners_hostile import build as owners

from . import attempt, forking, memory, plugins
from .members import Member, noting

NONSENSE = 0x4141414141414141
KINDS = ("zero", "itself", "neighbour", "nonsense")

UNCHANGED, SAID, LOST, SHOWN = "unchanged", "said", "silent: lost", "silent: shown"
VERDICTS = (UNCHANGED, SAID, LOST, SHOWN)

BUILDERS: Dict[str, Callable[[], Kernel]] = {
    "win7-x64": lambda: sample.build("win7-x64"),
    "win10-x64": lambda: sample.build("win10-x64"),
    "win11-x64": lambda: sample.build("win11-x64"),
    "xp-x86": lambda: owners("xp-x86")[0],
}

Cells = Tuple[Any, ...]
Write = Tuple[int, bytes]
"""A physical address and what is written there."""


class Answer(NamedTuple):
    """What a plugin prints: its columns, its rows (absent values None), its warnings."""

    columns: Tuple[str, ...]
    rows: Tuple[Cells, ...]
    warnings: Tuple[str, ...]

    def column(self, name: str) -> List[Any]:
        """Returns the cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def words(self, rows: Counter[Cells]) -> Counter[str]:
        """Returns how often each word is in the column Status of some rows."""
        place = self.columns.index("Status")
        found: Counter[str] = collections.Counter()
        for row, count in rows.items():
            for word in filter(None, (row[place] or "").split(", ")):
                found[word] += count
        return found


class Case(NamedTuple):
    """A write to a member, and the plugin whose answer is judged."""

    plugin: str
    member: Member
    kind: str


class Target:
    """An image that is written to, and read anew by each plugin.

    Args:
        kernel: the image's builder
        folder: where its file goes
    """

    def __init__(self, kernel: Kernel, folder: pathlib.Path) -> None:
        self.kernel = kernel
        self.opened = context.open_image(kernel.image(), folder, "image.raw")
        self._below = self.opened.layer.config["memory_layer"]
        self._data = (folder / "image.raw").read_bytes()
        self._plugins = {plugins.full_name(each).rsplit(".", 1)[-1]: each for each in plugins.discover()}
        self._own = set(self.opened.context.layers)
        self._clean: Dict[Tuple[str, str], Answer] = {}
        plugins.trust_tables()
        self._physical = memory.install(self.opened, self._data)
        self._caches = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]

    @property
    def names(self) -> List[str]:
        """The plugins."""
        return sorted(self._plugins)

    def physical(self, layer_name: str, address: int) -> Optional[int]:
        """Returns where an address of a layer is in physical memory, None if it is not in the image."""
        layer = self.opened.context.layers.get(layer_name)
        if layer is None or layer_name == self._below:
            return address if layer is not None else None
        found = list(layer.mapping(address & layer.address_mask, 1, ignore_errors=True))
        return found[0][2] if found else None

    def at(self, address: int, value: int, size: int = 0, owner: Any = None) -> Write:
        """Returns a write to an address of the kernel's space or of that of a forged process."""
        space = (owner or self.kernel).space
        size = size or space.pointer_size
        return space.physical(address), (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def run(
        self, plugin: str, writes: Sequence[Write] = (), cut: Optional[int] = None, **options: Any
    ) -> Answer:
        """Runs a plugin on the image with some writes, and with its end cut off at an address."""
        data = self._physical.data
        kept = [(place, bytes(data[place : place + len(value)])) for place, value in writes]
        tail = bytes(data[cut:]) if cut is not None else b""
        for place, value in writes:
            data[place : place + len(value)] = value
        if cut is not None:
            del data[cut:]
        try:
            return self._answer(plugin, options)
        finally:
            data += tail
            for place, value in reversed(kept):
                data[place : place + len(value)] = value

    def clean(self, plugin: str, **options: Any) -> Answer:
        """Returns what a plugin prints of the undamaged image."""
        key = (plugin, repr(sorted(options.items())))
        if key not in self._clean:
            self._clean[key] = self.run(plugin, **options)
        return self._clean[key]

    def judge(self, plugin: str, writes: Sequence[Write], cut: Optional[int] = None, **options: Any) -> str:
        """Tells what a plugin says of some writes."""
        return verdict(self.clean(plugin, **options), self.run(plugin, writes, cut, **options))

    def members(self, plugin: str) -> List[Member]:
        """Returns what a plugin reads."""
        with noting() as notes:
            self.run(plugin)
        return notes.members

    def writes(self, case: Case, alike: Sequence[Member]) -> List[Write]:
        """Returns the write of a case, none if it would change nothing.

        Args:
            case: the case
            alike: the same member of other structures
        """
        member = case.member
        place = self.physical(member.layer, member.address)
        if place is None or place + member.size > len(self._data):
            return []
        before = self._data[place : place + member.size]
        mask = (1 << 8 * member.size) - 1
        value = {"zero": 0, "nonsense": NONSENSE, "itself": self._canonical(member)}.get(case.kind)
        if value is None:
            others = (self.physical(each.layer, each.address) for each in alike)
            values = [self._data[other : other + member.size] for other in others if other is not None]
            values.append(self._data[place + member.size : place + 2 * member.size])
            found = next((each for each in values if each != before and len(each) == member.size), before)
        else:
            found = (value & mask).to_bytes(member.size, "little")
        return [] if found == before else [(place, found)]

    def _canonical(self, member: Member) -> int:
        """Returns the address of a member's structure as Windows stores it; of a link its own."""
        wide = self.kernel.bits == 64
        address = member.start
        return address | 0xFFFF << 48 if wide and address >> 47 & 1 else address

    def _answer(self, plugin: str, options: Dict[str, Any]) -> Answer:
        self._forget()
        grid_rows: List[Cells] = []
        handler = _Warnings()
        logger = logging.getLogger("volatility3")
        logger.addHandler(handler)
        try:
            grid = self.opened.construct(self._plugins[plugin], **options).run()
            grid.populate(
                lambda node, rows: rows.append(tuple(map(attempt.plain, node.values))) or rows, grid_rows
            )
        finally:
            logger.removeHandler(handler)
        columns = tuple(column.name for column in grid.columns)
        return Answer(columns, tuple(grid_rows), tuple(handler.said))

    def _forget(self) -> None:
        """Forgets what Volatility keeps of the run before: layers of processes, and what it read."""
        layers = self.opened.context.layers
        for name in [name for name in layers if name not in self._own]:
            del layers._layers[name]
        for cache in self._caches:
            cache.cache_clear()


class _Warnings(logging.Handler):
    """Keeps the text of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def verdict(clean: Answer, got: Answer) -> str:
    """Tells what became of an answer."""
    before, after = collections.Counter(clean.rows), collections.Counter(got.rows)
    lost, new = before - after, after - before
    warned = collections.Counter(got.warnings) - collections.Counter(clean.warnings)
    if not lost and not new:
        return SAID if warned else UNCHANGED
    if warned or clean.words(new) - clean.words(lost):
        return SAID
    return LOST if len(got.rows) < len(clean.rows) else SHOWN


def cases(target: Target, names: Sequence[str], most: int) -> Iterator[Tuple[Case, List[Member]]]:
    """Yields the cases of an image, each with the like members of other structures.

    Args:
        target: the image
        names: the plugins
        most: of each member so many structures at most, from the first to the last
    """
    for plugin in names:
        groups: Dict[Tuple[str, str, int], List[Member]] = collections.defaultdict(list)
        for member in target.members(plugin):
            groups[member.structure, member.path, member.size].append(member)
        for (structure, _, _), found in groups.items():
            step = max(len(found) // most, 1) if structure else 1
            for number, member in enumerate(found[::step]):
                alike = (
                    [each for each in found[number + 1 : number + 4] if each != member] if structure else []
                )
                for kind in KINDS:
                    yield Case(plugin, member, kind), alike


class Result(NamedTuple):
    """A case and its verdict."""

    image: str
    case: Case
    verdict: str


def attack(name: str, seed: str, runs: Optional[int], names: Sequence[str], most: int) -> List[Result]:
    """Judges the cases of an image: all, or some that the seed chooses."""
    with tempfile.TemporaryDirectory(prefix="tamper-") as folder:
        target = Target(BUILDERS[name](), pathlib.Path(folder))
        wanted = list(cases(target, names or target.names, most))
        if runs is not None:
            wanted = random.Random(f"{seed}/{name}").sample(wanted, min(runs, len(wanted)))
        results = []
        for case, alike in wanted:
            writes = target.writes(case, alike)
            if writes:
                results.append(Result(name, case, target.judge(case.plugin, writes)))
        return results


def main(arguments: List[str]) -> int:
    """Prints how many cases have which verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, help="default: all cases")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--images", nargs="+", choices=sorted(BUILDERS), default=sorted(BUILDERS))
    parser.add_argument("--plugins", nargs="+", default=[])
    parser.add_argument(
        "--most", type=int, default=3, help="structures of a kind that a member is written in"
    )
    parser.add_argument("--show", action="store_true", help="list the cases that are silent")
    chosen = parser.parse_args(arguments)
    share = None if chosen.runs is None else -(-chosen.runs // len(chosen.images))
    parts = [
        functools.partial(attack, name, chosen.seed, share, chosen.plugins, chosen.most)
        for name in chosen.images
    ]
    figures: Dict[str, Counter[str]] = collections.defaultdict(collections.Counter)
    for results in forking.spread(parts, chosen.jobs):
        for each in results:
            if isinstance(each, forking.Violation):
                print(each.what)
                return 1
            figures[f"{each.image} {each.case.plugin}"][each.verdict] += 1
            figures["all"][each.verdict] += 1
            if chosen.show and each.verdict in (LOST, SHOWN):
                case = each.case
                print(
                    f"{each.verdict}: {each.image} {case.plugin} {case.member.name} = {case.kind}", flush=True
                )
    for title in sorted(figures):
        print(f"{title:28}", ", ".join(f"{figures[title][each]} {each}" for each in VERDICTS))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
