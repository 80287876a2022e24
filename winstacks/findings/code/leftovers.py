# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Return addresses into code of no file, on parts of a stack to which no walk leads because pages are lost.

If the kernel stack with a thread's registers is not in the image, which part of its user stack is in use is
unknown; and a scan ends where the code of a value is not in the image. The values are there, all the same:
one that leads behind a call in private executable memory was left by code that ran there and called, now or
earlier.

That is less than a frame: no caller is known, and the value may be old. So what explains code of no file in
any way explains such a value. A value is less, too, if no call precedes it, as where memory is encrypted, and
if the memory was executable and is not now, as while code sleeps: it is `low` then.
"""

from __future__ import annotations

import logging
from typing import Dict, Iterator, List, Optional, Tuple

from ...columns.words import LOW, MEDIUM, USER
from ...memory.decode.machine import Machine
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.ranges import span_at
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode, words_that
from ...memory.decode.statusmeanings import Means
from ...memory.decode.structure import integers
from ...memory.image import AddressSpace, Image
from ...names.symbolizer import KnownModule
from ...process.processlist import process_member
from ...process.regions import Region
from ...process.thread import Thread
from ...process.userstacks import UserStacks
from ...stacklist.stack import StackRecord
from ...stacks.decode.budget import most_scanned
from ...stacks.decode.frames import LONGEST_CALL, is_call
from ..facts import PROGRAMS, CheckFacts
from ..finding import NONE_KNOWN
from .closures import closure_target
from .explanations import RELAY, explained
from .neighbours import has_much_code
from .relays import of_relay, product_in
from .runtimes import contains_runtime

vollog = logging.getLogger(__name__)

_CUT = (
    *(StatusCode.CODE_UNREADABLE, StatusCode.NO_FUNCTION_TABLE, StatusCode.UNWIND_DATA_UNREADABLE),
    StatusCode.FUNCTION_TABLE_UNREADABLE,
    *(StatusCode.STACK_UNREADABLE, StatusCode.UNREADABLE, StatusCode.NO_SAVED_REGISTERS),
)
"""Words of stacks to whose end no sure walk leads because pages are lost."""
_MOST = 1 << 18
"""The most bytes of a stack that are searched; from its outer end, where values last."""
_SIZE = 8
_MUCH = "the process has much generated code, as of a compiler, and the value may be old"
_LOADED = "the value may be old"
_LEFT = "no walk leads to the value, because pages are not in the image"
_NO_CODE = "the code there is not in the image, so whether a call precedes it is unknown"
_NO_EXPORTS = "the exports of the program, which would show a runtime, are not in the image"
_EXPORTS_LOST = words_that(Means.EXPORTS_LOST)
_EXE = ".exe"
_ASLEEP, _UNCALLED, _LOST, _CALLED = range(4)
"""Kinds of memory to which a value leads: it was executable and is not now; no call precedes the address; the
code is not in the image; a call precedes the address."""
_WHY = {
    _ASLEEP: "the memory was executable, and is not now",
    _UNCALLED: "no call precedes the address: the value may be a pointer, or the code encrypted",
}
_BEFORE = 0x40
"""Bytes before a return address in which a relay has the address that it calls."""
_NOT_SEARCHED = (
    "Checks have searched more bytes of stacks than the file has: the remaining stacks are not searched for "
    "return addresses, and findings may be missing"
)
_REGIONS, _VALUES = f"{__name__}: regions", f"{__name__}: values"


class Leftover(NamedTuple):
    """A return address on a stack, into memory of no file.

    Attributes:
        slot: where on the stack it lies
        region: start of the memory region to which it leads
    """

    thread: Thread
    address: int
    slot: int
    region: int
    severity: str
    innocent: str


def leftovers(stack: StackRecord, facts: CheckFacts) -> Iterator[Leftover]:
    """Yields return addresses on a stack into executable memory of no file: one for each region."""
    thread, space = cut_thread(stack), stack.space
    if thread is None:
        return
    targets = executable_regions(space, facts)
    known = {frame.address for frame in stack.frames}
    best: Dict[int, Tuple[int, int, int]] = {}
    for slot, address in stack_values(stack, thread, facts) if targets else ():
        vad = span_at(targets, address)
        if vad is None or address in known:
            continue
        kind = _kind(space, address, facts)
        if vad.start not in best or best[vad.start][0] < kind:
            best[vad.start] = kind, address, slot
    for region, (kind, address, slot) in best.items():
        judged = _judged(space, address, kind, facts)
        if judged is not None:
            yield Leftover(thread, address, slot, region, *judged)


def cut_thread(stack: StackRecord) -> Optional[Thread]:
    """Returns the living thread of a user stack of x64 that lost pages cut; None of any other stack."""
    thread = stack.thread
    if thread is None or stack.kind != USER or stack.space.machine is not Machine.AMD64 or thread.unusable:
        return None
    cut = bool(stack.space.layer_name) and has_status(stack.status, *_CUT)
    return thread if cut and not thread.ended else None


def executable_regions(space: AddressSpace, facts: CheckFacts) -> List[Region]:
    """Returns the executable regions of a process that are no image, ascending."""
    return facts.find_once(_REGIONS, space, 0, lambda: _regions(space, facts))


def _regions(space: AddressSpace, facts: CheckFacts) -> List[Region]:
    """Returns the executable regions of a process that are no image; pico processes run code in such."""
    if process_member(facts.image, space.eprocess, "PicoContext"):
        return []
    return [vad for vad in facts.namer(space).process.vads if not vad.image and vad.executable]


def stack_values(stack: StackRecord, thread: Thread, facts: CheckFacts) -> List[Tuple[int, int]]:
    """Returns the values of the part of a stack that may be in use, each after its address."""
    return facts.find_once_of_stack(_VALUES, stack, lambda: list(_values(stack, thread, facts)))


class SearchedStacks:
    """Counts the bytes of stacks that checks search: thousands of threads may claim one stack. `left` is how
    many bytes may still be searched."""

    def __init__(self, image: Image) -> None:
        self.left = most_scanned(image.page_count * PAGE_SIZE)
        self._warned = False

    def room(self, size: int) -> int:
        """Returns how many of so many bytes may be searched; warns, once, if not all."""
        if size > self.left and not self._warned:
            self._warned = True
            vollog.warning(_NOT_SEARCHED)
        return max(min(size, self.left), 0)


def _values(stack: StackRecord, thread: Thread, facts: CheckFacts) -> Iterator[Tuple[int, int]]:
    sp = stack.walked[0].sp if stack.walked else None
    limits, searched = facts.image.service(UserStacks).native(thread), facts.image.service(SearchedStacks)
    around = facts.vad(stack.space, sp) if sp is not None and not limits else None
    for low, high in limits if around is None else [(around.start, around.end)]:
        if sp is not None and not low <= sp <= high:
            continue
        start = max(low if sp is None else sp, high - _MOST)
        start = high - searched.room(max(high - start, 0))
        start += -start % _SIZE
        for at, data in facts.image.memory(stack.space).load(start, max(high - start, 0)).runs:
            searched.left -= len(data)
            first = at + -at % _SIZE
            for number, value in enumerate(integers(bytes(data)[first - at :], _SIZE)):
                yield first + number * _SIZE, value


def _kind(space: AddressSpace, address: int, facts: CheckFacts) -> int:
    """Returns what kind of memory a value leads to."""
    if not facts.executable(space, address):
        return _ASLEEP
    code = facts.image.memory(space).read(address - LONGEST_CALL, LONGEST_CALL)
    return _LOST if code is None else _CALLED if is_call(code) else _UNCALLED


def _judged(space: AddressSpace, address: int, kind: int, facts: CheckFacts) -> Optional[Tuple[str, str]]:
    """Returns severity and explanation of code to which a value leads.

    None if the value may be data that something explains.
    """
    severity, _, innocent = explained(space, address - 1, facts)
    if kind in (_UNCALLED, _ASLEEP):
        found = unexplained(space, address - 1, facts)
        code = facts.image.memory(space).read(address, 1) if found is not None else None
        if found is None or code is None or _is_closure(space, address, facts):
            return None
        return LOW, f"{found}; {_LEFT}; {_WHY[kind]}"
    if severity == LOW or not innocent.startswith(NONE_KNOWN):
        return LOW, f"{innocent}; {_LOADED}"
    served = of_relay(space, address - 1, facts)
    if served is not None:
        return LOW, f"{RELAY} {served}"
    if has_much_code(space, facts):
        return LOW, _MUCH
    product = _product(space, address, facts) if kind == _CALLED else None
    if product is not None:
        return LOW, f"code that calls {product}, as the relay of a hook does; {_LOADED}"
    if kind == _LOST:
        return LOW, f"{innocent}; {_LEFT}; {_NO_CODE}"
    for program in _programs(space, facts):
        if contains_runtime(program):
            return LOW, f"{program.module.file} contains a runtime, which generates code; {_LOADED}"
        if has_status(program.image.status, *_EXPORTS_LOST):
            return LOW, f"{innocent}; {_LEFT}; {_NO_EXPORTS}"
    return MEDIUM, f"{innocent}; {_LEFT}"


def unexplained(space: AddressSpace, at: int, facts: CheckFacts) -> Optional[str]:
    """Returns the text of Innocent of memory of no file that nothing explains; None if something does."""
    severity, _, innocent = explained(space, at, facts)
    if severity == LOW or not innocent.startswith(NONE_KNOWN) or has_much_code(space, facts):
        return None
    if of_relay(space, at, facts) is not None or facts.runtimes(space, PROGRAMS):
        return None
    for program in _programs(space, facts):
        if contains_runtime(program):
            return None
        if innocent == NONE_KNOWN and has_status(program.image.status, *_EXPORTS_LOST):
            innocent = f"{innocent}, but {_NO_EXPORTS}"
    return innocent


def exports_lost(space: AddressSpace, facts: CheckFacts) -> bool:
    """Returns whether the exports of the program, which would show a runtime, are not in the image."""
    return any(has_status(program.image.status, *_EXPORTS_LOST) for program in _programs(space, facts))


def _is_closure(space: AddressSpace, address: int, facts: CheckFacts) -> bool:
    """Returns whether a value is the address of a closure: it is an argument, and no return address."""
    target = closure_target(facts.image.memory(space).read, address, space.machine)
    return target is not None and facts.namer(space).module_at(target) is not None


def _product(space: AddressSpace, address: int, facts: CheckFacts) -> Optional[str]:
    """Returns the module outside Windows' folders whose address is in the code before a return address."""
    code = facts.image.memory(space).read(address - _BEFORE, _BEFORE) or b""
    return product_in(space, code, facts)


def _programs(space: AddressSpace, facts: CheckFacts) -> Iterator[KnownModule]:
    """Yields the programs among the modules of a process."""
    for module in facts.namer(space).process.modules:
        known_module = facts.namer(space).module_at(module.base) if module.file.endswith(_EXE) else None
        if known_module is not None:
            yield known_module
