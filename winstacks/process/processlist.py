# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The processes of an image, and the witnesses that know each of them: no single write hides a process.

PsActiveProcessHead is walked from both ends. Processes that it lacks are looked for in three places:
PspCidTable, which has the IDs of all processes and threads, and so leads also to the processes of these
threads; the threads that processors were executing; and the processes for which handle tables were made
(HandleTableListHead). A pool scan may add more.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Dict, Iterator, List, Optional, Protocol, Set, Tuple

from volatility3.framework import exceptions, interfaces
from volatility3.plugins.windows import psscan

from ..memory import bulk
from ..memory.decode import links
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, naming, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import Field, MissingMemberError
from ..memory.decode.text import counted
from ..memory.image import Image
from .cidtable import CID_TABLE, CidTable, id_differs
from .handletables import HandleTables, handle_tables
from .kernelobjects import (
    PROCESS_OBJECT,
    PROCESS_OF_THREAD,
    is_absent,
    is_type,
    may_lie_at,
    process_at,
    process_type,
    thread_at,
)
from .processors import PROCESSORS, processors_of

vollog = logging.getLogger(__name__)

SYSTEM_PID = 4
MAX_PROCESSES = 1 << 16
MAX_STRANGE = 256
"""The most nodes of the list that are shown although no process is known to be there: their type is another,
or it is not in the image and PspCidTable lacks them, too. Windows' own list has few, and a page has room for
hundreds of links."""

LIST_SYMBOL = "PsActiveProcessHead"
HANDLE_TABLES = "HandleTableListHead"
POOL_SCAN = "pool scan"


def create_time(image: Image, eprocess: int) -> Optional[int]:
    """Returns the creation time of a process as a FILETIME; None if it cannot be read."""
    return process_member(image, eprocess, "CreateTime.QuadPart")


def process_member(image: Image, eprocess: int, *paths: str) -> Optional[int]:
    """Returns a member of an _EPROCESS; None if it cannot be read, or the kernel's symbols lack it.

    Args:
        eprocess: canonical address of the _EPROCESS, 0 if none is known
        paths: the member, by its names in different versions
    """
    return process_at(image, eprocess).first(*paths)


def is_isolated(image: Image, eprocess: int) -> bool:
    """Returns whether the user half of a process is in VTL 1, as in LsaIso.exe: no image has that memory."""
    handles = ("Pcb.SecureState.SecureHandle", "Pcb.SecurePid")
    return any(process_member(image, eprocess, path) for path in handles)


def page_tables(image: Image, directory_table_base: int) -> int:
    """Returns the physical address of the page tables that DirectoryTableBase names, without its flags.

    PAE tables are aligned to 32 bytes, all others to a page. 32-bit kernels before Vista keep two numbers of
    32 bits there: the second one is the page directory of hyperspace.
    """
    return directory_table_base & ~0x1F & (1 << 8 * image.pointer_size) - 1


_SCAN_ERRORS = (AttributeError, IndexError)
"""Exceptions that Volatility's scans raise if the kernel's table lacks a member that they read."""


def found_by(witness: str) -> Status:
    """Returns the status of a process or thread that is on no list."""
    return naming(StatusCode.FOUND_BY, witness)


class ListedProcess(NamedTuple):
    """A process. `status` names the witness that found it, if it is not in the process list, and
    contradictions in its structure."""

    eprocess: int
    status: Status


class Processes(Protocol):
    """The processes of an input. A dump, which names its processes and has no list of them, inherits.

    Attributes:
        status: `process list damaged`, or empty
        interrupted: whether nodes that are not in the image may lead to processes that are: processes
            missing in the list need not be hidden
    """

    @property
    def status(self) -> Status: ...

    @property
    def interrupted(self) -> bool:
        return False

    def processes(self) -> List[ListedProcess]:
        """Returns the listed processes in list order, then the processes that only a witness knows."""

    def scan(self) -> None:
        """Adds the processes that Volatility's pool scan finds; none in an input that has no pool."""
        return

    def has(self, eprocess: int) -> bool:
        """Returns whether one of the processes is at a canonical address."""
        return any(process.eprocess == eprocess for process in self.processes())

    def id_of(self, _eprocess: int) -> Optional[int]:
        """Returns the ID of a process whose own structure lacks it, None if it is unknown."""
        return None


