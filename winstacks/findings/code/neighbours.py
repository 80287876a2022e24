# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules next to code outside all files: a rule for generators of code that no list names.

Most programs that generate code have one module that generates it, calls it and is called by it (CPython's
and PHP's compilers, QEMU's, JavaScriptCore, sljit, drivers of graphics cards, oneDNN, Numba). A list of
such modules cannot be complete. So the stack decides: an unmodified module outside Windows' folders is on
both sides of the code, or it called the code, which was interrupted on a whole stack. Injected code is
called by Windows (a thread's start, an APC, a callback), and calls Windows. Code in which an exception was
raised called nobody: there the module that handles the exception is on the inner side, as where an emulator's
accesses to memory fault.

Where the process has much generated code, functions in several ranges may have called each other before the
thread was interrupted (Numba's wrapper calls its kernel, and each has memory of its own).

An implant can bring such a module along. It explains the code only if the process has as much generated
code as compilers make, and if the module belongs to the program: it is the program, lies in its folder,
comes from a driver's package, or has neighbours from its folder in this process. A thunk that only calls
the module needs no compiler.
"""

from __future__ import annotations

import bisect
import functools
from typing import FrozenSet, List, Optional

from ...columns.words import IMAGE, TRAP
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import has_status
from ...memory.image import AddressSpace
from ...process.regions import image_path, is_beneath
from ...process.vads import regions
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import FramePlace
from .closures import called_by_thunk
from .functions import function_at
from .runtimes import (
    INTERRUPTED,
    NOT_ITS_FILE,
    ON_BOTH_SIDES,
    beside_windows,
    neighbour_frames,
    was_interrupted,
)

_DRIVERS = ("\\windows\\system32\\driverstore\\",)
"""The folder of Windows with packages of drivers, which are not Windows' own."""
_PROGRAM = ".exe"
_MANY = 4
"""Number of executable ranges that are no image, of a process with a compiler: an implant has one to three,
and the relays of a hooking product are one."""
_LARGE = 1 << 20
"""Bytes of one such range that count as many: engines reserve one range for all of their code."""
_THUNK = ", and the code does nothing but call it"
_FILES, _MUCH = f"{__name__}: files", f"{__name__}: much code"


class Neighbour(NamedTuple):
    """The module next to code outside all files.

    Attributes:
        belongs: whether the process has much generated code, or the code is a thunk that does nothing but
            call the module, and the module belongs to the program
        describe: the text for Innocent
    """

    belongs: bool
    describe: str


def vendor_neighbour(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Optional[Neighbour]:
    """Returns the module outside Windows' folders that is next to code of no file; None if there is none."""
    inner, outer = neighbour_frames(stack, place, facts)
    if inner is not None:
        if place.how == TRAP:
            inner, _ = beside_windows(stack, place, facts)
        if inner is None or not is_vendor(stack, inner, facts):
            return None
        if outer is None or not is_vendor(stack, outer, facts):
            _, outer = beside_windows(stack, place, facts)
    if outer is None or not is_vendor(stack, outer, facts):
        return None
    much = has_much_code(stack.space, facts)
    if inner is None and not was_interrupted(stack, place, outer, facts, much):
        return None
    frames = [outer] if inner is None else [outer, inner]
    simple = inner is not None and _only_calls(stack.space, place, inner, facts)
    belongs = (much or simple) and all(_belongs(stack.space, each, facts) for each in frames)
    where = INTERRUPTED if inner is None else f"{ON_BOTH_SIDES}{_THUNK if simple else ''}"
    return Neighbour(belongs, f"code that a module made: {outer.name.symbol} {where}")


def _only_calls(space: AddressSpace, place: FramePlace, inner: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether code is a thunk that does nothing but call the module of the next inner frame."""
    target = called_by_thunk(facts.image.memory(space).read, place.address, space.machine)
    if target is None or inner.number != place.number - 1:
        return False
    called, running = (facts.namer(space).module_at(address) for address in (target, inner.at))
    return called is not None and running is not None and called.module.base == running.module.base


def is_vendor(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a frame is in an unmodified module outside Windows' folders, or in a driver's."""
    if place.name.backing != IMAGE or has_status(place.name.status, *NOT_ITS_FILE):
        return False
    made = functools.partial(_is_unmodified_vendor, stack.space, place, facts)
    return facts.find_once(__name__, stack.space, place.at, made)


def _is_unmodified_vendor(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> bool:
    path = _path(space, place.at, facts)
    if not path or (facts.of_windows(space, place.at) and not is_beneath(path, _DRIVERS)):
        return False
    _, ranges = function_at(space, place, facts)
    comparison = facts.copies.compare_ranges(space, ranges)
    return not comparison.ranges and not comparison.split and not comparison.reason


def _path(space: AddressSpace, at: int, facts: CheckFacts) -> str:
    """Returns the path of the file mapped at an address, in lower case; "" if it has none or it is lost."""
    return image_path(facts.image.service(regions), facts.vad(space, at)).lower()


def has_much_code(space: AddressSpace, facts: CheckFacts) -> bool:
    """Returns whether a process has as much executable memory outside images as compilers make."""
    return facts.find_once(_MUCH, space, 0, functools.partial(_counts_much_code, space, facts))


def _counts_much_code(space: AddressSpace, facts: CheckFacts) -> bool:
    found = [vad for vad in facts.namer(space).process.vads if not vad.image and vad.executable]
    return len(found) >= _MANY or any(vad.end - vad.start >= _LARGE for vad in found)


class _Files(NamedTuple):
    """The files of the images in a process.

    Attributes:
        paths: their paths, ascending
        programs: the folders of those that are programs
    """

    paths: List[str]
    programs: FrozenSet[str]


def _files(space: AddressSpace, facts: CheckFacts) -> _Files:
    service = facts.image.service(regions)
    paths = {image_path(service, vad).lower() for vad in facts.namer(space).process.vads} - {""}
    return _Files(sorted(paths), frozenset(_folder(path) for path in paths if path.endswith(_PROGRAM)))


def _belongs(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a module belongs to the program of its process, and is not a single dropped file."""
    path = _path(space, place.at, facts)
    if path.endswith(_PROGRAM) or is_beneath(path, _DRIVERS):
        return True
    files = facts.find_once(_FILES, space, 0, functools.partial(_files, space, facts))
    folder = _folder(path)
    # A DLL of the program's folder, or of one beneath it; or another module from the folder of the DLL.
    if any(folder[:end] in files.programs for end in range(len(folder) + 1)):
        return True
    first = bisect.bisect_left(files.paths, folder)
    return any(other != path and other.startswith(folder) for other in files.paths[first : first + 2])


def _folder(path: str) -> str:
    """Returns the folder of a file, with the backslash at its end."""
    return path[: path.rfind("\\") + 1]
