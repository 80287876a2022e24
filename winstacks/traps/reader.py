# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the trap frames of an image, with the exception frames below them, in the layout of its kernel."""

from __future__ import annotations

import logging
import re
from typing import Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple, Type, Union

from ..columns.registers import REGISTERS
from ..columns.words import EXCEPTION, PDB
from ..memory import bulk
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.ranges import Extents
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, contradicted, status
from ..memory.decode.structure import unsigned
from ..memory.image import AddressSpace, Image
from ..names.decode.unwindinfo import UnwindDataError
from ..names.symbolizer import Symbolizer
from ..process import processors
from .decode.context import ExceptionFrame, ExceptionFrames
from .decode.exceptionframe_arm64 import ExceptionFramesArm64
from .decode.frame import (
    NO_FACTS,
    NO_FRAME,
    UNSURE,
    EntryFacts,
    MemberValue,
    TrapBounds,
    TrapFrame,
    TrapFrameLayout,
)
from .decode.trapframe_arm64 import TrapFrameLayoutArm64
from .decode.trapframe_x64 import TrapFrameLayout64
from .decode.trapframe_x86 import TrapFrameLayout86
from .state import TrapState, kernel_values, register_types

vollog = logging.getLogger(__name__)

_FUNCTION = re.compile(r"nt!(\w+)(?:\+0x[0-9a-f]+)?$")
_LAYOUTS: Dict[Machine, Type[TrapFrameLayout]] = {
    Machine.AMD64: TrapFrameLayout64,
    Machine.I386: TrapFrameLayout86,
    Machine.ARM64: TrapFrameLayoutArm64,
}
_BELOW = 0x200
"""Bytes below a trap frame that are read with it: room for an exception frame and the return address
below."""


class TrapKernel:
    """Facts about an image's kernel that decoding its trap frames requires.

    Attributes:
        tops: possible distances of frames from user mode below the top of a kernel stack, in bytes
        exceptions: possible layouts of its exception frames; empty if this kernel makes none
    """

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self.image = image
        self._symbolizer = symbolizer
        self._names = symbolizer.for_space(image.kernel)
        self._functions: Memo[int, str] = Memo(self._function_at)
        self._stored_registers: Memo[int, Optional[FrozenSet[str]]] = Memo(self._read_stored_registers)
        self.layout = _LAYOUTS[image.machine](image.types["_KTRAP_FRAME"])
        types = register_types(image, image.machine)
        self.tops = self.layout.tops(types)
        self.exceptions = self._exception_frames()
        linkage = image.symbol("KiServiceLinkage") or 0
        module = self._names.module_at(image.base)
        self.bounds = TrapBounds(
            symbolizer.halves.user_end,
            symbolizer.halves.kernel_start,
            (image.base, image.base if module is None else module.module.end),
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
            # 5.2 made int 2C the assertion interrupt (KiRaiseAssertion handles it), and began to clear Dr7.
            clears_dr7=image.symbol("KiRaiseAssertion") is not None,
        )

    def _exception_frames(self) -> Sequence[Union[ExceptionFrames, ExceptionFramesArm64]]:
        """Returns the possible layouts of the kernel's exception frames."""
        image, name = self.image, self.layout.exception_type
        exception = image.types.first_structure(name) if name else None
        if exception is None:
            if name:
                image.lacks(name)
            return ()
        if image.machine is Machine.ARM64:
            return (ExceptionFramesArm64(exception, self.layout.size),)
        generations = image.our_generations("context", image.machine)
        return [ExceptionFrames(exception, generation) for generation in generations]

    def function(self, address: Optional[int]) -> str:
        """Returns the name of the kernel function that holds a return address, empty without a symbol."""
        return self._functions[address] if address else ""

    def _function_at(self, address: int) -> str:
        name = self._names.name(address)
        match = _FUNCTION.match(name.symbol) if name.source == PDB else None
        return match.group(1) if match else ""

    def stored_registers(self, address: int) -> Optional[FrozenSet[str]]:
        """Returns the nonvolatile registers that an entry stores in its trap frame, None if unknown.

        The unwind data of the entry's code lists them. `address` is the return address in the entry's code,
        as it stands right below the frame.
        """
        return self._stored_registers[address]

    def _read_stored_registers(self, address: int) -> Optional[FrozenSet[str]]:
        module = self._names.module_at(address) if address else None
        if module is None or module.module.base != self.image.base or module.image.functions is None:
            return None
        table = module.image.functions
        entry = table.find_entry(address - 1 - module.module.base)
        try:
            return None if entry is None else self.layout.stored_registers(table.chain(entry))
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
        place = self.image.at("_KUSER_SHARED_DATA", self.layout.shared_data).place("SystemCallReturn")
        return self.image.memory(self.image.kernel).number(place, 4) or 0 if place else 0


class TrapReading(NamedTuple):
    """The result of reading a possible trap frame.

    Attributes:
        frame: decoded frame, NO_FRAME if the address is not in the image or holds no frame
        previous: address of the thread's previous frame, to which this frame points; 0 for none
    """

    frame: TrapFrame
    readable: bool
    previous: int = 0
    members: Tuple[MemberValue, ...] = ()


WITHOUT_FRAME = TrapReading(NO_FRAME, True)


