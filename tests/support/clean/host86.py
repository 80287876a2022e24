# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A clean x86 Windows, and its situations. x86 has no function tables: no code of a runtime is on a stack."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Sequence, Union

from tests.forge import kernels
from tests.forge import trapentries as entries
from tests.forge.code import Routine
from tests.forge.kernel import Kernel
from tests.forge.stacks86 import Stack86
from tests.forge.thread import TERMINATED, Thread
from tests.forge.trapentries import X86_BLUE, X86_OLD, Entry
from tests.forge.vad import EXECUTE_READ, EXECUTE_READWRITE, READONLY
from tests.support.callstackimages86 import POISON, TRAP_FRAME
from tests.support.trapsets import registers_86

from .host64 import JITTED, Host64, Link, Program, Shown, Shows, Through
from .narrow import GROUND, WAIT, WAIT_EX, Bases, Narrow, Private32, code_of

_JITTED = Routine(JITTED.rva)
Link86 = Union[Link, Private32]
NARROW = ("win7-x86", "win10-x86")
WAITING = ("NtWaitForSingleObject", "KeWaitForSingleObject", "KiCommitThreadWait", "KiSwapThread")
_FRAMELESS = ("KiSwapContext", "KiFastCallEntry", "KiTrap0E", "KiThreadStartup")
_KERNEL = (
    *WAITING,
    *_FRAMELESS,
    "MmAccessFault",
    "PspSystemThreadStartup",
    "ExpWorkerThread",
    "KeRemoveQueueEx",
)


