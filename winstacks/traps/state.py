# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `windows.trapframes` lists: register states, where they come from and how far they may be believed.

Besides trap frames there are states that Windows wrote out as a CONTEXT: of a stopped processor, of a WoW64
thread's 32 bits.

Source of the WoW64 CPU area: the public definition of WOW64_CPURESERVED (TLS slot 1 of the 64-bit TEB):
Flags and Machine, then the 32-bit CONTEXT.
"""

from __future__ import annotations

import functools
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple

from volatility3.framework.layers import crash

from ..columns.words import KERNEL, PROCESSOR, SAVED, USER, WOW64
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.status import NOTHING, Status, Word, status
from ..memory.decode.structure import Structures
from ..memory.image import AddressSpace, Image
from ..process.processors import Processor
from ..process.thread import SavedContext, Thread
from .decode.context import NO_CONTEXT, ContextForm, decode_any
from .decode.frame import CS_USER_32, MemberValue

_CPU_SLOT = 1
"""WOW64_TLS_CPURESERVED."""


class State(NamedTuple):
    """A register state. Addresses are canonical.

    Attributes:
        space: the address space that names its addresses
        tid: its thread, None if there is none or its ID is unreadable
        origin: a word of `words.ORIGINS`
        address: where it was saved
        kind: of a trap frame, empty where it is not known
        mode: user or kernel, empty where it is not known
        registers: what was saved and no more, by x64 names
        unsure: those of `registers` of which it is not known whether they were saved
        thread_state: the thread's scheduling state; empty if it is not known
        status: why it may not be believed
        members: empty unless it was asked for
        processor: name of the processor that wrote the state out, or on whose own stack it is (`CPU 0 dpc`);
            empty for what is on a thread's stack
    """

    space: AddressSpace
    tid: Optional[int]
    origin: str
    address: int
    kind: str
    mode: str
    registers: Mapping[str, int]
    unsure: Tuple[str, ...]
    thread_state: str
    status: Status
    members: Tuple[MemberValue, ...] = ()
    processor: str = ""

    @property
    def arch(self) -> str:
        """The bitness of its structure, as the column Arch has it."""
        return self.space.arch


def register_types(image: Image, machine: Machine) -> Structures:
    """Returns the structures in which Windows saves registers, besides those that differ from build to build.

    Raises:
        tables.MissingTableError: when our table is missing
    """
    return image.our_generations("context", machine)[0]


def context_forms(image: Image, machine: Machine) -> Tuple[ContextForm, ...]:
    """Returns the forms that a CONTEXT of a bitness may have; its own flags tell which it has.

    Raises:
        tables.MissingTableError: when our table is missing
    """
    known = image.our_generations("context", machine)
    return tuple(ContextForm(types["_CONTEXT"], machine) for types in known)


def narrow_context(image: Image, memory: Memory, slots: int) -> Optional[int]:
    """Returns where the CPU area of a WoW64 thread has its 32-bit CONTEXT.

    Args:
        image: the image
        memory: of the 64-bit half
        slots: address of the thread's _TEB.TlsSlots

    Returns:
        The address; 0 if the thread has no such area, None if that cannot be read.
    """
    area = memory.pointer(slots + memory.pointer_size * _CPU_SLOT)
    return area and area + register_types(image, Machine.AMD64)["_WOW64_CPURESERVED"].size


_MXCSR = 0x2FFFF
"""The bits of MXCSR that a processor can set: all others are 0 (SDM, AMD's manual for bit 17)."""


class TrapContexts:
    """Reads CONTEXT records.

    Args:
        image: the image
        members: list all members of each
    """

    def __init__(self, image: Image, members: bool) -> None:
        self._image = image
        self._members = members
        teb = image.types.find("_TEB")
        self._slots = None if teb is None else teb.find("TlsSlots")
        self._forms: Memo[Machine, Tuple[ContextForm, ...]] = Memo(functools.partial(context_forms, image))
        self._stopped = _is_crash_dump(image)

    def processor(self, processor: Processor, space: AddressSpace, tid: Optional[int]) -> Optional[State]:
        """Returns the context of a processor, or None if it has none (it was not stopped).

        Args:
            processor: the processor
            space: the address space that it was in
            tid: its thread
        """
        if not processor.context:
            return None
        memory = self._image.memory(self._image.kernel)
        read = functools.partial(memory.read, processor.context)
        form, found, _ = decode_any(self._forms[self._image.machine], read)
        if found is None:
            return None
        return State(
            space,
            tid,
            PROCESSOR,
            processor.context,
            "",
            USER if found.user else KERNEL,
            found.registers,
            (),
            "",
            NOTHING,
            tuple(form.listed(found)) if self._members else (),
            f"CPU {processor.number}",
        )

    def judged(self, state: State, stacks: Sequence[Tuple[int, int]]) -> State:
        """Returns the context of a processor with what speaks against it, without registers if that is proof.

        A kernel debugger leaves a context with each processor after each report: on a machine that goes on
        it is of another time. Measured on ReactOS with a kernel debugger.

        Args:
            state: what `processor` returned
            stacks: (limit, base) of the stacks that the processor may have been on
        """
        sp = state.registers.get("Rsp")
        if state.mode == KERNEL and sp is not None and not any(low <= sp <= high for low, high in stacks):
            return state._replace(registers={}, members=(), status=status(state.status, Word.STALE))
        if self._stopped and not state.registers.get("MxCsr", 0) & ~_MXCSR:
            return state
        said = status(state.status, Word.CONTEXT_MAY_BE_OLDER)
        return state._replace(unsure=tuple(state.registers), status=said)

    def saved(self, thread: Thread, space: AddressSpace, context: SavedContext) -> State:
        """Returns the registers that an input itself keeps of a thread.

        Args:
            thread: the thread
            space: the half of its process in which they are registers
            context: the registers
        """
        form, found, _ = decode_any(self._forms[context.machine], lambda size: context.data)
        said = status(thread.status, None if found is not None else Word.NOT_A_CONTEXT)
        registers = (found or NO_CONTEXT).registers
        listed = tuple(form.listed(found)) if self._members and found is not None else ()
        return State(
            space,
            thread.tid,
            SAVED,
            context.address,
            "",
            USER,
            registers,
            (),
            thread.state_name,
            said,
            listed,
        )

    def wow64(self, thread: Thread, user_cs: Optional[int]) -> Optional[State]:
        """Returns the 32-bit context of a thread, or None if it is no WoW64 thread.

        Args:
            thread: the thread
            user_cs: SegCs of its trap frame from user mode, if it has one: from 32-bit code the live
                registers are in that frame and the CPU area is stale
        """
        space = thread.wow64
        if space is None or not thread.teb or self._slots is None or not space.layer_name:
            return None
        memory = self._image.memory(thread.space)
        address = narrow_context(self._image, memory, thread.teb + self._slots.offset)
        if address == 0:
            return None
        read = functools.partial(memory.read, address) if address else lambda size: None
        form, found, present = decode_any(self._forms[space.machine], read)
        broken = None
        if found is None:
            broken = Word.NOT_A_CONTEXT if present else Word.UNREADABLE
        said = status(
            thread.status,
            Word.RUNNING if thread.running else None,
            Word.STALE if user_cs == CS_USER_32 and found is not None else None,
            broken,
        )
        return State(
            space,
            thread.tid,
            WOW64,
            address or 0,
            "",
            USER,
            (found or NO_CONTEXT).registers,
            (),
            thread.state_name,
            said,
            tuple(form.listed(found)) if self._members and found is not None else (),
        )


def _is_crash_dump(image: Image) -> bool:
    """Returns whether Windows itself wrote the image, for which it stops all processors."""
    waiting = [image.layer]
    while waiting:
        layer = waiting.pop()
        if isinstance(layer, crash.WindowsCrashDump32Layer):
            return True
        waiting += [image.context.layers[name] for name in layer.dependencies]
    return False