class KernelProcesses:
    """The processes of a kernel's image: the kernel's provider of `process_list`."""

    def __init__(self, image: Image) -> None:
        self.status: Status = NOTHING
        self.interrupted = self._broken = False
        self._strange = 0
        self._image = image
        self._memory = image.memory(image.kernel)
        self._found: Dict[int, Status] = {}
        if not image.table_name:
            return
        self._kind: Optional[Field] = None
        try:
            process = process_type(image)
            self._links = process.offset("ActiveProcessLinks")
            self._pid = process.field("UniqueProcessId")
            self._kind = process.field("Pcb.Header.Type")
        except MissingMemberError as error:
            image.lacks(error)
            self.status = status(StatusCode.PROCESS_LIST_DAMAGED)
            return
        self._ids = image.service(CidTable)
        self._listed()
        for witness, eprocess in self._witnesses():
            self._add(eprocess, witness)
        if self._broken:
            self._follow_links()

    def scan(self) -> None:
        """Adds the processes that Volatility's pool scan finds and that still have page tables."""
        for eprocess in _scan(self._image) if self._image.table_name else ():
            self._add(eprocess, POOL_SCAN)

    def processes(self) -> List[ListedProcess]:
        """Returns the listed processes in list order, then the processes that only a witness knows."""
        return [ListedProcess(eprocess, status) for eprocess, status in self._found.items()]

    def has(self, eprocess: int) -> bool:
        """Returns whether one of the processes is at a canonical address."""
        return eprocess in self._found

    def _listed(self) -> None:
        """Adds the processes of the list, from both ends."""
        head = self._image.require_symbol(LIST_SYMBOL)
        walk = (
            links.ListWalk((), (), None)
            if head is None
            else links.walk(head, self._memory.links, MAX_PROCESSES)
        )
        nodes = dict.fromkeys(walk.nodes)
        if walk.gap is not None:
            # Beyond a break, a link is believed if it leads to a process.
            for end, direction in ((walk.gap.forward, 0), (walk.gap.backward, 1)):
                nodes.update(dict.fromkeys(self._beyond(head or 0, end.link, direction, set(nodes))))
            is_lost = functools.partial(is_absent, self._memory)
            absent = links.absent_nodes(head or 0, walk.gap, is_lost, self._may_be_listed)
            self._broken = bool(absent)
            self.interrupted = links.may_hide(head or 0, walk.gap, absent)
        processes = [link - self._links for link in nodes if self._is_shown(link - self._links)]
        left_out = len(processes) < len(nodes)
        if walk.gap is not None or walk.altered is not None or not nodes or left_out:
            self.status = status(StatusCode.PROCESS_LIST_DAMAGED)
            vollog.warning(
                "process list damaged: processes may be missing (--scan-processes looks for them in the "
                "pools). A short table does not mean that the machine is clean"
            )
        self._found.update((eprocess, self._id_differs(eprocess)) for eprocess in processes)
        for link in walk.gap.lost if walk.gap is not None else ():
            if self._may_be_absent(link - self._links):
                self._found.setdefault(link - self._links, NOTHING)

    def _is_shown(self, eprocess: int) -> bool:
        """Returns whether a node of the list is shown: a process, or one of the first MAX_STRANGE others."""
        kind = self._memory.member(eprocess, self._kind)
        if is_type(kind, PROCESS_OBJECT) or (kind is None and eprocess in self._ids.unread):
            return True
        self._strange += 1
        return self._strange <= MAX_STRANGE

    def _follow_links(self) -> None:
        """Follows the links of all processes if parts of the list are not in the image.

        A process and its neighbour that lead to each other are on the list, even if other parts are missing.
        """
        head, linked, pending = self._image.require_symbol(LIST_SYMBOL), set(), list(self._found)
        while pending and len(self._found) < MAX_PROCESSES:
            eprocess = pending.pop()
            own_link = eprocess + self._links
            for direction, link in enumerate(self._memory.links(own_link) or ()):
                neighbour = link - self._links
                if link in (head, own_link):
                    continue
                neighbour_links = self._memory.links(link) if self._is_process(neighbour) else None
                if neighbour_links is not None and neighbour_links[1 - direction] == own_link:
                    linked |= {eprocess, neighbour}
                elif not self._may_be_absent(neighbour):
                    continue
                if neighbour not in self._found and self._is_shown(neighbour):
                    self._found[neighbour] = NOTHING
                    pending.append(neighbour)
        for eprocess in linked:
            self._found[eprocess] = self._id_differs(eprocess)

    def _beyond(self, head: int, first: int, direction: int, known: Set[int]) -> List[int]:
        """Returns the unknown processes to which the links lead from a node on."""

        def read_links(link: int) -> Optional[links.Links]:
            return self._memory.links(link) if self._is_process(link - self._links) else None

        limit = MAX_PROCESSES - len(known)
        nodes, end = links.take_nodes(links.steps(head, read_links, direction, limit, first, known))
        if end.reason == links.UNREADABLE and self._is_process(end.link - self._links):
            nodes.append(end.link)
        return nodes

    def _witnesses(self) -> Iterator[Tuple[str, int]]:
        """Yields (witness, address) of the processes to which other structures lead."""
        for eprocess in (*self._ids.processes, *self._ids.threads_of):
            yield CID_TABLE, eprocess
        for eprocess in self._running():
            yield PROCESSORS, eprocess
        for eprocess in self._of_handle_tables():
            yield HANDLE_TABLES, eprocess

    def _running(self) -> Iterator[int]:
        """Yields the processes of the threads that processors were executing."""
        for processor in self._image.service(processors_of):
            eprocess = thread_at(self._image, processor.current_thread).first(*PROCESS_OF_THREAD)
            if eprocess:
                yield eprocess

    def _of_handle_tables(self) -> Iterator[int]:
        """Yields the processes for which handle tables were made."""
        tables = handle_tables(self._image)
        for _, eprocess in tables.owners() if tables is not None else ():
            yield eprocess

    def _add(self, eprocess: int, witness: str) -> None:
        """Adds a process that a witness names, if it is a process. Idle (ID 0) is on no list."""
        if eprocess in self._found or len(self._found) >= MAX_PROCESSES:
            return
        if self._broken and self._may_be_absent(eprocess):
            self._found[eprocess] = found_by(witness)
            return
        if not self._is_process(eprocess) or self._memory.member(eprocess, self._pid) == 0:
            return
        remark = status(StatusCode.NOT_IN_THE_PROCESS_LIST, found_by(witness), self._id_differs(eprocess))
        self._found[eprocess] = remark

    def _is_process(self, eprocess: int) -> bool:
        return is_type(self._memory.member(eprocess, self._kind), PROCESS_OBJECT)

    def _may_be_listed(self, link: int) -> bool:
        """Returns whether a link may lead to a process, as far as its address and PspCidTable show."""
        eprocess = link - self._links
        return may_lie_at(self._image, eprocess) and self._ids.may_have(eprocess)

    def _may_be_absent(self, eprocess: int) -> bool:
        """Returns whether a pointer may lead to a process that is not in the image."""
        absent = self._kind is not None and self._memory.member(eprocess, self._kind) is None
        return absent and may_lie_at(self._image, eprocess)

    def id_of(self, eprocess: int) -> Optional[int]:
        """Returns the ID of a process whose own structure lacks it, None if it is unknown.

        PspCidTable has it, and so does the handle table that was made for the process.
        """
        pid = self._ids.processes.get(eprocess, self._ids.unread.get(eprocess))
        if pid is not None:
            return pid
        table = self._image.attempt(lambda: self._image.service(HandleTables).listed_table(eprocess))
        return None if table is None else table.pid or None

    def _id_differs(self, eprocess: int) -> Status:
        """Returns the status of a process whose own ID is not the one by which Windows finds it."""
        return id_differs(self._ids.processes.get(eprocess), self._memory.member(eprocess, self._pid))


