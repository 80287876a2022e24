# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What every x64 Windows runs: services, thread pools, COM, windows, APCs, exceptions, a debugger."""

from __future__ import annotations

import struct

from tests.forge.thread import Thread

from .host64 import GROUND, Host64, Program, Shows, Through
from .host86 import Host

EXCEPTION, APC, CALLBACK = "KiUserExceptionDispatcher", "KiUserApcDispatcher", "KiUserCallbackDispatcher"
WAIT_EX = "kernelbase!WaitForSingleObjectEx"
_DEBUG_REGISTERS = ("Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7")
_CONTEXT, _RECORD = 0x4D0, 0x4F0
_ACCESS_VIOLATION = 0xC0000005


def service(host: Host) -> Shows:
    """A svchost.exe: its first thread reads commands of the service control manager, another is a service."""
    program = host.program(
        "svchost.exe", "sechost.dll", "ucrtbase.dll", functions="wmain ServiceStarter Service"
    )
    started = program.waits(
        *(
            "wmain",
            "sechost!StartServiceCtrlDispatcherW",
            "sechost!QueryServiceDispatch",
            "sechost!ScDispatcherLoop",
        ),
        call="ntdll!NtReadFile",
    )
    running = program.waits("sechost!ScSvcctrlThreadW", "ServiceStarter", "Service", WAIT_EX)
    return [started, running]


def thread_pool(host: Host64) -> Shows:
    """A pool of ntdll: a worker without work, callbacks of timers, waits and work items that wait themselves.

    A callback that waits stands between RtlpTpTimerCallback and the wait: no wait is directly on it.
    """
    program = host.program("taskhost.exe", functions="main OnTimer OnSignal OnWork")
    return [
        program.waits("ntdll!TppWorkerThread", call="ntdll!NtWaitForWorkViaWorkerFactory"),
        program.waits(
            *("ntdll!TppWorkerThread", "ntdll!TppTimerpExecuteCallback", "ntdll!RtlpTpTimerCallback"),
            *("OnTimer", WAIT_EX),
        ),
        program.waits("ntdll!TppWorkerThread", "ntdll!RtlpTpWaitCallback", "OnSignal", WAIT_EX),
        program.waits(
            *("ntdll!TppWorkerThread", "ntdll!TppWorkpExecuteCallback", "ntdll!RtlpTpWorkCallback"),
            *("OnWork", "kernelbase!SleepEx"),
            call="ntdll!NtDelayExecution",
        ),
    ]


def com(host: Host64) -> Shows:
    """A COM server: RPC's worker waits for calls, one serves a call, an apartment waits for its answer."""
    program = host.program(
        "dllhost.exe", "combase.dll", "rpcrt4.dll", "user32.dll", "win32u.dll", functions="main Server"
    )
    window = (
        "win32u!NtUserMsgWaitForMultipleObjectsEx"
        if host.later
        else "user32!NtUserMsgWaitForMultipleObjectsEx"
    )
    return [
        program.waits(
            *("combase!CRpcThreadCache::RpcWorkerThreadEntry", "combase!CRpcThread::WorkerLoop"),
            *("combase!WaitCoalesced", "kernelbase!WaitForMultipleObjectsEx"),
            call="ntdll!NtWaitForMultipleObjects",
        ),
        program.waits(
            *("ntdll!TppWorkerThread", "ntdll!TppAlpcpExecuteCallback", "rpcrt4!LrpcIoComplete"),
            *("rpcrt4!LRPC_ADDRESS::ProcessIO", "rpcrt4!LRPC_SCALL::DispatchRequest"),
            *("rpcrt4!DispatchToStubInCNoAvrf", "rpcrt4!NdrStubCall2", "Server", WAIT_EX),
        ),
        program.waits(
            "main", "combase!CoWaitForMultipleHandles", "combase!ClassicSTAThreadWaitForCall", call=window
        ),
    ]


def window(host: Host64) -> Shows:
    """A program with a window: it waits for messages; a second thread is in a window procedure.

    Up to 8.1 user32 has the stubs of win32k's system calls, later win32u.
    """
    program = host.program("notepad.exe", "user32.dll", "win32u.dll", functions="WinMain WndProc")
    stub = "win32u!NtUserGetMessage" if host.later else "user32!NtUserGetMessage"
    functions = (
        "user32!__fnDWORD",
        "user32!DispatchMessageWorker",
        "user32!UserCallWinProcCheckWow",
        "WndProc",
    )
    return [
        program.waits("WinMain", "user32!GetMessageW", call=stub),
        program.waits("WinMain", "user32!GetMessageW", Through(CALLBACK, stub), *functions, WAIT_EX),
    ]


