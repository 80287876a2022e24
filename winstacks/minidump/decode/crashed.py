# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The thread that crashed, from the bytes of KPRCB, KTHREAD and EPROCESS in a small kernel dump.

The offsets of members come from the dump's own KDDEBUGGER_DATA64, or from the kernel's symbols if there are
any. Neither has the process ID, the name and the thread ID without symbols: these are read with the layouts
that public symbols show (`crash.h`). A layout counts if the file agrees with it: ETHREAD.Cid and EPROCESS
have the same process ID, and the name is text. Where the thread was attached to another process the two IDs
differ; then only the layout of the dump's own build counts.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Structures
from ...memory.decode.text import narrow
from .debuggerdata import DebuggerData
from .kernelheader import KERNEL_START
from .memory import MemoryRange
from .triage import Part, TriageDump

_OF_PRCB, _OF_THREAD, _OF_PROCESS = "Prcb", "Thread", "Process"

_BY_DEBUGGER = {
    "current_thread": (_OF_PRCB, "OffsetPrcbCurrentThread"),
    "number": (_OF_PRCB, "OffsetPrcbNumber"),
    "teb": (_OF_THREAD, "OffsetKThreadTeb"),
    "initial_stack": (_OF_THREAD, "OffsetKThreadInitialStack"),
    "kernel_stack": (_OF_THREAD, "OffsetKThreadKernelStack"),
    "process": (_OF_THREAD, "OffsetKThreadApcProcess"),
    "state": (_OF_THREAD, "OffsetKThreadState"),
    "peb": (_OF_PROCESS, "OffsetEprocessPeb"),
}
_BY_SYMBOLS = {
    "current_thread": ("_KPRCB", _OF_PRCB, ("CurrentThread",)),
    "number": ("_KPRCB", _OF_PRCB, ("Number",)),
    "teb": ("_ETHREAD", _OF_THREAD, ("Tcb.Teb",)),
    "initial_stack": ("_ETHREAD", _OF_THREAD, ("Tcb.InitialStack",)),
    "kernel_stack": ("_ETHREAD", _OF_THREAD, ("Tcb.KernelStack",)),
    "stack_base": ("_ETHREAD", _OF_THREAD, ("Tcb.StackBase",)),
    "trap_frame": ("_ETHREAD", _OF_THREAD, ("Tcb.TrapFrame",)),
    "process": ("_ETHREAD", _OF_THREAD, ("Tcb.ApcState.Process",)),
    "state": ("_ETHREAD", _OF_THREAD, ("Tcb.State",)),
    "tid": ("_ETHREAD", _OF_THREAD, ("Cid.UniqueThread",)),
    "pid": ("_ETHREAD", _OF_THREAD, ("Cid.UniqueProcess",)),
    "start_address": ("_ETHREAD", _OF_THREAD, ("StartAddress",)),
    "win32_start_address": ("_ETHREAD", _OF_THREAD, ("Win32StartAddress",)),
    "create_time": ("_ETHREAD", _OF_THREAD, ("CreateTime.QuadPart",)),
    "peb": ("_EPROCESS", _OF_PROCESS, ("Peb",)),
    "process_id": ("_EPROCESS", _OF_PROCESS, ("UniqueProcessId",)),
}
_BYTES = ("state",)
"""Members of one byte. The processor's number has one, two or four bytes; the lowest is used."""

_IDLE = "Idle"
_IMAGE_FILE_NAME = 15
"""Greatest number of characters of EPROCESS.ImageFileName."""


_ID_STEP = 4
"""Process and thread IDs are multiples of it."""
_MAX_ID = 1 << 31


class IdentityLayout(NamedTuple):
    """A layout of the members that identify process and thread. `of_build` says whether it is the layout of
    the dump's build, by public symbols."""

    types: Structures
    of_build: bool


class CrashedThread(NamedTuple):
    """The thread that crashed. Addresses are canonical; a value that is not in the dump is None.

    Attributes:
        process: ImageFileName, empty if its offset is unknown
        attached: whether the thread belongs to another process than the one in which it ran
    """

    ethread: Optional[int]
    eprocess: Optional[int]
    processor: Optional[int]
    members: Dict[str, int]
    process: str
    attached: bool = False

    def member(self, name: str) -> Optional[int]:
        """Returns a member, None if it is unknown."""
        return self.members.get(name)


