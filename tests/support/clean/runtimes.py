# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runtimes of x64: those that make code in private memory, and those that switch stacks."""

from __future__ import annotations

from tests.forge import sample
from tests.forge.std import Std
from tests.forge.vad import EXECUTE_READ, EXECUTE_READWRITE, EXECUTE_WRITECOPY

from .host64 import GROUND, JITTED, Host64, Private, Shows
from .libraries import place_of

WAIT_EX = "kernelbase!WaitForSingleObjectEx"
_DATABASE = 0x22000000
_SIZE = 0x2000
_CLR = (
    *("clr!Thread::intermediateThreadProc", "clr!ManagedThreadBase_DispatchOuter"),
    *("clr!MethodDescCallSite::CallTargetWorker", "clr!CallDescrWorkerInternal"),
)
_WAITS = ("clr!WaitHandleNative::CorWaitOneNative", "clr!CLREvent::WaitEx", WAIT_EX)


def clr(host: Host64) -> Shows:
    """.NET: managed code lies in private memory, for which clr installed function table callbacks.

    One thread waits below managed code, one was interrupted in it, one was started in it.
    """
    program = host.program("managed.exe", "clr.dll", functions="main")
    base = program.jitted(_SIZE, EXECUTE_READWRITE)
    other = program.jitted(_SIZE, EXECUTE_READWRITE)
    program.register((base, base + _SIZE), (other, other + _SIZE))
    own = program.thread(win32_start=other + JITTED.rva)
    return [
        program.waits(*_CLR, Private(base), Private(other), *_WAITS),
        program.interrupted(*_CLR, Private(base)),
        program.waits(Private(other), *_WAITS, thread=own),
    ]


def clr_past(host: Host64) -> Shows:
    """The same with a stack trace database (+ust): managed callers are in Windows' records, too."""
    program = host.program("recorded.exe", "clr.dll", functions="main", nt_global_flag=0x1000)
    base = program.jitted(_SIZE, EXECUTE_READWRITE)
    program.register((base, base + _SIZE))
    database = Std("6.1", "x64", _DATABASE)
    database.log([program.at(WAIT_EX) + 0x20, base + JITTED.returns(), program.at(_CLR[-1]) + 0x20])
    sample.write(program.process, database)
    ntdll = program.modules["ntdll"][0]
    program.process.space.write_int(ntdll.base + ntdll.pe.sections[2].rva + 0x200, database.base, 8)
    return [program.waits(*_CLR, Private(base), *_WAITS)]


def v8(host: Host64) -> Shows:
    """A browser's page: V8 is linked into the program and registers one growable table for its code range."""
    program = host.program("chrome.exe", "chrome.dll", functions="wWinMain")
    base = program.jitted(0x8000, EXECUTE_READ)
    program.register((base, base + 0x8000))
    ground = ("wWinMain", "chrome!ChromeMain", "chrome!content::RendererMain", "chrome!v8::Execution::Call")
    return [
        program.waits(
            *ground, "chrome!v8::Builtin_JSEntry", Private(base), "chrome!base::WaitableEvent::Wait", WAIT_EX
        ),
        program.interrupted(*ground, "chrome!v8::Builtin_JSEntry", Private(base)),
    ]


def jvm(host: Host64) -> Shows:
    """Java: HotSpot registers one function table for its code cache."""
    program = host.program("java.exe", "jvm.dll", "ucrtbase.dll", functions="main")
    base = program.jitted(0x8000, EXECUTE_READWRITE)
    program.register((base, base + 0x8000))
    ground = (
        "ucrtbase!thread_start",
        "jvm!thread_native_entry",
        "jvm!JavaThread::run",
        "jvm!JavaCalls::call_helper",
    )
    return [program.waits(*ground, Private(base), "jvm!JVM_MonitorWait", "jvm!Monitor::wait", WAIT_EX)]


