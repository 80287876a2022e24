# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The sample image that the demonstration runs on: a small Windows 10 with something wrong in it.

The kernel keeps a database (+kst) in which a driver that has gone and code outside all modules have left
their stacks; a process (+ust) in which code in private memory made a critical section; a WoW64 process; a
process whose two threads wait for each other.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Union

from . import kernels, sampledeadlock, sampleheaps, sampleowners, samplestacks, samplethreads, std_bytes
from .code import system_call_stub
from .kernel import Kernel
from .module import Module
from .pe import Function
from .process import Process
from .std import Std
from .vad import EXECUTE_READWRITE, Vad

KERNEL_DATABASE = 0xFFFFAB8008000000
PROCESS_DATABASE = 0x1D2A0000000
WOW64_DATABASE = 0x02A00000
INJECTED = 0x1D2B0000000
GONE_DRIVER = 0xFFFFF80366660000
HIDDEN_CODE = 0xFFFFAB8009991000

POINTER_RVA = 0x7340
"""Where the pointer to its database is in the data of a forged ntdll."""

_PLAIN_UNWIND = 0x5800
_FUNCTION = 0x80


class SampleModule:
    """A module with functions of 0x80 bytes, by name; `exported` ones can be named without a PDB.

    `calls` says where in a function a call ends (x64), `services` which are stubs of system calls, and their
    numbers.
    """

    def __init__(
        self,
        exported: Sequence[str],
        inner: Sequence[str] = (),
        calls: Optional[Mapping[str, int]] = None,
        services: Optional[Mapping[str, int]] = None,
    ) -> None:
        self.calls = calls or {}
        self.services = services or {}
        self.rvas = {name: 0x1000 + 0x100 * number for number, name in enumerate([*exported, *inner])}
        self.exports = {name: self.rvas[name] for name in exported}
        self.functions = [Function(rva, rva + _FUNCTION, _PLAIN_UNWIND) for rva in self.rvas.values()]

    def options(self, wide: bool = True) -> dict[str, Any]:
        """What the forge wants to know of it."""
        options: dict[str, Any] = {"exports": self.exports}
        if wide:
            contents = {_PLAIN_UNWIND: b"\x01\0\0\0"}
            contents.update((self.rvas[name] + end - 5, b"\xe8\0\0\0\0") for name, end in self.calls.items())
            contents.update(
                (self.rvas[name], system_call_stub(number)) for name, number in self.services.items()
            )
            options.update(functions=self.functions, contents=contents)
        return options


NTFS = SampleModule([], ["NtfsFsdCreate", "NtfsCommonCreate", "NtfsCreateScb"])
TCPIP = SampleModule(["NetioInitialize"], ["DriverEntry"])
NTDLL = SampleModule(
    [
        *("RtlInitializeCriticalSectionEx", "RtlUserThreadStart", "LdrInitializeThunk"),
        *("RtlEnterCriticalSection", "NtWaitForSingleObject"),
    ],
    calls={"RtlUserThreadStart": 0x21, "RtlEnterCriticalSection": 0x62},
    services={"NtWaitForSingleObject": samplethreads.WAIT_NUMBER},
)
KERNEL32 = SampleModule(["BaseThreadInitThunk", "CreateThread"], calls={"BaseThreadInitThunk": 0x14})
UPDATER = SampleModule(
    ["main", "load_settings", "open_store"],
    calls={"main": 0x31, "load_settings": 0x47, "open_store": 0x22},
)
LEGACY = SampleModule(["WinMain", "read_ini"])
SPOOLER = SampleModule(
    [*("main", "create_queue", "open_log"), *("print_job", "write_log", "rotate_log", "count_jobs")],
    calls={"print_job": 0x51, "write_log": 0x26, "rotate_log": 0x38, "count_jobs": 0x1D},
)


