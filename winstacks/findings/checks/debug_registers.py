# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `debug_registers`: a thread's debug registers watch code that security products hook.

Dr7 enables breakpoint n by its bits 2n and 2n + 1; bits 16 + 4n and 17 + 4n give its kind (Intel 64 and IA-32
Architectures Software Developer's Manual, volume 3, "Debug registers").
"""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from ...columns.words import CERTAIN, LOW, MEDIUM, POSSIBLE, USER, WOW64
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...memory.image import AddressSpace
from ...names.decode.pe import DIRECTORY_EXPORT
from ...names.symbolizer import KnownModule
from ...process.processlist import process_member
from ...process.usertypes import peb_at
from ...stacklist.stack import StackRecord
from ...traps.state import TrapState
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, thread_finding

WATCHED = ("ntdll", "amsi", "clr", "coreclr", "win32u", "wow64win")
"""Modules in which breakpoints are reported wherever they lie, and if the name of their file is lost."""

NAME = "debug_registers"

_BEING_DEBUGGED = "a thread has such a breakpoint, and BeingDebugged of the PEB says that a debugger is there"
_NO_PEB = "a thread has such a breakpoint; the PEB, which says whether a debugger is there, cannot be read"
_COUNT = 4
_CONTROL = "Dr7"
_KINDS = ("execution", "writes", "ports", "access")
_EXPORTS = "a guard of the export table, set by EMET or exploit protection (EAF): no call is diverted"
_MAY_BE_EXPORTS = (
    "a breakpoint on data: the module's headers, which would show whether this is its export table, are not "
    "in the image"
)
_NO_PORT = "a thread has such a breakpoint; DebugPort, which says whether a debugger set it, cannot be read"
_NOT_SURE = "the frame may not have saved the debug registers"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the breakpoints of a thread whose process has no debugger; one is shown for each thread."""
    entry, thread = stack.entry, stack.thread
    if entry is None or thread is None:
        return
    debugger = _debugger(stack.space, facts)
    if debugger and facts.image.table_name:
        return
    undebugged = "DebugPort 0" if facts.image.table_name else "BeingDebugged 0"
    unsure = _CONTROL in entry.unsure
    for register, address, kind in _breakpoints(entry):
        known_module = facts.namer(stack.space).module_at(address)
        if known_module is None or not _is_watched(stack.space, known_module, address, facts):
            continue
        if debugger != 0:
            facts.leave_out(NAME, _unchecked(debugger, facts), stack.space.process)
            return
        name = facts.namer(stack.space).name(address, return_address=False)
        control = entry.registers[_CONTROL]
        evidence = f"{register} {address:#x} for {kind}, Dr7 {control:#x}, {undebugged}; "
        severity, confidence, innocent = MEDIUM, CERTAIN, NONE_KNOWN
        if unsure:
            severity, confidence, innocent = LOW, POSSIBLE, _NOT_SURE
        elif kind != _KINDS[0] and has_status(known_module.image.status, StatusCode.HEADERS_UNREADABLE):
            severity, confidence, innocent = LOW, POSSIBLE, _MAY_BE_EXPORTS
        elif kind != _KINDS[0] and _in_exports(known_module, address):
            severity, confidence, innocent = LOW, CERTAIN, _EXPORTS
        finding = thread_finding(
            stack,
            thread,
            severity,
            confidence,
            evidence + facts.memory(stack.space, address),
            innocent,
            address,
            name.symbol,
        )
        yield finding._replace(status=name.status)


def _is_watched(space: AddressSpace, known_module: KnownModule, address: int, facts: CheckFacts) -> bool:
    """Returns whether breakpoints in a module are reported: in any DLL of Windows, and in WATCHED.

    A breakpoint diverts any function: a list of functions worth diverting cannot be complete. What a vendor
    watches in its own modules, such as copy protection, is left out.
    """
    return known_module.module.name.lower() in WATCHED or facts.of_windows_dll(space, address)


def _in_exports(known_module: KnownModule, address: int) -> bool:
    """Returns whether an address is in the export directory of a module."""
    headers = known_module.image.headers
    rva, size = (0, 0) if headers is None else headers.directory(DIRECTORY_EXPORT)
    return rva <= address - known_module.module.base < rva + size


def _breakpoints(entry: TrapState) -> Iterator[Tuple[str, int, str]]:
    """Yields register, address and kind of the enabled breakpoints."""
    control = entry.registers.get(_CONTROL, 0)
    for number in range(_COUNT):
        address: Optional[int] = entry.registers.get(f"Dr{number}")
        if address and control >> 2 * number & 3:
            yield f"Dr{number}", address, _KINDS[control >> 16 + 4 * number & 3]


def _debugger(space: AddressSpace, facts: CheckFacts) -> Optional[int]:
    """Returns what shows the debugger of a process: 0 without a debugger, None if it cannot be read.

    In an image it is DebugPort. A dump of one process has only BeingDebugged of the PEB, which the process
    itself can write.
    """
    if facts.image.table_name:
        return process_member(facts.image, space.eprocess, "DebugPort")
    return peb_at(facts.image, space).required("BeingDebugged")


def _unchecked(debugger: Optional[int], facts: CheckFacts) -> str:
    """Returns why a breakpoint is not reported."""
    if facts.image.table_name:
        return _NO_PORT
    return _NO_PEB if debugger is None else _BEING_DEBUGGED


CHECK = Check(
    NAME,
    "T1562.001",
    (USER, WOW64),
    "A debug register of a thread is a breakpoint in a DLL of Windows or in CLR, and "
    "the process has no debugger. Such a breakpoint diverts a call without a change of code.",
    "medium; low for a breakpoint on data of an export table, or of a module whose headers are not in the "
    "image, and if the frame may not have saved the debug registers",
    "A debugger that has detached, copy protection, profilers.",
    "Look at the exception handlers of the process; windows.trapframes --tid shows all registers.",
    "no thread has a stack in user mode",
    head="a hardware breakpoint in a system DLL",
    of_stack=check_stack,
    intel=True,
)
