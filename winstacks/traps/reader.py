# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the trap frames of an image, with the exception frames below them, in the layout of its kernel."""

from __future__ import annotations

import logging
import re
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Tuple, Type

from ..columns.dictionary import REGISTERS
from ..columns.words import EXCEPTION, PDB
from ..memory import bulk
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.ranges import Extents
from ..memory.decode.status import NOTHING, Status
from ..memory.image import AddressSpace, Image
from ..names.decode.unwindinfo import UnwindDataError
from ..names.symbolizer import Symbolizer
from ..process import processors
from .decode.context import NOT_DISPATCHED, ExceptionFrame, ExceptionFrames
from .decode.frame import (
    NO_FACTS,
    UNSURE,
    EntryFacts,
    MemberValue,
    TrapBounds,
    TrapFrame,
    TrapFrameLayout,
)
from .decode.trapframe_x64 import TrapFrameLayout64
from .decode.trapframe_x86 import TrapFrameLayout86
from .state import TrapState, register_types

vollog = logging.getLogger(__name__)

_FUNCTION = re.compile(r"nt!(\w+)(?:\+0x[0-9a-f]+)?$")
_FORMS: Dict[Machine, Type[TrapFrameLayout]] = {
    Machine.AMD64: TrapFrameLayout64,
    Machine.I386: TrapFrameLayout86,
}
_BELOW = 0x200
"""Bytes below a trap frame that hold an exception frame and the return address below it."""


class TrapKernel:
    """The kernel of an image, as its trap frames require it.

    Args:
        image: the image
        symbolizer: names for return addresses into the kernel's entry code

    Attributes:
        image: see the argument
        form: layout of its trap frames
        exceptions: possible layouts of its exception frames, empty if it makes none
        bounds: address ranges for the acceptance tests
        facts: facts that hold for all its frames
    """

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self.image = image
        self._symbolizer = symbolizer
        self._names = symbolizer.for_space(image.kernel)
        self._functions: Memo[int, str] = Memo(self._function)
        self._stored: Memo[int, Optional[FrozenSet[str]]] = Memo(self._stored_by)
        self.layout = _FORMS[image.machine](image.types["_KTRAP_FRAME"])
        types = register_types(image, image.machine)
        self.tops = self.layout.tops(types)
        exception = (
            image.types.first_structure(self.layout.exception_type) if self.layout.exception_type else None
        )
        if self.layout.exception_type and exception is None:
            image.lacks(self.layout.exception_type)
        generations = image.our_generations("context", image.machine) if exception is not None else ()
        self.exceptions = [
            ExceptionFrames(exception, generation) for generation in generations if exception is not None
        ]
        linkage = image.symbol("KiServiceLinkage") or 0
        module = self._names.module_at(image.base)
        self.bounds = TrapBounds(
            symbolizer.halves.user_end,
            symbolizer.halves.kernel_start,
            (image.base, module.module.end if module is not None else image.base),
            linkage,
            frozenset(
                stack.base
                for processor in image.service(processors.processors_of)
                for stack in processor.stacks
                if stack.kind.startswith(processors.IST)
            ),
        )
        self.facts = EntryFacts(
            service_linkage=linkage,
            # KiSystemCall64Shadow exists in the kernels with the speculation mitigations of 2018.
            saves_arguments=image.symbol("KiSystemCall64Shadow") is not None,
            system_call_return=self._system_call_return(),
            # In 5.2, int 2C became the assertion interrupt; 5.2 also began to clear Dr7.
            clears_dr7=image.symbol("KiRaiseAssertion") is not None,
        )

    def function(self, address: Optional[int]) -> str:
        """Returns the kernel function that holds a return address, empty if the symbols do not name it."""
        return self._functions[address] if address else ""

    def _function(self, address: int) -> str:
        name = self._names.name(address)
        match = _FUNCTION.match(name.symbol) if name.source == PDB else None
        return match.group(1) if match else ""

    def stored(self, address: int) -> Optional[FrozenSet[str]]:
        """Returns the registers that an entry stores in its trap frame by its unwind data, None if unknown.

        Args:
            address: return address in the entry's code, from right below the frame
        """
        return self._stored[address]

    def _stored_by(self, address: int) -> Optional[FrozenSet[str]]:
        module = self._names.module_at(address) if address else None
        if module is None or module.module.base != self.image.base or module.image.functions is None:
            return None
        table = module.image.functions
        entry = table.find_entry(address - 1 - module.module.base)
        try:
            return None if entry is None else self.layout.stored(table.chain(entry))
        except UnwindDataError:
            return None

    def code_before(self, address: int, size: int, space: AddressSpace) -> bytes:
        """Returns the code before an address of a process, empty if the process may have changed the code.

        A frame is a record of a past moment: code that the process can write may have been different then.
        """
        module = self._symbolizer.for_space(space).module_at(address - size) if address >= size else None
        if module is None or module.open_reader is None:
            return b""
        return module.open_reader().constant(address - size - module.module.base, size) or b""

    def _system_call_return(self) -> int:
        """Returns KUSER_SHARED_DATA.SystemCallReturn, the return address of sysenter's frames."""
        shared = self.image.types.first_structure("_KUSER_SHARED_DATA")
        field = None if shared is None else shared.first_member("SystemCallReturn")
        if field is None or not self.layout.shared_data:
            return 0
        memory = self.image.memory(self.image.kernel)
        return memory.number(self.layout.shared_data + field.offset, 4) or 0


