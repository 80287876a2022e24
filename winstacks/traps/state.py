# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The register states that `windows.trapframes` lists, with their origin and their validity.

Besides trap frames there are states that Windows wrote as a CONTEXT: for a stopped processor, and for the
32-bit code of a WoW64 thread.

Source of the WoW64 CPU area: the public definition of WOW64_CPURESERVED (TLS slot 1 of the 64-bit TEB):
Flags and Machine, then the 32-bit CONTEXT.
"""

from __future__ import annotations

import functools
from typing import Mapping, Optional, Sequence, Tuple

from ..columns.words import KERNEL, PROCESSOR, SAVED, SWITCHED, THREAD, USER, WOW64
from ..memory import bulk
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import Structures
from ..memory.image import AddressSpace, Image
from ..process.processors import Processor
from ..process.thread import SavedContext, Thread
from .decode.context import ContextLayout, decode_any
from .decode.exceptionframe_arm64 import SwitchFrames
from .decode.frame import CS_USER_32, MemberValue

_CPU_SLOT = 1
"""WOW64_TLS_CPURESERVED."""


class TrapState(NamedTuple):
    """A register state. Addresses are canonical.

    Attributes:
        tid: thread id, None if there is no thread or its id is unreadable
        origin: a word of `words.ORIGINS`
        address: canonical address at which the state was saved
        kind: kind of entry of a trap frame (a word such as `syscall`), empty if unknown and for a CONTEXT
        mode: `user` or `kernel`, empty if unknown
        registers: values by x64 names (Rip, also for Eip) or ARM64 names; a register that was not saved is
            missing
        unsure: names in `registers` that may not have been saved
        thread_state: scheduling state of the thread; empty if unknown
        members: members of the structure; empty unless requested
        processor: name of the processor that wrote the state, or that owns the stack (`CPU 0 dpc`); empty for
            a state on a thread's stack
        called: whether the address at which the code continues is the return address of a call
    """

    space: AddressSpace
    tid: Optional[int]
    origin: str
    address: int = 0
    kind: str = ""
    mode: str = ""
    registers: Mapping[str, int] = {}
    unsure: Tuple[str, ...] = ()
    thread_state: str = ""
    status: Status = NOTHING
    members: Tuple[MemberValue, ...] = ()
    processor: str = ""
    called: bool = False

    @property
    def arch(self) -> str:
        """The bitness of the state's structure, in the form of the column Arch."""
        return self.space.arch

    @property
    def ip(self) -> Optional[int]:
        """The address at which the code continues; None if it was not saved."""
        return self.registers.get(self.space.machine.ip_register)

    @property
    def sp(self) -> Optional[int]:
        """The stack pointer; None if it was not saved."""
        return self.registers.get(self.space.machine.sp_register)


def kernel_values(state: TrapState, user_end: int) -> Tuple[str, ...]:
    """Returns which of Rip and Rsp of code of a process have values from the kernel's half.

    It can neither run there nor have a stack there. A jump there makes a page fault at its own target, which
    is no contradiction.

    `user_end` is the first address behind the user's half.
    """
    if state.mode != USER or state.origin == SAVED:
        return ()
    machine, fault = state.space.machine, state.registers.get("FaultAddress")
    names = machine.ip_register, machine.sp_register
    return tuple(name for name in names if user_end <= state.registers.get(name, 0) != fault)


def state_without_registers(thread: Thread) -> TrapState:
    """Returns the state of a thread whose registers are unknown, with the thread's status. `thread` is the
    thread, or a row that stands for a damaged list of threads."""
    return TrapState(thread.space, thread.tid, THREAD, thread_state=thread.state_name, status=thread.status)


def register_types(image: Image, machine: Machine) -> Structures:
    """Returns our table of the structures in which Windows saves registers and that no build has changed."""
    return image.our_generations("context", machine)[0]


def context_registers(image: Image, data: bytes) -> Optional[Mapping[str, int]]:
    """Returns the registers in the bytes of a native CONTEXT, None if the bytes are no CONTEXT."""
    found = decode_any(context_layouts(image, image.machine), lambda size: data)
    return None if found.context is None else found.registers


def context_layouts(image: Image, machine: Machine) -> Tuple[ContextLayout, ...]:
    """Returns the possible layouts of a CONTEXT of a bitness; ContextFlags decide which one a CONTEXT has."""
    return image.service(_ContextLayouts).of_machine[machine]


class _ContextLayouts:
    """The layouts of CONTEXTs of an image, made once for each bitness."""

    def __init__(self, image: Image) -> None:
        self.of_machine: Memo[Machine, Tuple[ContextLayout, ...]] = Memo(functools.partial(self._made, image))

    @staticmethod
    def _made(image: Image, machine: Machine) -> Tuple[ContextLayout, ...]:
        generations = image.our_generations("context", machine)
        return tuple(ContextLayout(types["_CONTEXT"], machine) for types in generations)


def narrow_context(image: Image, memory: Memory, slots: int) -> Optional[int]:
    """Returns the canonical address of the 32-bit CONTEXT in the CPU area of a WoW64 thread; 0 if the thread
    has no such area, None if it cannot be read."""
    area = memory.pointer(slots + memory.pointer_size * _CPU_SLOT)
    return area and area + register_types(image, Machine.AMD64)["_WOW64_CPURESERVED"].size


_MXCSR = 0x2FFFF
"""The bits of MXCSR that may be set: all others are 0 in every processor (SDM; AMD's manual for bit 17)."""


