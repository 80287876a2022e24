# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `modified_code`: a thread runs code of an image that differs from other processes' code."""

from __future__ import annotations

import collections
import functools
from typing import FrozenSet, Iterator, List, Optional, Set, Tuple

from ...columns.words import CERTAIN, HIGH, IMAGE, LIKELY, LOW, MAPPED, MEDIUM, POSSIBLE, TRAP, USER, WOW64
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.text import cell, counted
from ...memory.image import AddressSpace
from ...names.decode.pe import MEM_WRITE, HeaderError, read_headers
from ...process.processlist import process_member
from ...stacklist.stack import StackRecord
from ..code.barriers import is_write_barrier
from ..code.codelists import CLR
from ..code.copies import NOT_IN_MEMORY, Comparison, Mapping
from ..code.differing import Ranges
from ..code.functions import function_at, labelled_entry
from ..code.jumps import ENTRY, Read, follow_jumps
from ..code.lostsections import leave_out_section
from ..code.lostways import over_lost_pages
from ..code.products import (
    Verdict,
    files_in_words,
    in_words,
    of_users,
    other_hook,
    product_left_out,
    without_hook,
)
from ..code.relays import Hooked
from ..code.stubs import LOADED, keeps_number
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, OF_MEMORY, Check, Finding, FramePlace, frame_places, place_finding

NAME = "modified_code"

_SHOWN = 16
_MAX_SIBLINGS = 8
_NOTHING = Verdict(HIGH, NONE_KNOWN, frozenset())

_PARENT = "InheritedFromUniqueProcessId"
_UNPACKED = "the section is writable: programs that unpack themselves write there"
_DECRYPTED = (
    "the file's page has no code but random bytes: the program decrypts itself, as copy protection does"
)
_MOST_ALIKE = PAGE_SIZE // 64
"""The most bytes of one value on an encrypted page: 16 are expected. Code has hundreds of some values."""
_BARRIER = "CLR rewrites its write barriers to fit its heap"
_BARRIERS = ("JIT_WriteBarrier", "JIT_CheckedWriteBarrier", "JIT_ByRefWriteBarrier")
"""Source: the .NET runtime (described: dotnet/runtime, `StompWriteBarrierEphemeral`)."""
_BESIDE = "the bytes may be of the function beside it: no function table in the image shows where it begins"
_SAME = "the function has the bytes of its file; the process has a copy of the page for another reason"
_ALIKE = "the others have the same bytes; whether the file has them is unknown: its page is not in the image"
_ONLY_ELSEWHERE = f"{NONE_KNOWN}; the function has the bytes of its file, but others on its page do not"
_OR_BESIDE = f"{NONE_KNOWN}; the bytes may be of the function beside it"
_OTHER_FILE = "the VAD and the loader name different files, and the copies are of the VAD's"
_APART = 0x20
"""From so many bytes between them on, changes count as two: different functions were changed."""
_NEAR = 0x10
"""Bytes before and behind a frame that are of its function, whose start is unknown."""
_SEVERAL = 2
_BREAKPOINT = 1
"""Bytes of `int3`, which debuggers write into functions."""
_ONE_OTHER = "only one other process maps the file, and that one may be changed"


