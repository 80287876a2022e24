# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The process of a dump: its halves, its threads and their registers, and the exception of one of them.

Source of the structures in the process's own memory: TEB and PEB (public symbols); the CPU area of a WoW64
thread (WOW64_TLS_CPURESERVED, see `traps/state.py`).
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Dict, FrozenSet, Iterator, List, Optional, Tuple

from ..memory.decode import text
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.status import NOTHING, Status, contradicted, naming, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.statustext import parsed
from ..memory.decode.structure import Structures
from ..memory.image import AddressSpace, Image
from ..names.decode.hybrid import read_code_map
from ..names.decode.pe import HeaderError, read_headers
from ..names.loaderlists import LoaderLists
from ..process.processlist import ListedProcess, Processes
from ..process.thread import Choice, SavedContext, Thread, user_thread
from ..process.userstacks import narrow_teb
from ..process.usertypes import with_teb
from ..traps.decode.context import ContextLayout, decode_any
from ..traps.decode.frame import CS_USER_32
from ..traps.state import context_layouts, narrow_context
from .decode.dumpfile import Minidump
from .decode.memory import memory_ranges
from .decode.modules import module_list
from .decode.platform import dump_machine
from .decode.system import NO_MISC, misc_info
from .decode.threads import (
    EXITED_THREAD,
    INVALID_CONTEXT,
    MinidumpThread,
    ThreadInfo,
    context,
    doubted_members,
    has_thread_list,
    thread_info_list,
    thread_list,
)
from .decode.threadstates import (
    INCOMPLETE_THREADS,
    KNOWN_START_ADDRESS,
    NO_STATE,
    WOW64_PROCESS,
    ThreadState,
    thread_states,
    trap_frames,
)
from .exceptioncontext import ExceptionContext
from .shadowstack import ShadowStacks

_NTDLL = "ntdll.dll"


