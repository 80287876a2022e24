# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes single values into images, and tells whether the plugins say so.

    python3 -m tests.hostile.tamper --runs 600 --seed 1
    python3 -m tests.hostile.tamper --images win10-x64 --plugins locks --show

Every member that a plugin reads of an undamaged image (see `members`) is overwritten: with 0, with the
address of its own structure, with what a like structure has there, and with nonsense; both links of a list,
and a pointer with a count, at once (see `cases`). `judging` says what becomes of the answer, `untold` whether
docs/trust.md lists what is silent.
"""

from __future__ import annotations

import argparse
import collections
import functools
import hashlib
import pathlib
import sys
import tempfile
from typing import Collection, Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)

from . import forking, outcomes, untold
from .cases import Case, cases
from .judging import EFFECTS, SILENT, Effect, judge
from .outcomes import Outcome
from .target import BUILDERS, Read, Target

UNLISTED = "unlisted"
"""Silent, and of a member that docs/trust.md does not list."""

MOST = 3
"""Structures of a kind in which a member is written."""


class Result(NamedTuple):
    """A case and what became of it.

    Attributes:
        image: name of the image
        case: what was written
        effect: the effect
        listed: whether docs/trust.md says that such a write cannot be told; asked of silent ones only
    """

    image: str
    case: Case
    effect: Effect
    listed: bool = False


class Attack:
    """The writes to an image.

    Args:
        name: of the image
        folder: where its file goes
        names: the plugins; all if empty
        most: of each member so many structures at most
        without: plugins that are left out
    """

    def __init__(
        self,
        name: str,
        folder: pathlib.Path,
        names: Sequence[str] = (),
        most: int = MOST,
        without: Collection[str] = (),
    ) -> None:
        self.name = name
        self.target = Target(BUILDERS[name](), folder)
        self.cases: List[Case] = []
        self.read: Dict[str, Read] = {}
        for plugin in names or [name for name in self.target.names if name not in without]:
            plugin_cases = cases(self.target, plugin, most)
            self.cases += plugin_cases.cases
            self.read[plugin] = plugin_cases.read

    def sample(self, seed: str, runs: Optional[int]) -> List[Case]:
        """Returns the cases: all, or as many as the seed chooses: the same ones where others are new."""
        ranked = sorted(self.cases, key=lambda case: hashlib.sha256(f"{seed} {case.key}".encode()).digest())
        return ranked if runs is None else ranked[:runs]

    def results(self, chosen: Sequence[Case]) -> Iterator[Result]:
        """Yields what becomes of some cases."""
        known = untold.known()
        for case in chosen:
            ended = False
            try:
                found = judge(self.target, case, self.read[case.plugin])
                ended = True
            finally:
                if not ended:
                    print(f"ends with a traceback: {described(self.name, case)}", file=sys.stderr)
            silent = found.word in SILENT
            listed = silent and untold.listed(known, self.target, case, self.read[case.plugin])
            yield Result(self.name, case, found, listed)


def share(runs: Optional[int], images: int) -> Optional[int]:
    """Returns how many of all runs each image has."""
    return None if runs is None else -(-runs // images)


def attack(
    name: str, seed: str, runs: Optional[int], names: Sequence[str], most: int, record: Optional[pathlib.Path]
) -> List[Result]:
    """Judges the cases of an image: all, or some that the seed chooses.

    Args:
        name: of the image
        seed: chooses
        runs: how many, None for all
        names: the plugins; all if empty
        most: of each member so many structures at most
        record: a file of outcomes; the cases that it has are left out
    """
    done = {(found.image, found.key) for found in outcomes.read(record)} if record else set()
    results = []
    with tempfile.TemporaryDirectory(prefix="tamper-") as folder:
        image_attack = Attack(name, pathlib.Path(folder), names, most)
        chosen = [case for case in image_attack.sample(seed, runs) if (name, case.key) not in done]
        for result in image_attack.results(chosen):
            results.append(result)
            if record:
                outcomes.add(record, _outcome(result))
    return results


def _outcome(result: Result) -> Outcome:
    case, effect = result.case, result.effect
    what = described(result.image, case)
    harmed = bool(effect.harmed)
    return Outcome(result.image, case.plugin, case.key, what, effect.word, result.listed, harmed)


def main(arguments: List[str]) -> int:
    """Prints how many cases have which effect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, help="default: all cases")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--images", nargs="+", choices=sorted(BUILDERS), default=sorted(BUILDERS))
    parser.add_argument("--plugins", nargs="+", default=[])
    parser.add_argument(
        "--most", type=int, default=MOST, help="structures of a kind that a member is written in"
    )
    parser.add_argument("--record", type=pathlib.Path, help="a file of outcomes, to which a run is added")
    parser.add_argument("--show", action="store_true", help="list the cases that are silent, or harm others")
    chosen = parser.parse_args(arguments)
    parts = [
        functools.partial(
            attack,
            name,
            chosen.seed,
            share(chosen.runs, len(BUILDERS)),
            chosen.plugins,
            chosen.most,
            chosen.record,
        )
        for name in chosen.images
    ]
    figures: Dict[str, Counter[str]] = collections.defaultdict(collections.Counter)
    for results in forking.spread(parts, chosen.jobs):
        for result in results:
            if isinstance(result, forking.Violation):
                print(result.what)
                return 1
            for title in (f"{result.image} {result.case.plugin}", "all"):
                figures[title][result.effect.word] += 1
                figures[title]["others changed"] += bool(result.effect.harmed)
                figures[title][UNLISTED] += result.effect.word in SILENT and not result.listed
            if chosen.show:
                for line in _shown(result):
                    print(line, flush=True)
    for title in sorted(figures):
        print(
            f"{title:28}",
            ", ".join(f"{figures[title][word]} {word}" for word in (*EFFECTS, UNLISTED, "others changed")),
        )
    return 0


def described(image: str, case: Case) -> str:
    """Returns a case in words."""
    return f"{image} {case.plugin} {' '.join(member.name for member in case.members)} = {case.kind}"


def _shown(result: Result) -> Iterator[str]:
    """Yields the lines about a case that is silent, or that harms others."""
    case = result.case
    where = described(result.image, case)
    if result.effect.word in SILENT:
        unlisted = "" if result.listed else f"{UNLISTED}, "
        yield f"{unlisted}{result.effect.word}: {where}: {'; '.join(result.effect.texts)}"
    for row in result.effect.harmed[:1]:
        yield f"others changed: {where}: {row}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
