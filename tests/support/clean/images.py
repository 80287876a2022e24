# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Clean images: every situation of a kernel in one, and the same with pages missing."""

from __future__ import annotations

import random
from typing import Callable, Dict, List, NamedTuple, Tuple

from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.sections import ImageSection

from . import everyday, host86, patched, processes, runtimes, wow
from .host64 import WIDE, Host64, Shown

SITUATIONS_64: Tuple[Callable[[Host64], List[Shown]], ...] = (
    *everyday.SITUATIONS,
    *runtimes.SITUATIONS,
    *patched.SITUATIONS,
    *processes.SITUATIONS,
    *wow.SITUATIONS,
)
KERNELS = (*WIDE, *host86.NARROW)
SHARED_DATA = 0x7FFE0000
"""A page of the kernel's, which is in each process, too."""


class Clean(NamedTuple):
    """A clean image: its kernel, and what it must show by the situation's name."""

    kernel: Kernel
    shows: Dict[str, List[Shown]]

    @property
    def processes(self) -> int:
        """How many processes it has; those that have exited are among them."""
        return len(self.kernel.processes)


def build(name: str) -> Clean:
    """Puts every situation of a kernel into one image."""
    if name in host86.NARROW:
        narrow = host86.Host86(name)
        return Clean(
            narrow.kernel, {situation.__name__: situation(narrow) for situation in host86.SITUATIONS}
        )
    host = Host64(name)
    return Clean(host.kernel, {function.__name__: function(host) for function in SITUATIONS_64})


def shared_pages(kernel: Kernel, state: State = State.MISSING) -> Callable[[ImageSection, int], None]:
    """Returns a function that takes a page of a file (its RVA) from its section and from all views of it.

    `state` is what the page becomes: MISSING for one that the image lacks, PROTOTYPE for one that Windows has
    trimmed, which is in the file only.
    """
    views = [
        (process.space, vad)
        for process in kernel.processes
        for vad in process.vads
        if vad.section is not None
    ]

    def lose(section: ImageSection, rva: int) -> None:
        for space, vad in views:
            if vad.section is section and space.shares(vad.start + rva):
                space.set_state(vad.start + rva, PAGE, state)
        section.set_state(rva, PAGE, state)

    return lose


def lose_pages(clean: Clean, seed: int, share: float = 0.3, of_files: bool = False) -> int:
    """Takes a share of the pages of processes, of their files' sections and of kernel stacks out of an image.

    Args:
        clean: the image
        seed: of the choice
        share: of the pages that are missing
        of_files: only pages of modules go

    Returns:
        How many are missing.
    """
    chance = random.Random(f"{clean.kernel.version} {seed}")
    missing = 0
    clean.kernel.image()
    kernel = clean.kernel.space
    for process in clean.kernel.processes:
        stacks = [
            page for thread in process.threads for page in range(thread.stack_limit, thread.stack_base, PAGE)
        ]
        own = (
            []
            if process.space is kernel
            else [own_page for own_page in process.space.own_pages() if own_page != SHARED_DATA]
        )
        if of_files:
            places = [(module.base, module.base + module.size) for module in process.all()]
            own = [page for page in own if any(low <= page < high for low, high in places)]
            stacks = []
        for space, pages in ((kernel, stacks), (process.space, own)):
            for page in pages:
                if space.holds(page) and chance.random() < share:
                    space.set_state(page, PAGE, State.MISSING)
                    missing += 1
    lose_shared = shared_pages(clean.kernel)
    for section in clean.kernel.sections:
        for rva in [frame for frame in sorted(section.frames) if chance.random() < share]:
            lose_shared(section, rva)
            missing += 1
    return missing
