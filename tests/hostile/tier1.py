# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pure decoders on damaged bytes: very many, in no time."""

from __future__ import annotations

import functools
import random
import time
import traceback
from typing import Callable, Dict, List, Sequence, Tuple

from . import decoders, forking, mutations
from .decoders import Target
from .forking import Violation

SECONDS = 10
MEGABYTES = 512
BATCH = 500

_WORD = 8
_TIMES = (1, 1, 1, 2, 3, 5, 8, 30)


def parts(seed: str, numbers: Sequence[int]) -> List[Callable[[], List[Violation]]]:
    """Returns the runs as parts that may be made at the same time: those on one decoder each."""
    names = sorted(name for name, target in decoders.targets().items() if target.forks)
    shares: Dict[str, List[int]] = {name: [] for name in names}
    for number in numbers:
        shares[names[number % len(names)]].append(number)
    return [functools.partial(_part, name, seed, share) for name, share in shares.items() if share]


def _part(name: str, seed: str, numbers: Sequence[int]) -> List[Violation]:
    target = decoders.targets()[name]
    seeds = target.seeds()
    for whole in seeds:
        target.decode(whole, whole)
    prepared = [(whole, used_words(whole)) for whole in seeds]
    found: List[Violation] = []
    for start in range(0, len(numbers), BATCH):
        share = numbers[start : start + BATCH]
        # The limit is for runs that get nowhere: each has its own.
        report = forking.call(functools.partial(_batch, target, seed, share, prepared), 60 + 2 * len(share))
        if report.error:
            found.append(Violation(share[0], f"{name}, one of {len(share)} from here on: {report.error}"))
        else:
            found += report.value[0]
            if report.megabytes > report.value[1] + MEGABYTES:
                found.append(Violation(share[0], f"{name}: {len(share)} runs took {report.megabytes:.0f} MB"))
    return found


def _batch(
    target: Target, seed: str, numbers: Sequence[int], prepared: Sequence[Tuple[bytes, List[Tuple[int, int]]]]
) -> Tuple[List[Violation], float]:
    before = forking.megabytes()
    found: List[Violation] = []
    for number in numbers:
        chance = random.Random(f"{seed}/1/{number}")
        whole, words = chance.choice(prepared)
        data, done = damaged(whole, words, chance)
        start = time.process_time()
        try:
            target.decode(data, whole)
        except Exception:  # noqa: BLE001  (whatever a decoder raises here is what is looked for)
            what = traceback.format_exc()
            found.append(Violation(number, f"{target.name}, {'; '.join(done)}: {what}"))
        seconds = time.process_time() - start
        if seconds > SECONDS:
            what = f"{target.name}, {'; '.join(done)}: took {seconds:.1f} s"
            found.append(Violation(number, what, slow=True))
    return found, before


def damaged(whole: bytes, words: Sequence[Tuple[int, int]], chance: random.Random) -> Tuple[bytes, List[str]]:
    """Returns damaged bytes, and what was done to them."""
    data, done = bytearray(whole), []
    for _ in range(chance.choice(_TIMES) if data else 0):
        low, high = chance.choice(words) if words and chance.random() < 0.75 else (0, len(data))
        mutation = chance.choice(mutations.ALL)
        start, end = mutation(data, low, high, chance)
        done.append(f"{mutation.__name__} {start:#x}..{end:#x}")
    if chance.random() < 0.06:
        end = chance.randrange(len(data) + 1)
        del data[end:]
        done.append(f"cut at {end:#x}")
    return bytes(data), done


def used_words(data: bytes) -> List[Tuple[int, int]]:
    """Returns the words that hold something, each with its neighbours."""
    return [
        (max(start - _WORD, 0), min(start + 2 * _WORD, len(data)))
        for start in range(0, len(data), _WORD)
        if any(data[start : start + _WORD])
    ]
