# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `foreign_handle`: code outside all files opened another process or thread with powerful rights.

The ring of handle events shows the caller, the handle's entry shows the rights. Source of the rights:
PROCESS_* and THREAD_* of winnt.h.
"""

from __future__ import annotations

from typing import Dict, Iterator, Optional, Tuple

from ...columns.words import CREATE, HANDLE, IMAGE, LIKELY, LOW, MAPPED, OPEN, PRIVATE
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import MissingMemberError
from ...memory.decode.text import ShortText
from ...memory.image import AddressSpace
from ...process.handletables import HandleTables
from ...process.kernelobjects import PROCESS_OF_THREAD, thread_at
from ...process.objectheaders import Objects
from ...process.regions import is_beneath
from ...process.windowsfolder import WindowsFolders
from ...stacklist.stack import StackRecord
from ..code.explanations import explained, untold
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, OF_MEMORY, Check, Finding, FramePlace, frame_places, place_finding

NAME = "foreign_handle"

_NO_TABLE = "the handle table, which has the rights of handles, cannot be read"
_OBJECT_LOST = "the object of a handle that such code opened cannot be read, or has no known type"
_LOST = {
    StatusCode.NO_LONGER_OPEN: (
        "such code opened a handle that is not in the handle table, and the ring has no close"
    ),
    StatusCode.OBJECT_UNREADABLE: _OBJECT_LOST,
    StatusCode.OBJECT_TYPE_UNKNOWN: _OBJECT_LOST,
}
"""Words of an event's Status, and why no finding is made of such an event."""
_OPENING = (OPEN, CREATE)
_PROCESS_RIGHTS = {
    0x2: "PROCESS_CREATE_THREAD",
    0x8: "PROCESS_VM_OPERATION",
    0x20: "PROCESS_VM_WRITE",
    0x40: "PROCESS_DUP_HANDLE",
}
_THREAD_RIGHTS = {0x10: "THREAD_SET_CONTEXT", 0x80: "THREAD_SET_THREAD_TOKEN"}
_VM_READ = 0x10
_LSASS = "lsass.exe"
_CREDENTIALS = "T1003.001"
_FOLDERS = ("\\program files\\", "\\program files (")


class _Opened(NamedTuple):
    """The target of a handle: its process, its description, and the rights that matter."""

    process: int
    name: str
    rights: Tuple[str, ...]

    @property
    def is_lsass(self) -> bool:
        """Whether the target is lsass or one of its threads; Windows compares names of files without case."""
        return _LSASS in self.name.lower()


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the events in which such code opened another process or thread; one for each handle."""
    if stack.event not in _OPENING or stack.owner is None:
        return
    holder = stack.holder or stack.space
    if has_status(stack.status, StatusCode.HANDLE_TABLE_UNREADABLE):
        facts.leave_out(NAME, _NO_TABLE, holder.process)
    for word, reason in _LOST.items():
        if has_status(stack.status, word) and _caller(stack, facts)[0] is not None:
            facts.leave_out(NAME, reason, holder.process)
    kind = (stack.owner_name or "").split(" ", 1)[0]
    if kind not in ("Process", "Thread"):
        return
    opened = _opened(stack, holder, kind, facts)
    if opened is None or not opened.rights or opened.process in (0, stack.space.eprocess, holder.eprocess):
        return
    place, severity, innocent = _caller(stack, facts)
    if place is None:
        return
    group = (holder.eprocess, stack.owner)
    rights = " ".join(opened.rights)
    held = "" if stack.holder is None else f" of {holder.label}"
    handle = f"handle {stack.owner:#x}{held} to {opened.name}"
    memory = facts.memory(stack.acting or stack.space, place.address)
    evidence = ShortText(f"{handle}, {rights}; {memory}", handle)
    finding = place_finding(stack, place, severity, LIKELY, evidence, innocent, group)
    finding = finding._replace(acted_on=opened.name.partition(" ")[2] or opened.name)
    yield finding._replace(technique=_CREDENTIALS) if opened.is_lsass else finding


def _caller(stack: StackRecord, facts: CheckFacts) -> Tuple[Optional[FramePlace], str, str]:
    """Returns the innermost suspect frame, its severity, and its innocent explanation."""
    space = stack.acting or stack.space
    for place in frame_places(stack, PRIVATE):
        if facts.is_user(place.at):
            severity, _, innocent = explained(space, place.at, facts)
            return place, severity, innocent
    for place in frame_places(stack, IMAGE, MAPPED):
        path = place.frame.details.path
        if not facts.is_user(place.at) or not path or is_beneath(path, _FOLDERS):
            continue
        if not facts.image.service(WindowsFolders).has_file(space, path):
            return place, LOW, f"a program outside Windows' folders: {path}"
    return None, LOW, NONE_KNOWN


def _opened(stack: StackRecord, holder: AddressSpace, kind: str, facts: CheckFacts) -> Optional[_Opened]:
    """Returns the present target of an event's handle; None if the handle is closed or cannot be read."""
    image = facts.image
    try:
        tables, objects = image.service(HandleTables), image.service(Objects)
    except MissingMemberError:
        return None
    table = tables.table_of(holder.eprocess)
    entry = tables.lookup(table, stack.owner or 0)[0] if table is not None and table.address else None
    if entry is None or entry.access is None:
        return None
    thing = objects.describe(entry.object_header)
    if thing.type != kind:
        return None
    if kind == "Process":
        process = thing.body
        rights = _named(entry.access, _PROCESS_RIGHTS)
    else:
        process = thread_at(image, thing.body).first(*PROCESS_OF_THREAD) or 0
        rights = _named(entry.access, _THREAD_RIGHTS)
    opened = _Opened(process, f"{kind} {thing.name or ''}".strip(), rights)
    if kind == "Process" and opened.is_lsass and entry.access & _VM_READ:
        return opened._replace(rights=(*rights, "PROCESS_VM_READ"))
    return opened


def _named(access: int, rights: Dict[int, str]) -> Tuple[str, ...]:
    return tuple(name for bit, name in rights.items() if access & bit)


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that the rights of handles are not recorded, if that is so, and the reasons of `untold`."""
    try:
        if facts.image.service(HandleTables).has_creators:
            yield "with +kst the handle tables of 32-bit XP and 2003 have an index in place of the rights"
    except MissingMemberError as error:
        yield str(error)
    yield from facts.left_out(NAME)
    yield from untold(facts)


CHECK = Check(
    NAME,
    "T1055",
    (HANDLE,),
    "Private code opened another process or thread, as the handle trace shows, and the handle still has "
    "a right to write to that process or to run code in it.",
    "high; low if the process registered a function table for the code, or a runtime's own list "
    "contains it; low if the caller is an image outside \\Windows and \\Program Files",
    "Debuggers, installers and security products open other processes.",
    "Look at the other process: windows.traces --pid; at the handle: windows.handletraces --handle.",
    "no process traces its handles",
    head="a handle",
    command=OF_MEMORY,
    of_stack=check_stack,
    unchecked=unchecked,
    kernel=True,
)
