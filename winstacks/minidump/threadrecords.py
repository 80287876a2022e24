# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The threads of a process of an image as records of a dump: registers, stacks, times, names.

A debugger shows the registers with which a thread will continue in user mode. They are in the trap frame of
its last entry into the kernel. Registers that this frame did not save come from the walk up the kernel's
stack, if the functions there saved them for their callers (x64). Registers in neither are unknown.

Source of the members: the kernel's public symbols. PROCESS_PRIORITY_CLASS_* of ntpsapi.h stand for the
*_PRIORITY_CLASS of winbase.h; KeMaximumIncrement is the length of a tick in units of 100 ns.
"""

from __future__ import annotations

from functools import partial
from typing import Dict, Iterator, Mapping, Optional, Tuple

from ..columns.words import USER, WOW64
from ..memory.decode.machine import Machine
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import Status, status, text
from ..memory.image import AddressSpace, Image
from ..names.symbolizer import Symbolizer
from ..process.thread import Thread
from ..process.threads import Threads
from ..process.userstacks import UserStacks
from ..stacks.decode.registers import GENERAL, Registers
from ..stacks.lister import CallStack, StackLister
from ..traps.decode.context import decode_any
from ..traps.decode.frame import CS_USER_32
from ..traps.state import context_layouts, register_types
from .decode.threads import EXITED_THREAD, INVALID_CONTEXT, ThreadInfo
from .decode.threadstates import KNOWN_START_ADDRESS, REGISTER_BITS, ThreadState

_PRIORITY_CLASSES = {1: 0x40, 2: 0x20, 3: 0x80, 4: 0x100, 5: 0x4000, 6: 0x8000}
MAX_THREAD_NAME = 0x1000
"""Greatest size of a thread's name in bytes; a longer name is cut."""

_THREAD = {
    "SuspendCount": ("Tcb.SuspendCount",),
    "BasePriority": ("Tcb.BasePriority",),
    "ExitStatus": ("ExitStatus",),
    "ExitTime": ("ExitTime.QuadPart",),
    "KernelTime": ("Tcb.KernelTime",),
    "UserTime": ("Tcb.UserTime",),
    "Affinity": ("Tcb.UserAffinity.Mask", "Tcb.UserAffinity", "Tcb.Affinity.Mask", "Tcb.Affinity"),
    "ThreadName": ("ThreadName",),
}
_PROCESS = {"BasePriority": ("Pcb.BasePriority",), "PriorityClass": ("PriorityClass",)}

_Members = Dict[str, Optional[int]]


class ThreadRecord(NamedTuple):
    """A thread of a dump.

    Attributes:
        teb: address of the TEB in the half that the dump has
        flags: ContextFlags of the CONTEXT; None if no register is known
        states: state of the registers, one for each CONTEXT that a reader will find
        stack: the stack pointer and the end of the stack; 0 if unknown
        kept: trap frames that callbacks to user mode keep, newest first: address and bytes (x86)
        lost: members whose value is not in the image; they are 0
    """

    info: ThreadInfo
    suspended: int
    priorities: Tuple[int, int]
    teb: int
    context: bytes
    flags: Optional[int]
    states: Tuple[ThreadState, ...]
    stack: Tuple[int, int]
    name: Optional[str]
    kept: Tuple[Tuple[int, bytes], ...]
    lost: Tuple[str, ...]
    status: Status


