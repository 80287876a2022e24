# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Kernels with databases, for the tests of structures that keep trace indices."""

from __future__ import annotations

from typing import List, Tuple

from tests.forge import kernels
from tests.forge.kernel import Kernel
from tests.forge.std import Std

KERNELS = (
    ("xp-x86", "5.1"),
    ("2003-x64", "5.2"),
    ("win7-x86", "6.1"),
    ("win7-x64", "6.1"),
    ("win10-x86", "6.1"),
    ("win10-x64", "6.1"),
    ("win11-x64", "6.1"),
)
"""Name of a kernel, and the generation of its database."""

Trace = Tuple[int, ...]


def new_kernel(name: str, flags: int = 0x2000) -> Kernel:
    known = kernels.load(name)
    return Kernel(known.table, **{**known.options(), "nt_global_flag": flags})


def put_database(kernel: Kernel, generation: str, traces: List[Trace]) -> List[int]:
    """A database of the kernel's with some traces; returns their indices."""
    arch = "x64" if kernel.bits == 64 else "x86"
    base = kernel.space.reserve(0x210000) + 0xFFFF & ~0xFFFF
    std = Std(generation, arch, base, kernel=True, reserve=0x80000)
    indices = [std.log(trace) for trace in traces]
    for address, data in std.regions().items():
        kernel.space.write(address, data)
    assert kernel.set("RtlpStackTraceDatabase", base) or kernel.set("RtlpStackTraceDataBase", base)
    return indices


def traces_of(kernel: Kernel) -> List[Trace]:
    """Three stacks through functions of the kernel."""
    names = ("ExInitializeResourceLite", "NtCreateFile", "IopParseDevice")
    first = tuple(kernel.symbol(name) + 0x10 for name in names)
    return [first, first[1:], (kernel.symbol("ExpWorkerThread") + 8,)]
