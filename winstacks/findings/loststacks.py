# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks that no check could examine: they existed, and are not in the image."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from ..memory.decode.records import NamedTuple
from ..memory.decode.status import status, text
from ..memory.decode.text import process_label
from ..stacklist.stack import StackRecord

LOST_STACKS = "lost_stacks"
"""The word in the column Finding for lost stacks, in the place of a check's name."""

MAX_LOST = 1 << 16
"""The most lost stacks of an image that are stored."""


class LostProcessStacks(NamedTuple):
    """The process whose stacks were lost: its _EPROCESS (0 for the kernel), its PID and its name."""

    eprocess: int
    pid: Optional[int]
    process: Optional[str]

    @property
    def words(self) -> str:
        """The process as the report pages show it."""
        return process_label(self.process, self.pid)


class LostStacks:
    """The lost stacks by process, in the order in which they were met."""

    def __init__(self) -> None:
        self._known: Dict[LostProcessStacks, Dict[Tuple[str, str], None]] = {}
        self._count = 0

    def add(self, stack: StackRecord) -> None:
        space = stack.space
        thread = "" if stack.tid is None else f" of TID {stack.tid}"
        reason = status(*(item for item in stack.status if item not in space.remark)) or stack.status
        process = LostProcessStacks(space.eprocess, space.pid, space.known_name)
        self._add(process, (stack.kind, f"{stack.kind}{thread} ({text(reason)})"))

    def _add(self, process: LostProcessStacks, lost: Tuple[str, str]) -> None:
        if self._count < MAX_LOST:
            self._count += 1
            self._known.setdefault(process, {})[lost] = None

    def merge(self, other: LostStacks) -> None:
        """Adds lost stacks that were met after these."""
        for process, stacks in other._known.items():
            for lost in stacks:
                self._add(process, lost)

    def by_process(self) -> Iterator[Tuple[LostProcessStacks, List[Tuple[str, str]]]]:
        """Yields each process with its lost stacks, as pairs of kind and description."""
        for process, stacks in self._known.items():
            yield process, list(stacks)