class ThreadRecords:
    """Makes records of threads."""

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self._image = image
        self._stacks = StackLister(image, symbolizer)
        self._limits = UserStacks(image)
        self._forms = {machine: context_layouts(image, machine) for machine in Machine}
        self._kernel = image.memory(image.kernel)
        self._fields = {
            name: {member: image.types[name].first_member(*paths) for member, paths in members.items()}
            for name, members in (("_ETHREAD", _THREAD), ("_EPROCESS", _PROCESS))
        }
        self._tick = self._kernel.number(image.symbol("KeMaximumIncrement"), 4)

    def list_records(
        self, space: AddressSpace, machine: Machine, offset: Optional[int] = None
    ) -> Iterator[Tuple[Thread, Optional[ThreadRecord]]]:
        """Yields the threads of a process, each with its record; a thread has no record if the image lacks it
        or its ID, so that it cannot be in a dump. `machine` is the machine of the contexts: the space's
        machine, or I386 for the 32-bit half."""
        process = self._members("_EPROCESS", space.eprocess)
        pids = None if offset is not None or space.pid is None else [space.pid]
        for thread in Threads.list_threads(self._image, pids, offset):
            if thread.space.eprocess != space.eprocess:
                continue
            if thread.unusable or thread.tid is None:
                yield thread, None
            else:
                yield thread, self._record(thread, machine, process)

    def _members(self, name: str, address: int) -> _Members:
        fields = self._fields[name].items()
        return {member: self._kernel.member(address, field) for member, field in fields}

    def _record(self, thread: Thread, machine: Machine, process: _Members) -> ThreadRecord:
        own = self._members("_ETHREAD", thread.ethread)
        parts: Dict[str, CallStack] = {}
        for walked in self._stacks.thread_stacks(thread):
            parts.setdefault(walked.part, walked)
        wide = machine is thread.space.machine
        native, narrow = parts.get(USER), parts.get(WOW64)
        stack = native if wide else narrow
        source = stack
        if wide and narrow is not None and _in_32_bit_code(narrow):
            # The trap frame of 32-bit code is the CONTEXT of the 64-bit half, too.
            source = narrow
        found = _registers(source)
        unsure = () if source is None or source.entry is None else source.entry.unsure
        unsure = tuple(name for name in unsure if name in found)
        context, unknown = self._context(machine, found, source)
        written = decode_any(self._forms[machine], lambda _: context).context
        states = [_state(thread, machine, unknown, unsure, source)]
        if wide and narrow is not None and source is not narrow:
            states.append(_state(thread, Machine.I386, (), (), narrow))
        ended, sp = thread.ended, found.get(machine.sp_register, 0)
        limits = self._limits.native(thread) if wide else self._limits.narrow(thread)
        teb = thread.teb if wide else self._limits.teb32(thread)
        first, second = process["BasePriority"], own["BasePriority"]
        priority = None if first is None or second is None else second - first
        return ThreadRecord(
            ThreadInfo(
                thread.tid or 0,
                (EXITED_THREAD if ended else 0) | (0 if machine.ip_register in found else INVALID_CONTEXT),
                0,
                (own["ExitStatus"] or 0) & 0xFFFFFFFF,
                thread.create_time or 0,
                (own["ExitTime"] or 0) if ended else 0,
                self._units(own["KernelTime"]),
                self._units(own["UserTime"]),
                _start(thread, machine) or 0,
                own["Affinity"] or 0,
            ),
            own["SuspendCount"] or 0,
            (
                _PRIORITY_CLASSES.get(process["PriorityClass"] or 0, 0),
                (priority or 0) & 0xFFFFFFFF,
            ),
            teb or 0,
            context,
            None if written is None else written.flags,
            tuple(states),
            (sp, next((high for low, high in limits if low <= sp < high), 0)),
            self._name(own["ThreadName"]),
            tuple(self._trap_frames_in_callbacks(parts)) if machine is Machine.I386 and wide else (),
            tuple(
                self._unknown_members(
                    {
                        **process,
                        **own,
                        "Teb": teb,
                        "CreateTime": thread.create_time,
                        "Priority": priority,
                        "StartAddress": _start(thread, machine),
                    }
                )
            ),
            _register_status(thread, source),
        )

    def _trap_frames_in_callbacks(self, parts: Mapping[str, CallStack]) -> Iterator[Tuple[int, bytes]]:
        """Yields the trap frames with which a thread left user mode before its newest callback."""
        size = register_types(self._image, Machine.I386)["_KTRAP_FRAME"].field("HardwareSegSs")
        for part, stack in parts.items():
            if part.startswith(f"{USER} ") and stack.entry is not None and stack.entry.registers:
                data = self._kernel.read(stack.entry.address, size.offset + size.size)
                if data is not None:
                    yield stack.entry.address, bytes(data)

    def _units(self, ticks: Optional[int]) -> int:
        """Returns a time in units of 100 ns, 0 if it is unknown."""
        return (ticks or 0) * (self._tick or 0) & 0xFFFFFFFFFFFFFFFF

    def _unknown_members(self, members: _Members) -> Iterator[str]:
        """Yields the names of unknown members; a thread may have no name."""
        for name, value in members.items():
            unknown = value is None or (self._tick is None and name in ("KernelTime", "UserTime"))
            if unknown and name not in ("ThreadName", "BasePriority"):
                yield name

    def _context(
        self, machine: Machine, registers: Mapping[str, int], stack: Optional[CallStack]
    ) -> Tuple[bytes, Tuple[str, ...]]:
        """Returns a CONTEXT, and the unknown registers in its groups."""
        forms = self._forms[machine]
        entry = None if stack is None else stack.entry
        if entry is not None and entry.origin == WOW64 and entry.registers:
            # Windows wrote this CONTEXT, with registers that no trap frame has.
            read = partial(self._image.memory(entry.space).read, entry.address)
            whole = read(decode_any(forms, read).layout.size)
            if whole is not None:
                return bytes(whole), ()
        return forms[0].encode(registers)

    def _name(self, address: Optional[int]) -> Optional[str]:
        """Returns the name of a thread, None if it has none or the name is not in the image."""
        return (self._kernel.unicode_string_at(address, MAX_THREAD_NAME) if address else None) or None


def _in_32_bit_code(stack: CallStack) -> bool:
    return (
        stack.entry is not None
        and stack.entry.registers.get("SegCs") == CS_USER_32
        and (stack.entry.origin != WOW64)
    )


def _registers(stack: Optional[CallStack]) -> Dict[str, int]:
    """Returns the first registers of a stack, with the registers saved on the kernel's stack."""
    if stack is None or stack.entry is None:
        return {}
    found = {name: value for name, value in stack.entry.registers.items() if name in REGISTER_BITS}
    first = stack.frames[0].registers if stack.frames else None
    for name, value in zip(GENERAL, first.general if isinstance(first, Registers) else ()):
        if value is not None:
            found.setdefault(name, value)
    return found


def _state(
    thread: Thread,
    machine: Machine,
    unknown: Tuple[str, ...],
    unsure: Tuple[str, ...],
    stack: Optional[CallStack],
) -> ThreadState:
    """Returns the state of the registers of one CONTEXT of a thread."""
    known = KNOWN_START_ADDRESS if _start(thread, machine) is not None else 0
    numbers = thread.tid or 0, machine.number, thread.state, thread.wait_reason
    return ThreadState(*numbers, unknown, unsure, known, text(_register_status(thread, stack)))


def _register_status(thread: Thread, stack: Optional[CallStack]) -> Status:
    """Returns the faults of the first registers of a stack, without the faults of its walk."""
    if stack is None:
        return thread.status
    return stack.status if stack.entry is None else status(thread.status, stack.entry.status)


def _start(thread: Thread, machine: Machine) -> Optional[int]:
    """Returns the start address of a thread; None if it is unknown or not in the dump's half."""
    start = thread.win32_start_address or thread.start_address
    return start if machine is not Machine.I386 or (start or 0) <= machine.address_mask else None
