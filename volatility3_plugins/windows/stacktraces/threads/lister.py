# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The threads of an image: who they are, how they stand, and where their stacks are.

    for thread in Threads.list_threads(context, kernel_module_name, pids=[4], tids=[8]):
        for segment in kernelstacks.segments(context, kernel_module_name, thread): ...

Trap frames and call stacks both start here. Each _ETHREAD is read in one piece and taken apart by the
offsets of the image's symbol table; what of it is paged out is None.
"""

from __future__ import annotations

import logging
from typing import Collection, Dict, Iterator, List, NamedTuple, Optional

from volatility3.framework import interfaces

from ..base import bulk, members
from ..base.decode import links
from ..base.decode.extents import Extents
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from . import ids, owners
from . import scan as threadscan
from .decode import state as threadstate
from .ids import LOCK_BIT, THREAD_OBJECT
from .owners import Process
from .processors import Processors

vollog = logging.getLogger(__name__)

MAX_THREADS = 1 << 16
"""Threads of one process that are looked at."""

UNREADABLE = "unreadable"
PARTLY_READABLE = "partly unreadable"
NOT_A_THREAD = "not a thread"
LIST_DAMAGED = "thread list damaged"
LIST_ALTERED = "thread list altered"
"""One link of this thread is wrong, yet no thread is missing: Windows changes both sides at once."""

NOT_LISTED = "not in the thread list"
TERMINATED = "terminated"

_MEMBERS = {
    "type": ("Tcb.Header.Type",),
    "debug_active": ("Tcb.Header.DebugActive", "Tcb.DebugActive"),
    "pid": ("Cid.UniqueProcess",),
    "tid": ("Cid.UniqueThread",),
    "process": ("Tcb.Process", "ThreadsProcess", "Tcb.ApcState.Process"),
    "stack_base": ("Tcb.StackBase",),
    "stack_limit": ("Tcb.StackLimit",),
    "initial_stack": ("Tcb.InitialStack",),
    "kernel_stack": ("Tcb.KernelStack",),
    "trap_frame": ("Tcb.TrapFrame",),
    "teb": ("Tcb.Teb",),
    "state": ("Tcb.State",),
    "wait_reason": ("Tcb.WaitReason",),
    "start_address": ("StartAddress",),
    "win32_start_address": ("Win32StartAddress",),
}


class Thread(NamedTuple):
    """A thread. Addresses are canonical; a member that could not be read is None.

    `space` is the native address space of its process, `wow64` the 32-bit half if it has one. `ethread` is 0
    where only a scan of physical memory found the thread, and for a row that stands for a damaged list.
    `processor` is the number of the processor on which it is running.
    """

    ethread: int
    space: AddressSpace
    wow64: Optional[AddressSpace]
    tid: Optional[int]
    stack_base: Optional[int]
    stack_limit: Optional[int]
    initial_stack: Optional[int]
    kernel_stack: Optional[int]
    trap_frame: Optional[int]
    teb: Optional[int]
    state: Optional[int]
    wait_reason: Optional[int]
    debug_active: Optional[int]
    start_address: Optional[int]
    win32_start_address: Optional[int]
    processor: Optional[int]
    status: str

    @property
    def running(self) -> bool:
        """Whether a processor was executing it: its stack pointer is in no memory then."""
        return self.processor is not None or self.state == threadstate.RUNNING

    @property
    def state_name(self) -> str:
        """The name of its scheduling state, empty if that could not be read."""
        return "" if self.state is None else threadstate.state_name(self.state)

    @property
    def wait_reason_name(self) -> str:
        """Why it waits; empty unless it does."""
        waits = self.state == threadstate.WAITING and self.wait_reason is not None
        return threadstate.wait_reason_name(self.wait_reason or 0) if waits else ""


class Threads(interfaces.configuration.VersionableInterface):
    """Lists the threads of an image."""

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        super().__init__()
        kernel = context.modules[kernel_module_name]
        self._context = context
        self._name = kernel_module_name
        self._layer = context.layers[kernel.layer_name]
        table = kernel.symbol_table_name
        self._size = members.size_of(context, table, "_ETHREAD")
        found = {name: members.find(context, table, "_ETHREAD", *paths) for name, paths in _MEMBERS.items()}
        self._fields = {name: field for name, field in found.items() if field is not None}
        self._entry = members.need(context, table, "_ETHREAD", "ThreadListEntry")
        self._head = members.need(context, table, "_EPROCESS", "ThreadListHead")
        self._peek = Peek(context, kernel.layer_name, members.need(context, table, "_KTHREAD", "Teb").size)
        listed = Processors.list_processors(context, kernel_module_name)
        self._running = {cpu.current_thread: cpu.number for cpu in listed if cpu.current_thread}

    @classmethod
    def list_threads(
        cls,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
        tids: Optional[Collection[int]] = None,
        scan: bool = False,
    ) -> Iterator[Thread]:
        """Yields threads, process by process.

        Args:
            context: the context that holds the image
            kernel_module_name: the name of the kernel's module in the context
            pids: the processes wanted; all when None or empty
            offset: an _EPROCESS that no list holds: only its threads
            tids: the threads wanted; all when None or empty
            scan: add the threads that only a scan for their pool blocks finds

        Yields:
            The threads. One that cannot be read, or is none, has a `status`; so has the row that stands
            for the rest of a damaged list.
        """
        finder = cls(context, kernel_module_name)
        processes = list(owners.processes(context, kernel_module_name, pids, offset))
        seen: List[int] = []
        for process in processes:
            for thread in finder._of(process):
                seen.append(thread.ethread)
                if not tids or thread.tid is None or thread.tid in tids:
                    yield thread
        if scan:
            for thread in finder._scanned(processes, seen, bool(pids) or offset is not None):
                if not tids or thread.tid in tids:
                    yield thread

    def _of(self, process: Process) -> Iterator[Thread]:
        """Yields the threads on a process' list, which is walked from both ends if it is damaged."""
        assert process.space.eprocess is not None
        eprocess = bulk.canonical(self._layer, int(process.space.eprocess.vol.offset))
        walk = links.walk(eprocess + self._head.offset, self._peek.links, MAX_THREADS)
        lost = walk.gap.lost if walk.gap is not None else ()
        for entry in (*walk.before, *lost, *walk.after):
            ethread = entry - self._entry.offset
            memory_of = bulk.read_extents(self._context, self._layer.name, ethread, self._size)
            thread = self._thread(process, ethread, ethread, memory_of)
            if walk.altered is not None and walk.altered.link == entry:
                thread = thread._replace(status=", ".join(filter(None, (LIST_ALTERED, thread.status))))
            yield thread
        head_altered = walk.altered is not None and walk.altered.link == eprocess + self._head.offset
        if head_altered or (walk.gap is not None and not walk.gap.exact):
            vollog.warning(f"The thread list of process {process.space.pid} is damaged")
            yield self._thread(process, 0, 0, Extents([]))._replace(status=LIST_DAMAGED)

    def _thread(self, process: Process, ethread: int, start: int, held: Extents) -> Thread:
        """Makes a thread of the bytes of its _ETHREAD, which lie at `start` in `held`."""
        values: Dict[str, Optional[int]] = dict.fromkeys(_MEMBERS)
        for name, field in self._fields.items():
            data = held.read(start + field.offset, field.size)
            values[name] = None if data is None else field.of(data, -field.offset)
        status = PARTLY_READABLE if None in (values[name] for name in self._fields) else ""
        if values["type"] is not None and values["type"] & ~LOCK_BIT != THREAD_OBJECT:
            status = NOT_A_THREAD
        elif not held.runs:
            status = UNREADABLE
        elif values["state"] == threadstate.TERMINATED:
            status = TERMINATED
        values["tid"] = ids.identifier(values["tid"])
        wanted = {name: values[name] for name in Thread._fields if name in values}
        processor = self._running.get(ethread)
        return Thread(
            ethread=ethread,
            space=process.space,
            wow64=process.wow64,
            processor=processor,
            status=status,
            **wanted,
        )

    def _scanned(self, processes: List[Process], seen: List[int], restricted: bool) -> Iterator[Thread]:
        """Yields the threads that are on no list, found by the tags of their pool blocks."""
        known = {int(each.space.eprocess.vol.offset): each for each in processes if each.space.eprocess}
        for place in threadscan.scan(self._context, self._name, [address for address in seen if address]):
            held = bulk.read_extents(self._context, place.layer_name, place.address, self._size)
            start = held.runs[0][0] if held.runs else 0
            owner = self._owner(start, held)
            process = known.get(owner)
            if process is None and not restricted and owner:
                process = next(owners.processes(self._context, self._name, offset=owner), None)
            if process is not None:
                thread = self._thread(process, place.ethread, start, held)
                if thread.status != NOT_A_THREAD:
                    status = ", ".join(filter(None, (NOT_LISTED, thread.status)))
                    yield thread._replace(status=status)

    def _owner(self, start: int, held: Extents) -> int:
        """Returns the address of the _EPROCESS that a thread names, in the layer's form, or 0."""
        field = self._fields["process"]
        data = held.read(start + field.offset, field.size)
        return 0 if data is None else bulk.masked(self._layer, field.of(data, -field.offset))
