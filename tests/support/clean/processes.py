# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Processes of x64 without a program, and threads and processes at their beginning and their end."""

from __future__ import annotations

from tests.forge import trapentries as entries
from tests.forge import trapframes
from tests.forge.paging import State
from tests.forge.stacks64 import Stack64
from tests.forge.thread import TERMINATED
from tests.forge.trapentries import X64, Entry
from tests.forge.vad import EXECUTE_READ, READONLY
from tests.support.trapsets import registers_64

from .host64 import IN_SERVICE, POISON, TRAP_FRAME, Host64, Shown, Shows
from .libraries import behind, stub

WAIT_EX = "kernelbase!WaitForSingleObjectEx"
_STARTED = ("nt!PspSystemThreadStartup", "nt!KiStartSystemThread")
_INITIALIZED, _READY = 0, 1
_RUNNING = 2


def system(host: Host64) -> Shows:
    """System: worker threads of the kernel, and a driver's own."""
    host.driver("storport.sys", "StartIo RaidWorker")
    kernel = host.kernel.system
    worker = host.system_thread(kernel, "ExpWorkerThread", "KeRemoveQueueEx")
    balance = host.system_thread(kernel, "KeBalanceSetManager")
    driver = host.system_thread(kernel, "storport!RaidWorker", "storport!StartIo")
    return [
        Shown(4, worker.tid, "kernel", ("nt!KeRemoveQueueEx", "nt!ExpWorkerThread", *_STARTED)),
        Shown(4, balance.tid, "kernel", ("nt!KeBalanceSetManager", *_STARTED)),
        Shown(4, driver.tid, "kernel", ("storport!StartIo", "storport!RaidWorker", *_STARTED)),
    ]


def idle(host: Host64) -> Shows:
    """Idle: on no list, with the page tables of System; the thread of a processor that runs another now."""
    process = host.kernel.process("Idle", pid=0, listed=False, minimal=True)
    process.eprocess["Pcb.DirectoryTableBase"] = host.kernel.space.tables.root
    thread = process.thread(0, teb=False, state=_RUNNING)
    stack = Stack64(host.kernel.space, thread.stack_base).start()
    host.descend(stack, ("KiIdleLoop",))
    host.switch_out(thread, stack, ("KiSwapContext",))
    host.kernel.cpus[0].kprcb["IdleThread"] = thread.ethread
    return []


def minimal(host: Host64) -> Shows:
    """Registry and MemCompression (10 and later): memory of their own, threads of the kernel."""
    if not host.later:
        return []
    shows = []
    for name, file in (("Registry", "\\Windows\\System32\\config\\SOFTWARE"), ("MemCompression", None)):
        process = host.kernel.process(name, pid=host.number(), minimal=True)
        process.eprocess["Minimal"] = 1
        process.region(0x1D0000000000, size=0x3000, file=file, protection=READONLY if file else 4)
        thread = host.system_thread(process, "ExpWorkerThread", "KeRemoveQueueEx")
        shows.append(
            Shown(process.pid, thread.tid, "kernel", ("nt!KeRemoveQueueEx", "nt!ExpWorkerThread", *_STARTED))
        )
    return shows


def secure(host: Host64) -> Shows:
    """Secure System and a trustlet (10 and later): what VTL 1 has of them is in no image."""
    if not host.later:
        return []
    host.kernel.process("Secure System", pid=host.number(), minimal=True).eprocess["Minimal"] = 1
    process = host.kernel.process("LsaIso.exe", pid=host.number(), minimal=True)
    process.eprocess["Pcb.SecureState.SecureHandle"] = 0x140000015
    process.eprocess["Peb"] = 0xEF00000000
    for address, size in ((0xEF00000000, 0x3000), (0xE100000000, 0x8000)):
        process.region(address, size=size, state=State.ABSENT)
    thread = process.thread(host.number(), teb=False)
    thread.kthread["Teb"] = 0xEF00002000
    stack = Stack64(host.kernel.space, thread.stack_base).start()
    host.descend(stack, ("KiStartSystemThread", "PspUserThreadStartup"))
    host.switch_out(thread, stack, IN_SERVICE[1:])
    return [Shown(process.pid, thread.tid, "kernel", ("nt!PspUserThreadStartup", "nt!KiStartSystemThread"))]


