# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""KDDEBUGGER_DATA64: the kernel's data for debuggers, in a small kernel dump and in every kernel.

It has the addresses of variables, and the offsets of some members of KTHREAD, EPROCESS and KPRCB: the only
source of these offsets without the kernel's symbols. x86 has the same structure with sign-extended addresses.

Source: `wdbgexts.h`, and `kdbg.json` of Volatility.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional

TAG = b"KDBG"
_TAG_AT, _SIZE_AT = 0x10, 0x14
_LEAST, MAX_SIZE = 0x18, 0x2000

_ADDRESSES: Dict[str, int] = {
    "KernBase": 0x18,
    "KiCallUserMode": 0x38,
    "PsLoadedModuleList": 0x48,
    "PsActiveProcessHead": 0x50,
    "KiBugcheckData": 0x88,
    "MmHighestUserAddress": 0x1C8,
    "MmSystemRangeStart": 0x1D0,
    "NtBuildLab": 0x208,
    "KiProcessorBlock": 0x218,
    "MmUnloadedDrivers": 0x220,
    "MmLastUnloadedDriver": 0x228,
}
_OFFSETS: Dict[str, int] = {
    "OffsetKThreadTeb": 0x29A,
    "OffsetKThreadKernelStack": 0x29C,
    "OffsetKThreadInitialStack": 0x29E,
    "OffsetKThreadApcProcess": 0x2A0,
    "OffsetKThreadState": 0x2A2,
    "SizeEProcess": 0x2A8,
    "OffsetEprocessPeb": 0x2AA,
    "OffsetEprocessDirectoryTableBase": 0x2AE,
    "SizePrcb": 0x2B0,
    "OffsetPrcbCurrentThread": 0x2B4,
    "OffsetPrcbProcStateContext": 0x2BC,
    "OffsetPrcbNumber": 0x2BE,
    "SizeEThread": 0x2C0,
}


class DebuggerData(NamedTuple):
    """KDDEBUGGER_DATA64.

    Attributes:
        tagged: whether the structure has the tag `KDBG`; without the tag nothing else is read
        addresses: addresses by member, without zeros
        offsets: offsets and sizes by member, without zeros
    """

    tagged: bool
    size: int
    addresses: Dict[str, int]
    offsets: Dict[str, int]

    def offset(self, name: str) -> Optional[int]:
        """Returns an offset or a size, None if the structure does not have it."""
        return self.offsets.get(name)


def read_debugger_data(data: bytes) -> DebuggerData:
    """Returns the content of the structure's bytes; members beyond its end or its Size are unknown."""
    if len(data) < _LEAST or data[_TAG_AT : _TAG_AT + 4] != TAG:
        return DebuggerData(False, 0, {}, {})
    size = int.from_bytes(data[_SIZE_AT : _SIZE_AT + 4], "little")
    data = data[: min(size, MAX_SIZE)]

    def read(places: Dict[str, int], width: int) -> Dict[str, int]:
        found = {
            name: int.from_bytes(data[place : place + width], "little")
            for name, place in places.items()
            if place + width <= len(data)
        }
        return {name: value for name, value in found.items() if value}

    return DebuggerData(True, size, read(_ADDRESSES, 8), read(_OFFSETS, 2))
