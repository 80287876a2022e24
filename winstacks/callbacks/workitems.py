# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work items that wait for a worker thread of the kernel.

Queues by public symbols: ExWorkerQueue has three `_EX_WORK_QUEUE`s while these hold a KQUEUE. Later each NUMA
node has pointers to its queues, first in its `_ENODE`, then in the system's `_EX_PARTITION`; such a queue has
a list for each priority.
"""

from __future__ import annotations

from typing import Iterator, Optional

from ..memory.decode.status import Status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from .callback import WORK_ITEM, Callback, ListFollower, missing

_QUEUE, _ITEM, _IO_ITEM = "_EX_WORK_QUEUE", "_WORK_QUEUE_ITEM", "_IO_WORKITEM"
_NODE, _PARTITION = "_ENODE", "_EX_PARTITION"
_ONE, _MANY = "WorkerQueue.EntryListHead", "WorkPriQueue.EntryListHead"

QUEUES = "ExWorkerQueue"

_OLD_QUEUES = 3
"""CriticalWorkQueue, DelayedWorkQueue and HyperCriticalWorkQueue (WORK_QUEUE_TYPE of the Windows driver
kit)."""
_POINTERS = 8
"""ExPoolMax of the public enumeration _EXQUEUEINDEX."""
_MAX_NODES = 64
"""The most NUMA nodes: MAXIMUM_NODE_COUNT of the Windows driver kit."""

_IO_ROUTINE = "IopProcessWorkItem"
"""The routine of all work items of IoQueueWorkItem: it calls the Routine of the `_IO_WORKITEM`."""


class WorkItems:
    """Lists the work items that are queued. Raises MissingMemberError if the kernel's symbols do not describe
    them."""

    def __init__(self, image: Image, lists: ListFollower) -> None:
        self._image, self._lists = image, lists
        self._memory = image.memory(image.kernel)
        item = image.types[_ITEM]
        self._links = item.offset("List.Flink", "List")
        self._io_routine = image.symbol(_IO_ROUTINE)

    def list_items(self) -> Iterator[Callback]:
        """Yields the items, and for each queue one row for what of it cannot be read."""
        lists = self._image.types[_QUEUE].field(_ONE, _MANY)
        size = 2 * self._memory.pointer_size
        for queue in self._queues():
            for offset in range(0, lists.size, size):
                yield from self._of_list(queue + lists.offset + offset)

    def _queues(self) -> Iterator[int]:
        """Yields the addresses of the queues."""
        types, memory = self._image.types, self._memory
        queue = types[_QUEUE]
        if queue.has(_ONE):
            first = self._image.symbol(QUEUES)
            for number in range(_OLD_QUEUES if first is not None else 0):
                yield (first or 0) + number * queue.size
            return
        nodes = memory.number(self._image.symbol("KeNumberNodes"), 2)
        for node in range(min(nodes or 1, _MAX_NODES)):
            pointers = self._pointers(node)
            for number in range(_POINTERS if pointers else 0):
                address = memory.pointer((pointers or 0) + number * memory.pointer_size)
                if address:
                    yield address

    def _pointers(self, node: int) -> Optional[int]:
        """Returns the address of the pointers to the queues of a NUMA node."""
        image, memory = self._image, self._memory
        step = node * memory.pointer_size
        if image.types.find(_PARTITION).has("WorkQueues"):
            partition = image.at("_EPARTITION", memory.pointer(image.require_symbol("PspSystemPartition")))
            queues = image.at(_PARTITION, partition["ExPartition"])["WorkQueues"]
            return memory.pointer(queues + step) if queues else None
        block = image.require_symbol("KeNodeBlock")
        address = None if block is None else memory.pointer(block + step)
        return image.at(_NODE, address).place("ExWorkQueues")

    def _of_list(self, head: int) -> Iterator[Callback]:
        if self._memory.links(head) == (0, 0):
            return
        nodes, faults = self._lists.follow(head)
        unread = 0
        for node in nodes:
            item = self._item(node - self._links)
            unread += item is None
            if item is not None:
                yield item
        yield from missing(WORK_ITEM, head, faults, unread)

    def _item(self, address: int) -> Optional[Callback]:
        """Returns a work item; None if its routine cannot be read."""
        routine = self._image.at(_ITEM, address)["WorkerRoutine"]
        if not routine:
            return None
        if routine != self._io_routine:
            return Callback(WORK_ITEM, address, (routine,))
        called = self._image.at(_IO_ITEM, address)["Routine"]
        unread: Optional[Status] = None if called else status(StatusCode.PARTLY_UNREADABLE)
        return Callback(WORK_ITEM, address, (called, routine) if called else (routine,), status(unread))
