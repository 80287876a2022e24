# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stack walkers of an image, with the memory, the modules and the names that walks need."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Container, Dict, List, Optional, Sequence, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.ranges import flatten, span_at
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..names.decode.functiontable import END_OF_IMAGE, FunctionTable
from ..names.decode.pe import Headers
from ..names.decode.unwindinfo import Bytes, ReadRva
from ..names.imagereader import ImageReader
from ..names.moduleindex import TABLES
from ..names.registeredtables import unwind_tables
from ..names.symbolizer import AddressNamer, KnownModule, Symbolizer
from ..names.witness import Entry, FileWitnesses
from ..process.dynamictables import DynamicTable
from ..process.functionstarts import function_starts
from ..process.kernelstacks import KernelStackSegment
from ..process.refusedplaces import refused_places
from ..process.windowsfolder import WindowsFolders
from .changedcode import ChangedCode
from .cpus import NO_TRAPS, AnyStart, Cpu, KnownTrapFrames, Range, WalkContext
from .decode import dispatchers_x86
from .decode.budget import FollowBudget, WalkBudget
from .decode.frames import CodeImage, StackWalk
from .decode.shadow import proven_walk
from .spacefacts import SpaceFacts

vollog = logging.getLogger(__name__)

AnyCpu = Cpu[Any]

MAX_CONTEXTS = 4
"""Number of address spaces whose modules are kept: threads are listed process by process."""

_NOT_SCANNED = (
    "Scans have read more bytes of stacks than the file has: the remaining stacks are not scanned, and "
    "frames may be missing"
)

_SLOT = 8

_CODE = 0x20000020
"""IMAGE_SCN_MEM_EXECUTE, IMAGE_SCN_CNT_CODE."""

_NTDLL = "ntdll"


class Cpus:
    """The processors of an image, each created at its first use: `image.service(Cpus)`."""

    def __init__(self, image: Image) -> None:
        self._cpus: Memo[Machine, AnyCpu] = Memo(functools.partial(_cpu, image))

    def for_machine(self, machine: Machine) -> AnyCpu:
        """Returns the processor, or the mode of a processor, for a machine."""
        return self._cpus[machine]


def _cpu(image: Image, machine: Machine) -> AnyCpu:
    """Makes the processor for a machine. Each has a dozen modules of its own: most inputs need one."""
    if machine is Machine.ARM64:
        from .cpu_arm64 import CpuArm64

        return CpuArm64(image)
    if machine is Machine.I386:
        from .cpu_x86 import Cpu86

        return Cpu86(image)
    from .cpu_x64 import Cpu64

    return Cpu64(image)


def follow_budget(image: Image) -> FollowBudget:
    """Makes the service `image.service(follow_budget)`, for all walks of the image."""
    return FollowBudget(image.page_count * PAGE_SIZE)


