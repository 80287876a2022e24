# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Callbacks that no thread's stack shows: timers, DPCs, work items, APCs, InstrumentationCallback."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Sequence, Tuple

from . import kernels
from .isf import Isf, Json
from .kernel import Kernel
from .kernels import KnownKernel
from .obj import Obj, ring
from .thread import Thread

NEVER, ALWAYS = 0x6B1D0C2F93A75E4B, 0xC38E5512F07A1D96
"""Values of KiWaitNever and KiWaitAlways."""

NOTIFICATION_TIMER, APC, DPC = 8, 18, 19
"""Types of objects: TimerNotificationObject, ApcObject, DpcObject."""
KERNEL_MODE, USER_MODE = 0, 1
"""The lists of a thread's APCs."""

_MASK = (1 << 64) - 1

_PLACES = {
    "PspCreateThreadNotifyRoutine": "ExWorkerQueue",
    "PspCreateProcessNotifyRoutineCount": "PspSystemPartition",
    "KeBugCheckReasonCallbackListHead": "KeNodeBlock",
    "KeBugCheckCallbackListHead": "KeNumberNodes",
    "IopInvalidDeviceRequest": "IopProcessWorkItem",
}
"""Symbols of the forged tables, and the symbols of queues of work items that take their places."""


def encoded(dpc: int, timer: int) -> int:
    """The Dpc of a timer as x64 kernels since 7 store it: the inverse of what Volatility computes."""
    value = int.from_bytes((dpc ^ ALWAYS).to_bytes(8, "big"), "little") ^ timer
    shift = NEVER & 63
    return (value >> shift | value << 64 - shift) & _MASK ^ NEVER


def with_queues(name: str) -> KnownKernel:
    """A kernel whose symbols describe its queues of work items, as the public symbols of its version do."""
    known = kernels.load(name)
    present = {old: new for old, new in _PLACES.items() if old in known.table.symbols}
    known = known.variant(f"{name}-queues", rename=present)
    types = {**known.table.types, **_queue_types(known)}
    return dataclasses.replace(known, table=Isf({**known.table.data, "user_types": types}))


def _queue_types(known: KnownKernel) -> Json:
    """The structures of public symbols: XP and 7 (7601), 10 (14393 for `win10-x86`, where none is known)."""
    wide = known.arch == "x64"
    size = 8 if wide else 4
    pointer: Json = {"kind": "pointer", "subtype": {"kind": "base", "name": "void"}}
    links: Json = {"kind": "struct", "name": "_LIST_ENTRY"}
    item = _structure(
        4 * size, List=(0, links), WorkerRoutine=(2 * size, pointer), Parameter=(3 * size, pointer)
    )
    found = {"_WORK_QUEUE_ITEM": item}
    embedded: Json = {"kind": "struct", "name": "_WORK_QUEUE_ITEM"}
    found["_IO_WORKITEM"] = _structure(8 * size, WorkItem=(0, embedded), Routine=(4 * size, pointer))
    first = 0x18 if wide else 0x10
    if known.version < (6, 3):
        queue: Json = {"kind": "struct", "name": "_KQUEUE"}
        found["_KQUEUE"] = _structure(5 * size + (0x18 if wide else 0x14), EntryListHead=(first, links))
        found["_EX_WORK_QUEUE"] = _structure(0x58 if wide else 0x3C, WorkerQueue=(0, queue))
        return found
    lists: Json = {"kind": "array", "count": 32, "subtype": links}
    found["_KPRIQUEUE"] = _structure(0x2B0 if wide else 0x19C, EntryListHead=(first, lists))
    priorities: Json = {"kind": "struct", "name": "_KPRIQUEUE"}
    found["_EX_WORK_QUEUE"] = _structure(0x2E0 if wide else 0x1B0, WorkPriQueue=(0, priorities))
    if wide:
        found["_EPARTITION"] = _structure(0x80, ExPartition=(0x10, pointer))
        found["_EX_PARTITION"] = _structure(0x20, WorkQueues=(8, pointer))
    else:
        pointers: Json = {"kind": "array", "count": 8, "subtype": pointer}
        found["_ENODE"] = _structure(0x200, ExWorkQueues=(0xC0, pointers))
    return found


def _structure(size: int, **members: Tuple[int, Json]) -> Json:
    fields = {name: {"offset": offset, "type": kind} for name, (offset, kind) in members.items()}
    return {"kind": "struct", "size": size, "fields": fields}


def queue_apcs(kernel: Kernel, thread: Thread, kernel_mode: Sequence[Obj], user_mode: Sequence[Obj]) -> None:
    """Sets up both lists of a thread's APCs, as Windows does for each thread."""
    heads = thread.kthread.at("ApcState.ApcListHead")
    for mode, apcs in ((KERNEL_MODE, kernel_mode), (USER_MODE, user_mode)):
        head = heads + 2 * mode * kernel.space.pointer_size
        ring(kernel.space, [head, *(apc.at("ApcListEntry") for apc in apcs)])


def new_apc(kernel: Kernel, kernel_routine: int, normal_routine: int = 0, context: int = 0) -> Obj:
    """An APC, in no list."""
    apc = kernel.obj("_KAPC", tag=b"Kapc")
    apc.put(Type=APC, KernelRoutine=kernel_routine, NormalRoutine=normal_routine, NormalContext=context)
    return apc


