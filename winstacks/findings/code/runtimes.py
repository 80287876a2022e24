# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The runtimes that generate code in private memory, and the frames of runtimes next to such code on a stack.

A program that contains Node lets native add-ons import Node-API from the program itself, whatever its name
(described: Node.js, "Node-API"; node-gyp's win_delay_load_hook.cc). So do programs that contain Mono or
LuaJIT (described: Mono, "Embedding Mono"; LuaJIT, `luajit.h`). An image with a COR20 header, in a process
with CLR, contains code that CLR's compilers generated in advance. V8's interface is C++: its decorated names
end in the namespace. A program that CLR is linked into exports DotNetRuntimeInfo (described: dotnet/runtime,
`src/native/corehost`, "single-file"), one that a JVM is linked into JNI_CreateJavaVM (Oracle, "The Invocation
API").

A runtime explains code for certain where both sides of the code are known: the code called the runtime, or
was interrupted before it called anything, and a runtime is further out.
"""

from __future__ import annotations

import bisect
import functools
from typing import FrozenSet, List, Optional, Sequence, Tuple

from ...columns.words import IMAGE, NONE, PRIVATE, SCAN, TRAP, UNMAPPED
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import words_that
from ...memory.decode.statusmeanings import Means
from ...names.decode.pclntab import GOEXITS, SYMTAB
from ...names.decode.pe import DIRECTORY_COM_DESCRIPTOR
from ...names.symbolizer import KnownModule
from ...stacklist.stack import StackRecord
from ..facts import PROGRAMS, CheckFacts, runtime_named
from ..finding import NONE_KNOWN, FramePlace, find_place, frame_places
from ..ground import may_end_in_ground
from .codelists import CLR

_EXPORTS = (
    *("napi_", "node_api_", "node_module_register", "mono_jit_", "mono_runtime_invoke", "luaJIT_"),
    *("luaopen_jit", "JNI_CreateJavaVM", "coreclr_initialize", "DotNetRuntimeInfo"),
)
"""Prefixes of the names that a program exports if one of these runtimes is linked into it."""
_V8 = ("v8::", "node::", "Builtins_")
"""Prefixes of the names of functions of V8 and Node."""
_LINKED = (*_EXPORTS, *_V8)
_OF_V8 = "@v8@@"
"""The namespace of V8 in a decorated name."""
_NEXT, ON_BOTH_SIDES = "is next to it on the stack", "is on both sides of it on the stack"
_OUTSIDE = f"{__name__}: outside Windows"
_BEYOND = (
    "called it through Windows' DLLs, as for a window procedure or another callback: it is further out on "
    "the stack"
)
INTERRUPTED = "called it, and was called from where threads begin; the thread was interrupted there"
_LEAF = "called it; the thread was interrupted there, before the code used the stack"
_UNKNOWN = (
    "is next to it on the stack; the exports of its module, which would show a runtime, are not in the image"
)
_LOST_EXPORTS = words_that(Means.EXPORTS_LOST)
_SCANNED = words_that(Means.SCANNED)
"""Reasons for a scan above a function that are no fault of the stack."""
NOT_ITS_FILE = words_that(Means.NOT_ITS_FILE)


class RuntimeNeighbour(NamedTuple):
    """The frame of a runtime next to a frame in private memory.

    Attributes:
        place: the frame of the runtime, or of a module that may contain one, or another frame in such memory
            with a registered function table
        within: whether both sides of the code are accounted for: the code called a runtime, without any
            guess, or was interrupted, and a runtime is further out on the stack
        where: the position of the runtime's frame, in words
    """

    place: FramePlace
    within: bool
    where: str

    @property
    def is_known(self) -> bool:
        """Whether the frame is a runtime's, and not only in a module that may contain one."""
        return self.where != _UNKNOWN

    @property
    def describe(self) -> str:
        """The text for Innocent."""
        if not self.is_known:
            return f"{NONE_KNOWN}, but {self.place.name.symbol} {self.where}"
        return f"code that a runtime made: {self.place.name.symbol} {self.where}"


class _Outline(NamedTuple):
    """A stack, as far as the explanation of each of its frames in memory without a file needs it.

    Attributes:
        backed: numbers of the frames that are not in private memory, ascending
        interrupted: whether the thread was interrupted in the innermost frame, and the walk led to a function
            where threads begin
        first_image: number of the innermost frame in an image
        last_guess: number of the outermost frame that a scan found above a frame in an image, -1 if none
        regions: starts of the regions that hold frames in no image, outside the code that runtimes
            registered; None for a frame in no region
    """

    backed: List[int]
    interrupted: bool
    first_image: int
    last_guess: int
    regions: FrozenSet[Optional[int]]


def _outline(stack: StackRecord, facts: CheckFacts) -> _Outline:
    return facts.find_once_of_stack(_Outline.__name__, stack, functools.partial(_outline_of, stack, facts))


def _outline_of(stack: StackRecord, facts: CheckFacts) -> _Outline:
    places = list(frame_places(stack))
    images = [place.name.backing == IMAGE for place in places]
    interrupted = len(places) == len(stack.frames) and places[0].how == TRAP and may_end_in_ground(stack)
    guesses = (above.number for above, below in zip(places[1:], images) if below and above.how == SCAN)
    regions = set()
    for place, image in zip(places, images):
        if not image and facts.code_range(stack.space, place.at) is None:
            vad = facts.vad(stack.space, place.at)
            regions.add(None if vad is None else vad.start)
    return _Outline(
        [place.number for place in places if place.name.backing not in (PRIVATE, UNMAPPED, NONE)],
        interrupted,
        images.index(True) if True in images else len(images),
        max(guesses, default=-1),
        frozenset(regions),
    )


def runtime_neighbour(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Optional[RuntimeNeighbour]:
    """Returns the runtime frame that called code without a file, or was called by it; None if there is none.

    More frames in such memory may lie between the two.
    """
    inner, outer = neighbour_frames(stack, place, facts)
    inside = inner is not None and is_runtime(stack, inner, facts)
    certain = inside and not place.guessed
    if outer is not None and is_runtime(stack, outer, facts):
        if certain:
            return RuntimeNeighbour(outer, True, ON_BOTH_SIDES)
        interrupted = was_interrupted(stack, place, outer, facts)
        return RuntimeNeighbour(outer, interrupted, INTERRUPTED if interrupted else _NEXT)
    _, called_back = beside_windows(stack, place, facts)
    called_back = called_back if called_back and is_runtime(stack, called_back, facts) else None
    if inside and inner is not None:
        if certain and called_back is not None:
            return RuntimeNeighbour(called_back, True, ON_BOTH_SIDES)
        return RuntimeNeighbour(inner, False, _NEXT)
    caller = find_place(stack, place.number + 1)
    if caller is not None and facts.runtimes(stack.space) and facts.code_range(stack.space, caller.at):
        leaf = _is_leaf(stack, place)
        return RuntimeNeighbour(caller, leaf, _LEAF if leaf else _NEXT)
    if called_back is not None:
        return RuntimeNeighbour(called_back, False, _BEYOND)
    return RuntimeNeighbour(outer, False, _UNKNOWN) if outer and _may_contain(stack, outer, facts) else None


def was_interrupted(
    stack: StackRecord, place: FramePlace, outer: FramePlace, facts: CheckFacts, ranges: bool = False
) -> bool:
    """Returns whether a thread was interrupted in code that a runtime's function called.

    From that function on the walk must lead to where threads begin, through no other private memory; more
    frames may lie in the same range of memory as the code, or in others that a runtime registered. A scan may
    find a frame above such code, which has no unwind data, above functions whose frame register the code has
    changed, and where unwind data are not in the image. `ranges` says whether code in several ranges may have
    called each other: some compilers give each function memory of its own.
    """
    outline, vad = _outline(stack, facts), facts.vad(stack.space, place.at)
    if not outline.interrupted or vad is None or place.number >= outline.first_image:
        return False
    if outline.last_guess > outer.number and not has_status(stack.status, *_SCANNED):
        return False
    called_each_other = ranges and len(outline.backed) == len(stack.frames) - outline.first_image
    return called_each_other or outline.regions <= {vad.start}


def _is_leaf(stack: StackRecord, place: FramePlace) -> bool:
    """Returns whether a thread was interrupted in code that has not moved the stack since it was called."""
    walked = stack.walked
    if place.number or place.how != TRAP or len(walked) < 2:
        return False
    return walked[1].sp == walked[0].sp + stack.space.machine.pointer_size


def beside_windows(
    stack: StackRecord, place: FramePlace, facts: CheckFacts
) -> Tuple[Optional[FramePlace], Optional[FramePlace]]:
    """Returns the next inner and the next outer frame that is neither in private memory nor in a DLL of
    Windows."""
    outside = facts.find_once_of_stack(_OUTSIDE, stack, functools.partial(_outside_windows, stack, facts))
    return _next_to(stack, outside, place)


def _outside_windows(stack: StackRecord, facts: CheckFacts) -> List[int]:
    """Returns the numbers of the frames that are neither in private memory nor in a DLL of Windows."""
    has_runtimes = bool(facts.runtimes(stack.space))
    places = (find_place(stack, number) for number in _outline(stack, facts).backed)
    return [
        place.number
        for place in places
        if place is not None
        and (
            place.name.backing != IMAGE
            or not facts.of_windows_dll(stack.space, place.at)
            or (has_runtimes and is_runtime(stack, place, facts))
        )
    ]


def neighbour_frames(
    stack: StackRecord, place: FramePlace, facts: CheckFacts
) -> Tuple[Optional[FramePlace], Optional[FramePlace]]:
    """Returns the next inner and the next outer frame that is not in private memory."""
    return _next_to(stack, _outline(stack, facts).backed, place)


def _next_to(
    stack: StackRecord, numbers: Sequence[int], place: FramePlace
) -> Tuple[Optional[FramePlace], Optional[FramePlace]]:
    """Returns the next inner and the next outer of some frames, whose numbers are ascending."""
    above = bisect.bisect(numbers, place.number)
    below = bisect.bisect_left(numbers, place.number) - 1
    inner = find_place(stack, numbers[below]) if below >= 0 else None
    return inner, find_place(stack, numbers[above]) if above < len(numbers) else None


def is_runtime(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a frame is in the image of a runtime, or in an image into which a runtime is linked."""
    if place.name.backing != IMAGE or has_status(place.name.status, *NOT_ITS_FILE):
        return False
    return facts.find_once(
        __name__, stack.space, place.at, functools.partial(_of_module, stack, place, facts)
    )


def _of_module(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a frame is a runtime's, by its module's file, exports or header, or its function."""
    known_module = facts.namer(stack.space).module_at(place.at)
    if known_module is None:
        return False
    stem, image = known_module.module.stem, known_module.image
    if runtime_named(stem) or stem in PROGRAMS:
        return True
    linked = functools.partial(contains_runtime, known_module)
    if facts.find_once(_OF_V8, stack.space, known_module.module.base, linked):
        return True
    managed = image.headers is not None and image.headers.directory(DIRECTORY_COM_DESCRIPTOR)[0]
    return bool(managed and facts.runtimes(stack.space, CLR))


def _may_contain(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a frame's module may contain a runtime, because its exports are not in the image.

    DLLs of Windows' folder that are runtimes have their names.
    """
    known_module = facts.namer(stack.space).module_at(place.at)
    if known_module is None or place.name.backing != IMAGE or facts.of_windows_dll(stack.space, place.at):
        return False
    return has_status(known_module.image.status, *_LOST_EXPORTS)


def contains_runtime(known_module: KnownModule) -> bool:
    """Returns whether a runtime is linked into a module, by the names of its exports or of its functions."""
    labels = known_module.image.names.labels_with_prefix("")
    return any(label.startswith(_LINKED) or _OF_V8 in label for _, label in labels)


def is_go(stack: StackRecord, facts: CheckFacts) -> bool:
    """Returns whether a stack has a frame of a Go program: its section, or the base of its routines."""
    for place in frame_places(stack, IMAGE):
        if place.frame.details.function in GOEXITS:
            return True
        known_module = facts.namer(stack.space).module_at(place.at)
        headers = None if known_module is None else known_module.image.headers
        if headers is not None and any(section.name == SYMTAB for section in headers.sections):
            return True
    return False
