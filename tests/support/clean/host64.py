# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A clean x64 Windows: its kernel, and programs whose threads wait where their calls led them."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from tests.forge import kernels
from tests.forge import trapentries as entries
from tests.forge.code import (
    R12,
    R13,
    R14,
    R15,
    RBP,
    RBX,
    RDI,
    RSI,
    Routine,
    module_options,
    service_handler,
    swap_context,
    trap_handler,
)
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.process import Process
from tests.forge.stacks64 import NAMES, Stack64
from tests.forge.thread import Thread
from tests.forge.trapentries import Entry
from tests.forge.vad import EXECUTE_READ
from tests.support.callstackimages import free_code
from tests.support.trapsets import filled, registers_64

from . import libraries
from .libraries import Library
from .narrow import Bases, Private32

POISON = filled(b"\x60\xde\xc2\xe4\xdf\xfa\xff\xff")
TRAP_FRAME = 0x190
WIDE = ("win7-x64", "win10-x64", "win11-x64")
GROUND = ("ntdll!RtlUserThreadStart", "kernel32!BaseThreadInitThunk")
WAIT = "ntdll!NtWaitForSingleObject"
_MODULES = 0x7FE00000000
_ROOM = 0x100000

_KERNEL = {
    "KiSwapContext": swap_context(0),
    "KiSwapThread": Routine(0, pushes=(RBX, RDI), alloc=0x30),
    "KiCommitThreadWait": Routine(0, pushes=(RBP, RSI, R12), alloc=0x50),
    "KeWaitForSingleObject": Routine(0, pushes=(RBX, RSI), alloc=0x58),
    "NtWaitForSingleObject": Routine(0, saves={RBX: 0x30, R13: 0x38}, alloc=0x48),
    "KiSystemServiceUser": service_handler(0),
    "KiPageFault": trap_handler(0),
    "KiInterruptDispatch": trap_handler(0),
    "MmAccessFault": Routine(0, pushes=(RBX, RSI, RDI, R12, R13, R14, R15), alloc=0x20),
    "KiDispatchInterrupt": Routine(0, pushes=(RBX, RBP), alloc=0x30),
    "KiStartSystemThread": Routine(0, alloc=0x28),
    "PspSystemThreadStartup": Routine(0, pushes=(RBX,), alloc=0x20),
    "ExpWorkerThread": Routine(0, pushes=(RBX, RSI, RDI), alloc=0x30),
    "KeRemoveQueueEx": Routine(0, pushes=(RBX, R14), alloc=0x40),
    "KeBalanceSetManager": Routine(0, pushes=(RBP,), alloc=0x60),
    "KiIdleLoop": Routine(0, alloc=0x38),
    "PspUserThreadStartup": Routine(0, pushes=(RBX, RSI), alloc=0x38),
    "KiStartUserThread": Routine(0, machine_frame=True, alloc=0x160),
}
"""The kernel's functions; where each lies its symbol says."""
WAITING = ("KeWaitForSingleObject", "KiCommitThreadWait", "KiSwapThread", "KiSwapContext")
IN_SERVICE = ("NtWaitForSingleObject", *WAITING)
IN_FAULT = ("MmAccessFault", *WAITING)
PREEMPTED = ("KiDispatchInterrupt", "KiSwapContext")


class Shown(NamedTuple):
    """Functions that the stack of a thread must show, innermost first, with or without others between."""

    pid: int
    tid: int
    kind: str
    functions: Tuple[str, ...]


class Private(Private32):
    """A frame in memory of no module: code that a runtime made. `base` is the base of that memory."""


class Through(NamedTuple):
    """A dispatcher of ntdll, through which the kernel sent the thread: out of a system call, or of code."""

    name: str
    call: str = ""


Link = Union[str, Private, Through]
JITTED = Routine(0x100, pushes=(RBX, RSI), alloc=0x28)
"""A function in private memory."""