class StackWalkers:
    """Walks stacks in any address space; no kernel is needed."""

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self._image = image
        self._symbolizer = symbolizer
        self._contexts: Dict[Tuple[str, int], WalkContext] = {}
        self._budget = WalkBudget(image.page_count * PAGE_SIZE)
        self._warned = False
        self.cpus = image.service(Cpus)

    def walk(
        self, space: AddressSpace, start: AnyStart, stacks: List[Range], traps: KnownTrapFrames = NO_TRAPS
    ) -> StackWalk:
        """Walks from a register state. `stacks` are the limits of the stacks, empty if unknown."""
        return self._counted(start.walk(self._walk_context(space), stacks, traps, self._budget))

    def find_stack(self, space: AddressSpace, sp: int) -> Optional[Range]:
        """Returns the limits of the private memory that holds a stack pointer, None if it may be no stack."""
        return self._walk_context(space).surroundings.find_stack(sp)

    def search(
        self,
        space: AddressSpace,
        sp: int,
        reason: StatusCode,
        stacks: List[Range],
        traps: KnownTrapFrames = NO_TRAPS,
    ) -> StackWalk:
        """Walks a stack from the first return address that a scan finds."""
        cpu = self.cpus.for_machine(space.machine)
        walker = cpu.walker(self._walk_context(space), traps)
        walker.share(self._budget)
        return self._counted(walker.search(sp, reason, stacks))

    def proven(self, space: AddressSpace, walk: StackWalk, shadow: Sequence[int]) -> StackWalk:
        """Returns a walk with the frames that a shadow stack proves; see `proven_walk`."""
        memory = self.memory(space)

        def read_slot(address: int) -> Optional[int]:
            self._budget.scanned -= _SLOT
            return memory.number(address, _SLOT) if self._budget.scanned > 0 else None

        most = max(self._budget.most_frames, len(walk.frames))
        proven = proven_walk(walk, shadow, read_slot)
        if len(proven.frames) > most:
            proven = proven._replace(frames=proven.frames[:most], end=StatusCode.TOO_MANY_FRAMES)
        self._budget.take(len(proven.frames) - len(walk.frames))
        return proven

    def _counted(self, walk: StackWalk) -> StackWalk:
        self._budget.take(len(walk.frames))
        if self._budget.scanned <= 0 and not self._warned:
            self._warned = True
            vollog.warning(_NOT_SCANNED)
        return walk

    def callback_return(
        self, space: AddressSpace, segments: Sequence[KernelStackSegment], callee: int
    ) -> Optional[AnyStart]:
        """Returns the kernel state to which a callback will return; see `Cpu.callback_return`."""
        return self.cpus.for_machine(space.machine).callback_return(
            self._walk_context(space), segments, callee
        )

    def memory(self, space: AddressSpace) -> Memory:
        """Returns the memory of an address space; without page tables of the user's half, the kernel's."""
        return self._walk_context(space).memory

    def _walk_context(self, space: AddressSpace) -> WalkContext:
        """Returns an address space as walks see it; the last MAX_CONTEXTS are kept."""
        key = (space.layer_name, 0 if space.kernel else space.eprocess or space.peb)
        walk_context = self._contexts.get(key)
        if walk_context is None:
            if len(self._contexts) >= MAX_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
            names = self._symbolizer.for_space(space)
            changed, facts = ChangedCode(self._image, space, names), SpaceFacts(self._image, space, names)
            modules = _Modules(self._image, space, names, changed)
            memory, dispatcher = self._image.memory(space), modules.find_dispatcher
            code = modules.read_code if self._image.service(FileWitnesses).files.given else memory.read
            walk_context = WalkContext(
                modules.find_code,
                memory,
                facts.may_execute,
                changed.own_copy,
                changed.replaced,
                dispatcher,
                code,
                facts.surroundings,
                self._image.service(follow_budget),
                self._image.service(refused_places),
            )
            self._contexts[key] = walk_context
        return walk_context


