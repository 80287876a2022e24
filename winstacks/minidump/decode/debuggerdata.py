# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""KDDEBUGGER_DATA64: the kernel's data for debuggers, in a small kernel dump and in every kernel.

It has the addresses of variables, and the offsets of some members of KTHREAD, EPROCESS and KPRCB: the only
source of these offsets without the kernel's symbols. x86 has the same structure with sign-extended addresses.

Source: `wdbgexts.h`, and `kdbg.json` of Volatility.
"""

from __future__ import annotations

from typing import Annotated, Optional

from ...memory.decode.declared import ULONG, Declared, without
from ...memory.decode.records import NamedTuple

TAG = b"KDBG"
MAX_SIZE = 0x2000
_LEAST = 0x18


class DebuggerData(NamedTuple):
    """KDDEBUGGER_DATA64, as far as it is used. A member is None if it is 0, or lies beyond the end.
    `OwnerTag` is `KDBG`; without it nothing else is read."""

    OwnerTag: Annotated[bytes, "UCHAR[4] @0x10"]
    Size: ULONG
    KernBase: Annotated[Optional[int], "ULONGLONG @0x18"] = None
    KiCallUserMode: Annotated[Optional[int], "ULONGLONG @0x38"] = None
    PsLoadedModuleList: Annotated[Optional[int], "ULONGLONG @0x48"] = None
    PsActiveProcessHead: Annotated[Optional[int], "ULONGLONG @0x50"] = None
    KiBugcheckData: Annotated[Optional[int], "ULONGLONG @0x88"] = None
    MmHighestUserAddress: Annotated[Optional[int], "ULONGLONG @0x1c8"] = None
    MmSystemRangeStart: Annotated[Optional[int], "ULONGLONG @0x1d0"] = None
    NtBuildLab: Annotated[Optional[int], "ULONGLONG @0x208"] = None
    KiProcessorBlock: Annotated[Optional[int], "ULONGLONG @0x218"] = None
    MmUnloadedDrivers: Annotated[Optional[int], "ULONGLONG @0x220"] = None
    MmLastUnloadedDriver: Annotated[Optional[int], "ULONGLONG @0x228"] = None
    OffsetKThreadTeb: Annotated[Optional[int], "USHORT @0x29a"] = None
    OffsetKThreadKernelStack: Annotated[Optional[int], "USHORT @0x29c"] = None
    OffsetKThreadInitialStack: Annotated[Optional[int], "USHORT @0x29e"] = None
    OffsetKThreadApcProcess: Annotated[Optional[int], "USHORT @0x2a0"] = None
    OffsetKThreadState: Annotated[Optional[int], "USHORT @0x2a2"] = None
    SizeEProcess: Annotated[Optional[int], "USHORT @0x2a8"] = None
    OffsetEprocessPeb: Annotated[Optional[int], "USHORT @0x2aa"] = None
    OffsetEprocessDirectoryTableBase: Annotated[Optional[int], "USHORT @0x2ae"] = None
    SizePrcb: Annotated[Optional[int], "USHORT @0x2b0"] = None
    OffsetPrcbCurrentThread: Annotated[Optional[int], "USHORT @0x2b4"] = None
    OffsetPrcbProcStateContext: Annotated[Optional[int], "USHORT @0x2bc"] = None
    OffsetPrcbNumber: Annotated[Optional[int], "USHORT @0x2be"] = None
    SizeEThread: Annotated[Optional[int], "USHORT @0x2c0"] = None
    OffsetPrcbContext: Annotated[Optional[int], "USHORT @0x338"] = None

    @property
    def tagged(self) -> bool:
        """Whether the structure has its tag."""
        return self.OwnerTag == TAG


_DEBUGGER_DATA = Declared(DebuggerData)


def read_debugger_data(data: bytes) -> DebuggerData:
    """Returns the content of the structure's bytes; members beyond its end or its Size are unknown."""
    found = _DEBUGGER_DATA.decode(data)
    if len(data) < _LEAST or not found.tagged:
        return DebuggerData(b"", 0)
    end = min(found.Size, MAX_SIZE, len(data))
    ends = _DEBUGGER_DATA.ends
    return without(
        found, (name for name in found._fields[2:] if not getattr(found, name) or ends[name] > end)
    )