class TrapContexts:
    """Reads the CONTEXT records of processors, of threads in dumps, and of WoW64 threads."""

    def __init__(self, image: Image, members: bool) -> None:
        self._image = image
        self._members = members
        self._slots = image.types.find("_TEB").first_member("TlsSlots")
        self._layouts: Memo[Machine, Tuple[ContextLayout, ...]] = Memo(
            functools.partial(context_layouts, image)
        )
        self._switch_frames: Optional[SwitchFrames] = None
        if image.machine is Machine.ARM64:
            self._switch_frames = SwitchFrames(image.types, register_types(image, image.machine))
        self._stopped = image.threads_only or bulk.crash_dump(image.context, image.layer) is not None

    def processor(self, processor: Processor, space: AddressSpace, tid: Optional[int]) -> Optional[TrapState]:
        """Returns the context of a processor, None if the processor has saved none: it was not stopped."""
        if not processor.context:
            return None
        memory = self._image.memory(self._image.kernel)
        read = functools.partial(memory.read, processor.context)
        found = decode_any(self._layouts[self._image.machine], read)
        if found.context is None:
            return None
        return TrapState(
            space,
            tid,
            PROCESSOR,
            processor.context,
            mode=USER if found.context.user else KERNEL,
            registers=found.registers,
            members=found.list_members() if self._members else (),
            processor=f"CPU {processor.number}",
        )

    def with_doubts(self, state: TrapState, stacks: Optional[Sequence[Tuple[int, int]]]) -> TrapState:
        """Returns the context of a processor with the reasons to doubt it added. If the context is proven
        stale, its registers are removed.

        A kernel debugger leaves a context with each processor after each report. Once the machine continues,
        the context is out of date. Measured on ReactOS with a kernel debugger. `stacks` are (limit, base) of
        all stacks on which the processor may have been in this mode; None if some may be unknown.
        """
        sp = state.sp
        # A stack pointer outside all stacks proves the context stale, except for user mode in a crash dump: a
        # fiber may run on a stack of its own, and Windows guarantees the context.
        conclusive = stacks is not None and not (state.mode == USER and self._stopped)
        if conclusive and sp is not None and not any(low <= sp <= high for low, high in stacks or ()):
            return state._replace(registers={}, members=(), status=status(state.status, StatusCode.STALE))
        if self._stopped and not state.registers.get("MxCsr", 0) & ~_MXCSR:
            return state
        statuses = status(state.status, StatusCode.CONTEXT_MAY_BE_OLDER)
        return state._replace(unsure=tuple(state.registers), status=statuses)

    def saved(self, thread: Thread, space: AddressSpace, context: SavedContext) -> TrapState:
        """Returns the registers of a thread that the input itself contains."""
        found = decode_any(self._layouts[context.machine], lambda size: context.data)
        later = StatusCode.AFTER_THE_EXCEPTION if context.later else None
        fault = context.status
        registers = {name: value for name, value in found.registers.items() if name not in context.unknown}
        if found.context is not None:
            found = found._replace(context=found.context._replace(registers=registers))
        elif fault is None:
            fault = status(StatusCode.NOT_A_CONTEXT)
        return TrapState(
            space,
            thread.tid,
            SAVED,
            context.address,
            mode=KERNEL if context.kernel else USER,
            registers=registers,
            unsure=tuple(name for name in context.unsure if name in registers),
            thread_state=thread.state_name,
            status=status(thread.status, later, fault),
            members=found.list_members() if self._members else (),
            called=found.context is not None and found.context.called,
        )

    def switched(self, thread: Thread) -> Optional[TrapState]:
        """Returns the registers with which a thread went on, or will go on, after its last switch (ARM64);
        None for a running thread without a recognised switch frame, and for other machines. They have the
        switch frame on the kernel stack; walks begin with it."""
        frames, stack = self._switch_frames, thread.kernel_stack
        if frames is None or not thread.ethread or not stack:
            return None
        found = frames.find(self._image.memory(thread.space).read, thread.ethread, stack)
        if not found.address and thread.running:
            return None
        return TrapState(
            thread.space,
            thread.tid,
            SWITCHED,
            found.address,
            mode=KERNEL if found.address else "",
            registers=found.registers,
            thread_state=thread.state_name,
            status=status(
                thread.status,
                *((StatusCode.RUNNING, StatusCode.STALE) if thread.running else ()),
                None if found.address else StatusCode.NO_SWITCH_FRAME,
            ),
            members=found.members if self._members else (),
        )

    def wow64(self, thread: Thread, user_cs: Optional[int]) -> Optional[TrapState]:
        """Returns the 32-bit context of a thread, None if the thread is not a WoW64 thread. `user_cs` is
        SegCs of the thread's trap frame from user mode, None if there is none. If it is the selector of
        32-bit code, that frame has the newest registers and the CPU area is stale."""
        space = thread.wow64
        if space is None or not thread.own_teb or self._slots is None or not space.layer_name:
            return None
        memory = self._image.memory(thread.space)
        address = narrow_context(self._image, memory, thread.own_teb + self._slots.offset)
        if address == 0:
            return None
        read = functools.partial(memory.read, address) if address else lambda size: None
        found = decode_any(self._layouts[space.machine], read)
        fault = StatusCode.STALE if user_cs == CS_USER_32 else None
        if found.context is None:
            fault = StatusCode.NOT_A_CONTEXT if found.read else StatusCode.UNREADABLE
        return TrapState(
            space,
            thread.tid,
            WOW64,
            address or 0,
            mode=USER,
            registers=found.registers,
            thread_state=thread.state_name,
            status=status(thread.status, StatusCode.RUNNING if thread.running else None, fault),
            members=found.list_members() if self._members else (),
        )
