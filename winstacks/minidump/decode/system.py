# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Facts of the machine and of the whole process in a minidump: system, times, counters, comments.

Source: "minidumpapiset.h", the structures named below.
"""

from __future__ import annotations

from typing import Annotated, Dict, Optional, Tuple

from ...memory.decode.declared import (
    MAYBE_ULONG,
    MAYBE_ULONGLONG,
    STRING,
    UCHAR,
    ULONG,
    ULONGLONG,
    USHORT,
    Declared,
    without,
)
from ...memory.decode.machine import Machine, UnsupportedMachineError, machine_of
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, naming, status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.text import narrow
from .dumpfile import Minidump
from .lists import read_structure

_COMMENT_A, _COMMENT_W, _SYSTEM_INFO, _MISC_INFO, _MEMORY_INFO, _VM_COUNTERS = 10, 11, 7, 15, 21, 22

MAX_COMMENT = 0x10000
"""Greatest number of bytes of a comment that are read."""

_MISC_SIZES = (24, 44, 232, 832, 1364)
"""Sizes in bytes of MINIDUMP_MISC_INFO and of its versions 2 to 5."""

MACHINES = {0: 0x14C, 9: 0x8664, 5: 0x1C4, 6: 0x200, 12: 0xAA64}
"""PROCESSOR_ARCHITECTURE_* of winnt.h -> IMAGE_FILE_MACHINE_*."""


class SystemInfo(NamedTuple):
    """MINIDUMP_SYSTEM_INFO.

    Attributes:
        CSDVersion: name of the service pack, empty without one; None if it cannot be read
        CPU: VendorId of a 32-bit Intel CPU, or ProcessorFeatures of any other CPU, in bytes
    """

    ProcessorArchitecture: USHORT
    ProcessorLevel: USHORT
    ProcessorRevision: USHORT
    NumberOfProcessors: UCHAR
    ProductType: UCHAR
    MajorVersion: ULONG
    MinorVersion: ULONG
    BuildNumber: ULONG
    PlatformId: ULONG
    CSDVersion: STRING
    SuiteMask: USHORT
    CPU: Annotated[bytes, "UCHAR[24] @0x20"]
    status: Status = NOTHING

    @property
    def machine(self) -> Machine:
        """The machine of the dump's contexts. Raises UnsupportedMachineError if the machine is not supported;
        the text is a sentence for users."""
        number = MACHINES.get(self.ProcessorArchitecture)
        if number is None:
            raise UnsupportedMachineError(f"PROCESSOR_ARCHITECTURE {self.ProcessorArchitecture}")
        return machine_of(number)


class MiscInfo(NamedTuple):
    """MINIDUMP_MISC_INFO to MINIDUMP_MISC_INFO_5.

    A member is None if Flags1 does not vouch for it, or if the
    version of the structure lacks it. Times are seconds; the creation time counts from 1970.
    """

    SizeOfInfo: ULONG
    Flags1: ULONG
    ProcessId: MAYBE_ULONG = None
    ProcessCreateTime: MAYBE_ULONG = None
    ProcessUserTime: MAYBE_ULONG = None
    ProcessKernelTime: MAYBE_ULONG = None
    ProcessorMaxMhz: MAYBE_ULONG = None
    ProcessorCurrentMhz: MAYBE_ULONG = None
    ProcessorMhzLimit: MAYBE_ULONG = None
    ProcessorMaxIdleState: MAYBE_ULONG = None
    ProcessorCurrentIdleState: MAYBE_ULONG = None
    ProcessIntegrityLevel: MAYBE_ULONG = None
    ProcessExecuteFlags: MAYBE_ULONG = None
    ProtectedProcess: MAYBE_ULONG = None
    TimeZoneId: MAYBE_ULONG = None
    Bias: Annotated[Optional[int], "LONG"] = None
    StandardName: Annotated[Optional[str], "WCHAR[32]"] = None
    DaylightName: Annotated[Optional[str], "WCHAR[32] @0x94"] = None
    BuildString: Annotated[Optional[str], "WCHAR[260] @0xe8"] = None
    DbgBldStr: Annotated[Optional[str], "WCHAR[40]"] = None
    EnabledFeatures: Annotated[Optional[int], "ULONGLONG @0x348"] = None
    ProcessCookie: Annotated[Optional[int], "ULONG @0x550"] = None
    status: Status = NOTHING


class ProcessVmCounters(NamedTuple):
    """MINIDUMP_PROCESS_VM_COUNTERS_1 and _2. All but the first three are bytes, None where Flags or the
    revision lack them."""

    Revision: USHORT
    Flags: Annotated[Optional[int], "USHORT"]
    PageFaultCount: ULONG
    PeakWorkingSetSize: ULONGLONG
    WorkingSetSize: ULONGLONG
    QuotaPeakPagedPoolUsage: ULONGLONG
    QuotaPagedPoolUsage: ULONGLONG
    QuotaPeakNonPagedPoolUsage: ULONGLONG
    QuotaNonPagedPoolUsage: ULONGLONG
    PagefileUsage: ULONGLONG
    PeakPagefileUsage: ULONGLONG
    PeakVirtualSize: MAYBE_ULONGLONG
    VirtualSize: MAYBE_ULONGLONG
    PrivateUsage: MAYBE_ULONGLONG
    PrivateWorkingSetSize: MAYBE_ULONGLONG
    SharedCommitUsage: MAYBE_ULONGLONG
    JobSharedCommitUsage: MAYBE_ULONGLONG
    JobPrivateCommitUsage: MAYBE_ULONGLONG
    JobPeakPrivateCommitUsage: MAYBE_ULONGLONG
    JobPrivateCommitLimit: MAYBE_ULONGLONG
    JobTotalCommitLimit: MAYBE_ULONGLONG
    status: Status = NOTHING


class SystemMemoryInfo(NamedTuple):
    """MINIDUMP_SYSTEM_MEMORY_INFO_1: its members about the size of the machine, from MINIDUMP_SYSTEM_BASIC_
    INFORMATION and MINIDUMP_SYSTEM_BASIC_PERFORMANCE_INFORMATION; counters of caches are left out."""

    Revision: USHORT
    Flags: USHORT
    TimerResolution: ULONG
    PageSize: ULONG
    NumberOfPhysicalPages: ULONG
    LowestPhysicalPageNumber: ULONG
    HighestPhysicalPageNumber: ULONG
    AllocationGranularity: ULONG
    MinimumUserModeAddress: ULONGLONG
    MaximumUserModeAddress: ULONGLONG
    ActiveProcessorsAffinityMask: ULONGLONG
    NumberOfProcessors: ULONG
    AvailablePages: Annotated[Optional[int], "ULONGLONG @0x74"]
    CommittedPages: MAYBE_ULONGLONG
    CommitLimit: MAYBE_ULONGLONG
    PeakCommitment: MAYBE_ULONGLONG
    status: Status = NOTHING


NO_MISC = MiscInfo(0, 0)
"""Stands for MiscInfoStream in a dump without this stream."""

SYSTEM, MISC = Declared(SystemInfo, least=32), Declared(MiscInfo, least=24)
_COUNTERS_1, _COUNTERS_2 = Declared(ProcessVmCounters, least=80), Declared(ProcessVmCounters)
_BASIC = Declared(SystemMemoryInfo)


MISC_GROUPS: Dict[int, Tuple[int, Tuple[str, ...]]] = {
    0x1: (12, ("ProcessId",)),
    0x2: (24, ("ProcessCreateTime", "ProcessUserTime", "ProcessKernelTime")),
    0x4: (
        44,
        (
            "ProcessorMaxMhz", "ProcessorCurrentMhz", "ProcessorMhzLimit",
            "ProcessorMaxIdleState", "ProcessorCurrentIdleState",
        ),
    ),
    0x10: (232, ("ProcessIntegrityLevel",)),
    0x20: (232, ("ProcessExecuteFlags",)),
    0x80: (232, ("ProtectedProcess",)),
    0x40: (232, ("Bias", "TimeZoneId", "StandardName", "DaylightName")),
    0x100: (832, ("BuildString", "DbgBldStr")),
    0x200: (1364, ("ProcessCookie",)),
}  # fmt: skip
"""The members of MINIDUMP_MISC_INFO for which each bit of Flags1 vouches, and the size of the structure that
has them. A writer sets the bit if it knows the first."""

_COUNTER_GROUPS = {
    0x2: ("PeakVirtualSize", "VirtualSize"),
    0x4: ("PrivateUsage",),
    0x8: ("PrivateWorkingSetSize", "SharedCommitUsage"),
    0x10: (
        "JobSharedCommitUsage", "JobPrivateCommitUsage", "JobPeakPrivateCommitUsage",
        "JobPrivateCommitLimit", "JobTotalCommitLimit",
    ),
}  # fmt: skip
"""The members of MINIDUMP_PROCESS_VM_COUNTERS_2 by their bit of Flags
(MINIDUMP_PROCESS_VM_COUNTERS_VIRTUALSIZE and the like)."""

_BASIC_PERFORMANCE = 2
"""MINIDUMP_SYSMEMINFO1_BASICPERF."""
_PERFORMANCE = ("AvailablePages", "CommittedPages", "CommitLimit", "PeakCommitment")


def system_info(dump: Minidump) -> Optional[SystemInfo]:
    """Returns SystemInfoStream, None if there is none or it cannot be read."""
    read = read_structure(dump, _SYSTEM_INFO, SYSTEM)
    return None if read is None else read[0]._replace(status=read[1])


def misc_info(dump: Minidump) -> Optional[MiscInfo]:
    """Returns MiscInfoStream, None if there is none or it cannot be read."""
    read = read_structure(dump, _MISC_INFO, MISC)
    if read is None:
        return None
    info, faults = read
    stream = dump.stream(_MISC_INFO)
    size = min(info.SizeOfInfo, stream.Location.DataSize if stream is not None else 0)
    if info.SizeOfInfo not in _MISC_SIZES:
        faults = status(faults, naming(StatusCode.HEADER, "SizeOfInfo"))
    unknown = [
        name
        for flag, (least, names) in MISC_GROUPS.items()
        for name in names
        if not info.Flags1 & flag or size < least
    ]
    unknown += [] if size >= MISC.size else ["EnabledFeatures"]
    return without(info, unknown)._replace(status=faults)


def process_vm_counters(dump: Minidump) -> Optional[ProcessVmCounters]:
    """Returns ProcessVmCountersStream, None if there is none or it cannot be read."""
    read = read_structure(dump, _VM_COUNTERS, _COUNTERS_1)
    if read is None:
        return None
    first, faults = read
    if first.Revision == 1:
        # Its PrivateUsage stands where PeakVirtualSize is later.
        private = first.PeakVirtualSize
        names = [name for group in _COUNTER_GROUPS.values() for name in group]
        if read_structure(dump, _VM_COUNTERS, _COUNTERS_2) is not None:
            faults = status(faults, naming(StatusCode.HEADER, "Revision"))
        return without(first, ["Flags", *names])._replace(PrivateUsage=private, status=faults)
    read = read_structure(dump, _VM_COUNTERS, _COUNTERS_2)
    if first.Revision != 2 or read is None:
        return None
    counters, faults = read
    flags = counters.Flags or 0
    unknown = [name for flag, group in _COUNTER_GROUPS.items() if not flags & flag for name in group]
    return without(counters, unknown)._replace(status=faults)


def system_memory_info(dump: Minidump) -> Optional[SystemMemoryInfo]:
    """Returns SystemMemoryInfoStream, None if there is none or it cannot be read."""
    read = read_structure(dump, _MEMORY_INFO, _BASIC)
    if read is None:
        return None
    info, faults = read
    if info.Revision != 1:
        faults = status(faults, naming(StatusCode.HEADER, "Revision"))
    return without(info, () if info.Flags & _BASIC_PERFORMANCE else _PERFORMANCE)._replace(status=faults)


def comments(dump: Minidump) -> Tuple[Tuple[int, str, Status], ...]:
    """Returns the comments, ANSI and wide: type of the stream, text, and status.

    The dump does not name the code page of an ANSI comment. Bytes that are not UTF-8 are shown as `\\xNN`.
    """
    found = []
    for kind, read in ((_COMMENT_A, narrow), (_COMMENT_W, _wide)):
        stream = dump.stream(kind)
        if stream is not None:
            size, rva = stream.Location
            text = read(dump.available(rva, min(size, MAX_COMMENT)))
            found.append(
                (kind, text, status(stream.status, StatusCode.LIMIT if size > MAX_COMMENT else None))
            )
    return tuple(found)


def _wide(data: bytes) -> str:
    """Returns the text of a zero-terminated array of WCHAR."""
    return data.decode("utf-16-le", "replace").partition("\0")[0]
