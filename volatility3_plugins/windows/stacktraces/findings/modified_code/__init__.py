# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `modified_code`: code of an image is not what other processes have, where a thread goes on.

Source of the jumps: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional, Tuple

from ...base.decode.record import Record
from ...base.image import AddressSpace
from ...base.processlist import process_member
from ...flat.decode.schema import TRAP, USER, WOW64
from ...flat.stack import FlatStack
from ...names.places import IMAGE
from ..copies import NO_IMAGE, Comparison, Copies, Mapping, Ranges
from ..facts import CheckFacts
from ..finding import (
    CERTAIN,
    HIGH,
    LIKELY,
    LOW,
    NONE_KNOWN,
    POSSIBLE,
    Check,
    Finding,
    FramePlace,
    of_place,
    places,
)

NAME = "modified_code"

ENTRY = 16
"""Bytes of a function's entry that a jump may have taken the place of: no form of it has more."""

_AROUND = 0x40
"""Bytes around a frame that are compared where no function is known."""
_FARTHEST = 0x1000
"""Of a longer function only so much is compared, before and behind the frame, and its entry."""
_SHOWN = 16
_MAX_HOPS = 4
_MAX_SIBLINGS = 8

_PARENT = "InheritedFromUniqueProcessId"
_ONE_OTHER = "one other process maps the file, and may be the one that was changed"

Read = Callable[[int, int], Optional[bytes]]


class _Judged(Record):
    """What is found at an address: `entry` is that of its function, else the first changed byte."""

    severity: str
    innocent: str
    entry: int
    found: Comparison