def build(name: str = "win10-x64", legacy_pid: int = 5120) -> Kernel:
    """Builds the sample; the caller makes the image of it.

    Args:
        name: a 64-bit kernel of `kernels.KERNELS`
        legacy_pid: ID of the WoW64 process. No process of Windows has a multiple of 1024, of which
            PspCidTable keeps no entry
    """
    known = kernels.load(name)
    code = samplestacks.kernel_options(known.table)
    kernel = Kernel(known.table, **{**known.options(), **code, "nt_global_flag": 0x2000})
    ntfs = kernel.module("Ntfs.sys", symbols=NTFS.rvas, **NTFS.options())
    tcpip = kernel.module("tcpip.sys", **TCPIP.options())
    kernel.unloaded("aimhook.sys", GONE_DRIVER, GONE_DRIVER + 0x9000)
    _kernel_database(kernel, ntfs, tcpip)
    updater = kernel.process("updater.exe", pid=4312, session=1, nt_global_flag=0x1000)
    legacy = kernel.process("legacy.exe", pid=legacy_pid, session=1)
    _updater(updater)
    _legacy(legacy)
    samplethreads.add(kernel, updater, legacy, INJECTED)
    samplestacks.add(kernel, updater)
    sampleowners.add(kernel, updater, legacy, INJECTED)
    sampleheaps.add(updater, INJECTED)
    spooler = kernel.process("spooler.exe", pid=6200, session=1, nt_global_flag=0x1000)
    write(spooler, sampledeadlock.add(kernel, spooler, SPOOLER, KERNEL32, NTDLL))
    return kernel


def _kernel_database(kernel: Kernel, ntfs: Module, tcpip: Module) -> None:
    def nt(name: str, offset: int) -> int:
        return kernel.symbol(name) + offset

    opened = [
        nt("IofCallDriver", 0x59),
        nt("IopParseDevice", 0xD4),
        nt("ObpLookupObjectName", 0xFE),
        nt("ObOpenObjectByName", 0xDF),
        nt("IopCreateFile", 0x62),
        nt("NtCreateFile", 0x79),
    ]
    created = [ntfs.at("NtfsCreateScb") + 0x4D, ntfs.at("NtfsCommonCreate") + 0x71]
    started = [nt("IopLoadDriver", 0x62), nt("PspSystemThreadStartup", 0x55)]
    database = Std("6.1", "x64", KERNEL_DATABASE, kernel=True, reserve=0x800000)
    for _ in range(3):
        database.log([*created, ntfs.at("NtfsFsdCreate") + 0x32, *opened])
    database.log([tcpip.at("NetioInitialize") + 0x18, *started])
    database.log([GONE_DRIVER + 0x1A34, GONE_DRIVER + 0x12C0, *started])
    database.log([HIDDEN_CODE + 0x88, nt("IofCallDriver", 0x59), *opened[1:]])
    write(kernel, database)
    kernel.set("RtlpStackTraceDatabase", database.base)


def _updater(process: Process) -> None:
    updater = process.module("updater.exe", dll=False, **UPDATER.options())
    kernel32 = process.module("KERNEL32.DLL", **KERNEL32.options())
    ntdll = process.module("ntdll.dll", **NTDLL.options())
    process.region(INJECTED, b"\x90" * 0x800, protection=EXECUTE_READWRITE)
    ground = [kernel32.at("BaseThreadInitThunk") + 0x14, ntdll.at("RtlUserThreadStart") + 0x21]
    address = ntdll.at("RtlInitializeCriticalSectionEx") + 0x5D
    database = Std("6.1", "x64", PROCESS_DATABASE)
    main = updater.at("main") + 0x31
    for _ in range(2):
        database.log(
            [address, updater.at("open_store") + 0x22, updater.at("load_settings") + 0x47, main, *ground]
        )
    database.log([address, INJECTED + 0x2C4, INJECTED + 0x11, *ground])
    write(process, database)
    process.space.write_int(ntdll.base + POINTER_RVA, database.base)


def _legacy(process: Process) -> None:
    process.module("ntdll.dll", **NTDLL.options())
    half = process.wow64(nt_global_flag=0x1000)
    legacy = half.module("legacy.exe", dll=False, **LEGACY.options(wide=False))
    kernel32 = half.module("KERNEL32.DLL", **KERNEL32.options(wide=False))
    ntdll = half.module("ntdll.dll", **NTDLL.options(wide=False))
    stack: List[int] = [
        ntdll.at("RtlInitializeCriticalSectionEx") + 0x4A,
        legacy.at("read_ini") + 0x19,
        legacy.at("WinMain") + 0x2E,
        kernel32.at("BaseThreadInitThunk") + 0x19,
        ntdll.at("RtlUserThreadStart") + 0x2F,
    ]
    database = Std("6.1", "x86", WOW64_DATABASE)
    database.log(stack)
    write(process, database)
    process.space.write_int(ntdll.base + POINTER_RVA, database.base, 4)


def write(owner: Union[Kernel, Process], database: Std) -> None:
    """Puts the committed memory of a database into an address space, a process' in its reserved range."""
    if isinstance(owner, Process):
        owner.vads.append(Vad(database.base, database.reserve))
    for address, data in std_bytes.regions(database).items():
        owner.space.write(address, data)
