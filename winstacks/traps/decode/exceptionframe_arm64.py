# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Exception frames and switch frames of ARM64: the nonvolatile registers that no trap frame holds.

A thread that is switched out has a _KSWITCH_FRAME in its KTHREAD, and a _KEXCEPTION_FRAME at
KTHREAD.KernelStack.

Source: `ksarm64.h` (Windows SDK) for both structures. Measured in a crash of 22000: the code at
SwitchFrame.Return loads X19 to X28, Fp and Lr from the offsets of _KEXCEPTION_FRAME and adds its size to Sp;
SwitchFrame.Fp is the address of its Fp, the frame lies at KernelStack. That a trap puts such a frame right
below the trap frame is inferred from the initial stack of a thread, which `ksarm64.h` declares so.
"""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Tuple

from ...memory.decode.memory import ReadMemory
from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Buffer, Structure, Structures
from ...names.decode.pointers_arm64 import may_be_kernel_code, strip
from .context import ExceptionFrame
from .frame import SAVED, UNSURE, MemberValue

NONVOLATILE = tuple(f"X{number}" for number in range(19, 29))

INFERRED_PLACE = "that a trap puts an exception frame right below the trap frame is inferred"
"""Reason why the registers of an exception frame below a trap frame are unsure."""


class ExceptionFramesArm64:
    """Finds the exception frame right below a trap frame; see `ExceptionFrames`."""

    def __init__(self, structure: Structure, trap_size: int) -> None:
        self.structure = structure
        self._trap_size = trap_size
        self._unpack = structure.reader(*NONVOLATILE, "Fp", "Return")

    def dispatcher_slot(self, trap_frame: int) -> int:
        """Returns the address of the member that holds the return address."""
        return trap_frame - self.structure.size + self.structure.offset("Return")

    def find_frame(
        self, trap_frame: int, ip: int, memory: Extents, dispatcher: str = ""
    ) -> Optional[ExceptionFrame]:
        """Returns the exception frame below a trap frame; its registers are unsure.

        The bytes there count if their Fp leads into the trap frame (the frame pointer of the code that made
        it) and their Return may be code of the kernel. `dispatcher` is the name of the function that Return
        is in; not used.
        """
        address = trap_frame - self.structure.size
        data = memory.read(address, self.structure.size)
        if data is None:
            return None
        *values, fp, returns = self._unpack(data, 0)
        if not trap_frame <= fp < trap_frame + self._trap_size or not may_be_kernel_code(returns):
            return None
        return ExceptionFrame(address, dict(zip(NONVOLATILE, values)), UNSURE, None, INFERRED_PLACE)


class Switched(NamedTuple):
    """The registers with which a thread that was switched out goes on. `registers` has Pc, Lr, Sp, Fp and X19
    to X28 of the code to which the exception frame returns; only Pc, Sp and Fp, of the code to which the
    switch frame returns, if the exception frame is overwritten or absent."""

    address: int
    registers: Mapping[str, int]
    members: Tuple[MemberValue, ...]


NOT_SWITCHED = Switched(0, {}, ())
"""The result for a thread whose switch frame cannot be read."""


class SwitchFrames:
    """Reads the switch frames of threads."""

    def __init__(self, types: Structures, context_types: Structures) -> None:
        self._place = types.find("_KTHREAD").first_member("SwitchFrame")
        self._switch = context_types.find("_KSWITCH_FRAME")
        self._exception = types.find("_KEXCEPTION_FRAME")

    def find(self, read: ReadMemory, ethread: int, kernel_stack: int) -> Switched:
        """Returns the registers of a thread that was switched out: NOT_SWITCHED if the structures are
        unknown, or if Fp of the switch frame does not lead to the place of an exception frame at KernelStack:
        then the layout of KTHREAD is another one."""
        switch, exception, place = self._switch, self._exception, self._place
        known = switch.known and exception.known and ethread
        data = read(ethread + place.offset, switch.size) if known and place is not None else None
        if place is None or data is None:
            return NOT_SWITCHED
        saved = switch.view(data)
        if saved["Fp"] != kernel_stack + exception.offset("Fp") or not may_be_kernel_code(saved["Return"]):
            return NOT_SWITCHED
        registers = {"Pc": strip(saved["Return"]), "Sp": kernel_stack, "Fp": saved["Fp"]}
        members = list(_members(switch, data, ("Fp", "Return")))
        names = (*NONVOLATILE, "Fp", "Return")
        below = read(kernel_stack, exception.size)
        if below is not None and may_be_kernel_code(exception.view(below)["Return"]):
            kept = exception.view(below)
            registers = {name: kept[name] for name in (*NONVOLATILE, "Fp")}
            registers.update(Pc=strip(kept["Return"]), Lr=kept["Return"])
            registers.update(Sp=kernel_stack + exception.size)
            members += _members(exception, below, names)
        return Switched(ethread + place.offset, registers, tuple(members))


def _members(structure: Structure, data: Buffer, names: Tuple[str, ...]) -> Iterator[MemberValue]:
    for name in names:
        field = structure.field(name)
        member = f"{structure.name}.{name}"
        yield MemberValue(member, field.offset, field.size, field.value_in(data), SAVED, "")
