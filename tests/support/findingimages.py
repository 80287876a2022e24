# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images in which something is to be found, and such in which nearly the same is innocent.

Only what the memory looks like afterwards is forged. Threads wait in a system call; a register or a return
address of theirs is then changed.
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any, Dict, List, Optional, Union

from volatility3.plugins.windows import tracefindings

from tests.forge import context, sample
from tests.forge.dump import Image
from tests.forge.handles import OPEN, HandleTable, Ring
from tests.forge.kernel import Kernel
from tests.forge.phys import PAGE
from tests.forge.process import Process
from tests.forge.std import Std
from tests.forge.vad import EXECUTE_READWRITE
from tests.support import grid
from tests.support.callstackimages import HEAD_RVA, StackImage
from tests.support.callstackimages86 import StackImage86, user_modules
from winstacks.findings.loststacks import LOST_STACKS
from winstacks.rows.findings import NOTHING_FOUND

X64 = ("win7-x64", "win10-x64", "win11-x64")
X86 = ("win7-x86", "win10-x86")
ALL = (*X64, *X86)

TID = 1004
PRIVATE = 0x20000000
CODE = b"\x90" * 0x100 + b"\xe8\0\0\0\0" + b"\x90" * 0x100
"""Something like code, in which a call ends at RETURNS."""
RETURNS = PRIVATE + 0x105
MAPPED = 0x21000000
DATABASE = 0x22000000
GENERATIONS = {"x64": "6.1", "x86": "6.1"}

Row = Dict[str, Any]


def found(image: Image, check: str = "", **options: Any) -> List[Row]:
    """The rows of windows.tracefindings, of one check if it is named; without those that were not checked."""
    rows = answered(image, **({"check": [check]} if check else {}), **options)
    return [row for row in rows if row["Severity"] is not None]


def answered(image: Image, **options: Any) -> List[Row]:
    """All rows of windows.tracefindings but those of lost stacks (forged threads have few pages), and the one
    for no finding."""
    return [row for row in _rows(image, **options) if row["Finding"] not in (LOST_STACKS, NOTHING_FOUND)]


def nothing_found(image: Image, **options: Any) -> List[str]:
    """The sentences of windows.tracefindings that say that nothing was found."""
    return [row["Evidence"] for row in _rows(image, **options) if row["Finding"] == NOTHING_FOUND]


def _rows(image: Image, **options: Any) -> List[Row]:
    with tempfile.TemporaryDirectory() as folder:
        opened = context.open_image(image, pathlib.Path(folder))
        return [node.row for node in grid.run(opened, tracefindings.TraceFindings, **options)]


def severities(image: Image, check: str, **options: Any) -> List[str]:
    """The severities of the findings of a check."""
    return [row["Severity"] for row in found(image, check, **options)]


