# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What Volatility and debuggers find a kernel by: low stub, KDBG, version block, shared data."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from volatility3.framework import symbols

from .isf import Isf, load
from .obj import CAPTURED, Obj, filetime

if TYPE_CHECKING:
    from .kernel import Kernel

VOLATILITY_TABLES = pathlib.Path(symbols.__file__).parent / "windows"
UPTIME = (7 * 24 + 11) * 36_000_000_000
"""How long a kernel has run, in units of 100 ns."""
_LOW_STUB_FRAME = 0x13
_PROTECTIONS = (0x01, 0x02, 0x10, 0x20, 0x04, 0x08, 0x40, 0x80)


def guess_version(isf: Isf) -> tuple[int, int, int]:
    """A version that goes with the members that the table has."""
    if isf.has_type("_KLDR_DATA_TABLE_ENTRY"):
        return 10, 0, 19041
    if isf.has("_EPROCESS", "VadRoot.Root"):
        return 6, 3, 9600
    if isf.has("_EPROCESS", "VadRoot.BalancedRoot"):
        return 6, 1, 7601
    return 5, 1, 2600


def highest_user(isf: Isf) -> int:
    """MmHighestUserAddress: 8 TiB up to Windows 8, 128 TiB later; 2 GiB on x86; less 64 KiB."""
    if isf.pointer_size == 4:
        return 0x7FFEFFFF
    return 0x7FFFFFFEFFFF if isf.has("_EPROCESS", "VadRoot.Root") else 0x7FFFFFEFFFF


def low_stub(kernel: Kernel) -> None:
    """Writes a PROCESSOR_START_BLOCK below 1 MiB: an entry point of the kernel, and CR3."""
    frame = kernel.phys.frame(kernel.phys.allocate_at(_LOW_STUB_FRAME))
    frame[0:8] = 0x00000001000600E9.to_bytes(8, "little")
    frame[0x70:0x78] = (kernel.base + 0x1000).to_bytes(8, "little")
    frame[0xA0:0xA8] = kernel.space.tables.root.to_bytes(8, "little")


def describe(kernel: Kernel, cpus: int, kdbg: bool) -> None:
    """Fills KdDebuggerDataBlock, KdVersionBlock, KUSER_SHARED_DATA and their like."""
    major, minor, build = kernel.version
    kernel.set("KeNumberProcessors", cpus, 4)
    kernel.set("NtBuildNumber", build | 0xF0000000, 4)
    kernel.set("NtBuildLab", f"{build}.1.forge_release.240229-1200\0".encode())
    kernel.set("CmNtCSDVersion", 0, 4)
    protections = [value | extra for extra in (0, 0x200, 0x100, 0x400) for value in _PROTECTIONS]
    kernel.set("MmProtectToValue", b"".join(value.to_bytes(4, "little") for value in protections))
    if kdbg:
        _kdbg(kernel)
    block = Obj(kernel.space, kernel.isf, "_DBGKD_GET_VERSION64", kernel.symbol("KdVersionBlock"))
    block.put(MajorVersion=15, MinorVersion=build, MachineType=0x8664)
    block.put(KernBase=kernel.base, PsLoadedModuleList=kernel.symbol("PsLoadedModuleList"))
    if kernel.bits == 32:
        block["MachineType"] = 0x14C
    shared = Obj(kernel.space, kernel.isf, "_KUSER_SHARED_DATA", kernel.kuser)
    shared["NtSystemRoot"] = "C:\\Windows".encode("utf-16-le")
    shared.put(NtProductType=1, NtMajorVersion=major, NtMinorVersion=minor, NtBuildNumber=build)
    for name, time in (("SystemTime", filetime(CAPTURED)), ("InterruptTime", UPTIME)):
        shared[f"{name}.LowPart"] = time & 0xFFFFFFFF
        for part in ("High1Time", "High2Time"):
            shared[f"{name}.{part}"] = time >> 32


def _kdbg(kernel: Kernel) -> None:
    table = load(VOLATILITY_TABLES / "kdbg.json")
    block = Obj(kernel.space, table, "_KDDEBUGGER_DATA64", kernel.symbol("KdDebuggerDataBlock"))
    block["Header.OwnerTag"] = int.from_bytes(b"KDBG", "little")
    block["Header.Size"] = block.size
    # 32-bit addresses are sign-extended here.
    extension = 0 if kernel.bits == 64 else 0xFFFFFFFF00000000
    block["KernBase"] = kernel.base | extension
    for name in table.types["_KDDEBUGGER_DATA64"]["fields"]:
        if name in kernel.isf.symbols:
            block[name] = kernel.symbol(name) | extension
