# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""PspCidTable: the handle table whose handles are the IDs of all processes and threads.

Its entries point to the objects themselves, where those of other handle tables point to their headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict

from .obj import Obj
from .phys import PAGE

if TYPE_CHECKING:
    from .kernel import Kernel

STEP = 4
_MOST = 1 << 24


class CidTable:
    """The table of a kernel; `write` may be called again when there are more processes and threads."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._pages: Dict[int, int] = {}
        self.obj = kernel.obj("_HANDLE_TABLE", tag=b"Obtb")

    def write(self) -> None:
        """Enters all processes and threads that are listed."""
        kernel, isf = self._kernel, self._kernel.isf
        size = isf.size("_HANDLE_TABLE_ENTRY")
        per_page = PAGE // size
        for number, body in sorted(self._bodies().items()):
            page, slot = divmod(number // STEP, per_page)
            if page not in self._pages:
                self._pages[page] = kernel.space.allocate(PAGE, PAGE)
            self._entry(self._pages[page] + slot * size, body)
        level = 0 if max(self._pages, default=0) == 0 else 1
        level += max(self._pages, default=0) >= PAGE // kernel.space.pointer_size
        self.obj["TableCode"] = self._directory(level, 0) | level
        kernel.set("PspCidTable", self.obj)

    def entry(self, number: int) -> int:
        """Address of the entry of an ID."""
        size = self._kernel.isf.size("_HANDLE_TABLE_ENTRY")
        page, slot = divmod(number // STEP, PAGE // size)
        return self._pages[page] + slot * size

    def _bodies(self) -> Dict[int, Obj]:
        found: Dict[int, Obj] = {}
        for process in self._kernel.processes:
            if not process.listed:
                continue  # nothing but a pool scan knows it
            found.setdefault(process.pid, process.eprocess)
            for thread in process.threads:
                if thread.listed:
                    found.setdefault(thread.tid, thread.ethread)
        # Windows gives no ID whose entry would be the first of a page.
        per_page = PAGE // self._kernel.isf.size("_HANDLE_TABLE_ENTRY")
        possible = range(0, STEP * _MOST, STEP)
        return {
            identifier: body
            for identifier, body in found.items()
            if identifier in possible and identifier // STEP % per_page
        }

    def _directory(self, level: int, first: int) -> int:
        if level == 0:
            return self._pages.get(first, 0)
        pointer = self._kernel.space.pointer_size
        span = (PAGE // pointer) ** (level - 1)
        page = self._kernel.space.allocate(PAGE, PAGE)
        for number in range(max(self._pages) // span + 1):
            below = self._directory(level - 1, first + number * span)
            self._kernel.space.write_int(page + number * pointer, below)
        return page

    def _entry(self, address: int, body: Obj) -> None:
        entry = Obj(self._kernel.space, self._kernel.isf, "_HANDLE_TABLE_ENTRY", address)
        if not entry.has("ObjectPointerBits"):
            entry["Object"] = body.address | 1
            return
        wide = self._kernel.bits == 64
        entry["ObjectPointerBits"] = body.address >> 4 & (1 << 44) - 1 if wide else body.address >> 3
        entry["Unlocked"] = 1
