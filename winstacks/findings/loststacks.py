# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks that no check could look at: they are known to have been there, and are not in the image."""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..flat.stack import FlatStack
from ..memory.decode.status import status, text
from ..memory.decode.text import process_label

LOST_STACKS = "lost_stacks"
"""What Finding says of these in the place of a check."""

MAX_LOST = 1 << 16
"""The most lost stacks that are kept of an image."""


class LostIn(NamedTuple):
    """The process whose stacks were lost: its _EPROCESS (0 for the kernel), its ID and its name."""

    eprocess: int
    pid: Optional[int]
    process: Optional[str]

    @property
    def words(self) -> str:
        """The process as pages show it."""
        return process_label(self.process, self.pid)


class LostStacks:
    """The lost stacks by their process, in the order in which they were met."""

    def __init__(self) -> None:
        self._known: Dict[LostIn, Dict[Tuple[str, str], None]] = {}
        self._count = 0

    def add(self, stack: FlatStack) -> None:
        """Takes a stack that is lost."""
        space = stack.space
        thread = "" if stack.tid is None else f" of TID {stack.tid}"
        said = status(*(each for each in stack.status if each not in space.remark)) or stack.status
        process = LostIn(space.eprocess, space.pid, space.known_name)
        if self._count < MAX_LOST:
            self._count += 1
            self._known.setdefault(process, {})[stack.kind, f"{stack.kind}{thread} ({text(said)})"] = None

    def by_process(self) -> Iterator[Tuple[LostIn, List[Tuple[str, str]]]]:
        """Yields each process with its lost stacks: their kinds, and what they are."""
        for process, known in self._known.items():
            yield process, list(known)