class DumpProcess(Processes):
    """The process of a dump: the provider of address spaces, threads and the list of processes."""

    def __init__(self, image: Image, dump: Minidump) -> None:
        self._image = image
        self._dump = dump
        self._threads, self._list_status = thread_list(dump)
        self._no_list = not has_thread_list(dump)
        self._doubted = doubted_members(self._threads)
        self._infos: Dict[int, ThreadInfo] = {info.ThreadId: info for info in thread_info_list(dump)[0]}
        self._exception = ExceptionContext(image, dump)
        self._states = thread_states(dump)
        self._trap_frames: Dict[int, List[int]] = {}
        for frame in trap_frames(dump)[0]:
            self._trap_frames.setdefault(frame.ThreadId, []).append(frame.Address)
        self._listed: Memo[int, Thread] = Memo(self._thread)

    # The interface of `spaces`, and process_list.

    @property
    def status(self) -> Status:
        """Faults of the process list: none, the dump has one process."""
        return NOTHING

    def processes(self) -> List[ListedProcess]:
        return [ListedProcess(0, NOTHING)]

    def list_spaces(self, choice: Choice) -> Iterator[AddressSpace]:
        """Yields the native space, then the 32-bit half; see `AddressSpaces.list_spaces`."""
        if choice.offset is None and choice.takes_process(self.native.pid):
            yield self.native
            if self.wow64 is not None:
                yield self.wow64

    @cached_property
    def native(self) -> AddressSpace:
        """The space of the dump's machine."""
        machine, pid = self._image.machine, self._pid()
        peb = self._of_tebs(machine, "ProcessEnvironmentBlock") or 0
        peb = peb if self._read(peb) else 0
        # The kernel had its address, whether or not the image had its memory.
        peb = self._states.peb or peb
        space = AddressSpace(
            pid=pid,
            process="",
            machine=machine,
            layer_name=str(self._image.layer.name),
            peb=peb,
        )
        name, agreed = self._name(space)
        lost = [
            member for member, known in (("ProcessId", pid is not None), ("ModuleName", agreed)) if not known
        ]
        return space._replace(
            process=name,
            remark=status(
                contradicted(*lost),
                *dump_machine(self._dump).status,
                None if space.peb else StatusCode.PEB_NOT_IN_THE_DUMP,
            ),
        )

    @cached_property
    def _is_emulated(self) -> bool:
        """Whether the process ran x64 code on ARM64: then its ntdll is a hybrid image."""
        machine = self._image.machine
        if machine is not Machine.AMD64:
            return False
        memory = self._image.memory_of(str(self._image.layer.name), machine.pointer_size)
        for module in module_list(self._dump)[0]:
            if text.file_name(module.ModuleName or "").lower() != _NTDLL:
                continue
            base = module.BaseOfImage
            read = partial(_read_rva, memory, base)
            try:
                return read_code_map(read, read_headers(read), base) is not None
            except HeaderError:
                return False
        return False

    @cached_property
    def wow64(self) -> Optional[AddressSpace]:
        """The 32-bit half of a 64-bit process, None if it has none.

        The TEBs lead to it. If the dump lacks their memory, a thread in 32-bit code proves the half, or the
        module that runs such code.
        """
        native = self.native
        if native.machine is not Machine.AMD64:
            return None
        states, peb = self._states, self._peb32()
        if states.flags & WOW64_PROCESS:
            return native._replace(machine=Machine.I386, wow64=True, peb=states.peb32)
        if peb is None and not (self._runs_wow64 or any(map(self._in_32_bit_code, self._threads))):
            return None
        there = self._read(peb)
        return native._replace(
            machine=Machine.I386,
            wow64=True,
            peb=(peb or 0) if there else 0,
            remark=status(native.remark, None if there else StatusCode.PEB_NOT_IN_THE_DUMP),
        )

    def _peb32(self) -> Optional[int]:
        """Returns the address of the PEB32 to which the TEBs lead, None if they lead to none."""
        memory = self._image.memory_of(str(self._image.layer.name), Machine.I386.pointer_size)
        for thread in self._threads:
            teb = narrow_teb(self._image, self.native, thread.Teb)
            narrow = self._types(Machine.I386, teb)["_TEB"]
            if teb and memory.member(teb, narrow.field("NtTib.Self")) == teb:
                return memory.member(teb, narrow.field("ProcessEnvironmentBlock")) or 0
        return None

    @cached_property
    def _runs_wow64(self) -> bool:
        names = (module.ModuleName or "" for module in module_list(self._dump)[0])
        return any(name.lower().endswith("\\wow64.dll") for name in names)

    def _types(self, machine: Machine, teb: int) -> Structures:
        """Returns the user-mode structures with which a TEB of one half is read."""
        return with_teb(self._image, self._image.kernel._replace(machine=machine), teb)

    @cached_property
    def _forms(self) -> Tuple[ContextLayout, ...]:
        return context_layouts(self._image, self._image.machine)

    def _in_32_bit_code(self, thread: MinidumpThread) -> bool:
        """Returns whether a thread of a 64-bit dump was in 32-bit code."""
        data, _ = context(self._dump, thread.ThreadContext)
        found = decode_any(self._forms, lambda size: data).context
        return found is not None and found.registers.get("SegCs") == CS_USER_32

    def _read(self, address: Optional[int]) -> bool:
        """Returns whether the dump has the memory at an address; it has none at None or 0."""
        return bool(address and self._image.memory(self._image.kernel).read(address, 1))

    def _pid(self) -> Optional[int]:
        known = (misc_info(self._dump) or NO_MISC).ProcessId
        return self._of_tebs(self._image.machine, "ClientId.UniqueProcess") if known is None else known

    def _name(self, space: AddressSpace) -> Tuple[str, bool]:
        """Returns the name of the program, from the kernel, the dump's list or the loader's list, empty if it
        is in none; and whether there is a name and its sources agree."""
        listed = _program([module.ModuleName or "" for module in module_list(self._dump)[0]])
        loaded = _program([entry.name for entry in LoaderLists(self._image).process_modules(space)[0]])
        name = self._states.image_file_name or listed or loaded
        programs = {program.lower() for program in (listed, loaded) if program.lower().endswith(".exe")}
        return text.cell(name), bool(name) and len(programs) < 2

    def _of_tebs(self, machine: Machine, path: str) -> Optional[int]:
        """Returns a member from the first TEB in which it is not 0, None without one."""
        memory = self._image.memory_of(str(self._image.layer.name), machine.pointer_size)
        tebs = (thread.Teb for thread in self._threads if thread.Teb)
        read = (memory.member(teb, self._types(machine, teb)["_TEB"].field(path)) for teb in tebs)
        return next((value for value in read if value), None)

    # The interface of `threads`.

    def list_threads(self, choice: Choice, scan: bool = False) -> Iterator[Thread]:
        """Yields the threads of the dump in its order, and a row for threads missing from its list."""
        if choice.offset is not None or not choice.takes_process(self.native.pid):
            return
        incomplete = self._states.flags & INCOMPLETE_THREADS
        if self._no_list and choice.tids is None:
            nothing = status(StatusCode.NO_THREAD_LIST)
            yield user_thread(self.native, None, None, wow64=self.wow64, status=nothing)
        elif (self._list_status or incomplete) and choice.tids is None:
            faults = status(self._list_status, StatusCode.THREAD_LIST_DAMAGED)
            yield user_thread(self.native, None, None, wow64=self.wow64, status=faults)
        for place, thread in enumerate(self._threads):
            if choice.takes_thread(thread.ThreadId):
                yield self._listed[place]
        tid, met = self._exception.tid, self._exception.saved()
        unlisted = tid is not None and self._raised_at is None
        if tid is not None and unlisted and choice.takes_thread(tid) and met is not None:
            stack, raised = self._exception.stack(met), self._exception.status
            yield user_thread(self.native, tid, None, (met,), self.wow64, stack, status=raised)

    @cached_property
    def _raised_at(self) -> Optional[int]:
        """The place of the thread that raised the exception, None if it is not listed.

        If two have its ID, it is the one on whose stack the exception was; the first if that is unknown.
        """
        tid, sp = self._exception.tid, self._exception.sp
        places = [place for place, thread in enumerate(self._threads) if thread.ThreadId == tid]
        for place in places:
            thread = self._threads[place]
            if sp is not None and 0 <= sp - thread.StartOfMemoryRange < thread.Stack.DataSize:
                return place
        return places[0] if places else None

    def refused_places(self) -> FrozenSet[int]:
        """Returns the address at which the processor refused to execute; see `refused_places`."""
        return self._exception.refused()

    def list_idle(self) -> Iterator[Thread]:
        """Yields nothing: only the kernel has idle threads."""
        return iter(())

    def _thread(self, place: int) -> Thread:
        """Returns a thread by its place in the dump's list."""
        thread, doubted = self._threads[place], self._doubted.get(place, ())
        info = self._infos.get(thread.ThreadId)
        flags = info.DumpFlags if info else 0
        saved, faults = context(self._dump, thread.ThreadContext)
        state = self._state(thread.ThreadId, self._image.machine)
        own = _with_state(SavedContext(self._image.machine, saved), state)
        raised = place == self._raised_at
        native = self._exception.contexts(own) if raised else [own]
        contexts = [self._shadows.with_shadow(registers) for registers in native]
        if self.wow64 is not None:
            contexts += [narrow._replace(later=contexts[-1].later) for narrow in self._narrow(thread)]
        start, size = thread.StartOfMemoryRange, thread.Stack.DataSize
        listed_thread = user_thread(
            self.native,
            thread.ThreadId,
            thread.Teb or None,
            tuple(contexts),
            self.wow64,
            (start, start + size) if size else self._exception.stack(own),
            (info.CreateTime or None) if info else None,
            status(
                self._exception.status if raised else None,
                StatusCode.EMULATED if self._is_emulated else None,
                StatusCode.TERMINATED if flags & EXITED_THREAD else None,
                StatusCode.NOT_A_CONTEXT if flags & INVALID_CONTEXT and state is NO_STATE else None,
                faults,
                contradicted(*doubted),
            ),
        )
        start_address = info.StartAddress if info else None
        return listed_thread._replace(
            kept_frames=tuple(self._trap_frames.get(thread.ThreadId, ())),
            win32_start_address=start_address,
            start_address=start_address if state.known & KNOWN_START_ADDRESS else None,
            state=state.State,
            wait_reason=state.WaitReason,
        )

    @cached_property
    def _shadows(self) -> ShadowStacks:
        return ShadowStacks(self._dump, memory_ranges(self._dump)[0])

    def _state(self, tid: int, machine: Machine) -> ThreadState:
        """Returns the dump's entry for the registers of a thread, NO_STATE if it has none."""
        return self._states.threads.get((tid, machine.number), NO_STATE)

    def _narrow(self, thread: MinidumpThread) -> List[SavedContext]:
        """Returns the 32-bit registers in the CPU area of a thread; none without a CPU area."""
        types, teb = self._types(Machine.AMD64, thread.Teb), thread.Teb
        state = self._state(thread.ThreadId, Machine.I386)
        memory = self._image.memory_of(str(self._image.layer.name), Machine.AMD64.pointer_size)
        slots = teb + types["_TEB"].offset("TlsSlots")
        address = narrow_context(self._image, memory, slots) if teb else None
        if not address:
            return [] if state is NO_STATE else [_with_state(SavedContext(Machine.I386, b""), state)]
        form = decode_any(context_layouts(self._image, Machine.I386), partial(memory.read, address)).layout
        data = bytes(memory.read(address, form.size) or b"")
        return [_with_state(SavedContext(Machine.I386, data, address), state)]


