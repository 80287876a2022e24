# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A crash of an input: an exception or a bug check, the place, and the stack that begins there.

crash = crash_of(facts.input(), record)
crash.words, crash.symbol, crash.driver
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from ..columns.words import TRAP
from ..memory.decode.records import NamedTuple
from ..memory.decode.text import cell
from ..memory.image import KERNEL_PROCESS
from ..stacks.decode.frames import Frame
from .decode.bugchecks import bug_check
from .decode.exceptioncodes import exception_name, exception_words
from .frames import NamedFrame
from .machine import Input
from .stack import StackRecord


class BlamedDriver(NamedTuple):
    """A driver on the stack of a crash. `number` is the number of its innermost frame."""

    number: int
    frame: NamedFrame
    walked: Frame

    @property
    def words(self) -> str:
        """The path of its file, and its TimeDateStamp if the input has one."""
        details = self.frame.details
        stamp = "" if details.stamp is None else f", TimeDateStamp {details.stamp:#x}"
        return cell(details.path or details.module or "") + stamp


class Crash(NamedTuple):
    """A crash.

    Attributes:
        bug_check: whether Windows stopped; False: a process raised an exception
        code: code of the bug check or of the exception
        stack: the stack that begins at the crash, None if the input has no registers of it
    """

    bug_check: bool
    code: int
    parameters: Tuple[int, ...]
    stack: Optional[StackRecord]

    @property
    def name(self) -> str:
        """Microsoft's name of the code, empty without one."""
        return bug_check(self.code).name if self.bug_check else exception_name(self.code)

    @property
    def words(self) -> str:
        """Code, name and parameters in one line; the parameters of a bug check are left out."""
        if self.bug_check:
            return f"bug check {bug_check(self.code).shown}"
        return f"exception {exception_words(self.code, self.parameters)}"

    @property
    def place(self) -> Optional[NamedFrame]:
        """The frame at which the registers of the crash are, None without such a frame."""
        walked = () if self.stack is None else self.stack.walked
        return self.stack.frames[0] if self.stack is not None and walked and walked[0].how == TRAP else None

    @property
    def drivers(self) -> List[BlamedDriver]:
        """The modules on the stack of a bug check that are not the kernel, innermost first, each once."""
        if not self.bug_check or self.stack is None:
            return []
        found: Dict[str, BlamedDriver] = {}
        for number, (frame, walked) in enumerate(zip(self.stack.frames, self.stack.walked)):
            module = frame.details.module
            if module is not None and module != KERNEL_PROCESS:
                found.setdefault(module, BlamedDriver(number, frame, walked))
        return list(found.values())

    @property
    def driver(self) -> Optional[BlamedDriver]:
        """The first of `drivers`, None without one."""
        return next(iter(self.drivers), None)


def crash_of(facts: Input, stack: Optional[StackRecord]) -> Optional[Crash]:
    """Returns the crash of an input, None if the input is of no crash. `stack` is the stack that begins at
    the crash, None without one."""
    if facts.bug_check is not None:
        return Crash(True, facts.bug_check, facts.parameters, stack)
    if facts.exception is not None:
        return Crash(False, facts.exception, facts.exception_parameters, stack)
    return None
