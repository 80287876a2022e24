# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ARM64 trap frames: the kind of entry, and the members that each kind writes.

Source: KTRAP_FRAME of `ksarm64.h` (Windows SDK); the public symbols of two kernels agree. No entry code of an
ARM64 kernel was run or read: what a system call writes of the volatile registers is unsure.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from ...columns.words import EXCEPTION, INTERRUPT, SERVICE, SYSCALL
from ...memory.decode.ranges import Extents
from ...memory.decode.structure import Structures
from .frame import (
    COMPUTED,
    SAVED,
    UNSURE,
    UNWRITTEN,
    USER_LOWEST,
    EntryFacts,
    TrapBounds,
    TrapFrame,
    TrapFrameLayout,
    Validities,
    set_validity,
)

_INTERRUPT, _EXCEPTION, _SERVICE = 0, 1, 2
"""Values of ExceptionActive."""

_MODE = 0x1F
"""Bits of Spsr: the state of the processor (0 user mode, 4 and 5 kernel mode; bit 4: 32-bit code)."""
_USER_MODE, _KERNEL_MODES = 0, (4, 5)
_NEVER = 0x0C0FC020
"""Bits of Spsr that no processor sets (Arm Architecture Reference Manual, SPSR_EL1)."""
_FLAGS = ("ContextFromKFramesUnwound", "DebugRegistersValid")
_FARTHEST = 0x10000
"""Bytes between a frame and the stack pointer of the kernel code that it interrupted, at most."""

_VOLATILE = " ".join(f"X{number}" for number in range(19))
_DEBUG = "Bcr Bvr Wcr Wvr"
_SERVICES = "what a service entry stores of it was not measured"


class TrapFrameLayoutArm64(TrapFrameLayout):
    """Trap frames of ARM64."""

    exception_type = "_KEXCEPTION_FRAME"
    only_names = {"Cpsr": "Spsr"}
    alignment = 16

    def tops(self, types: Structures) -> Tuple[int, ...]:
        """Returns how far frames from user mode may lie below the top of a kernel stack, in bytes."""
        return (self.size,)

    def is_user(self, data: bytes) -> bool:
        """Returns whether the processor was in user mode when the frame was made."""
        return self.number(data, "Spsr") & _MODE == _USER_MODE

    def classify(self, address: int, data: bytes, facts: EntryFacts) -> Tuple[str, Validities]:
        """Returns the kind of entry and the validity of the members."""
        active, user = self.number(data, "ExceptionActive"), self.is_user(data)
        service = SYSCALL if user else SERVICE
        kind = {_INTERRUPT: INTERRUPT, _EXCEPTION: EXCEPTION, _SERVICE: service}.get(active, "")
        found: Validities = {}
        set_validity(found, SAVED, "ExceptionActive DebugRegistersValid Spsr Sp Lr Fp Pc")
        if kind in (INTERRUPT, EXCEPTION):
            set_validity(found, SAVED, _VOLATILE)
        else:
            set_validity(found, UNSURE, _VOLATILE, _SERVICES)
        if kind == EXCEPTION:
            set_validity(found, SAVED, "Esr FaultAddress")
        elif kind in (SYSCALL, SERVICE):
            set_validity(found, COMPUTED, "TrapFrame", "the thread's previous trap frame")
        set_validity(found, SAVED, "PreviousIrql" if kind == INTERRUPT else "PreviousMode")
        set_validity(found, SAVED if self.number(data, "DebugRegistersValid") else UNWRITTEN, _DEBUG)
        return kind, found

    def plausible(self, address: int, data: bytes) -> bool:
        """Returns whether bytes to which the thread itself points may be a trap frame."""
        if len(data) < self.size or self.number(data, "ExceptionActive") > _SERVICE:
            return False
        mode, pc, sp = (self.number(data, name) for name in ("Spsr", "Pc", "Sp"))
        known = mode & _MODE in (_USER_MODE, *_KERNEL_MODES) and not mode & _NEVER
        known = known and all(self.number(data, name) <= 1 for name in _FLAGS)
        return known and pc != 0 and pc % 4 == 0 and sp % 16 == 0

    def accepts(self, address: int, data: bytes, bounds: TrapBounds) -> bool:
        if address % self.alignment or not self.plausible(address, data):
            return False
        pc, sp = self.number(data, "Pc"), self.number(data, "Sp")
        if self.is_user(data):
            return USER_LOWEST <= pc < bounds.user_end and USER_LOWEST <= sp < bounds.user_end
        end = address + self.size
        return pc >= bounds.kernel_start and end <= sp <= end + _FARTHEST

    def accepts_written(self, data: bytes, bounds: TrapBounds) -> bool:
        """Returns False: no frame that the kernel of ARM64 wrote from a CONTEXT is known."""
        return False

    def previous(self, frame: TrapFrame, data: bytes) -> int:
        """Returns the address of the thread's previous trap frame, which services keep, or 0."""
        return self.number(data, "TrapFrame") if frame.kind in (SYSCALL, SERVICE) else 0

    def _candidates(self, memory: Extents, start: int, end: int) -> Iterator[Tuple[int, bytes]]:
        """Yields each aligned position with the bytes there: no bytes of a frame are rare enough."""
        for low, high in memory.covered(start, end):
            data = memory.read(low, high - low)
            if data is not None:
                for begin in range(-low % self.alignment, high - low - self.size + 1, self.alignment):
                    yield low + begin, bytes(data[begin : begin + self.size])