def _read_rva(memory: Memory, base: int, rva: int, length: int) -> Optional[bytes]:
    """Reads a module in memory by RVA."""
    data = memory.read(base + rva, length)
    return None if data is None else bytes(data)


def _with_state(saved: SavedContext, state: ThreadState) -> SavedContext:
    """Returns registers together with the dump's status of them."""
    if state is NO_STATE:
        return saved
    state_status = NOTHING if state.Status is None else parsed(state.Status)
    if state_status is None:
        state_status = naming(StatusCode.HEADER, "Status")
    return saved._replace(unknown=state.unknown, unsure=state.unsure, status=state_status)


def _program(paths: List[str]) -> str:
    """Returns the name of the first program among some modules, else of the first module; or nothing."""
    programs = [path for path in paths if path.lower().endswith(".exe")]
    return text.file_name((programs or [*filter(None, paths)] or [""])[0])


def process_name(dump: Minidump) -> Tuple[Optional[int], Optional[str]]:
    """Returns ID and name of the process of any minidump, also of another system.

    MiscInfoStream has the ID, and the first module the name; None for what is not there.
    """
    paths = (module.ModuleName for module in module_list(dump)[0])
    name = text.file_name(next((path for path in paths if path), ""))
    return (misc_info(dump) or NO_MISC).ProcessId, text.cell(name) or None
