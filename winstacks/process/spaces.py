# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the address spaces of an image: the kernel, each process, and the 32-bit half of a WoW64 process."""

from __future__ import annotations

import collections
import logging
from typing import Collection, Counter, Dict, Iterator, List, Optional, Protocol, Sequence, Set, Tuple

from volatility3.framework import constants, exceptions, interfaces
from volatility3.plugins.windows import psscan

from ..memory import bulk
from ..memory.decode import links, text
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.status import NOTHING, Status, StatusItem, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import KERNEL_PID, AddressSpace, Image
from .kernelobjects import IMAGE_FILE_NAME, PROCESS, VAD_ROOT, process_at, process_type, thread_type
from .processlist import (
    SYSTEM_PID,
    ListedProcess,
    page_tables,
    process_list,
    process_member,
)
from .programs import ProgramNames
from .thread import Choice
from .threadids import identifier

__all__ = ["KERNEL_PID", "AddressSpace", "AddressSpaces"]

vollog = logging.getLogger(__name__)


TEB_WITNESSES = 8
"""Threads of a process whose TEBs are read as witnesses: for the owner of page tables, and for a 32-bit
half."""


class Spaces(Protocol):
    """Lists the address spaces of an input. `status` is the contradiction in the list of processes: processes
    may be missing. Empty if there is none."""

    @property
    def status(self) -> Status: ...

    def list_spaces(self, choice: Choice) -> Iterator[AddressSpace]:
        """Yields the address spaces; see `AddressSpaces.list_spaces`."""


def spaces(image: Image) -> Spaces:
    """Returns the lister of address spaces, for `image.service(spaces)`: here it reads a kernel's lists."""
    return KernelSpaces(image)


class AddressSpaces:
    """Lists the address spaces of any input."""

    @classmethod
    def list_spaces(
        cls,
        image: Image,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
    ) -> Iterator[AddressSpace]:
        """Yields the kernel, then each process; a WoW64 process is followed by its 32-bit half. If page
        tables cannot be read, `status` of the space has the reason. If a process is not in the process list,
        its `remark` has this, and the witness that found it. If the list is damaged, the kernel's `remark`
        has this.

        Args:
            pids: process IDs to list, 0 for the kernel; None for all
            offset: virtual or physical address of an _EPROCESS that no list holds; then only this process is
                yielded
        """
        return image.service(spaces).list_spaces(Choice(pids, offset))