class TrapReader:
    """Reads trap frames."""

    def __init__(self, kernel: TrapKernel, members: bool) -> None:
        self.kernel = kernel
        self._memory = kernel.image.memory(kernel.image.kernel)
        self._members = members

    def window(self, address: int) -> Extents:
        """Reads the memory that decoding a frame needs: the frame, and _BELOW bytes below it."""
        start = max(address - _BELOW, 0)
        return self._memory.load(start, address - start + self.kernel.layout.size)

    def physical(self, address: int) -> int:
        """Returns the physical address of a canonical kernel address."""
        return bulk.physical(self.kernel.image.layer, address)

    def stack(self, limit: int, base: int) -> Extents:
        return self._memory.load(limit, base - limit)

    def read(
        self,
        address: int,
        memory: Extents,
        strict: bool = True,
        entry_facts: EntryFacts = NO_FACTS,
        space: Optional[AddressSpace] = None,
        top: bool = False,
    ) -> TrapReading:
        """Reads the frame at an address.

        Args:
            strict: whether the bytes must pass all tests (`accepts`); False if a pointer leads to the frame,
                so that a weaker test is enough (`plausible`)
            entry_facts: facts about this frame from the thread (debug_active, chained, system_call)
            space: address space of the thread's process, None if there is none
            top: whether the address is the place of a frame from user mode at the top of a stack
        """
        layout, bounds = self.kernel.layout, self.kernel.bounds
        view = memory.read(address, layout.size)
        if view is None:
            return TrapReading(NO_FRAME, False)
        data = bytes(view)
        accepted = layout.accepts(address, data, bounds) if strict else layout.plausible(address, data)
        if not accepted and not (top and layout.accepts_written(data, bounds)):
            return WITHOUT_FRAME
        handler = self._pointer_at(memory, address - self._memory.pointer_size)
        facts = self.kernel.facts._replace(
            handler=self.kernel.function(handler),
            stored_registers=self.kernel.stored_registers(handler),
            instruction=self._code_before_rip(address, data, space),
            debug_active=entry_facts.debug_active,
            chained=entry_facts.chained,
            system_call=entry_facts.system_call,
        )
        frame = layout.decode(address, data, facts)
        members = list(layout.list_members(frame, data)) if self._members else []
        exception_frame = self._exception_frame(frame, memory)
        if exception_frame is not None:
            frame = _with_nonvolatile(frame, exception_frame)
            if self._members:
                members += self._nonvolatile(exception_frame)
        return TrapReading(frame, True, layout.previous(frame, data), tuple(members))

    def scan(self, memory: Extents, start: int, end: int, taken: List[int]) -> Iterator[int]:
        """Yields the addresses of the frames in a range that share no bytes with known frames. `taken` are
        addresses of known frames; receives the addresses that are yielded."""
        layout = self.kernel.layout
        for address in layout.scan(memory, start, end, self.kernel.bounds):
            if layout.overlaps(address, taken):
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
        """Returns the register state for the result of reading an address."""
        frame = reading.frame
        state = TrapState(
            space,
            tid,
            origin,
            address,
            frame.kind,
            frame.mode,
            frame.registers,
            frame.unsure,
            thread_state,
            frame_status,
            reading.members,
        )
        wrong = kernel_values(state, self.kernel.bounds.user_end)
        return state._replace(status=status(frame_status, contradicted(*wrong))) if wrong else state

    def _code_before_rip(self, address: int, data: bytes, space: Optional[AddressSpace]) -> bytes:
        """Returns the code before the Rip of a frame, if the frame's kind depends on it."""
        layout = self.kernel.layout
        size = layout.code_size(address, data)
        owner = space if layout.is_user(data) else self.kernel.image.kernel
        if not size or owner is None or not owner.layer_name:
            return b""
        register = self.kernel.image.machine.ip_register
        ip = layout.number(data, layout.only_names.get(register, register))
        return self.kernel.code_before(ip, size, owner)

    def _pointer_at(self, memory: Extents, address: int) -> int:
        """Returns the pointer at an address, 0 if it is not in the memory."""
        return unsigned(memory.read(address, self._memory.pointer_size)) or 0

    def _exception_frame(self, frame: TrapFrame, memory: Extents) -> Optional[ExceptionFrame]:
        """Returns the exception frame that belongs to a trap frame, None if there is none."""
        for exceptions in self.kernel.exceptions if frame.kind == EXCEPTION else ():
            dispatcher = self.kernel.function(
                self._pointer_at(memory, exceptions.dispatcher_slot(frame.address))
            )
            ip = frame.registers[self.kernel.image.machine.ip_register]
            exception_frame = exceptions.find_frame(frame.address, ip, memory, dispatcher)
            if exception_frame is not None:
                return exception_frame
        return None

    def _nonvolatile(self, exception_frame: ExceptionFrame) -> Iterator[MemberValue]:
        """Yields the nonvolatile registers of an exception frame as members."""
        structure = self.kernel.exceptions[0].structure
        for name, value in exception_frame.registers.items():
            field = structure.field(name)
            member, validity = f"{structure.name}.{name}", exception_frame.validity
            yield MemberValue(member, field.offset, field.size, value, validity, exception_frame.note)


def _with_nonvolatile(frame: TrapFrame, exception_frame: ExceptionFrame) -> TrapFrame:
    """Returns a trap frame completed by the nonvolatile registers of an exception frame."""
    registers = dict(frame.registers, **exception_frame.registers)
    unsure = [name for name in frame.unsure if name not in exception_frame.registers]
    if exception_frame.validity == UNSURE:
        unsure += exception_frame.registers
    ordered = tuple(name for name in REGISTERS if name in unsure)
    return frame._replace(registers=registers, unsure=ordered)
