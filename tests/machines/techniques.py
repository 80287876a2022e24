# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What published techniques leave in memory: who published each, and how it is planted in a machine.

Only what memory looks like afterwards is forged; no code of a technique is here.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple

from tests.forge.process import Process
from tests.support.clean.host86 import NARROW

Plant = Callable[..., Process]
"""Takes a `Host64`, or a `Host86` if the technique has x86."""


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
        x86: whether it is planted in machines of x86, too; it does not depend on unwind data, dispatchers,
            stubs or gadgets of x64 then
    """

    name: str
    source: str
    plant: Plant
    shown: bool = True
    change: Callable[[Process], None] = unchanged
    x86: bool = False


def rooms(kernel: str) -> Dict[str, List[Technique]]:
    """Returns the techniques that stacks of a kernel can show, by who forged them.

    Those that rules were made for, and those that were forged later.
    """
    from . import afterwards

    known = {
        "techniques known to the rules": [technique for technique in all_techniques() if technique.shown],
        "techniques forged later": list(afterwards.TECHNIQUES),
    }
    if kernel not in NARROW:
        return known
    return {name: [technique for technique in room if technique.x86] for name, room in known.items()}


def all_techniques() -> List[Technique]:
    """Returns every technique: those in memory of their own, in images, asleep, in calls, in the kernel."""
    from . import asleep, calls, inimages, inkernel, ownmemory

    return [
        technique for room in (ownmemory, inimages, asleep, calls, inkernel) for technique in room.TECHNIQUES
    ]