def process_list(image: Image) -> Processes:
    """Returns the list of processes, for `image.service(process_list)`: here a kernel's."""
    return KernelProcesses(image)


@contextlib.contextmanager
def scanned(things: str) -> Iterator[None]:
    """Logs what ends a pool scan of Volatility, which is then over."""
    try:
        yield
    except exceptions.InvalidAddressException as fault:
        vollog.warning(f"The scan for {things} ended early: {fault.invalid_address:#x} cannot be read")
    except exceptions.SymbolError as error:
        vollog.warning(f"No scan for {things}: the kernel's symbols lack {error.symbol_name}")
    except _SCAN_ERRORS as error:
        vollog.warning(f"No scan for {things}, because the kernel's symbols are incomplete: {error}")


def _scan(image: Image) -> Iterator[int]:
    """Yields the canonical addresses of the processes that Volatility's pool scan finds."""
    skipped = 0
    with scanned("processes"):
        for process in psscan.PsScan.scan_processes(image.context, image.kernel_module_name):
            eprocess = _virtual(image, process)
            if eprocess is None:
                skipped += 1
            else:
                yield eprocess
    if skipped:
        vollog.warning(
            f"The scan found {counted(skipped, 'process', 'processes')} without a known address: not shown"
        )


def _virtual(image: Image, process: interfaces.objects.ObjectInterface) -> Optional[int]:
    """Returns the canonical address of a process that may lie in physical memory, None if unknown.

    Its threads point to it. If a process has no threads, its list of threads points to itself.
    """
    layer = image.layer
    if process.vol.layer_name == layer.name:
        return image.machine.canonical(int(process.vol.offset))
    try:
        head = image.machine.canonical(int(process.ThreadListHead.Flink))
        eprocess = head - process_type(image).offset("ThreadListHead")
        if bulk.physical(layer, eprocess) == process.vol.offset:
            return eprocess
        virtual = psscan.PsScan.virtual_process_from_physical(
            image.context, image.kernel_module_name, process
        )
    except exceptions.InvalidAddressException:
        return None
    return None if virtual is None else image.machine.canonical(int(virtual.vol.offset))