def alertable(host: Host64) -> Shows:
    """A wait that APCs may interrupt: the routine of one waits itself, below KiUserApcDispatcher."""
    program = host.program("spoolsv.exe", functions="main OnRead")
    through = Through(APC, "ntdll!NtDelayExecution")
    return [program.waits("main", "kernelbase!SleepEx", through, "ntdll!RtlDispatchAPC", "OnRead", WAIT_EX)]


def exception(host: Host64) -> Shows:
    """A program that crashed: its filter waits for the report, above CONTEXT and EXCEPTION_RECORD.

    The context's Rip is where the fault was, and the record beside it has the same address.
    """
    program = host.program("crashed.exe", functions="main Faulting Filter Report")
    thread = program.thread()
    chain = (
        "main",
        "Faulting",
        Through(EXCEPTION),
        "ntdll!RtlDispatchException",
        "ntdll!RtlpExecuteHandlerForException",
    )
    shown = program.waits(*chain, "Filter", "Report", WAIT_EX, thread=thread)
    _, routine = program.frame(f"ntdll!{EXCEPTION}")
    frames = program.stack(thread, (*GROUND, *chain[:3])).frames
    faulted = frames[-2]
    base = frames[-1].sp
    assert routine.alloc > _RECORD
    space = program.process.space
    space.write(base, _context(faulted.address, faulted.sp))
    space.write(base + _RECORD, struct.pack("<IIQQI", _ACCESS_VIOLATION, 0, 0, faulted.address, 2))
    return [shown]


def _context(ip: int, sp: int) -> bytes:
    """A CONTEXT of x64; offsets: winnt.h."""
    data = bytearray(_CONTEXT)
    for offset, value in ((0x30, 0x10001F), (0x38, 0x002B0033), (0x44, 0x246)):
        struct.pack_into("<I", data, offset, value)
    struct.pack_into("<Q", data, 0x98, sp)
    struct.pack_into("<Q", data, 0xF8, ip)
    return bytes(data)


def lock(host: Host64) -> Shows:
    """Threads that wait for a critical section, and one of the C library's own start."""
    program = host.program("worker.exe", "ucrtbase.dll", functions="main Work")
    return [
        program.waits("main", "ntdll!RtlpWaitOnCriticalSection"),
        program.waits(
            *("ucrtbase!thread_start", "Work", "ntdll!RtlpWaitOnCriticalSection"),
            call="ntdll!ZwWaitForAlertByThreadId",
        ),
    ]


def debugged(host: Host64) -> Shows:
    """A program under a debugger, which set a hardware breakpoint in ntdll: DebugPort is not null."""
    program = host.program("target.exe", functions="main")
    program.process.eprocess["DebugPort"] = host.kernel.obj("_EPROCESS").address
    thread = program.thread()
    shown = program.waits("main", WAIT_EX, thread=thread)
    breaks_at(host, thread, program.at("ntdll!NtWaitForSingleObject"))
    return [shown]


def breaks_at(host: Host, thread: Thread, address: int) -> None:
    """Has the first debug register of a thread saved in its trap frame, enabled for execution."""
    isf, frame = host.kernel.isf, thread.kthread["TrapFrame"]
    for name in _DEBUG_REGISTERS:
        value = {"Dr0": address, "Dr7": 0x401}.get(name, 0)
        host.kernel.space.write_int(frame + isf.offset("_KTRAP_FRAME", name), value)
    assert thread.kthread.maybe("Header.DebugActive", 3)


def loading(host: Host64) -> Shows:
    """A process that is being made: LdrInitializeThunk is the ground of its thread, and a DLL loads.

    The CONTEXT with which the thread will go on lies on the stack: its Rip is RtlUserThreadStart.
    """
    program: Program = host.program("starting.exe", "user32.dll", functions="main")
    thread = program.thread(start="main")
    context = program.process.space.allocate(_CONTEXT)
    program.process.space.write(context, _context(program.at(GROUND[0]), thread.user_stack_base - 0x28))
    ground = ("ntdll!LdrInitializeThunk", "ntdll!_LdrpInitialize", "ntdll!LdrpInitializeProcess")
    return [program.waits("ntdll!LdrpDrainWorkQueue", ground=ground, thread=thread)]


SITUATIONS = (service, thread_pool, com, window, alertable, exception, lock, debugged, loading)