class TrapReading(NamedTuple):
    """A possible place of a trap frame: `frame` is None if the place is paged out or holds no frame."""

    frame: Optional[TrapFrame]
    readable: bool
    previous: int = 0
    members: Tuple[MemberValue, ...] = ()


class TrapReader:
    """Reads trap frames.

    Args:
        kernel: facts about the kernel's frames
        members: whether to list all members of each frame
    """

    def __init__(self, kernel: TrapKernel, members: bool) -> None:
        self.kernel = kernel
        self._memory = kernel.image.memory(kernel.image.kernel)
        self._members = members

    def window(self, address: int) -> Extents:
        """Reads the memory around an address that the decoding of a frame there needs."""
        start = max(address - _BELOW, 0)
        return self._memory.load(start, address - start + self.kernel.layout.size)

    def physical(self, address: int) -> int:
        """Returns the physical address of a kernel address."""
        return bulk.physical(self.kernel.image.layer, address)

    def stack(self, limit: int, base: int) -> Extents:
        """Reads the part of a stack that is present."""
        return self._memory.load(limit, base - limit)

    def read(
        self,
        address: int,
        held: Extents,
        strict: bool = True,
        entry_facts: EntryFacts = NO_FACTS,
        space: Optional[AddressSpace] = None,
    ) -> TrapReading:
        """Reads the frame at an address.

        Args:
            address: expected address of the frame (canonical)
            held: memory around it
            strict: whether only the acceptance tests count; False: the pointer to the frame counts, too
            entry_facts: facts about this frame from the thread (debug_active, chained, system_call)
            space: address space of the thread's process, if there is one
        """
        form = self.kernel.layout
        view = held.read(address, form.size)
        if view is None:
            return TrapReading(None, False)
        data = bytes(view)
        if not (form.accepts(address, data, self.kernel.bounds) if strict else form.plausible(address, data)):
            return TrapReading(None, True)
        handler = self._pointer(held, address - self._memory.pointer_size)
        facts = self.kernel.facts._replace(
            handler=self.kernel.function(handler),
            stored=self.kernel.stored(handler),
            instruction=self._instruction(data, space),
            debug_active=entry_facts.debug_active,
            chained=entry_facts.chained,
            system_call=entry_facts.system_call,
        )
        frame = form.decode(address, data, facts)
        listed = list(form.list_members(frame, data)) if self._members else []
        built = self._exception_frame(frame, held)
        if built is not None:
            frame = _with(frame, built)
            if self._members:
                listed += self._nonvolatile(built)
        return TrapReading(frame, True, form.previous(frame, data), tuple(listed))

    def scan(self, held: Extents, start: int, end: int, taken: List[int]) -> Iterator[int]:
        """Yields the addresses of frames in a range that share no bytes with frames already in `taken`."""
        form = self.kernel.layout
        for address in form.scan(held, start, end, self.kernel.bounds):
            if form.overlaps(address, taken):
                if address not in taken:
                    vollog.info(f"What looks like a trap frame at {address:#x} overlaps another")
                continue
            taken.append(address)
            yield address

    def state(
        self,
        space: AddressSpace,
        tid: Optional[int],
        origin: str,
        address: int,
        reading: TrapReading,
        thread_state: str,
        frame_status: Status = NOTHING,
    ) -> TrapState:
        """Makes a register state from the result of reading an address."""
        frame = reading.frame
        return TrapState(
            space,
            tid,
            origin,
            address,
            frame.kind if frame is not None else "",
            frame.mode if frame is not None else "",
            frame.registers if frame is not None else {},
            frame.unsure if frame is not None else (),
            thread_state,
            frame_status,
            reading.members,
        )

    def _instruction(self, data: bytes, space: Optional[AddressSpace]) -> bytes:
        """Returns the code before the Rip of a user-mode frame, if the frame's kind depends on it."""
        form = self.kernel.layout
        if space is None or not space.layer_name or not form.instruction_size or not form.is_user(data):
            return b""
        rip = form.number(data, form.only_names.get("Rip", "Rip"))
        return self.kernel.code_before(rip, form.instruction_size, space)

    def _pointer(self, memory: Extents, address: int) -> int:
        view = memory.read(address, self._memory.pointer_size)
        return 0 if view is None else int.from_bytes(view, "little")

    def _exception_frame(self, frame: TrapFrame, memory: Extents) -> Optional[ExceptionFrame]:
        for exceptions in self.kernel.exceptions if frame.kind == EXCEPTION else ():
            dispatcher = self.kernel.function(
                self._pointer(memory, exceptions.dispatcher_slot(frame.address))
            )
            built = exceptions.find_frame(frame.address, frame.registers["Rip"], memory, dispatcher)
            if built is not None:
                return built
        return None

    def _nonvolatile(self, built: ExceptionFrame) -> Iterator[MemberValue]:
        structure = self.kernel.exceptions[0].structure
        for name, value in built.registers.items():
            field = structure.field(name)
            member, why = f"{structure.name}.{name}", NOT_DISPATCHED if built.validity == UNSURE else ""
            yield MemberValue(member, field.offset, field.size, value, built.validity, why)


def _with(frame: TrapFrame, built: ExceptionFrame) -> TrapFrame:
    """Returns a trap frame completed by the nonvolatile registers of an exception frame."""
    registers = dict(frame.registers, **built.registers)
    unsure = [name for name in frame.unsure if name not in built.registers]
    if built.validity == UNSURE:
        unsure += built.registers
    ordered = tuple(name for name in REGISTERS if name in unsure)
    return frame._replace(registers=registers, unsure=ordered)