class Host64:
    """A clean x64 Windows.

    Args:
        name: of the kernel
    """

    def __init__(self, name: str) -> None:
        known = kernels.load(name)
        self.name = name
        self.later = name != "win7-x64"
        names = sorted(known.table.symbol(symbol) for symbol in known.table.symbols)
        self.routines: Dict[str, Routine] = {}
        for symbol, routine in _KERNEL.items():
            rva = known.table.symbol(symbol)
            room = next((other for other in names if other > rva), rva + 0x80) - rva
            self.routines[symbol] = dataclasses.replace(routine, rva=rva, size=min(0x80, room))
        code = module_options(list(self.routines.values()), free_code(known.table, 0x1000), 64)
        self.kernel = Kernel(known.table, **{**known.options(), **code})
        self.drivers: Dict[str, Tuple[Module, Library]] = {}
        self._bases: Dict[str, int] = {}
        self.narrow_bases = Bases()
        self.programs: List[Program] = []
        self._next = 0x200

    def number(self) -> int:
        """An ID that nothing has yet."""
        self._next += 4
        per_page = 0x1000 // self.kernel.isf.size("_HANDLE_TABLE_ENTRY")
        self._next += 4 * (self._next // 4 % per_page == 0)
        return self._next

    def program(
        self,
        name: str,
        *files: str,
        functions: str = "main",
        code: Mapping[int, bytes] = {},
        folder: str = "",
        **options: Any,
    ) -> Program:
        """A program with ntdll, kernel32, kernelbase and other modules; `code` is more of it, by RVA."""
        return Program(self, name, files, functions, code, folder, options)

    def library(self, file: str, functions: str = "") -> Tuple[Library, int]:
        """A module and its base, which is the same in all processes."""
        key = file.lower()
        if key not in self._bases:
            self._bases[key] = _MODULES + _ROOM * len(self._bases)
        return libraries.library(file, self.later, self._bases[key], functions), self._bases[key]

    def driver(self, file: str, functions: str, **options: Any) -> None:
        """A driver with functions; see `Kernel.module` for the options."""
        library = libraries.library(file, self.later, 0, functions)
        module = self.kernel.module(file, **library.options, **options)
        self.drivers[file.rpartition(".")[0]] = module, library

    def frame(self, name: str) -> Tuple[int, Routine]:
        """Where a function of the kernel or of a driver lies: its module's base, and its frame."""
        module, _, function = name.rpartition("!")
        if module in self.drivers:
            return self.drivers[module][0].base, self.drivers[module][1].routines[function]
        return self.kernel.base, self.routines[function]

    def descend(self, stack: Stack64, functions: Sequence[str]) -> None:
        """Lets functions of the kernel call each other."""
        for name in functions:
            base, routine = self.frame(name)
            stack.enter(base, routine)
            stack.call(base, routine)

    def enter(
        self, thread: Thread, user: Stack64, ip: int, entry: Entry, handler: str, **known: int
    ) -> Stack64:
        """Enters the kernel from user mode; returns its stack in the handler."""
        registers = registers_64(entry.mode)
        registers.update({name: user.registers[number] for number, name in NAMES.items()})
        registers.update(rip=ip, rsp=user.sp, **known)
        stack = Stack64(self.kernel.space, thread.stack_base)
        stack.trap_frame(entry, registers, thread.stack_base - TRAP_FRAME, POISON)
        self.descend(stack, [handler])
        return stack

    def switch_out(self, thread: Thread, stack: Stack64, functions: Sequence[str]) -> None:
        """Lets a thread go down through functions to where it is switched out."""
        self.descend(stack, functions)
        thread.kthread["KernelStack"] = stack.switch_out()

    def system_thread(self, process: Process, *functions: str, state: int = 5) -> Thread:
        """A thread of the kernel, which waits in the last of its functions."""
        base, routine = self.frame(functions[0])
        thread = process.thread(self.number(), teb=False, state=state, start=base + routine.rva)
        stack = Stack64(self.kernel.space, thread.stack_base).start()
        self.descend(stack, ("KiStartSystemThread", "PspSystemThreadStartup", *functions))
        self.switch_out(thread, stack, WAITING)
        return thread


class Program:
    """A process with its modules; made by `Host64.program`."""

    def __init__(
        self,
        host: Host64,
        name: str,
        files: Sequence[str],
        functions: str,
        code: Mapping[int, bytes],
        folder: str,
        options: Dict[str, Any],
    ) -> None:
        self.host = host
        self.process: Process = host.kernel.process(name, pid=host.number(), **options)
        self.modules: Dict[str, Tuple[Module, Library]] = {}
        self.name = name.rpartition(".")[0]
        host.programs.append(self)
        library, _ = host.library(name, functions)
        place = {"path": f"{folder}\\{name}"} if folder else {}
        contents = {**library.options["contents"], **code}
        self.load(name, functions, key="", dll=False, contents=contents, **place)
        for file in ("ntdll.dll", "kernel32.dll", "kernelbase.dll", *files):
            # There is no win32u before Windows 10.
            if host.later or file != "win32u.dll":
                self.load(file)

    def load(self, file: str, functions: str = "", key: Optional[str] = None, **options: Any) -> Module:
        """Loads a module; `key` is what it is called in names of functions, "" for the program."""
        library, base = self.host.library(file, functions)
        module = self.process.module(file, base, **{"path": library.path, **library.options, **options})
        stem = file.rpartition(".")[0].lower().replace(".", "_")
        self.modules[stem if key is None else key] = module, library
        return module

    def frame(self, name: str) -> Tuple[int, Routine]:
        """Where `module!function` lies (without a module: in the program): its base, and its frame."""
        module, _, function = name.rpartition("!")
        loaded, library = self.modules[module]
        return loaded.base, library.routines[function]

    def at(self, name: str) -> int:
        """Address of a function, or of a system call stub."""
        module, _, function = name.rpartition("!")
        loaded, library = self.modules[module]
        if function in library.stubs:
            return loaded.base + library.stubs[function][0]
        return loaded.base + library.routines[function].rva

    def service(self, name: str) -> int:
        """Number of the system call of a stub."""
        module, _, function = name.rpartition("!")
        return self.modules[module][1].stubs[function][1]

    def jitted(self, size: int = 0x2000, protection: int = EXECUTE_READ, file: Optional[str] = None) -> int:
        """Memory of no image with code, by default private memory; returns its address."""
        base = self.process.space.reserve(size)
        code = module_options([dataclasses.replace(JITTED, unwind=False)], 0, 64)["contents"]
        self.process.region(base, size=size, protection=protection, file=file)
        for rva, data in code.items():
            self.process.space.write(base + rva, data)
        return base

    def register(self, *ranges: Tuple[int, int]) -> None:
        """Registers a function table for each range of addresses, as runtimes do."""
        space = self.process.space
        head = self.modules["ntdll"][0].base + libraries.HEAD_RVA
        ring = [head, *(space.allocate(0x60) for _ in ranges)]
        for number, node in enumerate(ring):
            space.write_int(node, ring[(number + 1) % len(ring)], 8)
            space.write_int(node + 8, ring[number - 1], 8)
        for node, (start, end) in zip(ring[1:], ranges):
            space.write_int(node + 0x20, start, 8)
            space.write_int(node + 0x28, end, 8)

    def thread(self, start: str = "", **options: Any) -> Thread:
        """A thread that was started in a function, by default in the first of the program."""
        own = next(iter(self.modules[""][1].routines))
        begin = self.at("ntdll!RtlUserThreadStart")
        options.setdefault("win32_start", self.at(start or own))
        return self.process.thread(self.host.number(), start=begin, **options)

    def stack(self, thread: Thread, chain: Sequence[Link], base: int = 0) -> Stack64:
        """A stack on which functions called each other, the outermost first."""
        stack = Stack64(
            self.process.space,
            base or thread.user_stack_base,
            lambda register, count: 0x7000000 + count * 16 + register,
        )
        stack.start()
        for link in chain:
            if isinstance(link, Private):
                stack.enter(link.base, JITTED)
                stack.call(link.base, JITTED)
            elif isinstance(link, Through):
                self._dispatch(stack, link)
            else:
                place, routine = self.frame(link)
                stack.enter(place, routine)
                stack.call(place, routine)
        return stack

    def _dispatch(self, stack: Stack64, link: Through) -> None:
        """Has the kernel send the thread on in a dispatcher."""
        place, routine = self.frame(f"ntdll!{link.name}")
        if link.call:
            interrupted = self.at(link.call) + libraries.behind(self.host.later)
        else:
            stack.sp += 8
            interrupted = stack.frames.pop().address - 5
        stack.dispatched(interrupted, routine, 0x33)
        stack.call(place, routine)

    def waits(
        self,
        *chain: Link,
        call: str = WAIT,
        start: str = "",
        thread: Optional[Thread] = None,
        ground: Sequence[str] = GROUND,
        interrupt: bool = False,
        base: int = 0,
        ip: int = 0,
        below: Sequence[str] = IN_SERVICE,
    ) -> Shown:
        """A thread that waits in a system call; returns what its stack must show.

        Args:
            chain: the functions that called each other, the outermost first
            call: the stub through which they called the kernel
            start: where the thread was started; default: the first function of the chain
            thread: the thread, if it is there already
            ground: the functions below the chain
            interrupt: by `int 2Eh`
            base: the upper end of its stack, if it is another than that of the TEB
            ip: where it entered the kernel, if it is no stub of a module
            below: functions of the kernel
        """
        own = next((link for link in chain if isinstance(link, str)), "")
        thread = thread or self.thread(start or own)
        user = self.stack(thread, (*ground, *chain), base)
        number = self.service(call)
        address = ip or self.at(call) + libraries.behind(self.host.later, interrupt)
        entry = Entry(entries.SYSCALL, "user64", mitigated=True)
        stack = self.host.enter(thread, user, address, entry, "KiSystemServiceUser", rax=number)
        thread.kthread["TrapFrame"] = thread.stack_base - TRAP_FRAME
        thread.kthread.maybe("SystemCallNumber", number)
        self.host.switch_out(thread, stack, below)
        last = "" if ip else call
        return self.shown(thread, *([last] if last else []), *reversed([*ground, *chain]))

    def interrupted(
        self,
        *chain: Link,
        at: int = 0,
        kind: str = entries.DEVICE,
        base: int = 0,
        thread: Optional[Thread] = None,
        ground: Sequence[str] = GROUND,
    ) -> Shown:
        """A thread that was interrupted, or faulted, in the last function of a chain or at an address."""
        own = next((link for link in chain if isinstance(link, str)), "")
        thread = thread or self.thread(own)
        user = self.stack(thread, (*ground, *chain), base)
        ip = at
        if not at:
            user.sp += 8
            ip = user.frames.pop().address - 5
        handler, below = (
            ("KiPageFault", IN_FAULT) if kind == entries.PAGE_FAULT else ("KiInterruptDispatch", PREEMPTED)
        )
        stack = self.host.enter(thread, user, ip, Entry(kind, "user64"), handler)
        self.host.switch_out(thread, stack, below)
        return self.shown(thread, *reversed([*ground, *chain]))

    def shown(self, thread: Thread, *links: Link, kind: str = "user") -> Shown:
        """What the stack of a thread must show, innermost first."""
        functions = [self._frame_name(link) for link in links]
        return Shown(self.process.pid, thread.tid, kind, tuple(functions))

    def _frame_name(self, link: Link) -> str:
        if isinstance(link, Private):
            return "<private>"
        name = f"ntdll!{link.name}" if isinstance(link, Through) else link
        return name if "!" in name else f"{self.name.lower()}!{name}"


Shows = List[Shown]
