# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Plugins run in this process' children on images whose memory is damaged where the plugins read it."""

from __future__ import annotations

import functools
import pathlib
import random
import tempfile
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from tests.forge import context
from tests.forge.context import Opened

from . import forking, memory, mutations, pages, pluginruns, plugins, subjects
from .forking import Violation
from .pluginruns import Outcome
from .plugins import Options, Plugin

MORE_SECONDS = 10
MORE_MEGABYTES = 512
COMBINATIONS = 4
WORD = 8

Range = Tuple[int, int]


class Base(NamedTuple):
    """The undamaged run of a plugin: its rows, what it read of physical memory, what it cost."""

    outcome: Outcome
    reads: List[Range]
    seconds: float
    megabytes: float


class Subject:
    """An opened image and the undamaged runs on it."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.name = name
        image = subjects.BUILDERS[name]()
        self.opened: Opened = context.open_image(image, folder, f"{name}.raw")
        self.data = (folder / f"{name}.raw").read_bytes()
        self.plugins = plugins.discover()
        self._bases: Dict[Any, Base] = {}
        self._tables: Dict[str, Any] = {}

    def options(self, plugin: Plugin, combination: int) -> Options:
        """One of the few sets of options that a plugin is run with."""
        if combination < 2:
            return plugins.switches(plugin) if combination else {}
        return plugins.options(plugin, random.Random(f"{self.name}/{plugin.__name__}/{combination}"))

    def base(self, plugin: Plugin, options: Options) -> Base:
        """The undamaged run, made once."""
        key = (plugin.__name__, repr(options))
        if key not in self._bases:
            report = forking.call(lambda: self._note(plugin, options))
            if report.error:
                raise AssertionError(f"{self.name}, {plugin.__name__} {options}: {report.error}")
            outcome, reads = report.value
            if outcome.wrong:
                raise AssertionError(f"{self.name}, {plugin.__name__} {options}: {outcome.wrong}")
            self._bases[key] = Base(outcome, reads, report.seconds, report.megabytes)
        return self._bases[key]

    def tables(self) -> pages.Tables:
        """The page tables of the kernel and of all processes."""
        if "all" not in self._tables:
            self._tables["all"] = forking.call(self._walk).value
        found: pages.Tables = self._tables["all"]
        return found

    def _note(self, plugin: Plugin, options: Options) -> Tuple[Outcome, List[Range]]:
        physical = memory.install(self.opened, self.data)
        noted = physical.note()
        outcome = pluginruns.perform(self.opened, plugin, options)
        return outcome, sorted((start, start + length) for start, length in noted)

    def _walk(self) -> pages.Tables:
        from winstacks.process.spaces import AddressSpaces

        memory.install(self.opened, self.data)
        spaces = list(AddressSpaces.list_spaces(self.opened.image))
        layers = [self.opened.context.layers[space.layer_name] for space in spaces if space.layer_name]
        return pages.Tables(layers, self.data)


class Damager:
    """Damages an image where a plugin reads it.

    Args:
        subject: the image
        base: the undamaged run
        chance: decides
    """

    def __init__(self, subject: Subject, base: Base, chance: random.Random) -> None:
        self._tables = subject.tables()
        self._chance = chance
        leaves = [read for read in base.reads if read[0] // pages.PAGE * pages.PAGE not in self._tables.pages]
        # A plugin that has nothing to read here is hit anywhere.
        self._leaves = leaves or [(page, page + pages.PAGE) for page in sorted(self._tables.maps)]
        self._used = list(_used(subject.data, leaves))
        self._pages = sorted(
            {low // pages.PAGE * pages.PAGE for low, _ in self._leaves} & set(self._tables.maps)
        )

    def apply(self, data: bytearray) -> Tuple[List[Range], List[str]]:
        """Damages the bytes; returns what was changed, and what was done."""
        changed: List[Range] = []
        done: List[str] = []
        for _ in range(self._chance.choice((1, 1, 1, 1, 2, 3, 5, 8, 30))):
            ranges, what = self._once(data)
            changed += ranges
            done.append(what)
        if self._chance.random() < 0.04:
            cut = self._chance.randrange(len(data))
            changed.append((cut, len(data)))
            done.append(f"cut at {cut:#x}")
            del data[cut:]
        return changed, done

    def _once(self, data: bytearray) -> Tuple[List[Range], str]:
        chance = self._chance
        kind = chance.random()
        if kind < 0.12 and self._pages:
            page = chance.choice(self._pages)
            entries = [entry for entry, _ in self._tables.maps[page]]
            return pages.damage(data, entries, chance), f"mapping of {page:#x}"
        if kind < 0.15:
            table = chance.choice(sorted(self._tables.pages))
            where = mutations.word(data, table, table + pages.PAGE, chance)
            return [where], f"table {where[0]:#x}"
        if kind < 0.30 and self._virtual_pointer(data):
            return self._last
        low, high = self._place()
        mutation = chance.choice(mutations.ALL)
        where = mutation(data, low, high, chance)
        return [where], f"{mutation.__name__} {where[0]:#x}..{where[1]:#x}"

    def _place(self) -> Range:
        """A range that is read: most of the time one where there is something."""
        used = self._used if self._chance.random() < 0.75 else self._leaves
        return self._chance.choice(used or self._leaves)

    def _virtual_pointer(self, data: bytearray) -> bool:
        """Makes a pointer lead to itself, or to some other place that is read."""
        chance = self._chance
        for _ in range(20):
            low, high = self._place()
            page = low // pages.PAGE * pages.PAGE
            if page not in self._tables.maps:
                continue
            entry, virtual = chance.choice(self._tables.maps[page])
            size = entry.size if entry.size == 8 else chance.choice((4, 4, 8))
            size = min(size, 8)
            places = range(-(-low // size) * size, high - size + 1, size)
            if not places:
                continue
            place = chance.choice(places)
            target_low, _ = self._place()
            target_page = target_low // pages.PAGE * pages.PAGE
            if chance.random() < 0.4 or target_page not in self._tables.maps:
                address = virtual + place - page
            else:
                address = chance.choice(self._tables.maps[target_page])[1] + target_low - target_page
            if address >> 47 & 1 and size == 8:
                address |= 0xFFFF << 48
            data[place : place + size] = (address & (1 << 8 * size) - 1).to_bytes(size, "little")
            self._last = [(place, place + size)], f"pointer {place:#x} to {address:#x}"
            return True
        return False


def _used(data: bytes, reads: List[Range]) -> Iterator[Range]:
    """Yields the words of what was read that hold something, each with its neighbours."""
    for low, high in reads:
        if high - low <= 2 * WORD:
            yield low, high
            continue
        for start in range(low, high, WORD):
            if any(data[start : min(start + WORD, high)]):
                yield max(start - WORD, low), min(start + 2 * WORD, high)


def attack(subject: Subject, seed: str, number: int) -> List[Violation]:
    """Makes one damaged run; returns what it violated."""
    chance = random.Random(f"{seed}/2/{number}")
    plugin = chance.choice(subject.plugins)
    options = subject.options(plugin, chance.randrange(COMBINATIONS))
    base = subject.base(plugin, options)
    done: List[str] = []

    data = bytearray(subject.data)
    changed, done = Damager(subject, base, chance).apply(data)

    def run() -> Outcome:
        memory.install(subject.opened, bytes(data))
        return pluginruns.perform(subject.opened, plugin, options)

    report = forking.call(run, int(base.seconds) + forking.CPU_SECONDS)
    title = f"{subject.name}, {plugins.full_name(plugin)} {options}, {'; '.join(done)}"
    wrong = [report.error] if report.error else list(report.value.wrong)
    if report.megabytes > base.megabytes + MORE_MEGABYTES:
        wrong.append(f"took {report.megabytes:.0f} MB, undamaged {base.megabytes:.0f} MB")
    if not report.error:
        wrong += _lost(subject, plugin, options, base, report.value, changed)
    found = [Violation(number, f"{title}: {fault}") for fault in wrong]
    if report.seconds > base.seconds + MORE_SECONDS:
        what = f"{title}: took {report.seconds:.1f} s, undamaged {base.seconds:.1f} s"
        found.append(Violation(number, what, slow=True))
    return found


def _lost(
    subject: Subject, plugin: Plugin, options: Options, base: Base, found: Outcome, changed: List[Range]
) -> Iterator[str]:
    """Yields the processes whose rows are gone though nothing that they were read from was damaged."""
    if "PID" not in base.outcome.columns or not plugins.has(plugin, "pid"):
        return
    where = base.outcome.columns.index("PID")
    for pid in sorted({row[where] for row in base.outcome.rows if row[where] is not None}):
        lost = base.outcome.keys(pid) - found.keys(pid)
        if lost and not _touches(subject.base(plugin, {**options, "pid": [pid]}).reads, changed):
            yield f"process {pid}, which was not touched, lost {len(lost)} rows: {min(lost, key=repr)}"


def _touches(reads: List[Range], changed: List[Range]) -> bool:
    return any(low < end and start < high for low, high in reads for start, end in changed)


def run_subject(name: str, seed: str, numbers: Sequence[int]) -> List[Violation]:
    """Makes the runs on one image."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        subject = Subject(name, pathlib.Path(folder))
        return [violation for number in numbers for violation in attack(subject, seed, number)]


def parts(seed: str, numbers: Sequence[int]) -> List[Callable[[], List[Violation]]]:
    """Returns the runs as parts that may be made at the same time: those on one image each."""
    names = sorted(subjects.BUILDERS)
    shares = ((name, numbers_of(name, numbers)) for name in names)
    return [functools.partial(run_subject, name, seed, share) for name, share in shares if share]


def numbers_of(name: str, numbers: Sequence[int]) -> List[int]:
    """Returns the runs that are made on an image."""
    names = sorted(subjects.BUILDERS)
    return [number for number in numbers if names[number % len(names)] == name]
