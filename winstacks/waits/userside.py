# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Waits of the threads of a process in user mode, from its memory and the registers of its threads.

sides = UserSides(image, symbolizer)
side = sides.of_half(space, stacks)         # the walked stacks of this half, one for each thread
for stack in stacks: side.answers(stack)
"""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ..heaps.lister import listed_heaps
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.structure import integers
from ..memory.image import AddressSpace, Image
from ..names.decode import pe
from ..names.ntdll import Ntdll, Ntdlls
from ..names.symbolizer import AddressNamer, Symbolizer
from ..process.thread import WAITING, Thread
from ..process.userstacks import UserStacks
from ..process.usertypes import peb_at, user_types, with_teb
from ..stacks.decode.registers import GENERAL, NON_VOLATILE, Registers
from ..traps.state import TrapState
from .decode.answer import Answer
from .decode.processview import ProcessView, ThreadView
from .decode.sections import WaitedSection
from .decode.userwaits import UserWaits

MAX_DATA = 1 << 22
"""The most bytes of ntdll's writable data that are searched for wait blocks; a real one has 100,000."""

MAX_HEAPS = 256
"""The most heaps whose locks get a name."""

HEAP_HEADER, HEAP_PAGE = 0x300, 0x1000
"""Bytes of a heap's header that may hold LockVariable, and of the header with the lock (public symbols of XP
to 11: LockVariable lies below 180h, the lock behind the other members)."""

_STUBS = ("nt", "zw")
"""The names of ntdll's system calls begin so, in lower case."""

_LONGEST_STUB = 0x20
"""Bytes of the longest stub: a name further away belongs to another function."""

_TABLE = "WaitOnAddressHashTable"

_KEPT = ("Rbx", "Rsi", "Rdi", "Rbp", *(f"X{number}" for number in range(19, 29)))
"""The registers that a system call keeps, of x86 and of ARM64 (described: calling conventions)."""


SymbolOf = Callable[[AddressSpace, int, bool], str]
"""Takes a space, an address and whether it is a return address; returns its Symbol, empty if unknown."""


def symbol_of(symbolizer: Symbolizer) -> SymbolOf:
    return lambda space, address, returns: symbolizer.for_space(space).name(address, returns).symbol


class UserStack(NamedTuple):
    """The place of a thread in one half of its process.

    Attributes:
        entry: the registers with which its stack of that half begins; None if there are none
        registers: the registers of the innermost frame, which the walk may have completed
    """

    thread: Thread
    entry: Optional[TrapState]
    registers: Optional[object]


class UserSide:
    """The waits of one half of a process."""

    def __init__(self, view: ProcessView, waits: UserWaits, names: Dict[int, str]) -> None:
        self.view = view
        self.waits = waits
        self._names = names
        self._known: Memo[int, List[Answer]] = Memo(self._answers)

    def answers(self, tid: Optional[int]) -> List[Answer]:
        """Returns what a thread waits for: none or one answer, or several that contradict each other."""
        return [] if tid is None else self._known[tid]

    def _answers(self, tid: int) -> List[Answer]:
        """Returns the answers for an ID, which a damaged list gives to many threads."""
        thread = self.view.by_tid.get(tid)
        return [] if thread is None or thread.sp is None else self.waits.find(thread)

    def held_on_stack(self, tid: Optional[int]) -> List[WaitedSection]:
        """Returns the sections on a thread's stack that another thread holds and for which threads wait."""
        thread = None if tid is None else self.view.by_tid.get(tid)
        return [] if thread is None else self.waits.held_on_stack(thread)

    def name(self, address: int) -> str:
        """Returns the name of a critical section that Windows itself made; empty for others."""
        return self._names.get(address, "")