def crashed_thread(
    dump: TriageDump, types: Optional[Structures] = None, layouts: Iterable[IdentityLayout] = ()
) -> CrashedThread:
    """Returns the thread that crashed.

    Args:
        types: the structures of the kernel's symbols, None without them
        layouts: layouts to try if there are no symbols, the most likely first
    """
    parts = {name: dump.part(name) for name in (_OF_PRCB, _OF_THREAD, _OF_PROCESS)}
    known = _by_debugger(dump, dump.debugger_data, parts)
    name, attached = "", False
    if types is not None:
        known.update(_by_symbols(types, parts))
        name = _name(types, parts[_OF_PROCESS].data) or ""
    else:
        found = _identity(layouts, parts)
        if found is not None:
            members, name = found
            known.update(members)
    ids = known.get("pid"), known.get("process_id")
    attached = None not in ids and ids[0] != ids[1]
    ethread, eprocess = (_kernel_address(dump, known.get(name)) for name in ("current_thread", "process"))
    processor = known.get("number")
    return CrashedThread(
        ethread, eprocess, None if processor is None else processor & 0xFF, known, name, attached
    )


def _identity(
    layouts: Iterable[IdentityLayout], parts: Dict[str, Part]
) -> Optional[Tuple[Dict[str, int], str]]:
    """Returns the IDs and the name by the first layout with which the file agrees, None without one."""
    fitting = []
    for layout in layouts:
        read = _by_symbols(layout.types, parts)
        members = {name: read.get(name) for name in ("tid", "pid", "process_id")}
        name = _name(layout.types, parts[_OF_PROCESS].data)
        ids = {key: value for key, value in members.items() if value is not None and _is_id(value)}
        # Only the idle process has the ID 0, and only its threads.
        if name is None or len(ids) < len(members):
            continue
        if ids["pid"] == ids["process_id"] and (ids["pid"] or name == _IDLE):
            return ids, name
        if layout.of_build and ids["pid"] and ids["process_id"]:
            fitting.append((ids, name))
    return next(iter(fitting), None)


def _is_id(value: int) -> bool:
    return value < _MAX_ID and not value % _ID_STEP


def _name(types: Structures, process: bytes) -> Optional[str]:
    """Returns ImageFileName; None if its offset is unknown, or no text is there."""
    field = types.find("_EPROCESS").first_member("ImageFileName")
    data = process[field.offset :][:_IMAGE_FILE_NAME] if field else b""
    written, end, _ = data.partition(b"\0")
    whole = len(data) == _IMAGE_FILE_NAME and written and (end or len(written) == _IMAGE_FILE_NAME)
    if not whole or any(byte < 0x20 or byte == 0x7F for byte in written):
        return None
    return narrow(data)


def structure_memory(dump: TriageDump, crashed: CrashedThread) -> List[MemoryRange]:
    """Returns the memory ranges of the dump's structures whose addresses are known."""
    data, found = dump.debugger_data, []
    for address, name, member in (
        (crashed.ethread, _OF_THREAD, "SizeEThread"),
        (crashed.eprocess, _OF_PROCESS, "SizeEProcess"),
    ):
        part = dump.part(name)
        size = min(getattr(data, member) or len(part.data), len(part.data))
        if address is not None and size:
            found.append(MemoryRange(address, part.offset, size))
    return found


def _by_debugger(dump: TriageDump, data: DebuggerData, parts: Dict[str, Part]) -> Dict[str, int]:
    pointer, found = 8 if dump.header.wide else 4, {}
    for name, (part, member) in _BY_DEBUGGER.items():
        place = getattr(data, member)
        width = 1 if name in _BYTES or name == "number" else pointer
        bytes_ = parts[part].data[place : place + width] if place else b""
        if len(bytes_) == width:
            value = int.from_bytes(bytes_, "little")
            found[name] = value if width == 1 else dump.canonical(value)
    return found


def _by_symbols(types: Structures, parts: Dict[str, Part]) -> Dict[str, int]:
    found = {}
    for name, (kind, part, paths) in _BY_SYMBOLS.items():
        field, data = types.find(kind).first_member(*paths), parts[part].data
        if field and field.offset + field.size <= len(data):
            found[name] = field.value_in(data)
    return found


def _kernel_address(dump: TriageDump, address: Optional[int]) -> Optional[int]:
    """Returns an address in the kernel's half of the address space; None for any other value."""
    wide = dump.header.wide
    if address is None or dump.canonical(address) != address or address < KERNEL_START[wide]:
        return None
    return address