def warp(host: Host64) -> Shows:
    """WARP draws without a graphics card: its workers wait in d3d10warp; code that it made is on no stack.

    Nothing published says whether it registers function tables: a thread that was interrupted in such code
    may be a finding.
    """
    program = host.program("dwm.exe", "d3d10warp.dll", functions="main")
    for _ in range(3):
        program.jitted(_SIZE, EXECUTE_READ)
    return [program.waits("d3d10warp!WarpThread::Main", "d3d10warp!WarpTask::Run", WAIT_EX) for _ in range(2)]


def defender(host: Host64) -> Shows:
    """Defender's engine translates what it examines to private code; its threads wait in the engine.

    As for WARP nothing is known of function tables: at capture no translated code is on a stack.
    """
    program = host.program("MsMpEng.exe", "mpengine.dll", functions="main")
    program.jitted(0x4000, EXECUTE_READWRITE)
    return [
        program.waits("mpengine!ScanThread", "mpengine!DTContext::Run", "mpengine!WaitForWork", WAIT_EX),
        program.waits("ntdll!TppWorkerThread", call="ntdll!NtWaitForWorkViaWorkerFactory"),
    ]


_GO = "runtime.mstart runtime.mstart1 runtime.schedule runtime.stopm runtime.semasleep runtime.asmstdcall"


_GOEXIT = b"\x90\xe8" + (-6 & 0xFFFFFFFF).to_bytes(4, "little") + b"\x90" + b"\xcc" * 0x79
"""runtime.goexit: nop, a call of goexit1, nop."""


def go(host: Host64) -> Shows:
    """Go: its threads wait on stacks of Windows; a goroutine runs on a stack from Go's own heap.

    Below a goroutine's first function lies the address of runtime.goexit + 1, which no call pushed, and
    NtTib has the limits of another stack.
    """
    functions = f"{_GO} runtime.goexit main.main main.work"
    code = {place_of(functions, "runtime.goexit"): _GOEXIT}
    program = host.program("service.exe", functions=functions, code=code)
    idle = program.waits(*_GO.split())
    thread = program.thread()
    stack = program.process.space.reserve(0x8000)
    program.process.region(stack, size=0x8000)
    shown = program.interrupted("main.main", "main.work", thread=thread, ground=(), base=stack + 0x7000)
    place = stack + 0x7000 - 0x30
    assert program.process.space.read_int(place, 8) == 0
    program.process.space.write_int(place, program.at("runtime.goexit") + 1, 8)
    return [idle, shown._replace(functions=(*shown.functions, "service!runtime.goexit"))]


def fibre(host: Host64) -> Shows:
    """Fibres: a thread on a stack of its own making, the ground of which is the start of a fibre.

    SwitchToFiber changes StackBase and StackLimit in the TEB; FiberData says that the thread is a fibre.
    """
    program = host.program("sqlservr.exe", functions="main Scheduler Fibre")
    ground = "ntdll!RtlUserFiberStart" if host.later else "kernel32!BaseFiberStart"
    shows = [program.waits("main", "Scheduler", WAIT_EX)]
    for _ in range(2):
        thread = program.thread("main")
        stack = program.process.space.reserve(0x4000)
        program.process.region(stack, size=0x4000)
        assert thread.teb is not None
        thread.teb["NtTib.StackBase"] = stack + 0x4000
        thread.teb["NtTib.StackLimit"] = stack
        thread.teb["NtTib.FiberData"] = program.process.space.allocate(0x200)
        thread.teb["SameTebFlags"] = 4
        shows.append(program.waits("Fibre", WAIT_EX, ground=(ground,), base=stack + 0x4000, thread=thread))
    return shows


def mapped_code(host: Host64) -> Shows:
    """A native image of .NET: backed by a file, though by none of the names that clr has."""
    program = host.program("powershell.exe", "clr.dll", functions="main")
    program.load(
        "system.ni.dll", functions="Invoke Wait", path="C:\\Windows\\assembly\\NativeImages\\system.ni.dll"
    )
    assert EXECUTE_WRITECOPY in {vad.protection for vad in program.process.vads}
    return [program.waits(*_CLR, "system_ni!Invoke", "system_ni!Wait", *_WAITS, ground=GROUND)]


SITUATIONS = (clr, clr_past, v8, jvm, warp, defender, go, fibre, mapped_code)
