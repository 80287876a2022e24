# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The asynchronous procedure calls (APCs) that are queued to threads.

A thread has two lists of `_KAPC`s, for the kernel and for user mode (public symbols). The kernel calls
KernelRoutine, and NormalRoutine in the mode of the list. QueueUserAPC gives a function of Windows as
NormalRoutine, which calls NormalContext (described: Windows Internals, part 2, "System mechanisms"); the
memory to which NormalContext leads decides whether it is a function.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional, Tuple

from ..memory.decode import links
from ..memory.decode.memo import Memo
from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status
from ..memory.decode.view import View
from ..memory.image import AddressSpace, Image
from ..process.kernelobjects import process_type, thread_type
from ..process.processlist import process_list
from ..process.regions import Region
from ..process.threads import MAX_THREADS_OF_PROCESS
from ..process.vads import regions
from .callback import APC, Callback, ListFollower, is_unused, missing

_APC = "_KAPC"
_HEADS, _ENTRY = "Tcb.ApcState.ApcListHead", "ApcListEntry"
_KERNEL, _USER = 0, 1
"""KernelMode and UserMode of the public enumeration _MODE: numbers of the lists."""
_WIDE = 8
"""Bytes of a pointer of the Windows that run 32-bit code beside their own."""
_MOST_KEPT = 1 << 16
"""Processes whose APCs are kept: the kernel and the process call code of each."""
_APC_OBJECT = 18
"""ApcObject of the public enumeration _KOBJECTS."""


class _Queued(NamedTuple):
    """The APCs of a process: each with the mode of its list."""

    apcs: Tuple[Tuple[int, View], ...]
    faults: Status


class QueuedApcs:
    """Lists the APCs that are queued to threads. Raises MissingMemberError if the kernel's symbols do not
    describe them."""

    def __init__(self, image: Image, lists: ListFollower) -> None:
        self._image, self._lists = image, lists
        self._memory = image.memory(image.kernel)
        thread = thread_type(image)
        self._heads = thread.offset(f"{_HEADS}[0].Flink", f"{_HEADS}.Flink", _HEADS)
        self._listed = thread.offset("ThreadListEntry")
        self._threads = process_type(image).offset("ThreadListHead")
        self._entry = image.types[_APC].offset(_ENTRY)
        self._queued: Memo[int, _Queued] = Memo(self._read, _MOST_KEPT)

    def of_kernel(self) -> Iterator[Callback]:
        """Yields the code of the kernel that the APCs of all threads call."""
        for process in self._image.service(process_list).processes():
            yield from self._called(process.eprocess, self._in_kernel)

    def of_process(self, space: AddressSpace) -> Iterator[Callback]:
        """Yields the code of user mode that the APCs of a process's threads call.

        A NormalRoutine in the kernel's half of a 64-bit address space is no code of the process, and is left
        out. The encoded routine of 32-bit code may look like that: no file at hand shows one.
        """
        known: List[Region] = []
        half = 1 << space.machine.address_bits - 1

        def in_process(mode: int, apc: View) -> Optional[Tuple[int, ...]]:
            routine, context = apc["NormalRoutine"], apc["NormalContext"]
            if mode != _USER:
                return ()
            if routine is None or context is None:
                return None
            if not routine or (routine & half and space.pointer_size == _WIDE):
                return ()
            if not known:
                known.extend(self._image.service(regions).list_regions(space)[0])
            called = span_at(known, context)
            return (context, routine) if called is not None and called.executable else (routine,)

        yield from self._called(space.eprocess, in_process)

    @staticmethod
    def _in_kernel(mode: int, apc: View) -> Optional[Tuple[int, ...]]:
        routine, normal = apc["KernelRoutine"], apc["NormalRoutine"] if mode == _KERNEL else 0
        if not routine or normal is None:
            return None
        return (normal, routine) if normal else (routine,)

    def _called(
        self, eprocess: int, routines_of: Callable[[int, View], Optional[Tuple[int, ...]]]
    ) -> Iterator[Callback]:
        """Yields the APCs of a process that have routines; what is None, or no APC, is counted."""
        queued, unread = self._queued[eprocess], 0
        for mode, apc in queued.apcs:
            routines = routines_of(mode, apc) if apc["Type"] == _APC_OBJECT else None
            unread += routines is None
            if routines:
                yield Callback(APC, apc.address or 0, routines)
        yield from missing(APC, eprocess, queued.faults, unread)

    def _read(self, eprocess: int) -> _Queued:
        """Reads the APCs of a process. A thread that only another structure shows is left to other checks."""
        walk = links.walk(eprocess + self._threads, self._memory.links, MAX_THREADS_OF_PROCESS)
        found: List[Tuple[int, View]] = []
        faults = NOTHING
        for node in walk.nodes:
            first = node - self._listed + self._heads
            heads = {mode: first + 2 * mode * self._memory.pointer_size for mode in (_KERNEL, _USER)}
            ends = {head: self._memory.links(head) for head in heads.values()}
            if None not in ends.values() and is_unused(ends.values()):
                continue
            for mode, head in heads.items():
                if ends[head] == (head, head):
                    continue
                nodes, fault = self._lists.follow(head)
                faults = status(faults, fault)
                found += [(mode, self._image.at(_APC, each - self._entry)) for each in nodes]
        return _Queued(tuple(found), faults)