def find(stack: FlatStack, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in functions that most other processes have otherwise; of each function one."""
    space = stack.space
    for place in places(stack, IMAGE, "mapped"):
        if not facts.is_user(place.at):
            continue
        kept = facts.kept(NAME, space)
        if place.at not in kept:
            kept[place.at] = _judged(space, place, facts)
        judged: Optional[_Judged] = kept[place.at]
        if judged is None:
            continue
        confidence = POSSIBLE if judged.found.others == 1 else CERTAIN if place.how == TRAP else LIKELY
        evidence = f"{_shown(space, judged.found, facts)}; {facts.memory(space, place.address)}"
        group = (space.layer_name, judged.entry)
        yield of_place(stack, place, judged.severity, confidence, evidence, judged.innocent, group)


def _judged(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> Optional[_Judged]:
    """Compares the function of a frame; None if there is nothing to say of it."""
    entry, ranges = _function(space, place, facts)
    found = _compared(facts.copies, space, ranges)
    if found.reason not in ("", NO_IMAGE):
        facts.leave_out(NAME, found.reason, place.frame.module or place.name.symbol.partition("+")[0])
    if not found.ranges:
        return None
    entry = found.ranges[0][0] if entry is None else entry
    severity, innocent = _explained(space, entry, found.ranges, facts)
    if found.others == 1 and innocent == NONE_KNOWN:
        innocent = _ONE_OTHER
    return _Judged(severity, innocent, entry, found)


def _function(
    space: AddressSpace, place: FramePlace, facts: CheckFacts
) -> Tuple[Optional[int], List[Tuple[int, int]]]:
    """Returns the entry of a frame's function, None if it is not known, and which addresses to compare."""
    at = place.at
    known = facts.names(space).module_at(at)
    around = (at - _AROUND, at + _AROUND)
    if known is None:
        return None, [around]
    base, index = known.module.base, known.image
    piece = None if index.functions is None else index.functions.find(at - base)
    if piece is not None and index.functions is not None:
        first = index.functions.primary(piece) or piece
        entry = base + first.begin
        start, end = base + piece.begin, base + piece.end
    else:
        label = index.names.find(at - base)
        if label is None or not 0 <= at - base - label[0] < _FARTHEST:
            return None, [around]
        entry = start = base + label[0]
        end = max(at + 1, entry + ENTRY)
    body = (max(start, at - _FARTHEST), min(end, at + _FARTHEST))
    return entry, [body] if body[0] == entry else [body, (entry, entry + ENTRY)]


def _compared(copies: Copies, space: AddressSpace, ranges: List[Tuple[int, int]]) -> Comparison:
    all_found = [copies.compare(space, low, high) for low, high in ranges]
    changed = sorted({each for found in all_found for each in found.ranges})
    reason = next((found.reason for found in all_found if found.reason), "")
    return Comparison(tuple(changed), max(found.others for found in all_found), reason)


def _explained(space: AddressSpace, entry: int, changed: Ranges, facts: CheckFacts) -> Tuple[str, str]:
    """Returns the severity of changed bytes of a function, and what explains them."""
    first = changed[0][0]
    if not entry <= first or changed[-1][1] > entry + ENTRY:
        return HIGH, NONE_KNOWN
    # The first byte of a jump may be that which was there before.
    target = next(
        filter(None, (led(_reader(space, facts), at, space.pointer_size) for at in (entry, first))), None
    )
    if target is None:
        return HIGH, NONE_KNOWN
    name = facts.names(space).name(target, return_address=False)
    said = f"the entry jumps to {target:#x} {name.symbol}"
    if name.backing == IMAGE:
        return LOW, said
    program = _program_of_all(space, changed, facts)
    return (HIGH, said) if program is None else (LOW, f"{said}; so does every child of {program}")


def _reader(space: AddressSpace, facts: CheckFacts) -> Read:
    return facts.image.memory(space).read


def led(read: Read, address: int, pointer_size: int) -> Optional[int]:
    """Returns where jumps at an address lead to, None if there is none.

    Args:
        read: (address, length) -> bytes, None if any of them is missing
        address: of the first jump
        pointer_size: 4 or 8
    """
    way = hops(read, address, pointer_size)
    return way[-1] if way else None


def hops(read: Read, address: int, pointer_size: int) -> Tuple[int, ...]:
    """Returns where each of the jumps that follow each other leads to; the arguments are those of `led`."""
    way: Tuple[int, ...] = ()
    for _ in range(_MAX_HOPS):
        target = _jump(read, address, pointer_size)
        if target is None:
            break
        way, address = (*way, target), target
    return way


def _jump(read: Read, at: int, pointer_size: int) -> Optional[int]:
    """Returns where one jump leads to, None if there is none or its target cannot be read."""
    wide, limit = pointer_size == 8, (1 << 8 * pointer_size) - 1
    code = next(filter(None, (read(at, size) for size in range(ENTRY, 1, -1))), b"").ljust(ENTRY, b"\xcc")
    if code[0] == 0xEB:
        return at + 2 + int.from_bytes(code[1:2], "little", signed=True) & limit
    if code[0] == 0xE9:
        return at + 5 + int.from_bytes(code[1:5], "little", signed=True) & limit
    if code[:2] == b"\xff\x25":
        place = int.from_bytes(code[2:6], "little", signed=wide) + (at + 6 if wide else 0)
        data = read(place & limit, pointer_size)
        return None if data is None else int.from_bytes(data, "little")
    if wide and code[0] & 0xFE == 0x48 and code[1] & 0xF8 == 0xB8:
        # mov register, imm64; jmp register
        rest = code[10:13] if code[0] & 1 else b"\x41" + code[10:12]
        return (
            int.from_bytes(code[2:10], "little") if rest == bytes((0x41, 0xFF, 0xE0 | code[1] & 7)) else None
        )
    if not wide and code[0] & 0xF8 == 0xB8 and code[5:7] == bytes((0xFF, 0xE0 | code[0] & 7)):
        return int.from_bytes(code[1:5], "little")
    if code[0] == 0x68:
        # push imm32, in 64-bit code with its upper half after that; ret
        low = int.from_bytes(code[1:5], "little", signed=wide) & limit
        if code[5] == 0xC3:
            return low
        if wide and code[5:9] == b"\xc7\x44\x24\x04" and code[13] == 0xC3:
            return low & 0xFFFFFFFF | int.from_bytes(code[9:13], "little") << 32
    return None


def _program_of_all(space: AddressSpace, changed: Ranges, facts: CheckFacts) -> Optional[str]:
    """Returns the program that starts itself and whose every other child has the same bytes changed, too."""
    mine = facts.copies.mapping(space, changed[0][0])
    parent = process_member(facts.image, space.eprocess, _PARENT)
    if mine is None or not parent:
        return None
    family = [each for each in facts.copies.others(mine) if each.space.process == space.process]
    siblings = [
        each for each in family if process_member(facts.image, each.space.eprocess, _PARENT) == parent
    ][:_MAX_SIBLINGS]
    if all(each.space.pid != parent for each in family) or not siblings:
        return None
    first, last = changed[0][0] - mine.vad.start, changed[-1][1] - mine.vad.start
    same = all(_changed(each, first, last, facts) for each in siblings)
    return space.process if same else None


def _changed(mapping: Mapping, first: int, last: int, facts: CheckFacts) -> bool:
    """Tells whether another process has changes from the same RVA on."""
    base = mapping.vad.start
    found = facts.copies.compare_mapping(mapping, base + first, base + last)
    return bool(found.ranges) and found.ranges[0][0] == base + first


def _shown(space: AddressSpace, found: Comparison, facts: CheckFacts) -> str:
    """Returns the first changed bytes, and those that another process has."""
    low = found.ranges[0][0]
    high = min(found.ranges[-1][1], low + _SHOWN)
    mine = _reader(space, facts)(low, high - low)
    count = sum(end - start for start, end in found.ranges)
    others = f"most of {found.others} processes" if found.others > 1 else "the only other process"
    said = f"{count} {'byte differs' if count == 1 else 'bytes differ'} from {others}"
    if mine is not None:
        said += f", from {low:#x} on {mine.hex(' ')}"
    other = facts.copies.example(space, low, high)
    if other is not None:
        said += f"; PID {other[0].pid} has {other[1].hex(' ')}"
    return said


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that the kernel's code is not compared, and what could not be."""
    yield "; ".join(("the kernel's code: there is no second copy of it", *facts.left_out(NAME)))


CHECK = Check(
    NAME,
    "T1055.001, T1562.001",
    (USER, WOW64),
    "A thread was interrupted, or goes on, in a function of an image that most processes which map the same "
    "file have otherwise: it is hooked, or written over.",
    "high; low where the entry jumps into another image, and where it jumps elsewhere in every child of a "
    "program that starts itself; low of frames that a scan found",
    "Security products and debuggers hook functions; browsers do so in their sandboxed children; some "
    "programs unpack themselves.",
    "Dump the module with windows.dlllist --dump and compare it with that of the other process.",
    "no thread has a stack in user mode",
    of_stack=find,
    unchecked=unchecked,
)
