# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel stack of a thread: one segment, or several after callbacks to user mode or an expansion.

At the top of each segment (at its InitialStack) a control block names the previous segment. Until Windows 7
KTHREAD.CallbackStack points to the frame that the thread left on the stack in its last call to user mode, and
each such frame points to the previous one: after a callback the thread may use the same memory further down,
with another InitialStack. On x86 Vista and 7 this member is the number of callbacks (CallbackDepth) instead,
and control blocks hold the rest.

Source: _KSTACK_CONTROL (8 and later), _KERNEL_STACK_CONTROL (before) and the members of _KEXCEPTION_FRAME:
public symbols; _KCALLOUT_FRAME (x86 until 7): see our tables. Inferred from these members: the frame of a
callback lies where a segment's KernelStack points (8 and later). Callers that walk it must ask for proof.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ..memory.decode.records import NamedTuple
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from .stacklimits import MAX_STACK
from .thread import Thread

MAX_SEGMENTS = 32

_CONTROLS = ("_KSTACK_CONTROL", "_KERNEL_STACK_CONTROL")
_BORDERS = ("StackBase", "StackLimit", "InitialStack", "KernelStack")
_BLOCK = tuple(f"Previous.{name}" for name in _BORDERS)
_CALLOUT = ("InitialStack", "TrapFrame", "CallbackStack")


class KernelStackSegment(NamedTuple):
    """A part of a kernel stack (canonical addresses).

    Attributes:
        base: upper end of the segment
        limit: lower end of the segment
        initial: upper end of the calls and entries from user mode
        kernel_stack: the memory below this address is unused, unless the thread was running. In older
            segments: address of the registers that the thread saved when it left the segment
        depth: 1 for the current depth; one more for each callback to user mode from which the thread is yet
            to return
        expanded: whether the thread came here from the next segment, which has the same depth
        trap_frame: KTHREAD.TrapFrame as the callback saved it; 0 in the current depth, and if it is unknown
    """

    base: int
    limit: int
    initial: int
    kernel_stack: int
    depth: int = 1
    expanded: bool = False
    trap_frame: int = 0

    def holds(self, address: int) -> bool:
        """Returns whether an address lies in the part of the segment that holds its entries and calls."""
        return self.limit <= address < self.initial


class StackSegments(NamedTuple):
    """The segments of a kernel stack, the current one first.

    `lost` is the reason why a further segment cannot be found, and `lost_depth` is the depth of that segment.
    """

    found: Tuple[KernelStackSegment, ...]
    lost: Optional[StatusCode] = None
    lost_depth: int = 0


class _Older(NamedTuple):
    """The step to an older segment: the segment and the next callback frame, or why there is none."""

    segment: Optional[KernelStackSegment] = None
    callback: int = 0
    lost: Optional[StatusCode] = None


_NONE = _Older()