class KernelSpaces:
    """Lists the address spaces of a kernel's image: the kernel's provider of `spaces`."""

    def __init__(self, image: Image) -> None:
        self._image = image

    @property
    def status(self) -> Status:
        """Contradiction in the list of processes: processes may be missing. Empty if there is none."""
        return self._image.service(process_list).status

    def list_spaces(self, choice: Choice) -> Iterator[AddressSpace]:
        """Yields the address spaces; see `AddressSpaces.list_spaces`."""
        image = self._image
        if not image.table_name:
            return
        if choice.offset is None and choice.takes_process(KERNEL_PID):
            yield image.kernel._replace(remark=image.service(process_list).status)
        if image.require_member(PROCESS, "UniqueProcessId") is None:
            return
        for process in self._list_processes(image, choice.offset):
            pid, remark = self._id(process.eprocess)
            if choice.takes_process(pid):
                yield from self._process_spaces(image, process, pid, remark)

    def _id(self, eprocess: int) -> Tuple[Optional[int], Status]:
        """Returns the ID of a process, and why its own structure lacks it: `process unreadable`, or a number
        that is no ID."""
        stored = process_member(self._image, eprocess, "UniqueProcessId")
        pid = identifier(stored)
        if pid is not None:
            return pid, NOTHING
        why = status(StatusCode.PROCESS_UNREADABLE) if stored is None else contradicted("UniqueProcessId")
        return self._image.service(process_list).id_of(eprocess), why

    def _list_processes(self, image: Image, offset: Optional[int]) -> List[ListedProcess]:
        """Returns the processes that any witness knows, or the one at a virtual or physical offset."""
        if offset is None:
            return image.service(process_list).processes()
        eprocess = self._at_offset(image, offset) if image.table_name else None
        return [] if eprocess is None else [ListedProcess(eprocess, NOTHING)]

    def _at_offset(self, image: Image, offset: int) -> Optional[int]:
        """Returns the canonical address of the _EPROCESS at a virtual or physical offset, None if there is
        none."""
        layer = image.layer
        size = process_type(image).size
        if image.service(process_list).has(offset):
            return offset
        if layer.is_valid(bulk.masked(layer, offset), size):
            return image.machine.canonical(offset)
        below = layer.config["memory_layer"]
        if not image.context.layers[below].is_valid(offset, size):
            vollog.warning(f"There is no _EPROCESS at {offset:#x}, virtual or physical")
            return None
        type_name = image.table_name + constants.BANG + PROCESS
        physical = image.context.object(type_name, below, offset, native_layer_name=layer.name)
        try:
            process = psscan.PsScan.virtual_process_from_physical(
                image.context, image.kernel_module_name, physical
            )
        except exceptions.InvalidAddressException:
            process = None
        if process is None:
            vollog.warning(f"The physical offset {offset:#x} is not the address of an _EPROCESS")
            return None
        return image.machine.canonical(int(process.vol.offset))

    def _process_spaces(
        self, image: Image, process: ListedProcess, pid: Optional[int], unreadable: Status
    ) -> Iterator[AddressSpace]:
        """Yields the native space of a process and, if it is a WoW64 process, its 32-bit half."""
        address = process.eprocess
        eprocess, view = image.object_at(PROCESS, address), process_at(image, address)
        raw = b"" if view.lacks(IMAGE_FILE_NAME) else view.data(IMAGE_FILE_NAME)
        peb = 0 if view.lacks("Peb") else view["Peb"]
        fault, layer_name = NOTHING, ""
        if view.lacks("Pcb.DirectoryTableBase") or view["Pcb.DirectoryTableBase"] is None:
            fault = status(StatusCode.PAGE_TABLES_UNREADABLE)
        else:
            try:
                layer_name = self._process_layer(image, eprocess)
            except exceptions.InvalidAddressException:
                fault = status(StatusCode.PAGE_TABLES_UNREADABLE)
        wow64 = self._is_wow64(eprocess) if image.machine is Machine.AMD64 else False
        unreadable = status(unreadable, StatusCode.PROCESS_UNREADABLE if None in (raw, peb, wow64) else None)
        named = image.service(PageTableRoots).pebs(address, layer_name, pid, peb) if layer_name else set()
        other = bool(named) and peb not in (None, *named) and not view.lacks("Peb")
        # Windows gives a PEB a page of its own.
        moved = contradicted("Peb") if other or (peb or 0) % PAGE_SIZE else None
        # A process can write its TEBs: theirs is taken only if the kernel has no address.
        peb = peb or min(named, default=0)
        remark = status(process.status, unreadable, moved)
        if layer_name:
            roots = image.service(PageTableRoots)
            fault, doubt = roots.check(address, layer_name)
            layer_name, remark = "" if fault else layer_name, status(remark, doubt)
            # A process without memory has lost nothing.
            fault = NOTHING if fault and roots.has_ended(address) else fault
        remark = status(remark, image.service(ProgramNames).doubt(address))
        native = AddressSpace(
            pid=pid,
            process=text.cell(text.narrow(raw or b"")),
            machine=image.machine,
            layer_name=layer_name,
            eprocess=address,
            peb=image.machine.canonical(peb or 0),
            status=fault,
            remark=remark,
        )
        half: Optional[AddressSpace] = None
        if image.machine is Machine.AMD64:
            is_wow64, peb32, wrong = bool(wow64), 0, False
            witnessed_peb = (
                image.service(PageTableRoots).peb32(address, layer_name, pid, is_wow64)
                if layer_name
                else None
            )
            if is_wow64:
                try:
                    peb32 = self._wow64_peb(image, eprocess)
                except exceptions.InvalidAddressException:
                    unread = status(StatusCode.WOW64_PROCESS_STRUCTURE_UNREADABLE)
                    # Without a 32-bit half the pointer leads nowhere because it is wrong.
                    wrong, peb32 = witnessed_peb == 0, witnessed_peb or 0
                    if peb32:
                        native = native._replace(remark=status(native.remark, unread))
                    else:
                        fault = fault or unread
            if wrong or witnessed_peb not in (None, peb32):
                doubt = status(native.remark, contradicted("WoW64Process"))
                native, peb32 = native._replace(remark=doubt), witnessed_peb or peb32
            if is_wow64 or peb32:
                half = native._replace(machine=Machine.I386, wow64=True, peb=peb32, status=fault)
        yield native
        if half is not None:
            yield half

    @staticmethod
    def _is_wow64(eprocess: interfaces.objects.ObjectInterface) -> Optional[bool]:
        """Returns whether a process has a 32-bit half; None if that is not in the image."""
        try:
            return bool(eprocess.get_is_wow64())
        except exceptions.InvalidAddressException:
            return None

    def _process_layer(self, image: Image, eprocess: interfaces.objects.ObjectInterface) -> str:
        """Returns the layer of a process, made once per context (Volatility makes a new one each time)."""
        name = f"{eprocess.vol.layer_name}_stacktraces_{eprocess.vol.offset:x}"
        if name in image.context.layers:
            return name
        return str(eprocess.add_process_layer(preferred_name=name))

    def _wow64_peb(self, image: Image, eprocess: interfaces.objects.ObjectInterface) -> int:
        """Returns the address of PEB32.

        Since Windows 10 EPROCESS.WoW64Process points to an _EWOW64PROCESS, whose Peb is the address; on 2003
        and Vista to a _WOW64_PROCESS, whose Wow64 is the address; on 7 and 8 to PEB32 itself.
        """
        wow64 = int(eprocess.get_wow_64_process())
        for type_name, member in (("_EWOW64PROCESS", "Peb"), ("_WOW64_PROCESS", "Wow64")):
            if image.types.has(type_name):
                if image.require_member(type_name, member) is None:
                    return 0
                return int(image.object_at(type_name, wow64).member(member))
        # Windows 10 and later spell the member so, and their tables have the structure (public symbols).
        if process_type(image).has("WoW64Process"):
            image.lacks("_EWOW64PROCESS")
            return 0
        return wow64


