# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The frame of a function of a Go program, by Go's own table.

The table has the depth of the stack at each instruction, so that a frame is sure in a prologue, too.
Functions of the runtime that leave their stack (`systemstack`, `asmcgocall` and others) have no true depth,
except at their first instruction. Source: traceback.go of Go 1.19 and 1.27.
"""

from __future__ import annotations

from typing import Callable, Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.pclntab import GOEXIT, GoFunction
from .frames import CodeImage, FindImage, UnwindError

_LONGEST_NOP = 4
_LEFT = frozenset(("runtime.mcall", "runtime.morestack"))
"""Functions that leave a goroutine for good: what they call goes on with another one."""
_CALLBACKS = frozenset(("runtime.cgocallback", "runtime.cgocallback_gofunc"))
"""Functions through which Windows and C call Go. Above their frame, the goroutine's stack goes on with its
own call of Windows: the frames of Windows between are on the thread's stack."""
_INJECTED = frozenset(("runtime.asyncPreempt", "runtime.sigpanic"))
"""Functions that the runtime makes a thread call, wherever it was interrupted."""


class GoStack(NamedTuple):
    """A stack, as a step from a Go function needs it.

    Attributes:
        read_slot: reads a slot
        is_return: returns whether an address may be a return address; None: unknown
        is_behind_call: returns whether a call is before an address; None: unknown
    """

    find_image: FindImage
    read_slot: Callable[[int], Optional[int]]
    is_return: Callable[[int], Optional[bool]]
    is_behind_call: Callable[[int], Optional[bool]]


class GoFrame(NamedTuple):
    """A frame of a Go function.

    Attributes:
        address: an address in the function: the interrupted instruction, or the last byte of the call
        stopped: whether execution was interrupted there; so it was, too, where no call is before the address
        depth: bytes from the stack pointer to the end of the frame; None if the function may have left its
            stack
        is_base: whether the function is the base of a goroutine, which has no caller
        misses: whether frames are missing between this one and its caller by the depth
    """

    image: CodeImage
    function: GoFunction
    address: int
    stopped: bool
    depth: Optional[int] = None
    is_base: bool = False
    misses: bool = False

    def code_from(self, address: int, most: int) -> bytes:
        """Returns the code of the function from an address on, up to a limit; nothing if it is absent."""
        rva = address - self.image.base
        return bytes(self.image.read_rva(rva, min(most, self.function.end - rva)) or b"")

    @property
    def may_have_left(self) -> bool:
        """Whether the function may have left its stack."""
        return self.depth is None and not self.is_base


def frame_at(stack: GoStack, ip: int, interrupted: bool) -> Optional[GoFrame]:
    """Returns the frame at an instruction pointer, None if the table of a Go program has none there.

    Raises UnwindError behind a call that goes on with another goroutine and never returns: the stack above,
    and saved frame pointers, are of a goroutine that may run elsewhere.
    """
    image = stack.find_image(ip if interrupted else ip - 1)
    if image is None or image.go is None:
        return None
    stopped = interrupted or (not is_base(image, ip) and stack.is_behind_call(ip) is False)
    address = ip - (not stopped)
    rva = address - image.base
    function = image.go.find(rva)
    if function is None:
        return None
    frame, name = GoFrame(image, function, address, stopped), function.plain_name
    if name == GOEXIT:
        return frame._replace(is_base=True)
    if not stopped and name in _LEFT:
        raise UnwindError(StatusCode.NO_UNWIND_DATA)
    misses = not stopped and name in _CALLBACKS
    if function.switches and not misses and not (stopped and rva == function.begin):
        return frame
    depth = image.go.depth(function, rva)
    return None if depth is None else frame._replace(depth=depth, misses=misses)


def caller_state(stack: GoStack, frame: GoFrame, to: Optional[int]) -> Tuple[bool, Optional[StatusCode]]:
    """Returns whether the caller at an address was interrupted, and why it is in doubt.

    `to` is None if its slot is not in the image. Raises UnwindError then, and if no module has the address:
    Go calls Go.
    """
    if to is None:
        raise UnwindError(StatusCode.STACK_UNREADABLE)
    image = stack.find_image(to - 1)
    if image is None:
        raise UnwindError(StatusCode.RETURNS_NOWHERE)
    if stack.is_behind_call(to) is not False or is_base(image, to):
        return False, StatusCode.NO_UNWIND_DATA if frame.misses else None
    injected = frame.function.plain_name in _INJECTED
    return injected, None if injected else StatusCode.NOT_BEHIND_A_CALL


def is_base(image: CodeImage, address: int) -> bool:
    """Returns whether an address is the one below the first function of each goroutine: the second
    instruction of `goexit`, which no call pushed."""
    rva = address - 1 - image.base
    function = None if image.go is None else image.go.find(rva)
    return function is not None and function.plain_name == GOEXIT and rva < function.begin + _LONGEST_NOP


def leaves(image: CodeImage, address: int) -> bool:
    """Returns whether a call that ends at an address goes on with another goroutine."""
    function = None if image.go is None else image.go.find(address - 1 - image.base)
    return function is not None and function.plain_name in _LEFT
