# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An image with a thread for every kind of entry, each frame over stale bytes, and what must be shown."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from tests.forge import trapentries as entries
from tests.forge import trapframes
from tests.forge.kernel import Kernel
from tests.forge.kernels import KnownKernel
from tests.forge.thread import Thread
from tests.forge.trapentries import X64, X86_BLUE, X86_OLD, Entry, Registers
from tests.support.trapsets import FILLS, every_entry, expected_kind, filled, registers_64, registers_86
from winstacks.columns.registers import REGISTERS

TOP_DISTANCE = {X64: 0x190, X86_OLD: 0x29C, X86_BLUE: 0x8C}
PID = 1000
STACK_SIZE = 0x3000
_DEPTH = 0x1238


class Expected(NamedTuple):
    """What one row must say."""

    origin: str
    kind: str
    mode: str
    registers: Dict[str, int]


Key = Tuple[int, int]


def architecture(known: KnownKernel) -> str:
    """Which map of the trap frame a kernel has."""
    if known.arch == "x64":
        return X64
    return X86_OLD if known.table.has("_KTRAP_FRAME", "DbgArgPointer") else X86_BLUE


class TrapImage:
    """A kernel with one process; `expected` by thread ID and masked address of the frame.

    Args:
        known: the kernel; its system calls store their arguments if it has KiSystemCall64Shadow.
    """

    def __init__(self, known: KnownKernel) -> None:
        self.architecture = architecture(known)
        self.kernel = Kernel(known.table, **known.options())
        self.expected: Dict[Key, Expected] = {}
        self.mask = (1 << 48) - 1 if known.arch == "x64" else (1 << 32) - 1
        self._linkage = self.kernel.base + 0x1600
        if "KiServiceLinkage" in known.table.symbols:
            self._linkage = self.kernel.symbol("KiServiceLinkage")
        self._process = self.kernel.process("traps.exe", pid=PID)
        own = known.table.has("_KTHREAD", "DebugActive")
        self._debug_active = "DebugActive" if own else "Header.DebugActive"
        mitigated = "KiSystemCall64Shadow" in known.table.symbols
        fills = itertools.cycle(FILLS)
        for number, entry in enumerate(every_entry(self.architecture)):
            if entry.kind == entries.NMI or entry.mitigated != (mitigated and self.architecture == X64):
                continue
            known_entry = entry._replace(linkage=self._linkage, previous=0)
            self._thread(1004 + 4 * number, known_entry, next(fills))

    def _thread(self, tid: int, entry: Entry, fill: bytes) -> None:
        thread = self._process.thread(tid, stack_size=STACK_SIZE, stack=(fill * STACK_SIZE)[:STACK_SIZE])
        thread.kthread["KernelStack"] = thread.stack_limit
        thread.kthread["TrapFrame"] = 0
        if entry.mode != "kernel":
            pointed = entry.kind in entries.USER_ONLY
            self._top(thread, entry, fill, pointed)
            return
        kind = entries.SYSCALL if self.architecture == X64 else entries.SYSENTER
        mode = "user64" if self.architecture == X64 else "user"
        call = entry._replace(kind=kind, mode=mode)
        previous = self._top(thread, call, fill, entry.kind != entries.ZW)
        registers = self._registers("kernel")
        stack_pointer = thread.stack_base - _DEPTH
        registers["esp" if "esp" in registers else "rsp"] = stack_pointer
        address = trapframes.kernel_address(self.architecture, entry.kind, stack_pointer)
        entry = entry._replace(previous=previous)
        origin = "thread" if entry.kind == entries.ZW else "stack"
        self._put(thread, entry, registers, address, fill, origin)
        if origin == "thread":
            thread.kthread["TrapFrame"] = address

    def _top(self, thread: Thread, entry: Entry, fill: bytes, pointed: bool) -> int:
        address = thread.stack_base - TOP_DISTANCE[self.architecture]
        chained = entry.kind in entries.USER_ONLY
        self._put(thread, entry, self._registers(entry.mode), address, fill, "thread" if chained else "top")
        if pointed:
            thread.kthread["TrapFrame"] = address
        return address

    def _registers(self, mode: str) -> Registers:
        registers = registers_64(mode) if self.architecture == X64 else registers_86(mode)
        if mode == "kernel":
            registers["rip" if self.architecture == X64 else "eip"] = self.kernel.base + 0x1234
        return registers

    def _put(
        self, thread: Thread, entry: Entry, registers: Registers, address: int, fill: bytes, origin: str
    ) -> None:
        if entry.debug and self.architecture != X64:
            thread.kthread[self._debug_active] = 3
        forged = trapframes.forge(self.architecture, entry, registers, address, filled(fill))
        pushed = 0x74 if self.architecture != X64 and entry.mode == "kernel" else len(forged.data)
        self.kernel.space.write(address, forged.data[:pushed])
        self.expected[thread.tid, address & self.mask] = Expected(
            origin,
            expected_kind(entry, self.architecture),
            "kernel" if entry.mode == "kernel" else "user",
            forged.expected,
        )

    def check(self, rows: List[Dict[str, Any]]) -> Dict[str, int]:
        """Compares what a plugin printed, absent values being None; returns how many cells it compared."""
        count = {"frames": 0, "shown": 0, "unsure": 0, "absent": 0}
        seen: Set[Key] = set()
        for row in rows:
            key = row["TID"], row["TrapFrame"]
            assert key in self.expected, row
            assert key not in seen, row
            seen.add(key)
            expected, unsure = self.expected[key], row["Unsure"].split()
            assert row["Status"] == "", row
            assert (row["Origin"], row["TrapKind"] or "", row["Mode"]) == expected[:3], row
            assert (row["PID"], row["Process"], row["State"]) == (PID, "traps.exe", "Waiting")
            assert row["Arch"] == ("x64" if self.architecture == X64 else "x86")
            count["frames"] += 1
            for column in REGISTERS:
                value, where = row[column], f"{column} of {row}"
                if column in expected.registers:
                    assert value == expected.registers[column], where
                    count["unsure" if column in unsure else "shown"] += 1
                else:
                    assert value is None or column in unsure, where
                    count["absent" if value is None else "unsure"] += 1
        assert seen == set(self.expected)
        return count