class FindingImage:
    """A kernel of x64 or x86, a process, and a thread that waits in a system call.

    Args:
        name: of the kernel
    """

    def __init__(self, name: str) -> None:
        self.stacks: Union[StackImage, StackImage86]
        self.wide = name in X64
        if self.wide:
            self.stacks = StackImage(name)
            self.thread = self.stacks.waiting(TID)
        else:
            self.stacks = StackImage86(name)
            self.thread = self.stacks.waiting(TID, interrupted=False)
        self.kernel: Kernel = self.stacks.kernel
        self.app: Process = self.stacks.app
        start = self.stacks.modules["app"].base + 0x1100
        self.thread.ethread.maybe("StartAddress", start)
        self.thread.ethread.maybe("Win32StartAddress", start)

    def beside(self, name: str, pid: int, ppid: int = 4) -> Process:
        """Another process that has loaded the same modules, at the same addresses, with the same code."""
        process = self.kernel.process(name, pid=pid, ppid=ppid)
        if isinstance(self.stacks, StackImage):
            self.stacks._user_modules(process)
        else:
            user_modules(process)
        for module in self.app.modules:
            for page in self.app.space.own_pages():
                if module.base <= page < module.base + module.size:
                    process.space.write(page, self.app.space.read(page, PAGE))
        return process

    def private(self, protection: int = EXECUTE_READWRITE, file: Optional[str] = None) -> None:
        """Gives the process memory with something like code, in no file or in one."""
        self.app.region(PRIVATE, CODE, size=0x1000, protection=protection, file=file)

    def forbid(self) -> None:
        """Takes the right to execute from the page of this memory."""
        self.app.space.tables.forbid_execution(PRIVATE)

    def interrupted_at(self, address: int) -> None:
        """Lets the thread have been interrupted somewhere."""
        self.enters_at(address)
        if self.wide:
            active = self.kernel.isf.offset("_KTRAP_FRAME", "ExceptionActive")
            self.kernel.space.write_int(self.thread.kthread["TrapFrame"] + active, 0, 1)

    def enters_at(self, address: int) -> None:
        """Lets the system call of the thread have been made somewhere: it goes on at this address."""
        frame = self.thread.kthread["TrapFrame"]
        member = "Rip" if self.wide else "Eip"
        place = frame + self.kernel.isf.offset("_KTRAP_FRAME", member)
        self.kernel.space.write_int(place, address, 8 if self.wide else 4)

    def guesses(self, module: str) -> None:
        """Lets the caller of the system call's stub be a guess, in a module that it goes on in (x64).

        The thread was interrupted in a mapped file, and nothing tells how to go on from there.
        """
        assert isinstance(self.stacks, StackImage)
        self.app.region(MAPPED, b"\x90" * 0x100, size=0x1000, file="\\Windows\\code.bin")
        self.interrupted_at(MAPPED + 0x20)
        base, frames = self.stacks.modules[module].base, self.stacks.expected[TID, "user"].frames
        returns = next(at for at, _, _ in frames if base <= at < base + self.stacks.modules[module].size)
        trap = self.thread.kthread["TrapFrame"]
        place = self.kernel.space.read_int(trap + self.kernel.isf.offset("_KTRAP_FRAME", "Rsp"))
        self.app.space.write_int(place, returns, 8)

    def breaks_at(self, address: int, control: int, *others: int) -> None:
        """Has debug registers saved on the thread's way into the kernel.

        Args:
            address: what Dr0 has
            control: what Dr7 has
            others: what Dr1 to Dr3 have; 0 if left out
        """
        isf, frame = self.kernel.isf, self.thread.kthread["TrapFrame"]
        size = 8 if self.wide else 4
        registers = {"Dr0": address, **dict(zip(("Dr1", "Dr2", "Dr3"), others)), "Dr7": control}
        for name in ("Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7"):
            value = registers.get(name, 0)
            self.kernel.space.write_int(frame + isf.offset("_KTRAP_FRAME", name), value, size)
        assert self.thread.kthread.maybe("Header.DebugActive", 3) or self.thread.kthread.maybe(
            "DebugActive", 3
        )

    def returns_to(self, address: int) -> None:
        """Puts a return address in the place of that which the program's own function has (x64)."""
        assert isinstance(self.stacks, StackImage)
        frames = self.stacks.expected[TID, "user"].frames
        main = self.stacks.modules["app"]
        sp = next(sp for at, sp, how in frames if main.base <= at < main.base + main.size and how == "unwind")
        self.app.space.write_int(sp - 8, address, 8)

    def kernel_returns_to(self, address: int) -> None:
        """The same in the kernel: in the place of the return address of the function that waits (x64)."""
        assert isinstance(self.stacks, StackImage)
        frames = self.stacks.expected[TID, "kernel"].frames
        sp = next(sp for _, sp, how in frames[1:] if how == "unwind")
        self.kernel.space.write_int(sp - 8, address, 8)

    def register_table(self, start: int, end: int, count: int = 1) -> None:
        """Registers function tables: the last of them is for a range (x64)."""
        ntdll, space = self.stacks.modules["ntdll"], self.app.space
        head, node = ntdll.base + HEAD_RVA, space.allocate(0x60 * count)
        nodes = [node + 0x60 * number for number in range(count)]
        ring = [head, *nodes]
        for number, table in enumerate(ring):
            space.write_int(table, ring[(number + 1) % len(ring)], 8)
            space.write_int(table + 8, ring[number - 1], 8)
        for number, table in enumerate(nodes):
            last = number == count - 1
            space.write_int(table + 0x20, start if last else 0x1000 * (number + 1), 8)
            space.write_int(table + 0x28, end if last else 0x1000 * (number + 2), 8)

    def recorded(self, *addresses: int) -> None:
        """Gives the process a database with one trace."""
        arch = "x64" if self.wide else "x86"
        database = Std(GENERATIONS[arch], arch, DATABASE)
        database.log(list(addresses))
        sample.write(self.app, database)
        ntdll = self.stacks.modules["ntdll"]
        self.app.space.map(ntdll.base + sample.POINTER_RVA, 8)
        self.app.space.write_int(ntdll.base + sample.POINTER_RVA, database.base, 8 if self.wide else 4)
        assert self.app.peb is not None
        self.app.peb["NtGlobalFlag"] = 0x1000

    def opens(self, body: Any, access: int, *addresses: int, holder: Optional[Process] = None) -> None:
        """Lets the process have opened an object, with a trace of that; `holder`: who has the handle."""
        table = HandleTable(holder or self.app)
        table.add(0x84, body, access=access)
        table.finish()
        Ring(table, 16).event(OPEN, 0x84, self.app.pid, TID, list(addresses))

    def image(self) -> Image:
        """The image."""
        return self.kernel.image()
