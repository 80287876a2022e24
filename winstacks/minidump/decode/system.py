# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Facts of the machine and of the whole process in a minidump: system, times, counters, comments.

Source: "minidumpapiset.h", the structures named below.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

from ...memory.decode.machine import Machine, UnsupportedMachineError, machine_of
from ...memory.decode.status import Status, StatusItem, status
from ...memory.decode.statuscodes import StatusCode
from .dumpfile import FixedStruct, Minidump

_COMMENT_A, _COMMENT_W, _SYSTEM_INFO, _MISC_INFO, _MEMORY_INFO, _VM_COUNTERS = 10, 11, 7, 15, 21, 22

MAX_COMMENT = 0x10000
"""Greatest number of bytes of a comment that are read."""

SYSTEM = FixedStruct("HHHBBIIIIIHH24s", 32)
MISC = FixedStruct("IIIIIIIIIIIIIIIi64s16si64s16si520s80sIIQ512sI", 24)
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

    ProcessorArchitecture: int
    ProcessorLevel: int
    ProcessorRevision: int
    NumberOfProcessors: int
    ProductType: int
    MajorVersion: int
    MinorVersion: int
    BuildNumber: int
    PlatformId: int
    CSDVersion: Optional[str]
    SuiteMask: int
    CPU: bytes
    status: Status

    @property
    def machine(self) -> Machine:
        """The machine of the dump's contexts.

        Raises:
            UnsupportedMachineError: the machine is not supported; the text is a sentence for users
        """
        number = MACHINES.get(self.ProcessorArchitecture)
        if number is None:
            raise UnsupportedMachineError(f"PROCESSOR_ARCHITECTURE {self.ProcessorArchitecture}")
        return machine_of(number)


class MiscInfo(NamedTuple):
    """MINIDUMP_MISC_INFO to MINIDUMP_MISC_INFO_5.

    A member is None if Flags1 does not vouch for it, or if the
    version of the structure lacks it. Times are seconds; the creation time counts from 1970.
    """

    SizeOfInfo: int
    Flags1: int
    ProcessId: Optional[int]
    ProcessCreateTime: Optional[int]
    ProcessUserTime: Optional[int]
    ProcessKernelTime: Optional[int]
    ProcessorMaxMhz: Optional[int]
    ProcessorCurrentMhz: Optional[int]
    ProcessorMhzLimit: Optional[int]
    ProcessorMaxIdleState: Optional[int]
    ProcessorCurrentIdleState: Optional[int]
    ProcessIntegrityLevel: Optional[int]
    ProcessExecuteFlags: Optional[int]
    ProtectedProcess: Optional[int]
    TimeZoneId: Optional[int]
    Bias: Optional[int]
    StandardName: Optional[str]
    DaylightName: Optional[str]
    BuildString: Optional[str]
    DbgBldStr: Optional[str]
    EnabledFeatures: Optional[int]
    ProcessCookie: Optional[int]
    status: Status


class ProcessVmCounters(NamedTuple):
    """MINIDUMP_PROCESS_VM_COUNTERS_1 and _2. All but the first three are bytes, None where Flags or the
    revision lack them."""

    Revision: int
    Flags: Optional[int]
    PageFaultCount: int
    PeakWorkingSetSize: int
    WorkingSetSize: int
    QuotaPeakPagedPoolUsage: int
    QuotaPagedPoolUsage: int
    QuotaPeakNonPagedPoolUsage: int
    QuotaNonPagedPoolUsage: int
    PagefileUsage: int
    PeakPagefileUsage: int
    PeakVirtualSize: Optional[int]
    VirtualSize: Optional[int]
    PrivateUsage: Optional[int]
    PrivateWorkingSetSize: Optional[int]
    SharedCommitUsage: Optional[int]
    JobSharedCommitUsage: Optional[int]
    JobPrivateCommitUsage: Optional[int]
    JobPeakPrivateCommitUsage: Optional[int]
    JobPrivateCommitLimit: Optional[int]
    JobTotalCommitLimit: Optional[int]
    status: Status


class SystemMemoryInfo(NamedTuple):
    """MINIDUMP_SYSTEM_MEMORY_INFO_1: its members about the size of the machine, from MINIDUMP_SYSTEM_BASIC_
    INFORMATION and MINIDUMP_SYSTEM_BASIC_PERFORMANCE_INFORMATION; counters of caches are left out."""

    Revision: int
    Flags: int
    TimerResolution: int
    PageSize: int
    NumberOfPhysicalPages: int
    LowestPhysicalPageNumber: int
    HighestPhysicalPageNumber: int
    AllocationGranularity: int
    MinimumUserModeAddress: int
    MaximumUserModeAddress: int
    ActiveProcessorsAffinityMask: int
    NumberOfProcessors: int
    AvailablePages: Optional[int]
    CommittedPages: Optional[int]
    CommitLimit: Optional[int]
    PeakCommitment: Optional[int]
    status: Status


_COUNTERS_1 = FixedStruct("HHI9Q")
_COUNTERS_2 = FixedStruct("HHI18Q")
_VIRTUAL_SIZE, _EX, _EX2, _JOB = 2, 4, 8, 0x10
"""MINIDUMP_PROCESS_VM_COUNTERS_VIRTUALSIZE and the like."""

