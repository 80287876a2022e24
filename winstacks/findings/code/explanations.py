# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code in private memory: its innocent explanations, and the severity that they leave."""

from __future__ import annotations

import functools
from typing import Iterator, Optional, Tuple

from ...columns.words import HIGH, IMAGE, LOW, MEDIUM
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...memory.image import AddressSpace
from ...process.vads import regions
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, FramePlace, find_place, frame_places
from ..ground import ends_in_ground
from .neighbours import has_much_code, vendor_neighbour
from .relays import is_hooked, of_relay
from .runtimes import is_runtime, runtime_neighbour

UNTOLD = f"{NONE_KNOWN}, but its list of function tables is not in the image, and may have this range"
"""The text of Innocent if the list of function tables cannot be read.

What is missing is neither innocent nor guilty: it lowers Confidence, and not Severity. Whoever has the page
with the list's head paged out would else explain any code."""
_MODULES_LOST = f"{NONE_KNOWN}, but its lists of modules are incomplete, and may have a runtime"
_LACKING = "and the process's list of function tables, which may have this range, is not in the image"
_MAY_HAVE = "its list of function tables, which may have this range, is not in the image"
_MAY_LIST = "the runtime's own list of code, which may have this range, is not all in the image"
_LESS_SURE = "private code is less sure, because function tables of the process are not in the image"
_LOST = "the stack above the code is not in the image, so its caller is unknown"
_UNPROVEN = "the code to which the stack above may lead is not in the image, so its caller is unknown"
_ALONE = ", but only Windows is on the stack: any code can register a table for itself"
RELAY = "the relay of a hook that all processes have; the hook leads into"
_OF_PRODUCT = ", as the relay of a hook by this product does"
_MOST_NAMED = 8
"""The most processes that are named."""


def explained(space: AddressSpace, at: int, facts: CheckFacts) -> Tuple[str, bool, str]:
    """Returns the severity of code in private memory, whether a runtime lowers the confidence, and the
    innocent explanation."""
    table, runtimes = facts.code_range(space, at), facts.runtimes(space)
    if table is not None:
        return LOW, False, table.describe
    lacking = facts.lacks_tables(space)
    if runtimes:
        registered = _LACKING if lacking else "but registered none here"
        return HIGH, True, f"{', '.join(runtimes)} loaded: this runtime generates code, {registered}"
    if facts.lacks_modules(space):
        return HIGH, True, _MODULES_LOST
    return HIGH, lacking, UNTOLD if lacking else NONE_KNOWN


def explained_at(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Tuple[str, bool, str]:
    """Returns the explanation of a frame in private memory: as `explained`, or a runtime next to it."""
    severity, lower, innocent = explained(stack.acting or stack.space, place.at, facts)
    if _is_alone(stack, place, facts):
        return MEDIUM, True, f"{innocent}{_ALONE}"
    runtime = runtime_neighbour(stack, place, facts) if severity == HIGH else None
    if runtime is None or not runtime.is_known:
        served = of_relay(stack.space, place.at, facts) if severity == HIGH else None
        if served is not None:
            return LOW, True, f"{RELAY} {served}"
        lost = _lost_caller(stack, place) if severity == HIGH and runtime is None else ""
        if lost:
            # A module may be on both sides of the code of a process that has as much of it as compilers make.
            compiled = lower or (not place.guessed and has_much_code(stack.space, facts))
            return MEDIUM if compiled else HIGH, True, f"{innocent}; {lost}"
        beside = vendor_neighbour(stack, place, facts) if severity == HIGH else None
        if beside is not None:
            return (LOW if beside.belongs else MEDIUM), True, beside.describe
    if runtime is None:
        hooked = innocent == NONE_KNOWN and is_hooked(stack.space, place.at, facts)
        called = _called(stack, place, facts) if hooked else None
        return severity, lower, innocent if called is None else f"the code called {called}{_OF_PRODUCT}"
    if runtime.within or not runtime.is_known:
        return (LOW if runtime.within else MEDIUM), True, runtime.describe
    space = stack.acting or stack.space
    if facts.lacks_list(space, runtime.place.at):
        return LOW, True, f"{runtime.describe}; {_MAY_LIST}"
    if facts.lacks_tables(space):
        return LOW, True, f"{runtime.describe}; {_MAY_HAVE}"
    return MEDIUM, True, runtime.describe


def _is_alone(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether only Windows is on the stack of code for which the process registered a function table.

    Any code can register a table for itself. A runtime that does so is on the stack, too, or a program is
    that has the runtime.
    """
    table = facts.code_range(stack.acting or stack.space, place.at)
    if table is None or table.list or place.guessed or not ends_in_ground(stack):
        return False
    return facts.find_once_of_stack(_ALONE, stack, functools.partial(_has_only_windows, stack, facts))


def _has_only_windows(stack: StackRecord, facts: CheckFacts) -> bool:
    """Returns whether each image with a frame on a stack is Windows', and no runtime."""
    return all(
        facts.of_windows(stack.space, frame.at) and not is_runtime(stack, frame, facts)
        for frame in frame_places(stack, IMAGE)
    )


def _called(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Optional[str]:
    """Returns the file of a module outside Windows' folder that private code called, or None.

    A module whose folder cannot be read may be Windows' own.
    """
    inner = find_place(stack, place.number - 1) if place.number and not place.guessed else None
    if inner is None or inner.name.backing != IMAGE or facts.of_windows(stack.space, inner.at):
        return None
    vad = facts.vad(stack.space, inner.at)
    if vad is not None and not facts.image.service(regions).file_name(vad.control_area):
        return None
    known_module = facts.namer(stack.space).module_at(inner.at)
    return None if known_module is None else known_module.module.file


def _lost_caller(stack: StackRecord, place: FramePlace) -> str:
    """Returns why the caller of the outermost frame is unknown, if lost pages are the reason, else ""."""
    if place.number < len(stack.frames) - 1:
        return ""
    if has_status(stack.status, StatusCode.STACK_UNREADABLE):
        return _LOST
    # Values that may be return addresses are candidates where the calls before them cannot be read.
    absent = not place.guessed and has_status(stack.status, StatusCode.CANDIDATES)
    return _UNPROVEN if absent else ""


def untold(facts: CheckFacts) -> Iterator[str]:
    """Yields the processes whose findings are less sure for missing function tables, and the missing data."""
    lacking = sorted((pid, missing) for pid, missing in facts.untold.values() if pid is not None)
    if lacking:
        named = "; ".join(f"PID {pid}, {missing}" for pid, missing in lacking[:_MOST_NAMED])
        named += "; ..." if len(lacking) > _MOST_NAMED else ""
        yield f"{_LESS_SURE}: {named}"
