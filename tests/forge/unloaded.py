# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Unloaded modules: the kernel's list of drivers, ntdll's unload events."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, Sequence

from .module import Module

if TYPE_CHECKING:
    from .kernel import Kernel

_DRIVERS = 50
_DLLS, _DLLS_EX = 16, 64
_NAME_CHARACTERS = 32


class UnloadedDrivers:
    """nt!MmUnloadedDrivers: 50 records, nt!MmLastUnloadedDriver the next one to be used.

    Record (x86 18h, x64 28h bytes): Name, StartAddress, EndAddress, CurrentTime.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._count = 0
        self._array = 0
        self._size = 0x28 if kernel.bits == 64 else 0x18

    def add(self, name: str, start: int, end: int, time: int) -> None:
        kernel, space = self._kernel, self._kernel.space
        if not self._array:
            self._array = kernel.pool.allocate(_DRIVERS * self._size, b"MmDT")
            kernel.set("MmUnloadedDrivers", self._array)
        text = name.encode("utf-16-le")
        buffer = kernel.pool.allocate(len(text) + 2, b"MmDT")
        space.write(buffer, text)
        if kernel.bits == 64:
            record = struct.pack("<HH4xQQQQ", len(text), len(text) + 2, buffer, start, end, time)
        else:
            record = struct.pack("<HHIIIQ", len(text), len(text) + 2, buffer, start, end, time)
        space.write(self._array + self._count % _DRIVERS * self._size, record)
        self._count += 1
        kernel.set("MmLastUnloadedDriver", self._count % _DRIVERS or _DRIVERS)


class UnloadedDll(NamedTuple):
    """A DLL that a process has unloaded."""

    name: str
    base: int
    size: int
    timestamp: int = 0
    checksum: int = 0


def remember_unloads(ntdll: Module, dlls: Sequence[UnloadedDll], old: bool = False) -> None:
    """Writes ntdll's unload traces, in the order of the unloads.

    Which ones, its symbols say: the array `RtlpUnloadEventTrace`, and from Vista on the ring that
    `RtlpUnloadEventTraceEx` points to with its `...ExSize` (of a record) and `...ExNumber`. `old`:
    the records of XP and 2003, without Version.
    """
    if ntdll.symbols is None:
        raise ValueError("ntdll needs symbols")
    known = ntdll.symbols.symbols
    if "RtlpUnloadEventTrace" in known:
        ntdll.space.write(ntdll.at("RtlpUnloadEventTrace"), unload_trace(dlls, ntdll.pe.bits, _DLLS, old))
    if "RtlpUnloadEventTraceEx" in known:
        trace = unload_trace(dlls, ntdll.pe.bits, _DLLS_EX)
        ring = ntdll.space.allocate(len(trace))
        ntdll.space.write(ring, trace)
        ntdll.space.write_int(ntdll.at("RtlpUnloadEventTraceEx"), ring, ntdll.pe.bits // 8)
        for name, value in (("Size", len(trace) // _DLLS_EX), ("Number", _DLLS_EX)):
            if f"RtlpUnloadEventTraceEx{name}" in known:
                ntdll.space.write_int(ntdll.at(f"RtlpUnloadEventTraceEx{name}"), value, 4)


def unload_trace(dlls: Sequence[UnloadedDll], bits: int, slots: int = _DLLS, old: bool = False) -> bytes:
    """The RTL_UNLOAD_EVENT_TRACE array that remembers these unloads, in order.

    Record n lies in slot n modulo `slots`. `old`: the layout of XP and 2003, without Version.
    Sizes: x64 68h, old x64 60h, x86 5Ch, old x86 54h bytes.
    """
    word, pad = ("Q", "4x") if bits == 64 else ("I", "")
    form = struct.Struct(f"<{word}{word}III64s" + ("" if old else "II") + pad)
    table = bytearray(form.size * slots)
    for sequence, dll in enumerate(dlls):
        name = dll.name.encode("utf-16-le")[: 2 * _NAME_CHARACTERS]
        version = () if old else (0, 0)
        form.pack_into(
            table,
            sequence % slots * form.size,
            dll.base,
            dll.size,
            sequence,
            dll.timestamp,
            dll.checksum,
            name,
            *version,
        )
    return bytes(table)