class Callbacks:
    """The callbacks of a kernel. `finish` links what was added; Windows sets up all lists at once.

    Args:
        form: of KiTimerTableListHead, in kernels without a timer table for each processor: place of the first
            head, distance and number of the heads
    """

    def __init__(self, kernel: Kernel, form: Tuple[int, int, int] = (0, 8, 256)) -> None:
        self.kernel, self.isf = kernel, kernel.isf
        self._encodes = kernel.bits == 64 and self.isf.has("_KPRCB", "TimerTable")
        if self._encodes:
            kernel.set("KiWaitNever", NEVER)
            kernel.set("KiWaitAlways", ALWAYS)
        self._nodes: Dict[int, List[int]] = {head: [] for head in self._timer_heads(form)}
        self.heads = list(self._nodes)
        self._dpcs: List[Obj] = []
        self._item_heads: List[int] = []

    def _timer_heads(self, form: Tuple[int, int, int]) -> List[int]:
        if not self.isf.has("_KPRCB", "TimerTable"):
            if "KiTimerTableListHead" not in self.isf.symbols:
                return []  # the forged table of win7-x86 ends before
            start, stride, count = form
            place = self.kernel.symbol("KiTimerTableListHead") + start
            return [place + number * stride for number in range(count)]
        entry = self.isf.place("_KPRCB", "TimerTable.TimerEntries")
        size, first = self.isf.size("_KTIMER_TABLE_ENTRY"), self.isf.offset("_KTIMER_TABLE_ENTRY", "Entry")
        return [
            cpu.kprcb.address + entry.offset + first + offset
            for cpu in self.kernel.cpus
            for offset in range(0, entry.size, size)
        ]

    def dpc(self, routine: int) -> Obj:
        """A DPC, in no queue."""
        dpc = self.kernel.obj("_KDPC", tag=b"KDpc")
        dpc.put(Type=DPC, DeferredRoutine=routine)
        return dpc

    def timer(self, routine: Optional[int], head: int = 7) -> Obj:
        """A timer in a list of the table, by the number of its head; without a DPC if the routine is None."""
        timer = self.kernel.obj("_KTIMER", tag=b"KTim")
        timer["Header.Type"] = NOTIFICATION_TIMER
        dpc = 0 if routine is None else self.dpc(routine).address
        timer["Dpc"] = encoded(dpc, timer.address) if self._encodes else dpc
        self._nodes[self.heads[head]].append(timer.at("TimerListEntry"))
        return timer

    def queued(self, routine: int) -> Obj:
        """A DPC that waits for the first processor."""
        dpc = self.dpc(routine)
        self._dpcs.append(dpc)
        return dpc

    def item(self, routine: int, io_routine: Optional[int] = None) -> Obj:
        """A work item, alone in the last list of the last queue; see `with_queues`."""
        item = self.kernel.obj("_IO_WORKITEM", tag=b"IoWI")
        item["WorkItem.WorkerRoutine"] = routine
        item["WorkItem.Parameter"] = item
        if io_routine is not None:
            item["Routine"] = io_routine
        head = self._queue()
        ring(self.kernel.space, [head, item.at("WorkItem.List")])
        self._item_heads.append(head)
        return item

    def _queue(self) -> int:
        """Makes queues, and returns the head of the last list of the last one."""
        kernel, isf = self.kernel, self.isf
        size = kernel.space.pointer_size
        if isf.has("_EX_WORK_QUEUE", "WorkerQueue"):
            last = kernel.symbol("ExWorkerQueue") + 2 * isf.size("_EX_WORK_QUEUE")
            return last + isf.offset("_EX_WORK_QUEUE", "WorkerQueue.EntryListHead")
        queue = kernel.obj("_EX_WORK_QUEUE")
        lists = isf.place("_EX_WORK_QUEUE", "WorkPriQueue.EntryListHead")
        heads = [queue.address + lists.offset + offset for offset in range(0, lists.size, 2 * size)]
        for head in heads:
            ring(kernel.space, [head])
        if isf.has_type("_EX_PARTITION"):
            pointers = kernel.space.allocate(8 * size, size)
            nodes = kernel.space.allocate(size, size)
            kernel.space.write_int(nodes, pointers)
            system, partition = kernel.obj("_EPARTITION"), kernel.obj("_EX_PARTITION")
            kernel.set("PspSystemPartition", system)
            system["ExPartition"], partition["WorkQueues"] = partition, nodes
        else:
            node = kernel.obj("_ENODE")
            kernel.set("KeNodeBlock", node)
            pointers = node.at("ExWorkQueues")
        kernel.set("KeNumberNodes", 1, 2)
        kernel.space.write_int(pointers + 7 * size, queue.address)
        return heads[-1]

    def finish(self) -> None:
        """Links the timers and the DPCs."""
        space = self.kernel.space
        for head, nodes in self._nodes.items():
            ring(space, [head, *nodes])
        kprcb = self.kernel.cpus[0].kprcb
        links = [dpc.at("DpcListEntry") for dpc in self._dpcs]
        if self.isf.has("_KDPC_DATA", "DpcList"):
            kprcb["DpcData[0].DpcList.ListHead.Next"] = (links or [0])[0]
            for link, following in zip(links, [*links[1:], 0]):
                space.write_int(link, following)
            kprcb["DpcData[0].DpcQueueDepth"] = len(links)
            return
        prefix = "DpcData[0]." if kprcb.has("DpcData") else ""
        ring(space, [kprcb.at(f"{prefix}DpcListHead"), *links])
        kprcb[f"{prefix}DpcQueueDepth"] = len(links)
