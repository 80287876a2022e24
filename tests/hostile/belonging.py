# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whose the memory of a forged image is: a thread's, a process's, or everybody's.

What belongs to a process is the memory of its user half that is no section's, and of the kernel's memory its
_EPROCESS, the nodes of its VADs, its handle table and its ring. A thread has its _ETHREAD, its stacks and its
TEB. All else is shared.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from tests.forge.kernel import Kernel
from tests.forge.phys import PAGE
from tests.forge.process import Process
from tests.forge.space import Space


class Owner(NamedTuple):
    """Whose memory it is: None for both if it is shared, no `tid` if it is the process's."""

    pid: Optional[int] = None
    tid: Optional[int] = None


SHARED = Owner()

Range = Tuple[int, int]


class Belonging:
    """Tells whose memory lies at a physical address.

    Args:
        kernel: the builder of the image, which is finished
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._parts: Dict[int, List[Tuple[int, int, Owner]]] = {}
        spaces: Dict[int, int] = {}
        for process in kernel.processes:
            for page in process.space.own_pages() if process.space is not kernel.space else ():
                frame = process.space.physical(page)
                spaces[frame] = spaces.get(frame, 0) + 1
                self._add(process.space, (page, page + PAGE), Owner(process.pid))
        for frame in [frame for frame, count in spaces.items() if count > 1]:
            self._parts[frame] = []
        for process in kernel.processes:
            self._process(process)

    def owner(self, place: int) -> Owner:
        """Returns whose the memory at a physical address is: of the parts that hold it the last one's."""
        page = place & ~(PAGE - 1)
        held = [owner for start, end, owner in self._parts.get(page, ()) if start <= place < end]
        return held[-1] if held else SHARED

    def _process(self, process: Process) -> None:
        kernel, owner = self._kernel.space, Owner(process.pid)
        eprocess = process.eprocess
        self._add(kernel, (eprocess.address, eprocess.address + eprocess.size), owner)
        for vad in process.vads:
            if vad.node is not None:
                self._add(kernel, (vad.node.address, vad.node.address + vad.node.size), owner)
        for part in self._handles(process):
            self._add(kernel, part, owner)
        if process.wow is not None and kernel.holds(self._wow64(process)):
            start = self._wow64(process)
            self._add(kernel, (start, start + self._kernel.isf.size("_EWOW64PROCESS")), owner)
        for thread in process.threads:
            own = Owner(process.pid, thread.tid)
            ethread = thread.ethread
            self._add(kernel, (ethread.address, ethread.address + ethread.size), own)
            self._add(kernel, (thread.stack_limit, thread.stack_base), own)
            if thread.teb is not None:
                self._add(process.space, (thread.teb.address, thread.teb.address + thread.teb.size), own)
                self._add(process.space, (thread.user_stack_limit, thread.user_stack_base), own)

    @staticmethod
    def _wow64(process: Process) -> int:
        isf = process.eprocess.isf
        name = isf.first("_EPROCESS", "WoW64Process", "Wow64Process")
        return process.eprocess[name] if name and isf.has_type("_EWOW64PROCESS") else 0

    def _handles(self, process: Process) -> Iterator[Range]:
        """Yields the parts of a process's handle table, and its ring."""
        isf, space = self._kernel.isf, self._kernel.space
        table = process.eprocess["ObjectTable"] if process.eprocess.has("ObjectTable") else 0
        if not table:
            return
        yield table, table + isf.size("_HANDLE_TABLE")
        code = space.read_int(table + isf.offset("_HANDLE_TABLE", "TableCode"))
        yield from self._pages(code & ~7, code & 3)
        info = space.read_int(table + isf.offset("_HANDLE_TABLE", "DebugInfo"))
        if info:
            size = isf.size("_HANDLE_TRACE_DB_ENTRY")
            count = 4096
            if isf.has("_HANDLE_TRACE_DEBUG_INFO", "TableSize"):
                count = space.read_int(info + isf.offset("_HANDLE_TRACE_DEBUG_INFO", "TableSize"), 4)
            yield info, info + isf.offset("_HANDLE_TRACE_DEBUG_INFO", "TraceDb") + size * count

    def _pages(self, page: int, level: int) -> Iterator[Range]:
        space = self._kernel.space
        if page:
            yield page, page + PAGE
        for at in range(page, page + PAGE, space.pointer_size) if page and level else ():
            yield from self._pages(space.read_int(at), level - 1)

    def _add(self, space: Space, part: Range, owner: Owner) -> None:
        start, end = part
        while start < end:
            until = min((start & ~(PAGE - 1)) + PAGE, end)
            if space.holds(start):
                place = space.physical(start)
                held = self._parts.setdefault(place & ~(PAGE - 1), [])
                held.append((place, place + until - start, owner))
            start = until
