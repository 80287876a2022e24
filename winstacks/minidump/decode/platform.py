# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The operating system and the CPU of a minidump.

Breakpad and Crashpad write minidumps of other systems, with values of PlatformId that Windows does not use.

Source: Breakpad's "minidump_format.h" (MD_OS_*, MD_LINUX_*). Measured: 8101h, 8102h and 8201h of three dumps.
"""

from __future__ import annotations

from typing import Optional

from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, contradicted, naming, status
from ...memory.decode.statuscodes import StatusCode
from .contexts import machine_of_context
from .dumpfile import Minidump, OtherSystemError
from .modules import module_list
from .system import MACHINES, SystemInfo, system_info
from .threads import context, exception_stream, listed_threads

_OF_OTHERS = 0x8000
_SYSTEMS = {
    0x8000: "Unix",
    0x8101: "macOS",
    0x8102: "iOS",
    0x8201: "Linux",
    0x8202: "Solaris",
    0x8203: "Android",
    0x8204: "PlayStation 3",
    0x8205: "Native Client",
    0x8206: "Fuchsia",
}
"""PlatformId of other systems."""

_OF_LINUX = range(0x47670003, 0x4767000C)
"""Breakpad's streams with files of /proc."""

_ABOVE_32_BITS = 1 << 32
_AMD64 = 0x8664


def other_system(dump: Minidump) -> str:
    """Returns the name of the system of a dump that is not of Windows; empty for Windows."""
    system = system_info(dump)
    if system is not None:
        number = system.PlatformId
        return _SYSTEMS.get(number, f"system {number:#x}") if number >= _OF_OTHERS else ""
    proc = (stream for stream in dump.streams if stream.StreamType in _OF_LINUX and not stream.status)
    return "Linux" if any(proc) else ""


def refuse_other_systems(dump: Minidump) -> None:
    """Raises OtherSystemError if a dump is of another system than Windows."""
    system = other_system(dump)
    if system:
        raise OtherSystemError(
            f"This is a dump of a process of {system}, and only stacks of Windows can be read: minidump.info "
            "lists its streams and annotations"
        )


class DumpMachine(NamedTuple):
    """The CPU of a dump.

    Attributes:
        number: IMAGE_FILE_MACHINE_*; None if unknown
        status: what shows it, if SystemInfoStream does not; whether contexts contradict SystemInfoStream
    """

    number: Optional[int]
    status: Status = NOTHING


def dump_machine(dump: Minidump) -> DumpMachine:
    """Returns the CPU of a dump: SystemInfoStream names it, or else the contexts or the modules show it.

    A PROCESSOR_ARCHITECTURE without an IMAGE_FILE_MACHINE_* here has no number.
    """
    system, shown = system_info(dump), _machine_of_contexts(dump)
    if system is not None:
        number = MACHINES.get(system.ProcessorArchitecture)
        differs = shown is not None and number is not None and shown != number
        return DumpMachine(number, status(contradicted("ProcessorArchitecture") if differs else None))
    if shown is not None:
        return DumpMachine(shown, naming(StatusCode.NO_SYSTEM_INFO, "ThreadContext"))
    if any(module.BaseOfImage >= _ABOVE_32_BITS for module in module_list(dump)[0]):
        return DumpMachine(_AMD64, naming(StatusCode.NO_SYSTEM_INFO, "BaseOfImage"))
    return DumpMachine(None, naming(StatusCode.NO_SYSTEM_INFO, "nothing"))


def judged_system_info(dump: Minidump) -> Optional[SystemInfo]:
    """Returns SystemInfoStream with the status of `dump_machine` added; None as in `system_info`."""
    found = system_info(dump)
    return None if found is None else found._replace(status=status(found.status, *dump_machine(dump).status))


def _machine_of_contexts(dump: Minidump) -> Optional[int]:
    """Returns the IMAGE_FILE_MACHINE_* of the first CONTEXT of a known CPU, None without one."""
    found = exception_stream(dump)
    holders = [*listed_threads(dump)[0], *(() if found is None else (found,))]
    numbers = (machine_of_context(context(dump, holder.ThreadContext)[0]) for holder in holders)
    return next((number for number in numbers if number is not None), None)
