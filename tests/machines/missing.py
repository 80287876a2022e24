# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which pages of a machine are not in its image: the model.

Windows trims pages that nobody has touched for a while. A page is *warm* here if a thread that waits or
runs needs it: code, and stacks. All others are *cold*: headers, exports, unwind data and variables of
images, the loader's lists and private data. A cold page is missing three times as often as a warm one: COLD
and WARM are multiplied with the share that was asked for. Of a desktop's pages 29 % are cold, so that this
share of all pages is missing. Structures of the kernel's nonpaged pool are never missing.

A page of a file's section is in the file then: the entries of all processes lead to its prototype PTE, unless
a process has a page of its own there (Windows Internals, 7th edition, part 1, chapter 5, "Prototype PTEs").

Which pages are missing goes by the seed and the page alone: a machine with more processes has lost the
same.
"""

from __future__ import annotations

import random
from typing import Dict, List, Tuple

from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.process import Process
from tests.support.clean.host86 import Host
from tests.support.clean.images import SHARED_DATA, shared_pages

COLD, WARM = 1.9, 0.63
_EXECUTE = 2
"""The bit of a protection in a VAD (MM_EXECUTE and its kin)."""
_CODE = 1 << 29
"""IMAGE_SCN_MEM_EXECUTE."""

Range = Tuple[int, int]


def lose(host: Host, seed: int, share: float) -> int:
    """Takes pages of processes, kernel stacks and sections of files out of a machine's image.

    Args:
        host: the machine; nothing is to be linked any more, or lost pages come back as zeros
        seed: of the choice
        share: of all pages

    Returns:
        How many are missing.
    """
    return _of_processes(host, seed, share) + _of_sections(host, seed, share)


def _of_processes(host: Host, seed: int, share: float) -> int:
    missing = 0
    kernel = host.kernel.space
    for process in host.kernel.processes:
        pages = [
            (kernel, page, True)
            for thread in process.threads
            for page in range(thread.stack_limit, thread.stack_base, PAGE)
        ]
        if process.space is not kernel:
            warm = _warm(process)
            pages += [
                (process.space, page, any(low <= page < high for low, high in warm))
                for page in process.space.own_pages()
                if page != SHARED_DATA
            ]
        for space, page, is_warm in pages:
            if space.holds(page) and _chosen(seed, process.pid, page, share, is_warm):
                space.set_state(page, PAGE, State.MISSING)
                missing += 1
    return missing


def _warm(process: Process) -> List[Range]:
    """The addresses of a process's stacks, of its private code, and of code of its images."""
    ranges = [(thread.user_stack_limit, thread.user_stack_base) for thread in process.threads]
    ranges += [
        (vad.start, vad.start + vad.size)
        for vad in process.vads
        if not vad.image and vad.protection & _EXECUTE
    ]
    for module in process.modules:
        ranges += [
            (module.base + section.rva, module.base + section.rva + section.size)
            for section in module.pe.sections
            if section.characteristics & _CODE
        ]
    return [(low & ~(PAGE - 1), high) for low, high in ranges]


def _of_sections(host: Host, seed: int, share: float) -> int:
    missing = 0
    lose_shared = shared_pages(host.kernel, State.PROTOTYPE)
    code: Dict[str, List[Range]] = {}
    for process in host.kernel.processes:
        for module in process.modules:
            if module.section is not None and module.section.path not in code:
                code[module.section.path] = [
                    (section.rva, section.rva + section.size)
                    for section in module.pe.sections
                    if section.characteristics & _CODE
                ]
    for section in host.kernel.sections:
        for rva in sorted(section.frames):
            is_warm = any(low <= rva < high for low, high in code.get(section.path, ()))
            if _chosen(seed, section.path, rva, share, is_warm):
                lose_shared(section, rva)
                missing += 1
        section.finish()
    return missing


def _chosen(seed: int, owner: object, page: int, share: float, is_warm: bool) -> bool:
    """Returns whether a page is among those that are missing."""
    chance = share * (WARM if is_warm else COLD)
    return random.Random(f"{seed} {owner} {page}").random() < chance
