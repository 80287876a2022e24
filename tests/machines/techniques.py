# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What published techniques leave in memory: who published each, and how it is planted in a machine.

Only what memory looks like afterwards is forged; no code of a technique is here.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple

from tests.forge.process import Process
from tests.support.clean.host64 import Host64

Plant = Callable[[Host64], Process]


def unchanged(process: Process) -> None:
    """Changes nothing."""


class Technique(NamedTuple):
    """A published technique.

    Attributes:
        name: of the technique, as its authors call it
        source: who published it, where, when
        plant: adds to a machine what it leaves; returns the process in which it is to be found
        shown: whether stacks can show it
        change: what it changes once all lists are linked, as Windows does that before
    """

    name: str
    source: str
    plant: Plant
    shown: bool = True
    change: Callable[[Process], None] = unchanged


def rooms() -> Dict[str, List[Technique]]:
    """Returns the techniques that stacks can show: those that rules were made for, and those forged later."""
    from . import afterwards

    return {
        "techniques known to the rules": [technique for technique in all_techniques() if technique.shown],
        "techniques forged later": list(afterwards.TECHNIQUES),
    }


def all_techniques() -> List[Technique]:
    """Returns every technique: those in memory of their own, in images, asleep, in calls, in the kernel."""
    from . import asleep, calls, inimages, inkernel, ownmemory

    return [
        technique for room in (ownmemory, inimages, asleep, calls, inkernel) for technique in room.TECHNIQUES
    ]