class _Assessment(NamedTuple):
    """The verdict on an address.

    Attributes:
        entry: the entry of its function, else the first changed byte, else the page
        leads: files of the modules into which the hooks lead
    """

    severity: str
    innocent: str
    entry: int
    found: Comparison
    leads: FrozenSet[str] = frozenset()


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in functions that differ from most other processes; one for each function."""
    space = stack.space
    copies: List[Tuple[FramePlace, _Assessment]] = []
    told: Set[int] = set()
    for place in frame_places(stack, IMAGE, MAPPED):
        if not facts.is_user(place.at):
            continue
        assessment = facts.find_once(NAME, space, place.at, functools.partial(_assess, space, place, facts))
        if assessment is None:
            continue
        if assessment.innocent in (_SAME, _ONLY_ELSEWHERE):
            copies.append((place, assessment))
            continue
        told.add(place.at // PAGE_SIZE)
        yield _finding(stack, place, assessment, facts)
    for place, assessment in copies:
        if place.at // PAGE_SIZE not in told:
            yield _finding(stack, place, assessment, facts)


def _finding(stack: StackRecord, place: FramePlace, assessment: _Assessment, facts: CheckFacts) -> Finding:
    space, severity, innocent = stack.space, assessment.severity, assessment.innocent
    if place.guessed:
        place, severity, innocent = over_lost_pages(stack, place, severity, innocent, facts)
    one = assessment.found.others == 1 and not assessment.found.alike
    other = severity == HIGH and has_status(place.frame.details.status, StatusCode.VAD_OF_ANOTHER_FILE)
    if other:
        severity, innocent = MEDIUM, f"{_OTHER_FILE}; {innocent}"
    confidence = POSSIBLE if one or other else CERTAIN if place.how == TRAP else LIKELY
    evidence = f"{_shown(space, assessment.found, facts)}; in {in_words(space, place.at, facts)}"
    if assessment.leads:
        evidence += f"; the hook leads into {files_in_words(space, assessment.leads, facts)}"
    evidence += f"; {facts.memory(space, place.address)}"
    group = (space.layer_name, assessment.entry)
    return place_finding(stack, place, severity, confidence, evidence, innocent, group)


def _assess(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> Optional[_Assessment]:
    """Compares the function of a frame; None if there is no finding."""
    entry, ranges = function_at(space, place, facts)
    comparison = facts.copies.compare_ranges(space, ranges)
    module = place.frame.details.module or place.name.symbol.partition("+")[0]
    facts.leave_out_code(NAME, comparison.reason, space, place.at, module)
    if not comparison.ranges:
        if not comparison.file:
            leave_out_section(NAME, space, place.at, module, facts)
        return _unchanged(space, entry, place.at, comparison, facts)
    beside = entry is None and not _is_near(place.at, comparison.ranges)
    entry = comparison.ranges[0][0] if entry is None else entry
    severity, innocent, leads = _explained(space, entry, comparison.ranges, facts)
    if severity == HIGH and beside:
        severity, innocent = LOW, _BESIDE
        if _is_overwritten(space, comparison, facts):
            severity, innocent = MEDIUM, _OR_BESIDE
    if severity == HIGH and _is_barrier(space, place, comparison.ranges, facts):
        severity, innocent = LOW, _BARRIER
    if severity == HIGH and (comparison.alike or not (comparison.others or comparison.file)):
        severity, innocent = _by_the_section(space, comparison.ranges[0][0], innocent, facts)
    if comparison.others == 1 and not comparison.alike and innocent == NONE_KNOWN:
        innocent = _ONE_OTHER
    return _Assessment(severity, innocent, entry, comparison, leads)


def _unchanged(
    space: AddressSpace, entry: Optional[int], at: int, comparison: Comparison, facts: CheckFacts
) -> Optional[_Assessment]:
    """Judges a function whose bytes were not changed for certain, on a copy of a page; None on a shared one.

    A hook whose target differs in each process may lead to another module than theirs; and where others have
    a hook, the file's own bytes may be an exception.
    """
    if comparison.split and entry is not None and entry <= comparison.split[0][0] < entry + ENTRY:
        led = other_hook(space, entry, facts)
        if led is not None:
            found = comparison._replace(ranges=comparison.split)
            return _Assessment(led.severity, led.innocent, entry, found, led.leads)
    if comparison.original:
        first = comparison.original[0][0]
        start = entry if entry is not None and entry <= first < entry + ENTRY else first
        verdict = without_hook(space, start, facts)
        return _Assessment(verdict.severity, verdict.innocent, start, comparison, verdict.leads)
    # A section shows which pages the process shares; a dump has none.
    known = facts.copies.original(space, at) is not None
    if comparison.reason or not known or not facts.copies.is_private(space, at):
        return None
    page = at // PAGE_SIZE * PAGE_SIZE
    if comparison.private:
        return _Assessment(LOW, _ALIKE, page, comparison)
    whole = facts.copies.compare(space, page, page + PAGE_SIZE)
    if comparison.split or (not whole.ranges and (whole.split or whole.alike)):
        # Changes that the other processes have on the page, too, are a product's.
        return None
    if _is_overwritten(space, whole, facts):
        return _Assessment(MEDIUM, _ONLY_ELSEWHERE, page, whole)
    return _Assessment(LOW, _SAME, page, comparison)


def _is_overwritten(space: AddressSpace, found: Comparison, facts: CheckFacts) -> bool:
    """Returns whether nothing explains some of the changed bytes on a page that a thread executes.

    A product hooks several functions of a page, and each of its hooks leads somewhere. Bytes that lead
    nowhere known may be an implant's. Several processes, or the file, must have others.
    """
    if found.alike or (found.others < _SEVERAL and not found.file):
        return False
    pieces = (piece for piece in _pieces(found.ranges) if piece[1] - piece[0] > _BREAKPOINT)
    return any(_leads_nowhere_known(space, piece, facts) for piece in pieces)


def _leads_nowhere_known(space: AddressSpace, piece: Tuple[int, int], facts: CheckFacts) -> bool:
    """Returns whether nothing explains changed bytes: no hook that leads where it may, and no family.

    A stub that keeps its number and goes on elsewhere is patched, as by a sandbox, and not overwritten; what
    a relay that is not in the image does is unknown.
    """
    first, end = piece[0], min(piece[1], piece[0] + ENTRY)
    read = _reader(space, facts)
    target = follow_jumps(read, first, space.machine)
    if target is not None and read(target, 1) is None:
        return False
    if any(keeps_number(read(start, LOADED) or b"") for start in (first, first - LOADED)):
        return False
    known_module = facts.namer(space).module_at(first)
    entry = None if known_module is None else labelled_entry(known_module, first, ENTRY)
    # Hooks of several lengths at one entry have only some bytes alike.
    starts = {first, first if entry is None else entry}
    if any(_explained(space, start, ((first, end),), facts).severity != HIGH for start in starts):
        return False
    return _program_of_all(space, ((first, end),), facts) is None


def _pieces(changed: Ranges) -> List[Tuple[int, int]]:
    """Returns changes that are close to each other as one."""
    pieces: List[Tuple[int, int]] = []
    for low, high in changed:
        if pieces and low - pieces[-1][1] < _APART:
            pieces[-1] = pieces[-1][0], high
        else:
            pieces.append((low, high))
    return pieces


def _is_near(at: int, changed: Ranges) -> bool:
    """Returns whether changed bytes are in the frame's call, or next to it."""
    return any(low <= at + _NEAR and at - _NEAR < high for low, high in changed)


