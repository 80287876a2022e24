# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads one trap frame of an image, with the exception frame below it if one was built."""

from __future__ import annotations

import logging
from typing import Iterator, List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces

from ..base import bulk
from ..base.decode.extents import Extents
from ..base.decode.field import Field
from ..base.spaces import AddressSpace
from .decode import exceptionframe
from .decode import frame as trapframe
from .decode import scan as trapscan
from .decode.exceptionframe import ExceptionFrame
from .decode.frame import MemberValue, TrapFrame
from .decode.members import EXCEPTION, REUSED, SERVICE, UNSURE, number
from .kernel import TrapKernel
from .state import State

vollog = logging.getLogger(__name__)

_BELOW = 0x200
"""Bytes below a trap frame that hold an exception frame and the return address below that."""
_TYPE = "_KEXCEPTION_FRAME"


class Reading(NamedTuple):
    """A place that may hold a trap frame: `frame` is None if it is paged out or holds none."""

    frame: Optional[TrapFrame]
    readable: bool
    previous: int = 0
    members: Tuple[MemberValue, ...] = ()


class TrapReader:
    """Reads trap frames.

    Args:
        context: the context that holds the image
        layer_name: the kernel's layer
        kernel: what the kernel says about its frames
        members: list all members of each frame
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        kernel: TrapKernel,
        members: bool,
    ) -> None:
        self._context = context
        self._layer_name = layer_name
        self.kernel = kernel
        self._members = members

    def window(self, address: int) -> Extents:
        """Reads what a frame at an address needs."""
        start = max(address - _BELOW, 0)
        length = address - start + self.kernel.layout.size
        return bulk.read_extents(self._context, self._layer_name, start, length)

    def read(self, address: int, held: Extents, strict: bool = True, debug_active: int = 0) -> Reading:
        """Reads the frame at an address.

        Args:
            address: where it should be (canonical)
            held: the memory around it
            strict: believe the acceptance tests only, and not the pointer that led here
            debug_active: the thread's _DISPATCHER_HEADER.DebugActive
        """
        view = held.read(address, self.kernel.layout.size)
        if view is None:
            return Reading(None, False)
        data = bytes(view)
        accept = trapscan.accepts if strict else trapscan.plausible
        if not accept(self.kernel.layout, address, data, self.kernel.bounds):
            return Reading(None, True)
        handler = self.kernel.function(self._pointer(held, address - self.kernel.pointer_size))
        facts = self.kernel.facts_of(handler, debug_active=debug_active)
        frame = trapframe.decode(self.kernel.layout, address, data, facts)
        listed: List[MemberValue] = []
        if self._members:
            listed += trapframe.members(frame, self.kernel.layout, data)
        built = self._exception_frame(frame, held)
        if built is not None:
            frame = _with(frame, built)
            if self._members:
                listed += self._nonvolatile(built)
        return Reading(frame, True, self._previous(frame, data), tuple(listed))

    def scan(self, held: Extents, start: int, end: int, taken: List[int]) -> Iterator[int]:
        """Yields the frames in a range that share no bytes with those known already."""
        layout = self.kernel.layout
        for address in trapscan.scan(layout, held, start, end, self.kernel.bounds):
            if trapscan.overlaps(layout, address, taken):
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
        reading: Reading,
        thread_state: str,
        status: str = "",
    ) -> State:
        """Makes a register state of what was read at an address."""
        frame = reading.frame
        return State(
            space,
            tid,
            self.kernel.arch,
            origin,
            address,
            frame.kind if frame is not None else "",
            frame.mode if frame is not None else "",
            frame.registers if frame is not None else {},
            frame.unsure if frame is not None else (),
            thread_state,
            status,
            reading.members,
        )

    def _pointer(self, held: Extents, address: int) -> int:
        view = held.read(address, self.kernel.pointer_size)
        return 0 if view is None else int.from_bytes(view, "little")

    def _exception_frame(self, frame: TrapFrame, held: Extents) -> Optional[ExceptionFrame]:
        layout = self.kernel.exception
        if layout is None or frame.kind != EXCEPTION:
            return None
        slot = self._pointer(held, exceptionframe.dispatcher_slot(layout, frame.address))
        dispatcher = self.kernel.function(slot)
        return exceptionframe.find(layout, frame.address, frame.registers["Rip"], held, dispatcher)

    def _previous(self, frame: TrapFrame, data: bytes) -> int:
        """Returns the thread's trap frame before this one, which services keep, or 0."""
        if self.kernel.layout.arch == "x64":
            return number(self.kernel.layout, data, "TrapFrame") if frame.kind == SERVICE else 0
        edx = frame.verdicts.get("Edx")
        return number(self.kernel.layout, data, "Edx") if edx is not None and edx.validity == REUSED else 0

    def _nonvolatile(self, built: ExceptionFrame) -> List[MemberValue]:
        layout = self.kernel.exception
        places = layout.members if layout is not None else {}
        rows = []
        for name, value in built.registers.items():
            offset = places.get(name, Field(0, 8)).offset
            rows.append(MemberValue(f"{_TYPE}.{name}", offset, 8, value, built.validity, ""))
        return rows


def _with(frame: TrapFrame, built: ExceptionFrame) -> TrapFrame:
    """Adds the nonvolatile registers of an exception frame."""
    registers = dict(frame.registers, **built.registers)
    unsure = [name for name in frame.unsure if name not in built.registers]
    if built.validity == UNSURE:
        unsure += built.registers
    ordered = tuple(name for name in trapframe.COLUMNS if name in unsure)
    return frame._replace(registers=registers, unsure=ordered)