_BASIC = FixedStruct("HH6I3QI60s4Q")
_BASIC_PERFORMANCE = 2
"""MINIDUMP_SYSMEMINFO1_BASICPERF."""


def system_info(dump: Minidump) -> Optional[SystemInfo]:
    """Returns SystemInfoStream, None if there is none or it cannot be read."""
    read = _read(dump, _SYSTEM_INFO, SYSTEM)
    if read is None:
        return None
    members, faults = read
    *before, csd_rva, suite, _, cpu = members
    return SystemInfo._make((*before, dump.string(csd_rva), suite, cpu, faults))


def misc_info(dump: Minidump) -> Optional[MiscInfo]:
    """Returns MiscInfoStream, None if there is none or it cannot be read."""
    read = _read(dump, _MISC_INFO, MISC)
    if read is None:
        return None
    members, faults = read
    stream = dump.stream(_MISC_INFO)
    size = min(members[0], stream.Location.DataSize if stream is not None else 0)
    if members[0] not in _MISC_SIZES:
        faults = status(faults, StatusItem(StatusCode.HEADER, None, ("SizeOfInfo",)))
    flags = members[1]

    def vouched(flag: int, end: int, *values: object) -> Tuple[object, ...]:
        return values if flags & flag and size >= end else (None,) * len(values)

    zone = members[15:22]
    values = (
        members[0],
        flags,
        *vouched(1, 12, members[2]),
        *vouched(2, 24, *members[3:6]),
        *vouched(4, 44, *members[6:11]),
        *vouched(0x10, 232, members[11]),
        *vouched(0x20, 232, members[12]),
        *vouched(0x80, 232, members[13]),
        *vouched(0x40, 232, members[14], zone[0], _wide(zone[1]), _wide(zone[4])),
        *vouched(0x100, 832, _wide(members[22]), _wide(members[23])),
        members[26] if size >= 1364 else None,
        *vouched(0x200, 1364, members[28]),
        faults,
    )
    return MiscInfo._make(values)


def process_vm_counters(dump: Minidump) -> Optional[ProcessVmCounters]:
    """Returns ProcessVmCountersStream, None if there is none or it cannot be read."""
    read = _read(dump, _VM_COUNTERS, _COUNTERS_1)
    if read is None:
        return None
    members, faults = read
    if members[0] == 1:
        *common, private = members[2:]
        return ProcessVmCounters._make((1, None, *common, None, None, private, *((None,) * 7), faults))
    read = _read(dump, _VM_COUNTERS, _COUNTERS_2)
    if members[0] != 2 or read is None:
        return None
    members, faults = read
    flags = members[1]
    parts = ((_VIRTUAL_SIZE, 11, 13), (_EX, 13, 14), (_EX2, 14, 16), (_JOB, 16, 21))
    present = [member if flags & flag else None for flag, low, high in parts for member in members[low:high]]
    return ProcessVmCounters._make((*members[:11], *present, faults))


def system_memory_info(dump: Minidump) -> Optional[SystemMemoryInfo]:
    """Returns SystemMemoryInfoStream, None if there is none or it cannot be read."""
    read = _read(dump, _MEMORY_INFO, _BASIC)
    if read is None:
        return None
    members, faults = read
    performance = members[13:] if members[1] & _BASIC_PERFORMANCE else (None,) * 4
    return SystemMemoryInfo._make((*members[:12], *performance, faults))


def comments(dump: Minidump) -> Tuple[Tuple[int, str, Status], ...]:
    """Returns the comments, ANSI and wide: type of the stream, text, and status.

    The dump does not name the code page of an ANSI comment. Bytes that are not UTF-8 are shown as `\\xNN`.
    """
    found = []
    for kind, read in ((_COMMENT_A, _narrow), (_COMMENT_W, _wide)):
        stream = dump.stream(kind)
        if stream is not None:
            size, rva = stream.Location
            text = read(dump.available(rva, min(size, MAX_COMMENT)))
            found.append(
                (kind, text, status(stream.status, StatusCode.LIMIT if size > MAX_COMMENT else None))
            )
    return tuple(found)


def _read(dump: Minidump, kind: int, form: FixedStruct) -> Optional[Tuple[Tuple[Any, ...], Status]]:
    """Returns the members of a stream that is one structure, and its status.

    None: the stream does not exist, or is shorter than the oldest version of the structure.
    """
    stream = dump.stream(kind)
    if stream is None or stream.Location.DataSize < form.least:
        return None
    data = dump.available(stream.Location.Rva, min(stream.Location.DataSize, form.size))
    return (form.decode(data), stream.status) if len(data) >= form.least else None


def _narrow(data: bytes) -> str:
    """Returns the text of a zero-terminated array of CHAR; bytes that are not UTF-8 as `\\xNN`."""
    return data.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _wide(data: bytes) -> str:
    """Returns the text of a zero-terminated array of WCHAR."""
    return data.decode("utf-16-le", "replace").split("\0", 1)[0]
