# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The runtimes that generate code in private memory, and the frames of runtimes next to such code on a stack.

A program that contains Node lets native add-ons import Node-API from the program itself, whatever its name
(described: Node.js, "Node-API"; node-gyp's win_delay_load_hook.cc). So do programs that contain Mono or
LuaJIT (described: Mono, "Embedding Mono"; LuaJIT, `luajit.h`). An image with a COR20 header, in a process
with CLR, contains code that CLR's compilers generated in advance.
"""

from __future__ import annotations

import functools
from typing import Iterator, NamedTuple, Optional

from ..columns.words import IMAGE, PDB, PRIVATE, UNMAPPED
from ..memory.decode.status import has_status
from ..memory.decode.statuscodes import StatusCode
from ..stacklist.stack import StackRecord
from .codelists import CLR
from .facts import PROGRAMS, CheckFacts, runtime_named
from .finding import FramePlace, place_of

_EXPORTS = ("napi_module_register", "mono_jit_init", "luaJIT_setmode")
_V8 = ("v8::", "node::", "Builtins_")
"""Prefixes of the symbols of V8 and Node."""
_COM_DESCRIPTOR = 14
"""IMAGE_DIRECTORY_ENTRY_COM_DESCRIPTOR (winnt.h)."""
_NEXT, _ON_BOTH_SIDES = "is next to it", "is on both sides of it"
_BEYOND = "called it through Windows' DLLs, as for a window procedure or another callback: it is further out"
_NOT_ITS_FILE = (StatusCode.VAD_OF_ANOTHER_FILE, StatusCode.VAD_WITHOUT_FILE, StatusCode.NO_VAD)


class RuntimeNeighbour(NamedTuple):
    """The frame of a runtime next to a frame in memory that no file backs.

    Attributes:
        place: the frame of the runtime, or another frame in such memory with a registered function table
        within: whether the code called a runtime, without any guess, and a runtime is further out on the
            stack
        where: the position of the runtime's frame, in words
    """

    place: FramePlace
    within: bool
    where: str

    @property
    def describe(self) -> str:
        """The text for Innocent."""
        return f"code that a runtime made: {self.place.name.symbol} {self.where} on the stack"


def runtime_neighbour(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Optional[RuntimeNeighbour]:
    """Returns the runtime frame that called code without a file, or was called by it; None if there is none.

    More frames in such memory may lie between the two.
    """
    inner = next(_neighbours(stack, range(place.number - 1, -1, -1)), None)
    outer = next(_neighbours(stack, range(place.number + 1, len(stack.frames))), None)
    inside = inner is not None and _is_runtime(stack, inner, facts)
    if outer is not None and _is_runtime(stack, outer, facts):
        within = inside and not place.guessed
        return RuntimeNeighbour(outer, within, _ON_BOTH_SIDES if within else _NEXT)
    if inside and inner is not None:
        return RuntimeNeighbour(inner, False, _NEXT)
    caller = place_of(stack, place.number + 1)
    if caller is not None and facts.runtimes(stack.space) and facts.code_range(stack.space, caller.at):
        return RuntimeNeighbour(caller, False, _NEXT)
    called_back = _beyond_windows(stack, place, facts)
    if called_back is not None and _is_runtime(stack, called_back, facts):
        return RuntimeNeighbour(called_back, False, _BEYOND)
    return None


def _beyond_windows(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Optional[FramePlace]:
    """Returns the next outer frame that is neither in private memory nor in a DLL of Windows, or None."""
    for outer in _neighbours(stack, range(place.number + 1, len(stack.frames))):
        if outer.name.backing != IMAGE or not facts.of_windows_dll(stack.space, outer.at):
            return outer
        if facts.runtimes(stack.space) and _is_runtime(stack, outer, facts):
            return outer
    return None


def _neighbours(stack: StackRecord, numbers: range) -> Iterator[FramePlace]:
    """Yields the frames with some numbers that are not in private memory."""
    for number in numbers:
        place = place_of(stack, number)
        if place is not None and place.name.backing not in (PRIVATE, UNMAPPED):
            yield place


def _is_runtime(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a frame is in the image of a runtime, or in an image into which a runtime is linked."""
    if place.name.backing != IMAGE or has_status(place.name.status, *_NOT_ITS_FILE):
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
    if place.name.source == PDB and (place.frame.details.function or "").startswith(_V8):
        return True
    if any(image.names.rva_of(export) is not None for export in _EXPORTS):
        return True
    managed = image.headers is not None and image.headers.directory(_COM_DESCRIPTOR)[0]
    return bool(managed and facts.runtimes(stack.space, CLR))
