# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `windows.trapframes` lists: register states, where they come from and how far they may be believed.

Besides trap frames there are states that Windows wrote out as a CONTEXT: of a stopped processor, of a WoW64
thread's 32 bits.

Source of the WoW64 CPU area: the public definition of WOW64_CPURESERVED (TLS slot 1 of the 64-bit TEB):
Flags and Machine, then the 32-bit CONTEXT.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.status import NOTHING, Status, Word, status
from ..memory.decode.structure import Structures
from ..memory.image import AddressSpace, Image
from ..process.processors import Processor
from ..process.thread import SavedContext, Thread
from .decode.context import NO_CONTEXT, ContextForm
from .decode.frame import CS_USER_32, KERNEL, USER, MemberValue

THREAD = "thread"
TOP = "top"
STACK = "stack"
PROCESSOR = "processor"
WOW64 = "wow64"
SAVED = "saved"

_CPU_SLOT = 1
"""WOW64_TLS_CPURESERVED."""


class State(NamedTuple):
    """A register state. Addresses are canonical.

    Attributes:
        space: the address space that names its addresses
        tid: its thread, None if there is none or its ID is unreadable
        origin: thread (KTHREAD.TrapFrame and the chain from it), top (the fixed place at the top of a kernel
            stack), stack (found by scanning), processor, wow64, or saved (the input itself keeps them)
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
    return image.our_types(f"context-{machine.arch}")


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
        self._forms: Dict[Machine, ContextForm] = {}

    def processor(self, processor: Processor, space: AddressSpace, tid: Optional[int]) -> Optional[State]:
        """Returns the context of a processor, or None if it has none (it was not stopped).

        Args:
            processor: the processor
            space: the address space that it was in
            tid: its thread
        """
        form = self._form(self._image.machine)
        memory = self._image.memory(self._image.kernel)
        data = memory.read(processor.context, form.size) if processor.context else None
        found = None if data is None else form.decode(data)
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

    def saved(self, thread: Thread, space: AddressSpace, context: SavedContext) -> State:
        """Returns the registers that an input itself keeps of a thread.

        Args:
            thread: the thread
            space: the half of its process in which they are registers
            context: the registers
        """
        form = self._form(context.machine)
        found = form.decode(context.data)
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
        area = memory.pointer(thread.teb + self._slots.offset + memory.pointer_size * _CPU_SLOT)
        if not area and area is not None:
            return None
        form = self._form(space.machine)
        reserved = register_types(self._image, thread.space.machine)["_WOW64_CPURESERVED"]
        address = area + reserved.size if area else 0
        data = memory.read(address, form.size) if area else None
        found = None if data is None else form.decode(data)
        broken = None
        if found is None:
            broken = Word.UNREADABLE if data is None else Word.NOT_A_CONTEXT
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
            address,
            "",
            USER,
            (found or NO_CONTEXT).registers,
            (),
            thread.state_name,
            said,
            tuple(form.listed(found)) if self._members and found is not None else (),
        )

    def _form(self, machine: Machine) -> ContextForm:
        if machine not in self._forms:
            self._forms[machine] = ContextForm(register_types(self._image, machine)["_CONTEXT"], machine)
        return self._forms[machine]
