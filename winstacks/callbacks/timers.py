# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The timers and the queued DPCs of the processors.

A timer that expires calls the DeferredRoutine of its DPC, if it has one; a thread that waits with a timeout
has a timer without. Since 7 each KPRCB has a table of lists of timers; before, KiTimerTableListHead is one
table of all processors (public symbols). Its form is in no symbols, and the form that fits is taken.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from ..columns.words import TIMER
from ..memory.decode.status import NOTHING, Status, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.view import View
from ..memory.image import Image
from ..process.kernelobjects import is_type
from ..process.processors import processors_of
from .callback import DPC, Callback, ListFollower, is_unused, missing
from .decode.timertables import TimerTable, decoded_dpc, likeliest

_TIMER, _DPC, _ENTRY, _QUEUE = "_KTIMER", "_KDPC", "_KTIMER_TABLE_ENTRY", "_KDPC_DATA"
_PROCESSOR = "_KPRCB"
_ENTRIES = "TimerTable.TimerEntries"
_TABLE = "KiTimerTableListHead"
_LENGTHS = (512, 256)
"""The number of its lists: 256 on x86 before Vista (described: Volatility, `windows.timers`)."""

_TIMER_OBJECTS = (8, 9)
"""TimerNotificationObject and TimerSynchronizationObject of the public enumeration _KOBJECTS."""
_DPC_OBJECTS = (19, 24, 26)
"""DpcObject, and ThreadedDpcObject up to 7 and since 8, of the same enumeration."""
_TYPE = "Header.Type"
_DEPTH = "DpcQueueDepth"