class UserSides:
    """Makes the views of processes."""

    def __init__(
        self, image: Image, symbolizer: Symbolizer, ntdlls: Ntdlls, symbol: Optional[SymbolOf] = None
    ) -> None:
        self._image = image
        self._symbol = symbol or symbol_of(symbolizer)
        self._symbolizer = symbolizer
        self._ntdlls = ntdlls
        self._limits = image.service(UserStacks)

    def of_half(self, space: AddressSpace, stacks: Sequence[UserStack]) -> Optional[UserSide]:
        """Returns the waits of one half of a process; None if its memory cannot be read."""
        if not space.layer_name or space.kernel:
            return None
        image, memory = self._image, self._image.memory(space)
        ntdll = self._ntdlls.find_ntdll(space)
        names = _Names(space, self._symbolizer.for_space(space), self._symbol)
        threads = [self._view(space, stack) for stack in stacks if stack.thread.tid is not None]
        view = ProcessView(
            memory.read,
            space.pointer_size,
            threads,
            None if ntdll is None else (ntdll.base, ntdll.base + ntdll.size),
            names.in_code,
            names.is_stub,
        )
        types = user_types(image, space)
        waits = UserWaits(
            view,
            types,
            image.our_generations("waits", space.machine),
            space.peb,
            self._table(space),
            lambda: self._words(space, ntdll),
        )
        return UserSide(view, waits, self._peb_locks(space))

    def _table(self, space: AddressSpace) -> int:
        """Returns the offset of the table in the PEB: from the kernel's symbols, or else from ours."""
        field = user_types(self._image, space)["_PEB"].first_member(_TABLE)
        ours = self._image.our_generations("process", space.machine)[0]["_PEB"]
        return ours.offset(_TABLE) if field is None else field.offset

    def _words(self, space: AddressSpace, ntdll: Optional[Ntdll]) -> Iterator[int]:
        """Yields the words of ntdll's writable data."""
        left = MAX_DATA
        for extents in self._ntdlls.data(ntdll)[0] if ntdll is not None else ():
            for start, data in extents.runs:
                skip = -start % space.pointer_size
                yield from integers(data[: max(left, 0)], space.pointer_size, skip)
                left -= len(data)

    def _peb_locks(self, space: AddressSpace) -> Dict[int, str]:
        """Returns the names of the critical sections of the PEB and of heaps, by address."""
        memory, peb = self._image.memory(space), peb_at(self._image, space)
        found: Dict[int, str] = {}
        for member, name in PEB_LOCKS.items():
            address = peb[member]
            if address:
                found[address] = name
        heap = peb["ProcessHeap"]
        heaps = [*(listed_heaps(self._image, space) or ()), *([heap] if heap else ())]
        for heap in dict.fromkeys(heaps[:MAX_HEAPS]):
            # The header of a heap points to its lock, which lies in the header's page.
            for word in integers(memory.read(heap, HEAP_HEADER) or b"", space.pointer_size):
                if heap < word < heap + HEAP_PAGE:
                    found.setdefault(word, f"heap lock of {heap:#x}")
        return found

    def _view(self, space: AddressSpace, stack: UserStack) -> ThreadView:
        thread, entry = stack.thread, stack.entry
        native = space.machine is thread.space.machine
        limits = self._limits.native(thread) if native else self._limits.narrow(thread)
        teb = thread.own_teb if native else self._limits.teb32(thread)
        size = with_teb(self._image, space, teb)["_TEB"].size if teb else 0
        view = ThreadView(thread.tid or 0, tuple(limits), (teb, teb + size) if teb else None)
        view = view._replace(waits=None if thread.state is None else thread.state == WAITING)
        machine, saved = space.machine, {} if entry is None else entry.registers
        if entry is None or machine.sp_register not in saved or machine.ip_register not in saved:
            return view
        ip = saved[machine.ip_register]
        wide = space.machine is Machine.AMD64
        arguments = (thread.first_argument,) if wide and thread.first_argument is not None else ()
        return view._replace(
            ip=ip,
            sp=saved[machine.sp_register],
            caller=saved.get("Lr"),
            registers=_kept(stack),
            arguments=arguments,
            hints=_hints(ip, entry) if wide else (),
        )


PEB_LOCKS = {"LoaderLock": "loader lock", "FastPebLock": "PEB lock"}
"""Names of the critical sections to which members of the PEB point."""


class _Names:
    """Facts that the names of code addresses give about them."""

    def __init__(self, space: AddressSpace, namer: AddressNamer, symbol: SymbolOf) -> None:
        self._space = space
        self._namer = namer
        self._symbol = symbol

    def in_code(self, address: int) -> bool:
        """Returns whether an address lies in an executable section of a module."""
        module = self._namer.module_at(address)
        if module is None:
            return False
        rva = address - module.module.base
        return any(
            section.start <= rva < section.end and bool(section.characteristics & pe.MEM_EXECUTE)
            for section in module.image.sections
        )

    def is_stub(self, address: int) -> Optional[bool]:
        """Returns whether an address is in a stub of a system call; None if its name is unknown."""
        name = self._symbol(self._space, address, True).lower()
        function, _, distance = name.partition("!")[2].partition("+0x")
        near = int(distance or "0", 16) <= _LONGEST_STUB
        return function.startswith(_STUBS) and near if function else None


def _kept(stack: UserStack) -> Dict[str, int]:
    """Returns the registers that a system call keeps, the one of waits first."""
    if isinstance(stack.registers, Registers):
        order = sorted(NON_VOLATILE)
        values = ((GENERAL[number], stack.registers.general[number]) for number in order)
        return {name: value for name, value in values if value is not None and name != "Rsp"}
    saved = {} if stack.entry is None else stack.entry.registers
    return {name: saved[name] for name in _KEPT if name in saved}


def _hints(ip: int, entry: TrapState) -> Tuple[int, ...]:
    """Returns Rcx and Rdx if the entry into the kernel saved them.

    A kernel before 2018 leaves in Rcx what the processor puts there: the address behind the system call.
    """
    first, second = entry.registers.get("Rcx"), entry.registers.get("Rdx")
    return () if first in (None, ip) or second is None else (first or 0, second)