def pico(host: Host64) -> Shows:
    """A process of WSL (10 and later): an ELF file is mapped, and calls lxcore by `syscall`.

    Its code lies in views of files that are no images; it has no PEB and no ntdll.
    """
    if not host.later:
        return []
    host.driver("lxcore.sys", "LxpSyscall_READ LxpSysDispatch")
    process = host.kernel.process("bash", pid=host.number(), minimal=True)
    process.eprocess["PicoContext"] = host.kernel.obj("_EPROCESS").address
    base, stack_base = 0x7F0000400000, 0x7FFFF000000
    path = "\\Users\\ann\\rootfs\\lib\\libc.so.6"
    process.region(base, stub(0, False), size=0x4000, file=path, protection=EXECUTE_READ)
    process.region(stack_base - 0x4000, size=0x4000)
    thread = process.thread(host.number(), teb=False)
    user = Stack64(process.space, stack_base).start()
    ip = base + behind(False)
    entry = Entry(entries.SYSCALL, "user64", mitigated=True)
    stack = host.enter(thread, user, ip, entry, "KiSystemServiceUser", rax=0)
    thread.kthread["TrapFrame"] = thread.stack_base - TRAP_FRAME
    host.switch_out(thread, stack, ("lxcore!LxpSysDispatch", "lxcore!LxpSyscall_READ", *IN_SERVICE[1:]))
    return [Shown(process.pid, thread.tid, "kernel", ("lxcore!LxpSyscall_READ", "lxcore!LxpSysDispatch"))]


def exited(host: Host64) -> Shows:
    """Processes that have ended: one is listed, others only a pool scan finds; a thread that has ended."""
    host.kernel.process("done.exe", pid=host.number(), exited=True)
    for name in ("gone.exe", "gone2.exe", "setup.exe"):
        host.kernel.process(name, pid=host.number(), exited=True, listed=False)
    program = host.program("server.exe", functions="main")
    ended = program.thread(state=TERMINATED)
    assert ended.tid
    return [program.waits("main", WAIT_EX)]


def new_thread(host: Host64) -> Shows:
    """Threads that have not yet been in user mode: the first trap frame says RtlUserThreadStart.

    KeInitThread makes that frame of a context, for the return to user mode, and clears what no context has.
    """
    program = host.program("busy.exe", functions="main Work")
    shows = [program.waits("main", WAIT_EX)]
    for kind in (entries.SYSCALL, entries.SOFTWARE):
        thread = program.thread("Work", state=_READY if kind == entries.SYSCALL else _INITIALIZED)
        user = Stack64(program.process.space, thread.user_stack_base)
        user.sp -= 0x28
        registers = registers_64("user64")
        registers.update({name: 0 for name in registers if name.startswith("r")})
        registers.update(rip=program.at("ntdll!RtlUserThreadStart"), rsp=user.sp, rcx=program.at("Work"))
        frame = thread.stack_base - TRAP_FRAME
        forged = trapframes.forge(X64, Entry(kind, "user64", mitigated=True), registers, frame, POISON)
        host.kernel.space.write(frame, forged.data)
        thread.kthread["TrapFrame"] = frame
        stack = Stack64(host.kernel.space, thread.stack_base)
        stack.sp = frame + 0x160
        host.descend(stack, ("KiStartUserThread",))
        thread.kthread["KernelStack"] = stack.switch_out()
        shows.append(program.shown(thread, "ntdll!RtlUserThreadStart"))
    return shows


SITUATIONS = (system, idle, minimal, secure, pico, exited, new_thread)