class KernelStacks:
    """Finds the segments of kernel stacks."""

    def __init__(self, image: Image, kernel_start: int) -> None:
        self._start = kernel_start
        self._memory = image.memory(image.kernel)
        blocks = map(image.types.find, _CONTROLS)
        self._control = next((block for block in blocks if all(map(block.has, _BLOCK))), None)
        self._chained = image.types.find("_KTHREAD").has("CallbackStack")
        ours = image.our_generations("context", image.machine)[0]
        self._frame = image.types.first_structure("_KEXCEPTION_FRAME") or ours.find("_KCALLOUT_FRAME")

    def segments(self, thread: Thread) -> Iterator[KernelStackSegment]:
        """Yields the segments of a thread's kernel stack, the current one first."""
        yield from self.find_segments(thread).found

    def find_segments(self, thread: Thread) -> StackSegments:
        values = (thread.stack_base, thread.stack_limit, thread.initial_stack, thread.kernel_stack)
        if None in values:
            return StackSegments(())
        current = self._checked(*(value or 0 for value in values))
        if current is None:
            return StackSegments(())
        callback, segments = thread.callback_stack or 0, [current]
        while True:
            step = self._older(segments[-1], callback, thread)
            if step.segment is not None and _leads_back(step.segment, segments):
                step = _Older(lost=StatusCode.CYCLE)
            elif step.segment is not None and len(segments) == MAX_SEGMENTS:
                step = _Older(lost=StatusCode.LIMIT)
            if step.segment is None:
                lost_depth = segments[-1].depth + 1 if step.lost else 0
                return StackSegments(tuple(segments), step.lost, lost_depth)
            newer, older = segments[-1], step.segment
            if older.depth == newer.depth:
                segments[-1] = newer._replace(expanded=True)
            if older.base == newer.base:
                older = older._replace(limit=older.kernel_stack)
            segments.append(older)
            callback = step.callback

    def _checked(
        self, base: int, limit: int, initial: int, kernel_stack: int
    ) -> Optional[KernelStackSegment]:
        """Returns the segment with these borders, or None if they are impossible."""
        if not self._start <= limit < base or base - limit > MAX_STACK or not limit < initial <= base:
            return None
        return KernelStackSegment(base, limit, initial, kernel_stack)

    def _older(self, segment: KernelStackSegment, callback: int, thread: Thread) -> _Older:
        """Returns the step from a segment to the previous one."""
        if callback >= self._start or (callback and self._control is None):
            return self._by_callback(segment, callback)
        step = self._by_control(segment, not callback)
        if not self._chained:
            hidden = step.lost is StatusCode.UNREADABLE and (thread.callback_depth or 0) < segment.depth
            # The unreadable block may well be empty.
            return _NONE if hidden else step
        # Vista and 7, x86: this member is the number of callbacks.
        if step.segment is None and callback >= segment.depth:
            return _Older(lost=step.lost or StatusCode.NO_SAVED_REGISTERS)
        return step._replace(callback=callback, lost=None)

    def _by_control(self, segment: KernelStackSegment, expansion: bool) -> _Older:
        """Returns the step by the control block of a segment. `expansion` says whether the previous segment
        was left by an expansion, if the block does not say."""
        control = self._control
        if control is None or segment.initial + control.size > segment.base:
            return _NONE
        data = self._memory.read(segment.initial, control.size)
        if data is None:
            return _Older(lost=StatusCode.UNREADABLE)
        block = control.view(data)
        values = [block[name] for name in _BLOCK]
        if not any(values):
            return _NONE
        older = self._checked(*values)
        if older is None:
            return _Older(lost=StatusCode.STACK_LIMITS_UNUSABLE)
        expanded = block.first_value("StackExpansion", "ExpandCalloutStack")
        if expansion if expanded is None else expanded:
            return _Older(older._replace(depth=segment.depth))
        trap_frame = block.first_value("PreviousTrapFrame")
        if trap_frame is None:
            trap_frame = self._callout(older.kernel_stack, "TrapFrame")[0]
        return _Older(older._replace(depth=segment.depth + 1, trap_frame=trap_frame or 0))

    def _by_callback(self, segment: KernelStackSegment, callback: int) -> _Older:
        """Returns the step by the last callback's frame (until 7); a control block names other memory."""
        previous = self._by_control(segment, True).segment
        if segment.initial <= callback < segment.base:
            owner = segment
        elif previous is not None and previous.limit <= callback < previous.base:
            owner = previous
        elif previous is not None:
            return _Older(previous._replace(depth=segment.depth), callback)
        else:
            return _Older(lost=StatusCode.OUTSIDE_THE_STACK)
        initial, trap_frame, next_callback = self._callout(callback, *_CALLOUT)
        if initial is None or trap_frame is None or next_callback is None:
            return _Older(lost=StatusCode.UNREADABLE)
        older = self._checked(owner.base, owner.limit, initial, callback)
        if older is None:
            return _Older(lost=StatusCode.STACK_LIMITS_UNUSABLE)
        return _Older(older._replace(depth=segment.depth + 1, trap_frame=trap_frame), next_callback)

    def _callout(self, address: int, *names: str) -> List[Optional[int]]:
        """Returns members of a callback's frame."""
        return [self._memory.member(address, self._frame.first_member(name)) for name in names]


def _leads_back(older: KernelStackSegment, segments: List[KernelStackSegment]) -> bool:
    """Returns whether a segment was met before: in the same memory an older segment lies above."""
    newest = segments[-1]
    if older.base == newest.base:
        return not newest.initial <= older.kernel_stack < older.initial
    return any(older.base == segment.base for segment in segments)