def _is_barrier(space: AddressSpace, place: FramePlace, changed: Ranges, facts: CheckFacts) -> bool:
    """Returns whether a function is a write barrier, which CLR rewrites while it runs.

    Its name shows that or, without symbols, its code.
    """
    function, module = place.frame.details.function or "", place.frame.details.module or ""
    if module.lower() not in CLR:
        return False
    return function.startswith(_BARRIERS) or is_write_barrier(_reader(space, facts), changed, space.machine)


def _by_the_section(space: AddressSpace, at: int, innocent: str, facts: CheckFacts) -> Tuple[str, str]:
    """Returns severity and explanation of code that could be compared only with the section of the file.

    Whether the section is writable is read from the file's headers, which no process can write. Nor can one
    write the page of the file: where that is encrypted, the file had no code there that could be overwritten.
    """
    mapping, original = facts.copies.mapping(space, at), facts.copies.original(space, at)
    if mapping is None or original is None:
        return MEDIUM, innocent
    try:
        headers = read_headers(original.read)
    except HeaderError:
        return MEDIUM, innocent
    rva = at - mapping.vad.start
    for section in headers.sections:
        if section.start <= rva < section.end and section.characteristics & MEM_WRITE:
            return LOW, _UNPACKED
    page = rva // PAGE_SIZE * PAGE_SIZE
    theirs, mine = original.read(page, PAGE_SIZE), facts.copies.read(space, at - rva + page, PAGE_SIZE)
    if theirs is None or mine is None or not _is_random(theirs) or _is_random(mine):
        return MEDIUM, innocent
    return LOW, _DECRYPTED


