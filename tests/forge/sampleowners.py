# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The owners of traces in the sample image: locks, handles and a traced object."""

from __future__ import annotations

from typing import List

from .handles import BADREF, CLOSE, OPEN, HandleTable, Ring, named
from .kernel import Kernel
from .locks import Resources, Sections
from .module import Module
from .objecttraces import Event, ObjectTraces
from .process import Process

LIST_RVA = 0x7400
"""RtlCriticalSectionList in the data of a forged ntdll."""

_ALL_ACCESS = 0x1FFFFF
"""PROCESS_ALL_ACCESS since Vista (winnt.h)."""


def add(kernel: Kernel, updater: Process, legacy: Process, injected: int) -> None:
    """Gives the traces of the sample's databases their owners.

    Args:
        kernel: the sample's
        updater: the process with code in private memory
        legacy: the WoW64 process
        injected: where that code is
    """
    _resources(kernel, updater)
    _sections(updater, legacy)
    _handles(kernel, updater, legacy, injected)
    _objects(kernel, legacy)


def _resources(kernel: Kernel, updater: Process) -> None:
    first, second, *_ = updater.threads
    resources = Resources(kernel)
    resources.add(index=1, active=1, exclusive=first, contention=12, waiting_exclusive=1, waiting_shared=2)
    resources.add(index=3)
    sharing = [(second.ethread.address | 3, 1)]
    resources.add(index=4, active=2, embedded=[(first.ethread.address, 1)], table=sharing)
    resources.link()


def _sections(updater: Process, legacy: Process) -> None:
    ntdll = _module(updater.modules, "ntdll.dll")
    sections = Sections(ntdll, ntdll.base + LIST_RVA)
    owner = updater.threads[0].tid
    sections.add(index=1, lock_count=-6, recursion_count=1, owning_thread=owner, entries=3, contention=3)
    sections.add(index=2)
    sections.link()
    assert legacy.wow is not None
    ntdll = _module(legacy.wow.modules, "ntdll.dll")
    sections = Sections(ntdll, ntdll.base + LIST_RVA, wide=False)
    sections.add(index=1)
    sections.link()


def _handles(kernel: Kernel, updater: Process, legacy: Process, injected: int) -> None:
    volume = named(kernel, "_DEVICE_OBJECT", "Device", "HarddiskVolume3")
    store = kernel.file("\\Users\\ann\\store.db")
    store["DeviceObject"] = volume
    table = HandleTable(updater)
    table.add(0x88, store)
    table.add(0x8C, legacy.eprocess, access=_ALL_ACCESS)
    table.finish()
    program, ntdll = updater.modules[0], _module(updater.modules, "ntdll.dll")
    ground = [
        _module(updater.modules, "KERNEL32.DLL").at("BaseThreadInitThunk") + 0x14,
        ntdll.at("RtlUserThreadStart") + 0x21,
    ]

    def nt(*names: str) -> List[int]:
        return [kernel.symbol(name) + 0x1D for name in (*names, "KiSystemServiceUser")]

    pid, tid = updater.pid, updater.threads[0].tid
    settings, main = program.at("load_settings") + 0x2A, program.at("main") + 0x31
    ring = Ring(table, 64)
    ring.event(OPEN, 0x84, pid, tid, [*nt("ObpCreateHandle", "NtCreateFile"), settings, main, *ground])
    ring.event(CLOSE, 0x84, pid, tid, [*nt("ObpCloseHandle", "NtClose"), settings, main, *ground])
    opened = program.at("open_store") + 0x18
    ring.event(OPEN, 0x88, pid, tid, [*nt("ObpCreateHandle", "NtCreateFile"), opened, main, *ground])
    tid = updater.threads[1].tid
    calls = [injected + 0x233, injected + 0x11]
    ring.event(OPEN, 0x8C, pid, tid, [*nt("ObpCreateHandle", "NtOpenProcess"), *calls, *ground])
    ring.event(BADREF, 0x84, pid, tid, [*nt("NtClose"), *calls, *ground])


def _objects(kernel: Kernel, legacy: Process) -> None:
    def nt(*names: str) -> List[int]:
        return [kernel.symbol(name) + 0x1D for name in ("ObpPushStackInfo", *names)]

    traces = ObjectTraces(kernel)
    opened = traces.stack(nt("ObOpenObjectByPointer", "NtOpenProcess", "KiSystemServiceUser"))
    released = traces.stack(nt("ObfDereferenceObject", "NtOpenProcess", "KiSystemServiceUser"))
    events = [Event(41, True, opened, 1, b"Psob"), Event(43, False, released, 1, b"Psob")]
    traces.object(legacy.eprocess, "explorer.exe", events)
    traces.finish()


def _module(modules: List[Module], name: str) -> Module:
    return next(module for module in modules if module.name == name)