class PageTableRoots:
    """Checks that DirectoryTableBase of each process is its own, with the TEBs as second witness.

    Made as `image.service(PageTableRoots)`. Only Idle and System share their page tables. An exited process
    may no longer have any.
    """

    def __init__(self, image: Image) -> None:
        process, thread, teb = process_type(image), thread_type(image), image.types.find("_TEB")
        if not teb.known:
            image.lacks("_TEB")
        self._image = image
        self._memory = image.memory(image.kernel)
        self._results: Memo[Tuple[int, str], Tuple[Status, Status]] = Memo(self._check)
        self._owners: Dict[int, List[int]] = {}
        self._pids: Dict[int, int] = {}
        self._highest = self._memory.pointer(image.require_symbol("MmHighestUserAddress"))
        self._trees: Counter[Optional[int]] = collections.Counter()
        self._system: Optional[int] = None
        self._kernel = page_tables(image, int(image.layer.config.get("page_map_offset") or 0))
        if not process.known:
            return
        self._fields = [
            image.require_member(PROCESS, path)
            for path in ("UniqueProcessId", "Pcb.DirectoryTableBase", "Peb", "ExitTime.QuadPart")
        ]
        self._count = process.first_member("ActiveThreads")
        self._vads = process.first_member(*VAD_ROOT)
        self._threads = image.require_member(PROCESS, "ThreadListHead")
        self._entry, self._teb = thread.first_member("ThreadListEntry"), thread.first_member("Tcb.Teb")
        self._client = teb.first_member("ClientId.UniqueProcess")
        self._self, self._peb_of_teb = map(teb.first_member, ("NtTib.Self", "ProcessEnvironmentBlock"))
        self._first = teb.first_member("NtTib.ExceptionList")
        for listed in image.service(process_list).processes():
            pid, root, alive = self._read(listed.eprocess)
            if alive:
                self._owners.setdefault(root, []).append(listed.eprocess)
                self._pids[listed.eprocess] = pid
                tree = self._tree(listed.eprocess)
                if tree is not None:
                    self._trees[tree] += 1
            elif pid == SYSTEM_PID:
                self._system = root

    def check(self, eprocess: int, layer_name: str) -> Tuple[Status, Status]:
        """Returns proof that the page tables of a process are not its own, and doubts about the process.

        Both are statuses. The first is empty unless proven: then the memory in these tables belongs to
        another process. Both are empty for a process without a user half.
        """
        return self._results[eprocess, layer_name]

    def has_ended(self, eprocess: int) -> bool:
        """Returns whether a process has ended, and so have its threads."""
        return bool(self._exit_time(eprocess)) and self._memory.member(eprocess, self._count) == 0

    def _check(self, key: Tuple[int, str]) -> Tuple[Status, Status]:
        eprocess, layer_name = key
        pid, root, alive = self._read(eprocess)
        # Windows uses the pages of tables again when a process is gone.
        if not self._maps_kernel(eprocess, layer_name):
            return status(StatusCode.PAGE_TABLES_UNREADABLE), NOTHING
        if not alive:
            users = self._owners.get(root, ()) if pid == SYSTEM_PID and root != self._kernel else ()
            return NOTHING, self._page_tables_of(users)
        if root in (self._system, self._kernel) and self._pid_in_tebs(eprocess, layer_name) != pid:
            return status(StatusItem(StatusCode.PAGE_TABLES_OF_PROCESS, SYSTEM_PID)), NOTHING
        wrong = ["Peb"] if self._highest and self._peb(eprocess) > self._highest else []
        tree = self._tree(eprocess)
        if tree == 0 or self._trees[tree] > 1:
            wrong.append("VadRoot")
        doubt = contradicted(*wrong)
        others = [user for user in self._owners.get(root, ()) if user != eprocess]
        if not others:
            return NOTHING, doubt
        shared = self._page_tables_of(others)
        teb_pid = self._pid_in_tebs(eprocess, layer_name)
        return (NOTHING, status(shared, doubt)) if teb_pid in (None, pid) else (shared, doubt)

    def _page_tables_of(self, users: Sequence[int]) -> Status:
        """Returns the status of page tables that the first of several processes has; empty without one."""
        return status(StatusItem(StatusCode.PAGE_TABLES_OF_PROCESS, self._pids[users[0]]) if users else None)

    def _peb(self, eprocess: int) -> int:
        """Returns the address of a process's PEB, 0 if it cannot be read."""
        return self._memory.member(eprocess, self._fields[2]) or 0

    def _exit_time(self, eprocess: int) -> Optional[int]:
        """Returns when a process ended, 0 while it runs, None if that cannot be read."""
        return self._memory.member(eprocess, self._fields[3])

    def _tree(self, eprocess: int) -> Optional[int]:
        """Returns the root of a process's VADs, None if it cannot be read: no two processes share a root."""
        return self._memory.member(eprocess, self._vads)

    def _read(self, eprocess: int) -> Tuple[int, int, bool]:
        """Returns the ID of a process, the page of its tables, and whether it has a user half."""
        values = [self._memory.member(eprocess, field) for field in self._fields]
        pid, root, peb, exited = (value or 0 for value in values)
        return pid, page_tables(self._image, root), bool(peb) and not exited and pid != SYSTEM_PID

    def _maps_kernel(self, eprocess: int, layer_name: str) -> bool:
        """Returns whether page tables map the kernel's half, as the tables of each process do."""
        kernel_layer, layer = self._image.layer, self._image.context.layers[layer_name]
        address = bulk.masked(kernel_layer, eprocess)
        try:
            return bool(layer.translate(address) == kernel_layer.translate(address))
        except exceptions.InvalidAddressException:
            return False

    def _pid_in_tebs(self, eprocess: int, layer_name: str) -> Optional[int]:
        """Returns the process ID in the first readable TEB of a process, None if no TEB can be read."""
        user = self._image.memory_of(layer_name, self._image.pointer_size)
        pids = (user.member(teb, self._client) for teb in self._tebs(eprocess))
        return next((pid for pid in pids if pid is not None), None)

    def pebs(self, eprocess: int, layer_name: str, pid: Optional[int], known: Optional[int]) -> Set[int]:
        """Returns the addresses of the PEB that the TEBs of a live process name; empty if they name none.

        A TEB counts that has its own address and the ID of the process. The first that names the address
        which the kernel has, `known`, is the last that is read.
        """
        named: Set[int] = set()
        user = self._image.memory_of(layer_name, self._image.pointer_size)
        for teb in () if self._exit_time(eprocess) else self._tebs(eprocess):
            if user.member(teb, self._self) == teb and user.member(teb, self._client) == pid:
                named.add(user.member(teb, self._peb_of_teb) or 0)
                if known in named:
                    break
        return named - {0}

    def peb32(self, eprocess: int, layer_name: str, pid: Optional[int], wow64: bool) -> Optional[int]:
        """Returns the address of the PEB32 to which the TEBs of a process lead, None if unknown.

        The result is 0 for a process without a 32-bit half: none of its first threads has one, or it has no
        user half.

        NtTib.ExceptionList of a 64-bit TEB is 0; in a WoW64 process it is the address of the 32-bit TEB. The
        32-bit TEB holds its own address and the IDs of process and thread. `wow64` says whether the kernel
        marks the process as WoW64: then more than one thread is read.
        """
        first, user = self._first, self._image.memory_of(layer_name, 8)
        if first is None:
            return None
        if not self._peb(eprocess):
            return None if self._exit_time(eprocess) else 0
        values: Set[Optional[int]] = set()
        for teb in self._tebs(eprocess):
            teb32 = user.member(teb, first)
            if teb32 and teb32 <= Machine.I386.address_mask:
                half = self._image.memory_of(layer_name, 4)
                for structures in self._image.process_generations(Machine.I386):
                    types = structures["_TEB"]
                    same = half.member(teb32, types.field("NtTib.Self")) == teb32
                    if same and half.member(teb32, types.field("ClientId.UniqueProcess")) == pid:
                        return half.member(teb32, types.field("ProcessEnvironmentBlock"))
                return None
            values.add(teb32)
            if teb32 == 0 and not wow64:
                break
        return 0 if values == {0} else None

    def _tebs(self, eprocess: int) -> Iterator[int]:
        """Yields the TEBs of the first threads of a process."""
        if self._entry is None or self._threads is None:
            return
        for link in links.nodes(eprocess + self._threads.offset, self._memory.links, TEB_WITNESSES):
            teb = self._memory.member(link - self._entry.offset, self._teb)
            if teb:
                yield teb