def _is_random(page: bytes) -> bool:
    """Returns whether no value of a byte is frequent on a page, as in encrypted data."""
    return max(collections.Counter(page).values()) <= _MOST_ALIKE


def _explained(space: AddressSpace, entry: int, changed: Ranges, facts: CheckFacts) -> Verdict:
    """Returns the severity of a function's changed bytes, their explanation, and where a hook leads."""
    first = changed[0][0]
    if not entry <= first or changed[-1][1] > entry + ENTRY:
        return _NOTHING
    # The first byte of a jump may have the same value as the byte that it replaced.
    target = next(
        filter(None, (follow_jumps(_reader(space, facts), at, space.machine) for at in (entry, first))), None
    )
    if target is None:
        return product_left_out(space, entry, facts) or _NOTHING
    name = facts.namer(space).name(target, return_address=False)
    jump = f"the entry jumps to {target:#x} {name.symbol}"
    if name.backing == IMAGE:
        known_module = facts.namer(space).module_at(target)
        leads = frozenset(() if known_module is None else (known_module.module.file.lower(),))
        return Verdict(LOW, jump, leads)
    hooked = Hooked(space, entry, facts)
    if hooked.by_all is not None:
        alike = counted(hooked.alike, "other process", "other processes")
        innocent = f"{jump}, and on into {hooked.by_all}; so do the hooks of {alike}"
        return Verdict(LOW, innocent, hooked.mine)
    severity = HIGH
    if hooked.mine:
        severity, users = of_users(space, hooked, facts)
        jump += f", and on into {', '.join(sorted(hooked.mine))}{users}"
    program = _program_of_all(space, changed, facts)
    if program is not None and severity != LOW:
        severity, jump = LOW, f"{jump}; so does every child of {program}"
    return Verdict(severity, jump, hooked.mine)


def _reader(space: AddressSpace, facts: CheckFacts) -> Read:
    return facts.image.memory(space).read


def _program_of_all(space: AddressSpace, changed: Ranges, facts: CheckFacts) -> Optional[str]:
    """Returns the program that starts itself and whose every other child has the same changed bytes."""
    mine = facts.copies.mapping(space, changed[0][0])
    parent = process_member(facts.image, space.eprocess, _PARENT)
    if mine is None or not parent:
        return None
    family = [relative for relative in facts.copies.others(mine) if relative.space.process == space.process]
    siblings = [
        relative
        for relative in family
        if process_member(facts.image, relative.space.eprocess, _PARENT) == parent
    ][:_MAX_SIBLINGS]
    if all(relative.space.pid != parent for relative in family) or not siblings:
        return None
    first, last = changed[0][0] - mine.vad.start, changed[-1][1] - mine.vad.start
    alike = [_changed(relative, first, last, facts) for relative in siblings]
    # Children whose page is not in the image say nothing.
    return space.process if True in alike and False not in alike else None


def _changed(mapping: Mapping, first: int, last: int, facts: CheckFacts) -> Optional[bool]:
    """Returns whether another process has changes that begin at the same RVA; None if it lost the page."""
    base = mapping.vad.start
    comparison = facts.copies.compare_mapping(mapping, base + first, base + last)
    if comparison.reason == NOT_IN_MEMORY:
        return None
    return bool(comparison.ranges) and comparison.ranges[0][0] == base + first


