# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `start_mismatch`: a thread was started in memory that no file backs."""

from __future__ import annotations

from typing import Iterator, Optional

from ..flat.decode.schema import THREAD_KINDS, USER, WOW64
from ..flat.frames import FlatFrame
from ..flat.stack import FlatStack
from ..names.places import IMAGE
from ..process.thread import TERMINATED, Thread
from .facts import CheckFacts
from .finding import LIKELY, LOW, MEDIUM, POSSIBLE, Check, Finding, of_thread, places
from .unbacked import PRIVATE, UNMAPPED, explained, untold

_GROUND = ("BaseThreadInitThunk", "RtlUserThreadStart")
_OTHER = "a start routine that calls on through another module, such as a runtime's"
_FREED = "the module of the start routine was unloaded"


def find(stack: FlatStack, facts: CheckFacts) -> Iterator[Finding]:
    """Yields a thread that was started in private or unmapped memory; else one that began elsewhere."""
    thread = stack.thread
    start = None if thread is None else thread.win32_start_address
    if thread is None or not start or not facts.is_user(start) or thread.state == TERMINATED:
        return
    if not _kept(facts) or thread.unusable or not thread.space.layer_name:
        return
    name = facts.names(thread.space).name(start, return_address=False)
    if name.backing == PRIVATE or (name.backing == UNMAPPED and facts.vads_whole(thread.space)):
        severity, lower, innocent = explained(thread.space, start, facts)
        made = LOW if severity == LOW else MEDIUM
        innocent = _FREED if name.backing == UNMAPPED else innocent
        confidence = POSSIBLE if lower else LIKELY
        yield _of(stack, thread, start, name.symbol, made, confidence, innocent, facts)
    elif name.backing == IMAGE and stack.kind in (USER, WOW64):
        first = _first(stack)
        known = facts.names(thread.space).module_at(start)
        if first is None or known is None:
            return
        label = known.image.names.find(start - known.module.base)
        if first.module != known.module.name and not _ground(None if label is None else label[1]):
            yield _of(stack, thread, start, name.symbol, LOW, POSSIBLE, f"{_OTHER}: {first.shown}", facts)


def _of(
    stack: FlatStack,
    thread: Thread,
    start: int,
    symbol: str,
    severity: str,
    confidence: str,
    innocent: str,
    facts: CheckFacts,
) -> Finding:
    evidence = f"Win32StartAddress {start:#x}, {facts.memory(thread.space, start)}"
    found = of_thread(stack, thread, severity, confidence, evidence, innocent, start, symbol)
    return found._replace(space=thread.space)


def _first(stack: FlatStack) -> Optional[FlatFrame]:
    """Returns the frame that the ground of a thread called, None if no sure walk shows that."""
    inner: Optional[FlatFrame] = None
    for place in places(stack):
        if _ground(place.frame.function):
            return inner
        inner = None if place.guessed or place.frame.module is None else place.frame
    return None


def _ground(function: Optional[str]) -> bool:
    """Tells whether a function is one in which threads begin; those of 32 bits have underscores in front."""
    return (function or "").lstrip("_") in _GROUND


def _kept(facts: CheckFacts) -> bool:
    """Tells whether Windows keeps the start address; before Vista a message's ID takes its place."""
    thread = facts.image.types["_ETHREAD"]
    start, message = thread.find("Win32StartAddress"), thread.find("LpcReceivedMessageId")
    return start is not None and (message is None or message.offset != start.offset)


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that Windows does not keep start addresses, or what `untold` yields."""
    if not _kept(facts):
        yield "before Vista Win32StartAddress is overwritten"
    yield from untold(facts)


CHECK = Check(
    "start_mismatch",
    "T1055",
    THREAD_KINDS,
    "Win32StartAddress of a thread is in memory that no file backs; or the ground of its stack called "
    "another image than that of its start.",
    "medium where the start is in private or unmapped memory; low where the process registered a function "
    "table for it, and where only the first frame is in another image",
    "Runtimes start threads in code that they made; a module may be gone.",
    "Look at the memory of the start with windows.vadinfo, and at the thread with windows.callstacks --tid.",
    "no stack of a thread could be walked",
    of_stack=find,
    unchecked=unchecked,
)
