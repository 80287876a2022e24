# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A walk up an x64 stack: by unwind data, across machine frames, by scan where nothing better is there."""

from __future__ import annotations

from typing import Collection, Dict, List, Mapping, Optional, Tuple, Union

from . import callsite
from .frames import (
    LEAF,
    MAX_FRAMES,
    MAX_SCANNED,
    SCAN,
    TRAP,
    UNWIND,
    Border,
    FindImage,
    Frame,
    Image,
    Read,
    Stacks,
    Walk,
)
from .registers64 import Registers
from .unwindinfo import Bytes
from .unwindstate import UnwindError
from .unwindx64 import LEAF as LEAF_FUNCTION
from .unwindx64 import Step, Unwinder

_SLOT = 8
_PAGE = 0x1000
_CS = 8
"""Offset in a machine frame, of five slots: Rip, SegCs, EFlags, Rsp, SegSs."""


class Walker64:
    """Walks x64 stacks of one address space.

    Args:
        find_image: finds the module that holds an address
        read: reads memory, by canonical address
    """

    def __init__(self, find_image: FindImage, read: Read) -> None:
        self._find_image = find_image
        self._read = read
        self._unwinders: Dict[int, Unwinder] = {}

    def walk(
        self,
        start: Registers,
        interrupted: bool,
        stacks: Collection[Tuple[int, int]] = (),
        machine_frames: Optional[Mapping[int, Registers]] = None,
    ) -> Walk:
        """Walks from a register state to the end of the stack, or to the border of kernel and user mode.

        Args:
            start: the innermost state
            interrupted: its `ip` is where execution stopped; else a return address
            stacks: (low, high) of the stacks that the thread may be on; empty if that is not known
            machine_frames: addresses of machine frames that are known to lie on the stacks, and the registers
                that were saved beside each
        """
        return _Walk(self, Stacks(stacks), machine_frames or {}).run(start, interrupted)

    def step(self, registers: Registers, interrupted: bool) -> Step:
        """Unwinds one frame; raises UnwindError."""
        image = self._find_image(registers.ip if interrupted else registers.ip - 1)
        if image is None:
            raise UnwindError("code in no module")
        if image.table is None:
            raise UnwindError("no function table")
        unwinder = self._unwinders.get(image.base)
        if unwinder is None:
            unwinder = self._unwinders[image.base] = Unwinder(image.table, image.base, self._read)
        return unwinder.step(registers, interrupted)

    def read_stack(self, address: int) -> Optional[int]:
        """Reads one slot of a stack."""
        data = self._read(address, _SLOT)
        return None if data is None else int.from_bytes(data, "little")

    def may_return_to(self, address: int) -> bool:
        """Tells whether a value on a stack may be a return address into a module: code behind a call.

        Where the code cannot be read, the function table must have a function there that is no leaf.
        """
        image = self._find_image(address - 1)
        if image is None or not image.executable(address - 1):
            return False
        rva = address - image.base
        known = image.table is None or image.table.find(rva - 1) is not None
        before = _before(image, rva)
        return known and callsite.is_call(before) if before else known and image.table is not None

    def behind_call(self, address: int) -> bool:
        """Tells whether an address is behind a call, be it in a module or in none."""
        if self._find_image(address - 1) is not None:
            return self.may_return_to(address)
        before = self._read(address - callsite.LONGEST_CALL, callsite.LONGEST_CALL)
        return before is not None and callsite.is_call(before)


class _Walk:
    """One walk and what it has found so far."""

    def __init__(self, walker: Walker64, stacks: Stacks, machine_frames: Mapping[int, Registers]) -> None:
        self._walker = walker
        self._stacks = stacks
        self._machine_frames = machine_frames
        self._frames: List[Frame] = []
        self._gaps: List[str] = []
        self._scannable = MAX_SCANNED
        self._sure = True

    def run(self, registers: Registers, interrupted: bool) -> Walk:
        """Walks until something ends the walk."""
        how = TRAP
        while True:
            self._frames.append(
                Frame(registers.ip, registers.sp, how, not interrupted, self._sure, registers)
            )
            if len(self._frames) == MAX_FRAMES:
                return self._end("too many frames")
            try:
                step = self._walker.step(registers, interrupted)
                how = UNWIND
                if step.position == LEAF_FUNCTION:
                    how = LEAF
                    if not self._walker.behind_call(step.registers.ip):
                        raise UnwindError("no unwind data")
                if not step.sure:
                    self._guess("code unreadable")
            except UnwindError as error:
                found = self._scan(registers.sp, str(error))
                if isinstance(found, str):
                    return self._end(found)
                step, how = found, SCAN
            if step.machine_frame is not None:
                step, how = self._interrupted(step, step.machine_frame), TRAP
                border = self._border(step)
                if border is not None:
                    return self._end("", border)
            if step.registers.ip == 0:
                return self._end("")
            objection = self._stacks.objection(registers.sp, step.registers.sp)
            if objection:
                return self._end(objection)
            registers, interrupted = step.registers, step.machine_frame is not None

    def _end(self, reason: str, border: Optional[Border] = None) -> Walk:
        return Walk(tuple(self._frames), reason, tuple(dict.fromkeys(self._gaps)), border)

    def _guess(self, reason: str) -> None:
        """Notes that what follows is not sure, and why."""
        self._gaps.append(reason)
        self._sure = False

    def _interrupted(self, step: Step, machine_frame: int) -> Step:
        """Adds to an interrupted state what was saved beside its machine frame."""
        saved = self._machine_frames.get(machine_frame)
        if saved is None:
            return step
        known = step.registers.general
        merged = tuple(value if value is not None else saved.general[i] for i, value in enumerate(known))
        return step._replace(registers=step.registers._replace(general=merged))

    def _border(self, step: Step) -> Optional[Border]:
        """Returns the user-mode state that a machine frame holds, or None if it was kernel code."""
        if step.machine_frame is None:
            return None
        cs = self._walker.read_stack(step.machine_frame + _CS)
        if cs is None or not cs & 3:
            return None
        return Border(step.machine_frame, step.registers.ip, step.registers.sp, cs & 0xFFFF, step.registers)

    def _scan(self, sp: int, reason: str) -> Union[Step, str]:
        """Looks up the stack for the next thing that may be a return address or is a known machine frame.

        Returns:
            The state there, nothing of it known but where it is; or why there is none.
        """
        self._guess(reason)
        limit = self._stacks.limit(sp)
        slot = sp + -sp % _SLOT
        while limit is not None and slot + _SLOT <= limit:
            if self._scannable <= 0:
                return reason
            if slot in self._machine_frames:
                return Step(self._machine_frames[slot], SCAN, slot)
            value = self._walker.read_stack(slot)
            if value is None:
                return "stack unreadable"
            if self._walker.may_return_to(value):
                return Step(Registers.of(value, slot + _SLOT), SCAN)
            slot += _SLOT
            self._scannable -= _SLOT
        return reason


def _before(image: Image, rva: int) -> Bytes:
    """Returns the code bytes before an RVA: enough to know a call by, or those of its page, or none."""
    for length in (callsite.LONGEST_CALL, rva % _PAGE):
        if 0 < length <= min(rva, callsite.LONGEST_CALL):
            code = image.read_rva(rva - length, length)
            if code is not None:
                return code
    return b""