class Host86:
    """A clean x86 Windows.

    Args:
        name: of the kernel
        ends: whether functions of programs have an end, as real ones have: see `narrow.code_of`
    """

    def __init__(self, name: str, ends: bool = False) -> None:
        known = kernels.load(name)
        self.later = name != "win7-x86"
        self.architecture = X86_OLD if known.table.has("_KTRAP_FRAME", "DbgArgPointer") else X86_BLUE
        self.routines: Dict[str, Routine] = {
            symbol: Routine(known.table.symbol(symbol)) for symbol in _KERNEL
        }
        names = sorted(known.table.symbol(symbol) for symbol in known.table.symbols)
        code = {}
        for element, routine in self.routines.items():
            room = next((other for other in names if other > routine.rva), routine.rva + 0x80) - routine.rva
            data = code_of(dataclasses.replace(routine))
            code[routine.rva] = (b"\x40\x40\x40" + data[3:] if element in _FRAMELESS else data)[:room]
        self.kernel = Kernel(known.table, **{**known.options(), "contents": code})
        self.bases, self.ends = Bases(), ends
        self.programs: List[Program86] = []
        self._next = 0x200

    def number(self) -> int:
        """An ID that nothing has yet."""
        self._next += 4
        per_page = 0x1000 // self.kernel.isf.size("_HANDLE_TABLE_ENTRY")
        self._next += 4 * (self._next // 4 % per_page == 0)
        return self._next

    def program(self, name: str, *files: str, functions: str = "main") -> Program86:
        """A program with ntdll, kernel32, kernelbase and other modules."""
        return Program86(self, name, *(file for file in files if file != "win32u.dll"), functions=functions)

    def descend(self, stack: Stack86, functions: Sequence[str]) -> None:
        """Lets functions of the kernel call each other."""
        for name in functions:
            if name not in _FRAMELESS:
                stack.enter(self.kernel.base, self.routines[name])
            stack.call(self.kernel.base, self.routines[name])

    def switch_out(self, thread: Thread, stack: Stack86, functions: Sequence[str]) -> None:
        """Lets a thread go down through functions to where it is switched out."""
        self.descend(stack, functions)
        thread.kthread["KernelStack"] = stack.switch_out(self.kernel.base, self.routines["KiSwapContext"])

    def system_thread(self, *functions: str) -> Shown:
        """A thread of System, which waits in the last of its functions."""
        thread = self.kernel.system.thread(self.number(), teb=False)
        stack = Stack86(self.kernel.space, thread.stack_base, direct=False).start()
        self.descend(stack, ("PspSystemThreadStartup", *functions))
        self.switch_out(thread, stack, WAITING[1:])
        return Shown(
            4,
            thread.tid,
            "kernel",
            (*(f"nt!{function}" for function in reversed(functions)), "nt!PspSystemThreadStartup"),
        )


class Program86:
    """A program of x86."""

    def __init__(self, host: Host86, name: str, *files: str, functions: str = "main") -> None:
        self.host = host
        self.process = host.kernel.process(name, pid=host.number())
        self.narrow = Narrow(self.process, host.bases, name, functions, files, host.ends)
        self.modules, self.at, self.load = self.narrow.modules, self.narrow.at, self.narrow.load
        host.programs.append(self)

    def jitted(self, size: int = 0x2000, protection: int = EXECUTE_READ, file: Optional[str] = None) -> int:
        """Memory of no image with code; returns its address."""
        base = self.process.space.reserve(size)
        self.process.region(base, size=size, protection=protection, file=file)
        self.process.space.write(base + _JITTED.rva, code_of(_JITTED, self.host.ends))
        return base

    def thread(self, start: str = "", **options: Any) -> Thread:
        """A thread that was started in a function, by default in the first of the program."""
        own = next(iter(self.modules[""][1].routines))
        options.setdefault("win32_start", self.at(start or own))
        return self.process.thread(self.host.number(), start=self.at(GROUND[0]), **options)

    def waits(
        self,
        *chain: Link86,
        call: str = WAIT,
        thread: Optional[Thread] = None,
        ground: Sequence[str] = GROUND,
        base: int = 0,
    ) -> Shown:
        """A thread that waits in a system call by sysenter; see `host64.Program` for the arguments."""
        thread = thread or self._started(chain)
        links = _without_dispatchers(*ground, *chain)
        user = self.narrow.stack(base or thread.user_stack_base, links, call)
        ip = self.at("ntdll!KiFastSystemCallRet")
        self._enter(thread, user, ip, Entry(entries.SYSENTER, "user"), ("KiFastCallEntry", *WAITING))
        thread.kthread.maybe("SystemCallNumber", 1)
        shown = ("ntdll!KiFastSystemCallRet", call, *reversed(links))
        return Shown(self.process.pid, thread.tid, "user", self.narrow.frame_names(*shown))

    def faults(self, *chain: Link86, at: int = 0) -> Shown:
        """A thread that waits for a page, in the last function of a chain or at an address."""
        thread = self._started(chain)
        links = _without_dispatchers(*GROUND, *chain)
        user = self.narrow.stack(thread.user_stack_base, links)
        ip = at
        if not at:
            address, _ = user.frames.pop()
            user.sp += 4
            ip = address - 6
        below = ("KiTrap0E", "MmAccessFault", *WAITING[1:])
        self._enter(thread, user, ip, Entry(entries.FAULT, "user"), below)
        return Shown(self.process.pid, thread.tid, "user", self.narrow.frame_names(*reversed(links)))

    def _started(self, chain: Sequence[Link86]) -> Thread:
        """A thread that was started in the first function of a chain."""
        return self.thread(next((link for link in chain if isinstance(link, str)), ""))

    def _enter(self, thread: Thread, user: Stack86, ip: int, entry: Entry, below: Sequence[str]) -> None:
        registers = dict(
            registers_86("user"), eip=ip, esp=user.sp, ebp=user.bp, system_call_return=ip, edx=user.sp
        )
        stack = Stack86(self.host.kernel.space, thread.stack_base, direct=False)
        frame = thread.stack_base - TRAP_FRAME[self.host.architecture]
        stack.trap_frame(self.host.architecture, entry, registers, frame, POISON)
        thread.kthread["TrapFrame"] = frame
        self.host.switch_out(thread, stack, below)


Host = Union[Host64, Host86]
AnyProgram = Union[Program, Program86]


def _without_dispatchers(*chain: Link86) -> List[Union[str, Private32]]:
    """A chain of calls; no stack of x86 is forged through a dispatcher."""
    links = [link for link in chain if not isinstance(link, Through)]
    assert len(links) == len(chain)
    return links


def system(host: Host86) -> Shows:
    """System: worker threads."""
    return [host.system_thread("ExpWorkerThread", "KeRemoveQueueEx") for _ in range(2)]


def everyday(host: Host86) -> Shows:
    """A service, a thread pool whose callback waits, a lock, and a thread that waits for a page."""
    service = Program86(host, "svchost.exe", "sechost.dll", functions="wmain ServiceMain")
    pool = Program86(host, "taskhost.exe", functions="main OnTimer Parse")
    return [
        service.waits("wmain", "sechost!StartServiceCtrlDispatcherW", "sechost!ScDispatcherLoop", WAIT_EX),
        service.waits("sechost!ScSvcctrlThreadW", "ServiceMain", WAIT_EX),
        pool.waits(
            *("ntdll!TppWorkerThread", "ntdll!TppTimerpExecuteCallback", "ntdll!RtlpTpTimerCallback"),
            *("OnTimer", WAIT_EX),
        ),
        pool.waits("main", "ntdll!RtlpWaitOnCriticalSection"),
        pool.faults("main", "Parse"),
    ]


def window(host: Host86) -> Shows:
    """A program with a window: up to 8.1 and later the stub that it waits in is another module's."""
    program = Program86(host, "notepad.exe", "user32.dll", functions="WinMain")
    return [program.waits("WinMain", "user32!GetMessageW", call="user32!NtUserGetMessage")]


def clr(host: Host86) -> Shows:
    """.NET: managed code lies in private memory; at capture none of it is on a stack."""
    program = Program86(host, "managed.exe", "clr.dll", functions="main")
    program.process.region(0x21000000, size=0x4000, protection=EXECUTE_READWRITE)
    return [program.waits("clr!Thread::intermediateThreadProc", "clr!CLREvent::WaitEx", WAIT_EX)]


def without_a_program(host: Host86) -> Shows:
    """Processes that have exited, listed and not; Registry on Windows 10; a thread that has ended."""
    host.kernel.process("done.exe", pid=host.number(), exited=True)
    host.kernel.process("gone.exe", pid=host.number(), exited=True, listed=False)
    if host.later:
        process = host.kernel.process("Registry", pid=host.number(), minimal=True)
        process.eprocess["Minimal"] = 1
        process.region(
            0x21000000, size=0x3000, file="\\Windows\\System32\\config\\SOFTWARE", protection=READONLY
        )
    server = Program86(host, "server.exe")
    assert server.thread("main", state=TERMINATED).tid
    return [server.waits("main", WAIT_EX)]


SITUATIONS = (system, everyday, window, clr, without_a_program)