class _Modules:
    """The modules of an address space, as walkers need them: code, function tables, unwind data."""

    def __init__(self, image: Image, space: AddressSpace, names: AddressNamer, changed: ChangedCode) -> None:
        self._image = image
        self._changed = changed
        self._layer = image.layer_of(space)
        self._machine = space.machine
        self._memory = image.memory(space)
        self._names = names
        self._images: Dict[int, CodeImage] = {}
        self._witnesses = image.service(FileWitnesses)
        self._space = space
        self._table_images: Memo[int, CodeImage] = Memo(self._table_image)

    @functools.cached_property
    def _tables(self) -> List[DynamicTable]:
        """The function tables of generated code: read when a stack has an address in no module."""
        return unwind_tables(self._image, self._space, self._names)

    @functools.cached_property
    def _spans(self) -> List[Tuple[int, int, int]]:
        """Start, end and number of each table, without the parts that an earlier table covers."""
        return sorted(
            flatten([(table.start, table.end, number) for number, table in enumerate(self._tables)])
        )

    def find_code(self, address: int) -> Optional[CodeImage]:
        """Returns the module, or the code generated at run time, that holds an address; None if neither."""
        known_module = self._names.module_at(address)
        if known_module is None:
            return self._find_dynamic(address)
        base = known_module.module.base
        if base not in self._images:
            self._images[base] = self._code_image(known_module)
        return self._images[base]

    def _find_dynamic(self, address: int) -> Optional[CodeImage]:
        """Returns the code generated at run time whose function table covers an address, or None.

        An address without an entry in such a table gives None. In a module, code without an entry belongs to
        a leaf function; generated code without an entry may be a stub that calls.
        """
        span = span_at(self._spans, address)
        if span is None:
            return None
        image = self._table_images[span[2]]
        return image if image.find_entry(address) else None

    def _table_image(self, number: int) -> CodeImage:
        dynamic_table = self._tables[number]
        read_rva = ImageReader(self._image, str(self._layer.name), dynamic_table.base, END_OF_IMAGE).read
        form = TABLES.get(self._machine.number, FunctionTable)
        table = form.from_bytes(dynamic_table.entries, read_rva)
        return CodeImage(dynamic_table.base, END_OF_IMAGE, read_rva, table)

    def read_code(self, address: int, length: int) -> Optional[Bytes]:
        """Returns memory; if the process lacks it, the bytes of the module's section or file."""
        data = self._memory.read(address, length)
        if data is not None:
            return data
        image = self.find_code(address)
        return None if image is None else image.read_rva(address - image.base, length)

    def find_dispatcher(self, address: int) -> Optional[Tuple[int, str]]:
        """Returns start and name of the dispatcher of ntdll that holds an address, None if none does."""
        known_module = self._names.module_at(address)
        if known_module is None or known_module.module.name.lower() != _NTDLL:
            return None
        label = known_module.label_at(address)
        name = None if label is None else dispatchers_x86.named(label[1])
        return None if label is None or name is None else (known_module.module.base + label[0], name)

    def _code_image(self, known_module: KnownModule) -> CodeImage:
        module, table = known_module.module, known_module.image.functions
        read_rva: ReadRva
        of_process = self._changed.reader_of(known_module)
        if of_process is not None:
            read_rva = of_process.read
        elif table is not None:
            read_rva = table.read_rva
        else:
            reader = ImageReader(
                self._image, str(self._layer.name), module.base, module.size, file=known_module.image.file
            )
            read_rva = reader.read
        windows = known_module.open_reader is None or self._image.service(WindowsFolders).has_image(
            self._space, self._names.vad_at(module.base)
        )
        if (
            self._witnesses.files.advise
            and known_module.image.file is None
            and known_module.open_reader is not None
        ):
            entry = self._names.process.entries.get(module.base)
            report = functools.partial(_report_lack, self._witnesses, known_module, entry)
            read_rva = _NotingReader(read_rva, report).read
        # No part of an image leads to the _Modules that keeps it: such a cycle would hold all memory that
        # was read for a process until Python's collector runs, which is paused while rows are made.
        code = _code(known_module.image.headers)
        begins = functools.partial(_begins, self._image.service(function_starts), known_module)
        hybrid, go_table = known_module.image.hybrid, known_module.image.go
        return CodeImage(module.base, module.size, read_rva, table, code, windows, begins, hybrid, go_table)


class _NotingReader:
    """Reads a module, and reports once that its file would help if code or unwind data is missing."""

    def __init__(self, read: ReadRva, report: Callable[[], None]) -> None:
        self._read = read
        self._report: Optional[Callable[[], None]] = report

    def read(self, rva: int, length: int) -> Optional[Bytes]:
        """Returns bytes of the module, None if they are missing."""
        data = self._read(rva, length)
        if data is None and self._report is not None:
            report, self._report = self._report, None
            report()
        return data


def _report_lack(witnesses: FileWitnesses, known_module: KnownModule, entry: Optional[Entry]) -> None:
    assert known_module.open_reader is not None
    witnesses.lacks(known_module.open_reader(), known_module.module.file, entry)


def _begins(starts: Container[int], known_module: KnownModule, rva: int) -> bool:
    """Returns whether a function begins at an RVA, by the module's names or by the input's own proof."""
    address = known_module.module.base + rva
    return address in starts or known_module.begins_at(address) is not None


def _code(headers: Optional[Headers]) -> Optional[Tuple[Tuple[int, int], ...]]:
    """Returns the RVA ranges of the sections that may hold code."""
    if headers is None:
        return None
    return tuple(
        (section.start, section.end) for section in headers.sections if section.characteristics & _CODE
    )
