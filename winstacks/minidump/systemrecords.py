# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The facts of a machine and of a whole process in an image, as records of a dump.

Source of the members: the kernel's public symbols; KUSER_SHARED_DATA (ntddk.h). Each of its
ProcessorFeatures is a byte, and a bit in SystemInfoStream (IsProcessorFeaturePresent).
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.structure import Structure
from ..memory.image import AddressSpace, Image
from ..process import processors
from ..process.usertypes import user_types
from ..stacklist.machine import machine_facts
from .decode.system import MiscInfo, SystemInfo

_ARCHITECTURES = {Machine.AMD64: 9, Machine.I386: 0}
"""PROCESSOR_ARCHITECTURE_* of winnt.h."""
_VER_PLATFORM_WIN32_NT = 2
_EPOCH = 11644473600
"""Seconds from 1601 to 1970."""
_SECOND = 10_000_000
_LAST = 0xFFFFFFFF
_VENDOR = 12
_FEATURES = 64
_MAX_CSD = 0x100


class SystemRecords(NamedTuple):
    """The records of a machine and its process.

    Attributes:
        stamp: time of the acquisition of the image, in seconds since 1970; 0 if unknown
        lost, lost_of_process: members of SystemInfoStream and MiscInfoStream whose value is not in the
            image; they are 0 or empty
    """

    system: SystemInfo
    misc: MiscInfo
    stamp: int
    lost: Tuple[str, ...]
    lost_of_process: Tuple[str, ...]


def seconds(filetime: Optional[int]) -> Optional[int]:
    """Returns a FILETIME in seconds since 1970, None if it does not fit a dump."""
    found = None if filetime is None else filetime // _SECOND - _EPOCH
    return found if found is not None and 0 < found <= _LAST else None


def system_records(image: Image, space: AddressSpace, machine: Machine) -> SystemRecords:
    """Returns the records of an image.

    Args:
        space: the half of the process for the dump: its PEB has the service pack
    """
    facts = image.service(machine_facts)
    lost: List[str] = []
    lost_of_process: List[str] = []
    shared = image.types.first_structure("_KUSER_SHARED_DATA")
    kprcbs = [cpu.kprcb for cpu in image.service(processors.processors_of)]

    def note_unknown(name: str, value: Optional[int]) -> int:
        if value is None:
            lost.append(name)
        return value or 0

    def data(name: str) -> Optional[int]:
        return _member(image, shared, image.machine.shared_data, name)

    def processor(name: str) -> Optional[int]:
        return _member(image, image.types.first_structure("_KPRCB"), kprcbs[0] if kprcbs else 0, name)

    kernel, clock = facts.kernel(), facts.clock()
    csd = _service_pack(image, space)
    system = SystemInfo(
        _ARCHITECTURES[machine],
        note_unknown("ProcessorLevel", processor("CpuType")),
        note_unknown("ProcessorRevision", processor("CpuStep")),
        min(note_unknown("NumberOfProcessors", kernel.processors), 0xFF),
        note_unknown("ProductType", data("NtProductType")) & 0xFF,
        note_unknown("MajorVersion", data("NtMajorVersion")),
        note_unknown("MinorVersion", data("NtMinorVersion")),
        note_unknown("BuildNumber", kernel.build),
        _VER_PLATFORM_WIN32_NT,
        csd or "",
        note_unknown("SuiteMask", data("SuiteMask")) & 0xFFFF,
        _cpu(image, machine, shared, kprcbs[0] if kprcbs else 0, lost),
    )
    if csd is None:
        lost.append("CSDVersion")
    misc = _misc(image, space, clock.bias, kernel.build_lab, lost_of_process)
    stamp = note_unknown("TimeDateStamp", seconds(clock.capture_time))
    return SystemRecords(system, misc, stamp, tuple(lost), tuple(lost_of_process))


def _member(image: Image, structure: Optional[Structure], address: int, *names: str) -> Optional[int]:
    """Returns a member of a structure of the kernel, None if there is none or it cannot be read."""
    field = None if structure is None or not address else structure.first_member(*names)
    return None if field is None else image.memory(image.kernel).member(address, field)


def _cpu(image: Image, machine: Machine, shared: Optional[Structure], kprcb: int, lost: List[str]) -> bytes:
    """Returns CPU_INFORMATION: the vendor of a 32-bit CPU, else the bits of ProcessorFeatures."""
    kernel = image.memory(image.kernel)
    if machine is Machine.I386:
        structure = image.types.first_structure("_KPRCB")
        vendor = None if structure is None else structure.first_member("VendorString")
        found = kernel.read(kprcb + vendor.offset, _VENDOR) if vendor is not None and kprcb else None
        lost += ["VersionInformation", "FeatureInformation", "AMDExtendedCpuFeatures"]
        lost += [] if found is not None else ["VendorId"]
        return bytes(found or b"")
    features = None if shared is None else shared.first_member("ProcessorFeatures")
    data = kernel.read(image.machine.shared_data + features.offset, _FEATURES) if features else None
    if data is None:
        lost.append("ProcessorFeatures")
    bits = sum(1 << number for number, present in enumerate(data or b"") if present)
    return bits.to_bytes(16, "little")


def _service_pack(image: Image, space: AddressSpace) -> Optional[str]:
    """Returns CSDVersion of the PEB, empty without a service pack; None if it cannot be read."""
    member = user_types(image, space)["_PEB"].first_member("CSDVersion.Length", "CSDVersion")
    if not (member and space.peb):
        return None
    return image.memory(space).unicode_string_at(space.peb + member.offset, _MAX_CSD)


def _misc(image: Image, space: AddressSpace, bias: Optional[int], lab: str, lost: List[str]) -> MiscInfo:
    process = image.types.first_structure("_EPROCESS")
    tick = image.symbol("KeMaximumIncrement")
    length = None if tick is None else image.memory(image.kernel).number(tick, 4)

    def member(*names: str) -> Optional[int]:
        return _member(image, process, space.eprocess, *names)

    def spent(name: str) -> Optional[int]:
        ticks = member(f"Pcb.{name}")
        if ticks is None or length is None:
            lost.append(f"Process{name}")
            return None
        return min(ticks * length // _SECOND, _LAST)

    created = seconds(member("CreateTime.QuadPart"))
    cookie, build = member("Cookie"), lab or None
    values = {"ProcessCreateTime": created, "Bias": bias, "BuildString": build, "ProcessCookie": cookie}
    lost += (name for name, value in values.items() if value is None)
    times = created, spent("UserTime"), spent("KernelTime")
    return MiscInfo(0, 0, space.pid, *times, Bias=bias, BuildString=build, ProcessCookie=cookie)
