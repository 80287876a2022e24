# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Non-volatile registers that no trap frame holds: what the functions below it on the stack kept (x64)."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, Optional

from ..base.image import Image
from ..names.symbolizer import Symbolizer
from ..threads.lister import Thread
from ..traps.state import WOW64, State
from .cpus import KEPT
from .decode.registers import Registers
from .kernel import KernelWalks


class TrapUnwind:
    """Adds to trap frames what walking the kernel stack tells, where the walk did not have to guess.

    Args:
        image: the image
        symbolizer: knows the modules of every address space
    """

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self._walks = KernelWalks(image, symbolizer)

    def complete(self, thread: Thread, states: Iterable[State]) -> Iterator[State]:
        """Yields a thread's register states, those of trap frames with the registers that they lack."""
        known: Optional[Dict[int, Registers]] = None
        for state in states:
            if self._walks.tells_registers and state.origin != WOW64 and state.registers:
                if known is None:
                    known = self._walks.registers(thread)
                if state.address in known:
                    state = _completed(state, known[state.address])
            yield state


def _completed(state: State, walked: Registers) -> State:
    found: Dict[str, int] = {}
    for name in KEPT:
        value = walked.named(name)
        if value is not None and (name not in state.registers or name in state.unsure):
            found[name] = value
    unsure = tuple(name for name in state.unsure if name not in found)
    return state._replace(registers={**state.registers, **found}, unsure=unsure)
