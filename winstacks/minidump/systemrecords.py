# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The facts of a machine and of a whole process in an image, as records of a dump.

Source of the members: the kernel's public symbols; KUSER_SHARED_DATA (ntddk.h). Each of its
ProcessorFeatures is a byte, and a bit in SystemInfoStream (IsProcessorFeaturePresent).
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.records import NamedTuple
from ..memory.decode.text import SECOND, UNIX_EPOCH
from ..memory.decode.view import View
from ..memory.image import AddressSpace, Image
from ..process import processors
from ..process.usertypes import peb_at
from ..stacklist.machine import machine_facts
from .decode.system import MiscInfo, SystemInfo

_ARCHITECTURES = {Machine.AMD64: 9, Machine.I386: 0}
"""PROCESSOR_ARCHITECTURE_* of winnt.h."""
_VER_PLATFORM_WIN32_NT = 2
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
    found = None if filetime is None else filetime // SECOND - UNIX_EPOCH
    return found if found is not None and 0 < found <= _LAST else None


def system_records(image: Image, space: AddressSpace, machine: Machine) -> SystemRecords:
    """Returns the records of an image. `space` is the half of the process for the dump: its PEB has the
    service pack."""
    facts = image.service(machine_facts)
    lost: List[str] = []
    lost_of_process: List[str] = []
    shared = image.at("_KUSER_SHARED_DATA", image.machine.shared_data)
    kprcbs = [cpu.kprcb for cpu in image.service(processors.processors_of)]
    kprcb = image.at("_KPRCB", kprcbs[0] if kprcbs else 0)

    def note_unknown(name: str, value: Optional[int]) -> int:
        if value is None:
            lost.append(name)
        return value or 0

    kernel, clock = facts.kernel(), facts.clock()
    csd = _service_pack(image, space)
    system = SystemInfo(
        _ARCHITECTURES[machine],
        note_unknown("ProcessorLevel", kprcb["CpuType"]),
        note_unknown("ProcessorRevision", kprcb["CpuStep"]),
        min(note_unknown("NumberOfProcessors", kernel.processors), 0xFF),
        note_unknown("ProductType", shared["NtProductType"]) & 0xFF,
        note_unknown("MajorVersion", shared["NtMajorVersion"]),
        note_unknown("MinorVersion", shared["NtMinorVersion"]),
        note_unknown("BuildNumber", kernel.build),
        _VER_PLATFORM_WIN32_NT,
        csd or "",
        note_unknown("SuiteMask", shared["SuiteMask"]) & 0xFFFF,
        _cpu(image, machine, shared, kprcb, lost),
    )
    if csd is None:
        lost.append("CSDVersion")
    misc = _misc(image, space, clock.bias, kernel.build_lab, lost_of_process)
    stamp = note_unknown("TimeDateStamp", seconds(clock.capture_time))
    return SystemRecords(system, misc, stamp, tuple(lost), tuple(lost_of_process))


def _cpu(image: Image, machine: Machine, shared: View, kprcb: View, lost: List[str]) -> bytes:
    """Returns CPU_INFORMATION: the vendor of a 32-bit CPU, else the bits of ProcessorFeatures."""
    read = image.memory(image.kernel).read
    if machine is Machine.I386:
        vendor = kprcb.place("VendorString")
        found = read(vendor, _VENDOR) if vendor else None
        lost += ["VersionInformation", "FeatureInformation", "AMDExtendedCpuFeatures"]
        lost += [] if found else ["VendorId"]
        return bytes(found or b"")
    features = shared.place("ProcessorFeatures")
    data = read(features, _FEATURES) if features else None
    if not data:
        lost.append("ProcessorFeatures")
    bits = sum(1 << number for number, present in enumerate(data or b"") if present)
    return bits.to_bytes(16, "little")


def _service_pack(image: Image, space: AddressSpace) -> Optional[str]:
    """Returns CSDVersion of the PEB, empty without a service pack; None if it cannot be read."""
    place = peb_at(image, space).place("CSDVersion.Length", "CSDVersion")
    return None if place is None else image.memory(space).unicode_string_at(place, _MAX_CSD)


def _misc(image: Image, space: AddressSpace, bias: Optional[int], lab: str, lost: List[str]) -> MiscInfo:
    process = image.at("_EPROCESS", space.eprocess)
    length = image.memory(image.kernel).number(image.symbol("KeMaximumIncrement"), 4)

    def spent(name: str) -> Optional[int]:
        ticks = process[f"Pcb.{name}"]
        if ticks is None or length is None:
            lost.append(f"Process{name}")
            return None
        return min(ticks * length // SECOND, _LAST)

    created = seconds(process["CreateTime.QuadPart"])
    cookie, build = process["Cookie"], lab or None
    values = {"ProcessCreateTime": created, "Bias": bias, "BuildString": build, "ProcessCookie": cookie}
    lost += (name for name, value in values.items() if value is None)
    times = created, spent("UserTime"), spent("KernelTime")
    return MiscInfo(0, 0, space.pid, *times, Bias=bias, BuildString=build, ProcessCookie=cookie)
