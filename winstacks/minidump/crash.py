# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The process and the thread that crashed, from a small kernel dump.

The thread's registers are the CONTEXT of the dump. A bug check caused by an exception has a second CONTEXT,
of the place of the exception; its address is a parameter. If the dump has the memory there, the stack of the
crash begins there, and the CONTEXT of the dump begins a second one.
"""

from __future__ import annotations

from functools import cached_property
from typing import FrozenSet, Iterator, List, Optional, Sequence, Tuple

from ..memory import tables
from ..memory.decode import text
from ..memory.decode.machine import Machine
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, StatusItem, naming, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..process.processlist import ListedProcess, Processes
from ..process.processors import Processor
from ..process.thread import RUNNING, Choice, SavedContext, Thread, user_thread
from ..stacklist.decode.bugchecks import context_parameter
from ..traps.decode.context import decode_any
from ..traps.state import context_layouts, context_registers
from .decode.crashed import IdentityLayout, crashed_thread
from .decode.triage import TriageDump

_IDENTITY = "crash"
"""Kind of this project's tables with the members that identify process and thread."""


_IN_SMALL_DUMPS = 0x10000000
"""The bit that small dumps set in the code of some bug checks, such as 1000007Eh."""
_FIFTH_ARGUMENT = 0x28
"""Offset of the fifth argument from the stack pointer at the first byte of an x64 function."""


class StackRange(NamedTuple):
    """The kernel stack of the dump: its limits and their status."""

    limit: int
    base: int
    status: Status


