# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads with trap frames on their stacks, for images of one purpose each (x64)."""

from __future__ import annotations

from typing import Any, Dict, List

from tests.forge import kernels, trapframes
from tests.forge import trapentries as entries
from tests.forge.kernel import Kernel
from tests.forge.thread import Thread
from tests.forge.trapentries import X64, Entry, Registers
from tests.support.trapimages import Row
from tests.support.trapsets import filled, registers_64

TOP = 0x190
POISON = filled(b"\x60\xde\xc2\xe4\xdf\xfa\xff\xff")


def make_kernel(name: str = "win10-x64", **options: Any) -> Kernel:
    known = kernels.load(name)
    return Kernel(known.table, **{**known.options(), **options})


def put(kernel: Kernel, thread: Thread, entry: Entry, registers: Registers, address: int) -> Dict[str, int]:
    """Forges a frame on a thread's stack, over poison, and returns what it saved."""
    forged = trapframes.forge(X64, entry, registers, address, POISON)
    kernel.space.write(address - 0x400, POISON(address - 0x400, 0x400) + forged.data)
    return forged.expected


def in_system_call(kernel: Kernel, thread: Thread, **changes: int) -> int:
    """Lets a thread be in a system call from user mode; returns its frame's address."""
    address = thread.stack_base - TOP
    entry = Entry(entries.SYSCALL, "user64", mitigated=True)
    put(kernel, thread, entry, dict(registers_64("user64"), **changes), address)
    thread.kthread["TrapFrame"] = address
    thread.kthread["KernelStack"] = thread.stack_base - 0x2000
    return address


def shown(rows: List[Row], *columns: str) -> List[Any]:
    return [tuple(row[column] for column in columns) for row in rows]


def masked(address: int) -> int:
    return address & (1 << 48) - 1
