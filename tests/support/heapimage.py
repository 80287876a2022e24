# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process with forged heaps in a forged image: its log, its database, the PEB's list of heaps."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterable, List, Sequence, Tuple, Union

from volatility3.plugins.windows import heaptraces

from tests.forge import context, heap_layouts, heaplist, kernels, sample
from tests.forge.dump import Image
from tests.forge.heaplog import HeapLog
from tests.forge.heaps import NtHeap
from tests.forge.kernel import Kernel
from tests.forge.process import Process
from tests.forge.std import Std
from tests.forge.wow64 import Wow64
from tests.support import grid
from tests.support.grid import Node

PID = 1000
HEAP = 0x10000000
LIST = 0x1000000

_GENERATIONS = {
    "xp": ("5.1", "5.1"),
    "win7": ("6.0", "6.1"),
    "win10": ("6.2", "6.1"),
    "win11": ("6.2", "6.1"),
}
UST = 0x1000


class HeapImage:
    """A kernel with one process that has heaps.

    Args:
        kernel: the forge's name of the kernel (`win10-x64`)
        wow64: whether the heaps are those of its 32-bit half
        flags: NtGlobalFlag of the process, or of that half
    """

    def __init__(self, kernel: str, wow64: bool = False, flags: int = UST) -> None:
        known = kernels.load(kernel)
        self.kernel = Kernel(known.table, **known.options())
        arch = "x86" if wow64 else kernel[-3:]
        self.arch, self.pointer = arch, 4 if arch == "x86" else 8
        heap, database = _GENERATIONS[kernel.split("-")[0]]
        self.form = f"{heap}-{arch}"
        self.layout = heap_layouts.LAYOUTS[self.form]
        self.process = self.kernel.process("app.exe", pid=PID, nt_global_flag=0 if wow64 else flags)
        self.half: Union[Process, Wow64] = self.process
        if wow64:
            self.process.module("ntdll.dll", **sample.NTDLL.options())
            self.half = self.process.wow64(nt_global_flag=flags)
        wide = arch == "x64"
        self.app = self.half.module("app.exe", dll=False, **sample.UPDATER.options(wide))
        self.ntdll = self.half.module("ntdll.dll", **sample.NTDLL.options(wide))
        self.log = HeapLog(arch)
        self.std = Std(database, arch)
        self.listed: List[int] = []
        self.used: Dict[str, bool] = {"log": False, "std": False}

    def heap(self, base: int = HEAP, **options: Any) -> NtHeap:
        """A heap of the kernel's generation; what is in it must be `put` when it is filled."""
        return NtHeap(base, self.layout, **options)

    def stack(self, number: int) -> List[int]:
        """A stack, another one for each number."""
        return [
            self.ntdll.at("RtlUserThreadStart") + 9,
            self.app.at("open_store") + number,
            self.app.at("main") + 5,
        ]

    def record(self, number: int) -> int:
        """The address of such a stack's record in the heap's log."""
        self.used["log"] = True
        return self.log.log(self.stack(number))

    def index(self, number: int) -> int:
        """The index of such a stack in the process's database."""
        self.used["std"] = True
        return self.std.log(self.stack(number))

    def entry(self, number: int) -> int:
        """The address of such a stack's entry in the process's database."""
        self.index(number)
        return self.std.address_of(self.stack(number))

    def put(self, regions: Iterable[Tuple[int, bytes]], *listed: int) -> None:
        """Puts memory into the process, and heaps onto the PEB's list."""
        for address, data in regions:
            self.process.region(address, data)
        self.listed += listed

    def image(self) -> Image:
        """Writes log, database and list, and makes the image."""
        space = self.process.space
        if self.used["log"]:
            self.put(self.log.regions().items())
            space.write_int(self.ntdll.base + sample.POINTER_RVA + 0x10, self.log.address, self.pointer)
        if self.used["std"]:
            self.put(self.std.regions().items())
            space.write_int(self.ntdll.base + sample.POINTER_RVA, self.std.base, self.pointer)
        if self.listed:
            heaplist.put(self.process, self.half, self.pointer, self.listed, LIST)
        return self.kernel.image()

    def run(self, folder: pathlib.Path, **options: Any) -> List[Node]:
        """The rows of `windows.heaptraces`, run in this process."""
        return grid.run(context.open_image(self.image(), folder), heaptraces.HeapTraces, **options)


def groups(nodes: Sequence[Node]) -> List[Node]:
    return [node for node in nodes if node.row["Count"] is not None]


def owners(nodes: Sequence[Node]) -> List[Node]:
    return [node for node in nodes if node.row["Count"] is None]


def blocks(nodes: Sequence[Node]) -> Dict[int, Dict[str, Any]]:
    """The block rows, by address."""
    return {row["Block"]: row for node in groups(nodes) for row in node.children if row["Block"] is not None}


def symbols(node: Node) -> List[str]:
    return [row["Symbol"] for row in node.children if row["Frame"] is not None]