class CrashedProcess(Processes):
    """Lists the process and the thread that crashed: the provider of spaces, threads and the process list.
    `symbols` says whether the structures of the image come from the kernel's own symbols."""

    def __init__(self, image: Image, dump: TriageDump, symbols: bool = False) -> None:
        self._image = image
        self._dump = dump
        types = image.types if symbols else None
        self._crashed = crashed_thread(dump, types, _identity_layouts(image, dump))

    # The interface of `spaces`, and process_list.

    @property
    def status(self) -> Status:
        """Faults of the process list: none, the dump names its process."""
        return NOTHING

    def processes(self) -> List[ListedProcess]:
        return [ListedProcess(self._crashed.eprocess or 0, NOTHING)]

    def list_spaces(self, choice: Choice) -> Iterator[AddressSpace]:
        """Yields the space of the process; see `AddressSpaces.list_spaces`."""
        space = self.space
        if choice.takes_process(space.pid) and choice.offset in (None, space.eprocess):
            yield space

    @cached_property
    def space(self) -> AddressSpace:
        """The process in which the thread ran."""
        crashed = self._crashed
        pid = crashed.member("process_id")
        known = {"UniqueProcessId": pid is not None, "ImageFileName": bool(crashed.process)}
        lost = [name for name, there in known.items() if not there]
        return AddressSpace(
            pid=pid,
            process=text.cell(crashed.process),
            machine=self._image.machine,
            layer_name=str(self._image.layer.name),
            eprocess=crashed.eprocess or 0,
            remark=self._lost("Process", lost),
        )

    def _lost(self, part: str, members: Sequence[str]) -> Status:
        """Returns the status of unknown members: the file lacks the structure, or no layout fits it."""
        there = bool(self._dump.part(part).data)
        code = StatusCode.OFFSET_UNKNOWN if there else StatusCode.NOT_IN_THE_DUMP
        return naming(code, *members)

    # The interface of `threads`.

    def list_threads(self, choice: Choice, scan: bool = False) -> Iterator[Thread]:
        if any(True for _ in self.list_spaces(choice)):
            thread = self._thread
            if choice.takes_thread(thread.tid):
                yield thread

    def list_idle(self) -> Iterator[Thread]:
        """Yields nothing: the dump does not show whether the thread is an idle thread."""
        return iter(())

    def processors(self) -> Tuple[Processor, ...]:
        """Returns the processors whose KPRCB is a data block, and the processor that crashed.

        Windows adds the KPRCBs of all processors to some dumps (measured: 22000, ARM64).
        """
        number, ethread = self._crashed.processor or 0, self._crashed.ethread or 0
        crashed = Processor(number, 0, ethread, 0, 0, ())
        found = {processor.number: processor for processor in reversed(list(self._listed_processors()))}
        found.setdefault(number, crashed)
        return tuple(found[key] for key in sorted(found))

    def _listed_processors(self) -> Iterator[Processor]:
        """Yields the processors whose whole KPRCB, by its size, is one data block."""
        data, machine = self._dump.debugger_data, self._image.machine
        members = data.OffsetPrcbNumber, data.OffsetPrcbCurrentThread, data.OffsetPrcbProcStateContext
        size, *places = (value or 0 for value in (data.SizePrcb, *members))
        if not size or not all(0 < place < size for place in places):
            return
        pointer = data.OffsetPrcbContext or size
        for block in self._dump.blocks()[0]:
            if block.length == size:
                kprcb = self._dump.available(block.offset, size)
                # An unknown place is at the end, where no bytes are: 0.
                asked = ((places[0], 1), *((place, machine.pointer_size) for place in (places[1], pointer)))
                number, thread, context = (
                    int.from_bytes(kprcb[place : place + width], "little") for place, width in asked
                )
                thread, context = self._dump.canonical(thread), self._dump.canonical(context)
                context = context or block.start + places[2]
                yield Processor(number, block.start, thread, 0, context, ())

    @cached_property
    def stack(self) -> StackRange:
        """The kernel stack in the dump."""
        dump = self._dump
        top, size, part = dump.member("TopOfStack"), dump.member("SizeOfCallStack"), dump.call_stack
        limit = dump.canonical(top)
        machine = self._image.machine
        usable = part.offset and size and machine.is_canonical(limit) and limit >= machine.kernel_start
        end = limit + size
        if not usable or end > machine.canonical((1 << 8 * machine.pointer_size) - 1):
            return StackRange(0, 0, status(part.status, naming(StatusCode.NOT_IN_THE_DUMP, "CallStack")))
        return StackRange(limit, end, part.status)

    @cached_property
    def _thread(self) -> Thread:
        crashed, stack = self._crashed, self.stack
        known = stack.base > stack.limit
        initial = crashed.member("initial_stack")
        if known and not (initial is not None and stack.limit < initial <= stack.base):
            initial = stack.base
        kernel_stack, owner = crashed.member("kernel_stack"), crashed.member("pid")
        contexts = tuple(self._contexts())
        outside = known and any(self._is_outside(context) for context in contexts)
        thread = user_thread(
            self.space,
            crashed.member("tid"),
            crashed.member("teb"),
            contexts,
            create_time=crashed.member("create_time"),
            status=status(
                StatusCode.HEADER_ONLY if self._dump.header_only else None,
                self.space.remark,
                self._lost("Thread", () if crashed.member("tid") is not None else ("UniqueThread",)),
                StatusItem(StatusCode.ATTACHED, owner) if crashed.attached else None,
                stack.status,
                StatusCode.OUTSIDE_THE_STACK if outside else None,
                naming(StatusCode.BUG_CHECK, f"{self._code:#x}") if self._code is not None else None,
            ),
        )
        return thread._replace(
            ethread=crashed.ethread or 0,
            stack_base=stack.base if known else None,
            stack_limit=stack.limit if known else None,
            initial_stack=initial if known else None,
            kernel_stack=(kernel_stack or stack.limit) if known else None,
            trap_frame=crashed.member("trap_frame"),
            state=crashed.member("state"),
            processor=None if self._switched_out else crashed.processor or 0,
            start_address=crashed.member("start_address"),
            win32_start_address=crashed.member("win32_start_address"),
        )

    def _is_outside(self, context: SavedContext) -> bool:
        """Returns whether the stack pointer of a CONTEXT is outside the kernel stack in the dump."""
        registers = context_registers(self._image, context.data) or {}
        sp = registers.get(self._image.machine.sp_register)
        return sp is not None and not self.stack.limit <= sp <= self.stack.base

    @property
    def _switched_out(self) -> bool:
        """Whether the thread did not run: KTHREAD.State says so, and the dump has no registers of it."""
        state = self._crashed.member("state")
        return (
            state not in (None, RUNNING) and context_registers(self._image, self._dump.context.data) is None
        )

    @property
    def _code(self) -> Optional[int]:
        return self._dump.header.BugCheckCode

    def _contexts(self) -> Iterator[SavedContext]:
        """Yields the registers at the exception, if any, then the CONTEXT of the dump if it differs.

        The CONTEXT of the dump may be from KeBugCheckEx, which ran after the exception.
        """
        machine, data = self._image.machine, self._dump.context.data
        dump = context_registers(self._image, data)
        met = self._of_exception()
        differ = met is not None and context_registers(self._image, met.data) != dump
        if met is not None and differ:
            yield met
        if dump is not None or not differ:
            yield SavedContext(machine, data, kernel=True, later=differ)

    def function_starts(self) -> FrozenSet[int]:
        """Returns the address of KeBugCheckEx, if the CONTEXT of the dump proves it; see `function_starts`.

        KeBugCheckEx records the registers with which it was called. Its first four arguments are the code and
        three parameters of the bug check; the fourth parameter lies on the stack (measured: 19041).
        """
        machine, code = self._image.machine, self._code
        registers = context_registers(self._image, self._dump.context.data) or {}
        if machine is not Machine.AMD64 or code is None or "Rip" not in registers:
            return frozenset()
        first, *passed = (registers.get(name) for name in ("Rcx", "Rdx", "R8", "R9"))
        parameters = self._dump.header.BugCheckParameters
        fifth = self._image.memory(self._image.kernel).number(registers["Rsp"] + _FIFTH_ARGUMENT, 8)
        called = first in (code, code & ~_IN_SMALL_DUMPS) and tuple(passed) == parameters[:3]
        return frozenset([registers["Rip"]] if called and fifth in (None, parameters[3]) else ())

    def _of_exception(self) -> Optional[SavedContext]:
        """Returns the CONTEXT to which a parameter of the bug check leads, None if the dump lacks it."""
        number = context_parameter(self._code or 0)
        if number < 0:
            return None
        machine = self._image.machine
        address = machine.canonical(self._dump.header.BugCheckParameters[number])
        memory = self._image.memory(self._image.kernel)
        forms = context_layouts(self._image, machine)
        form, found, _ = decode_any(forms, lambda size: memory.read(address, size))
        if found is None or found.user:
            return None
        data = bytes(memory.read(address, form.size) or b"")
        return SavedContext(machine, data, address, kernel=True)


def _identity_layouts(image: Image, dump: TriageDump) -> Iterator[IdentityLayout]:
    """Yields the layouts of process and thread by public symbols; the layout of the build comes first.

    A table is loaded when its layout is asked for: most dumps need the first one only.
    """
    arch, build = image.machine.arch, (dump.header.MinorVersion or 0) & 0xFFFF
    own = table_of_build(_IDENTITY, arch, build)
    for name in sorted(tables.generations(_IDENTITY, arch), key=lambda name: name != own):
        yield IdentityLayout(image.our_types(f"{_IDENTITY}-{name}-{arch}"), name == own)


def table_of_build(kind: str, arch: str, build: int) -> str:
    """Returns the version of this project's table for a build, or for the nearest earlier build."""
    versions = tables.generations(kind, arch)
    since = {version: (*tables.version(version)[2:3], 0)[0] for version in versions}
    return next((version for version in versions if since[version] <= build), versions[-1])