class KernelTimers:
    """Lists the timers with DPCs and the queued DPCs of an image. Raises MissingMemberError if the kernel's
    symbols do not describe them."""

    def __init__(self, image: Image, lists: ListFollower) -> None:
        self._image, self._lists = image, lists
        self._memory = image.memory(image.kernel)
        self._links = image.types[_TIMER].offset("TimerListEntry.Flink", "TimerListEntry")
        self._queued = image.types[_DPC].offset("DpcListEntry.Flink", "DpcListEntry")
        self._keys = self._read_keys()

    def _read_keys(self) -> Optional[Tuple[int, int]]:
        """Returns the values with which Windows encodes pointers to DPCs; None if they are not there."""
        never, always = (
            self._memory.number(self._image.symbol(name), 8) for name in ("KiWaitNever", "KiWaitAlways")
        )
        return None if never is None or always is None else (never, always)

    def list_timers(self) -> Iterator[Callback]:
        """Yields the timers with a DPC, and for each table one row for what of it cannot be read."""
        for table in self._tables():
            yield from self._of_table(table)

    def _tables(self) -> Iterator[TimerTable]:
        types = self._image.types
        field = types.find(_PROCESSOR).first_member(_ENTRIES)
        if field is not None:
            entry = types[_ENTRY]
            first = field.offset + entry.offset("Entry.Flink", "Entry")
            for processor in self._image.service(processors_of):
                yield TimerTable(processor.kprcb + first, entry.size, field.size // entry.size)
            return
        start = self._image.symbol(_TABLE)
        if start is None and types.has(_ENTRY):
            # A table without any of this was made smaller, and says nothing of timers.
            self._image.lacks(types.find(_PROCESSOR).lack(_ENTRIES))
        if start is not None:
            pointer = self._memory.pointer_size
            # A head with a lock and the time when its first timer is due, with the time only, or alone.
            places = ((pointer, 2 * pointer + 16), (0, 2 * pointer + 8), (0, 2 * pointer))
            forms = [
                TimerTable(start + first, stride, length) for first, stride in places for length in _LENGTHS
            ]
            yield likeliest(forms, self._memory.links) or forms[-1]

    def _of_table(self, table: TimerTable) -> Iterator[Callback]:
        heads: Dict[int, Optional[Tuple[int, int]]] = {head: self._memory.links(head) for head in table.heads}
        absent = None in heads.values()
        faults = status(StatusCode.LIST_HEAD_UNREADABLE if absent else None)
        unread = 0
        for head, links in heads.items() if not is_unused(heads.values()) else ():
            if links in (None, (head, head)):
                continue
            nodes, fault = self._lists.follow(head)
            faults = status(faults, fault)
            for node in nodes:
                callback = self._timer(node - self._links)
                unread += callback is None
                if callback is not None and callback.routines:
                    yield callback
        yield from missing(TIMER, table.start, faults, unread)

    def _timer(self, address: int) -> Optional[Callback]:
        """Returns a timer, without routines if it has no DPC; None if its DPC cannot be read."""
        timer = self._image.at(_TIMER, address)
        stored, kind = timer["Dpc"], timer[_TYPE]
        if stored is None:
            return None
        dpc = self._dpc_of(stored, address)
        if not dpc:
            return Callback(TIMER, address)
        routine = self._routine(dpc)
        if routine is None:
            return None
        sound = any(is_type(kind, known) for known in _TIMER_OBJECTS)
        return Callback(TIMER, address, (routine,), NOTHING if sound else contradicted(_TYPE))

    def _dpc_of(self, stored: int, timer: int) -> int:
        """Returns the address of a timer's DPC, as it is stored or decoded; 0 if the timer has none.

        What the address holds decides: a DPC has its own type.
        """
        if not stored or self._keys is None or self._routine(stored) is not None:
            return stored
        return decoded_dpc(stored, timer, *self._keys)

    def _routine(self, address: int) -> Optional[int]:
        """Returns the DeferredRoutine of a DPC; None if no DPC is there, or it cannot be read."""
        dpc = self._image.at(_DPC, address if self._image.machine.is_canonical(address) else None)
        return (dpc["DeferredRoutine"] or None) if dpc["Type"] in _DPC_OBJECTS else None

    def list_dpcs(self) -> Iterator[Callback]:
        """Yields the DPCs that wait for a processor, and for each queue one row for what cannot be read."""
        for queue in self._queues():
            yield from self._of_queue(queue)

    def _queues(self) -> Iterator[View]:
        """Yields the queues of DPCs: one or two of each processor; in XP its KPRCB is the queue."""
        field = self._image.types.find(_PROCESSOR).first_member("DpcData")
        for processor in self._image.service(processors_of):
            if field is None:
                yield self._image.at(_PROCESSOR, processor.kprcb)
                continue
            size = self._image.types[_QUEUE].size
            for offset in range(0, field.size, size):
                yield self._image.at(_QUEUE, processor.kprcb + field.offset + offset)

    def _of_queue(self, queue: View) -> Iterator[Callback]:
        nodes, faults, place = self._nodes(queue)
        depth = queue[_DEPTH]
        if not faults and depth is not None and depth != len(nodes):
            faults = contradicted(_DEPTH)
        routines = [(node - self._queued, self._routine(node - self._queued)) for node in nodes]
        found: List[Callback] = [Callback(DPC, dpc, (routine,)) for dpc, routine in routines if routine]
        yield from found
        yield from missing(DPC, place, faults, len(routines) - len(found))

    def _nodes(self, queue: View) -> Tuple[Tuple[int, ...], Status, int]:
        """Returns the nodes of a queue, what is wrong with it, and the address of its head."""
        single = queue.place("DpcList.ListHead.Next")
        if single is not None:
            first = self._memory.pointer(single)
            if first is None:
                return (), status(StatusCode.LIST_HEAD_UNREADABLE), single
            return (*self._lists.follow_single(first), single)
        head = queue.place("DpcListHead")
        if head is None:
            self._image.lacks(queue.lack("DpcListHead"))
            return (), NOTHING, queue.address or 0
        if self._memory.links(head) == (0, 0):
            return (), NOTHING, head
        return (*self._lists.follow(head), head)