_OTHERS_HAVE = "other process has", "other processes have"


def _shown(space: AddressSpace, comparison: Comparison, facts: CheckFacts) -> str:
    """Returns the first changed bytes, and the bytes of another process."""
    if comparison.private and not comparison.ranges:
        alike = counted(comparison.alike, *_OTHERS_HAVE)
        return f"a private copy of the page, as {alike}"
    if comparison.original and not comparison.ranges:
        return _of_file(space, comparison, facts)
    if not comparison.ranges:
        return "a private copy of the page"
    low = comparison.ranges[0][0]
    high = min(comparison.ranges[-1][1], low + _SHOWN)
    mine = _reader(space, facts)(low, high - low)
    count = sum(end - start for start, end in comparison.ranges)
    file_name = comparison.file if not comparison.others else ""
    others = (
        f"the file {cell(file_name)}"
        if file_name
        else f"the section of the file; {counted(comparison.alike, *_OTHERS_HAVE)} the same bytes"
        if comparison.alike
        else "the section of the file, which no other process maps or has in memory"
        if not comparison.others
        else f"most of {comparison.others} processes"
        if comparison.others > 1
        else "the only other process"
    )
    text = f"{count} {'byte differs' if count == 1 else 'bytes differ'} from {others}"
    if mine is not None:
        text += f", from {low:#x} on {mine.hex(' ')}"
    if file_name:
        theirs = facts.copies.file_bytes(space, low, high)
        return text if theirs is None else f"{text}; the file has {theirs.hex(' ')}"
    other = facts.copies.example(space, low, high)
    if other is not None:
        text += f"; PID {other[0].pid} has {other[1].hex(' ')}"
    return text


def _of_file(space: AddressSpace, comparison: Comparison, facts: CheckFacts) -> str:
    """Returns bytes that are the file's, where most processes have others, and these."""
    low = comparison.original[0][0]
    high = min(comparison.original[-1][1], low + _SHOWN)
    mine, other = _reader(space, facts)(low, high - low), facts.copies.example(space, low, high)
    text = f"the bytes of the file, and not those of most of {comparison.others} processes"
    text += "" if mine is None else f", from {low:#x} on {mine.hex(' ')}"
    return text if other is None else f"{text}; PID {other[0].pid} has {other[1].hex(' ')}"


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that the kernel's code is not compared, and the reasons why other code was not."""
    reasons = list(facts.left_out(NAME))
    if facts.selects_kernel:
        reasons.insert(0, "the kernel's code: there is no second copy of it")
    if reasons:
        yield "; ".join(reasons)


CHECK = Check(
    NAME,
    "T1055.001, T1562.001",
    (USER, WOW64),
    "A thread was interrupted in a function, or will return to it, whose bytes differ from those in "
    "most processes that map the same file: the function is hooked or overwritten.",
    "high. medium if only the section of the file could be compared, or the VAD names another file than the "
    "loader; for a relay into a DLL outside "
    "Windows' folder that only this process has; and if the function is as in its file, but other code on "
    "its page is not, and leads nowhere known. low if that section is writable, or the page encrypted in "
    "the file; if the bytes are the file's, and the DLL into which the hooks of other processes lead is not "
    "loaded; if all other processes with the DLL of a hook have it; for a private page whose function is as "
    "in its file; "
    "if the bytes may be of the function beside, because no function table is in the image; for write "
    "barriers of CLR; if the first bytes jump into another image, or through private code into an image in "
    "all processes, or elsewhere in every child of a program that starts itself; and "
    "for frames that a scan found",
    "Security products and debuggers hook functions; browsers do so in their sandboxed children; some "
    "programs unpack themselves.",
    "Dump the module with windows.dlllist --dump, and compare it with the module of another process.",
    "no thread has a stack in user mode",
    head="code that differs from its copies",
    command=OF_MEMORY,
    of_stack=check_stack,
    unchecked=unchecked,
    intel=True,
)
