# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Programs of a machine in use that look odd on their stacks, and are innocent."""

from __future__ import annotations

import struct
from typing import Union

from tests.forge import trapentries as entries
from tests.forge.code import Routine
from tests.forge.obj import Obj
from tests.forge.space import Space
from tests.forge.stacks64 import Stack64
from tests.forge.trapentries import Entry
from tests.forge.vad import EXECUTE_READ, EXECUTE_READWRITE
from tests.support.clean import codelists
from tests.support.clean.everyday import breaks_at
from tests.support.clean.host64 import POISON, PREEMPTED, Host64, Private, Program
from tests.support.clean.host86 import AnyProgram, Host, Host86, Program86
from tests.support.clean.narrow import WAIT_EX as WAIT_EX_32
from tests.support.clean.narrow import Private32, code_of
from tests.support.clean.wow import Program32
from tests.support.trapsets import registers_64

WAIT_EX = "kernelbase!WaitForSingleObjectEx"
_CODE, _OTHER = 0x21000000, 0x21800000
_SIZE = 0x4000
_EXPORTS = 0x80 + 0x88
"""Where the headers of forged images have the RVA of the export directory."""
_CLR = ("clr!Thread::intermediateThreadProc", "clr!CallDescrWorkerInternal")
_JVM = ("jvm!thread_native_entry", "jvm!JavaThread::run", "jvm!JavaCalls::call_helper")


AnyProgram32 = Union[Program32, Program86]


def program_32(host: Host, name: str, *files: str, functions: str, folder: str = "") -> AnyProgram32:
    """A program of 32 bits: under WoW64 or on x86. `folder` has the program of the 64-bit half."""
    if isinstance(host, Host86):
        return host.program(name, *files, functions=functions)
    return Program32(host, name, *files, functions=functions, folder=folder)


def _made_32(program: AnyProgram32) -> None:
    """Two ranges with code that a runtime of 32 bits made."""
    for base in (_CODE, _OTHER):
        program.process.region(base, size=_SIZE, protection=EXECUTE_READWRITE)
        program.narrow.space.write(base + 0x100, code_of(Routine(0x100)))


def dotnet_32(host: Host, name: str) -> None:
    """.NET Framework of 32 bits: managed code waits through clr, and through a P/Invoke of its own."""
    program = program_32(host, name, "clr.dll", functions="main")
    _made_32(program)
    codelists.clr(program.narrow, _CODE, _CODE + _SIZE)
    program.waits(*_CLR, Private32(_CODE), "clr!CLREvent::WaitEx", WAIT_EX_32)
    program.waits(*_CLR, Private32(_CODE), WAIT_EX_32)


def winforms(host: Host, name: str) -> None:
    """WinForms: a window procedure in managed code, called by user32, which managed code called."""
    program = program_32(host, name, "clr.dll", "user32.dll", functions="main")
    _made_32(program)
    codelists.clr(program.narrow, _CODE, _CODE + _SIZE)
    functions = ("user32!DispatchMessageWorker", "user32!UserCallWinProcCheckWow")
    program.waits(*_CLR, Private32(_CODE), *functions, Private32(_CODE), "clr!CLREvent::WaitEx", WAIT_EX_32)


def java_32(host: Host, name: str) -> None:
    """Java of 32 bits: compiled code calls the JVM, and one thread was interrupted in it."""
    program = program_32(host, name, "jvm.dll", functions="main")
    _made_32(program)
    codelists.hotspot(program.narrow, _CODE, _CODE + _SIZE)
    program.waits(*_JVM, Private32(_CODE), "jvm!JVM_MonitorWait", "jvm!Monitor::wait", WAIT_EX_32)
    program.faults(*_JVM, Private32(_CODE))


def java_ide(host: Host64, name: str) -> None:
    """A Java IDE: HotSpot of 64 bits, many threads."""
    program = host.program(name, "jvm.dll", "user32.dll", "win32u.dll", functions="main")
    base = program.jitted(0x8000, EXECUTE_READWRITE)
    program.register((base, base + 0x8000))
    for _ in range(6):
        program.waits(*_JVM, Private(base), "jvm!JVM_MonitorWait", "jvm!Monitor::wait", WAIT_EX)
    program.waits("jvm!thread_native_entry", "jvm!Monitor::wait", WAIT_EX)


def coreclr_service(host: Host64, name: str) -> None:
    """A .NET service of 64 bits, whose code has function tables."""
    program = host.program(name, "clr.dll", functions="main")
    base = program.jitted(_SIZE, EXECUTE_READWRITE)
    program.register((base, base + _SIZE))
    program.waits(
        *_CLR, Private(base), "clr!WaitHandleNative::CorWaitOneNative", "clr!CLREvent::WaitEx", WAIT_EX
    )
    program.waits("clr!Thread::intermediateThreadProc", "clr!CLREvent::WaitEx", WAIT_EX)
    program.interrupted(*_CLR, Private(base))


def electron(host: Host64, name: str, children: int = 4) -> None:
    """A program like Teams: V8 is linked into it, and registers its code range; renderers run JavaScript."""
    functions = "wWinMain .v8::Execution::Call .v8::internal::Builtin napi_module_register .uv_run"
    for number in range(children + 1):
        program = host.program(name, "user32.dll", "win32u.dll", functions=functions)
        program.waits("wWinMain", "uv_run", WAIT_EX)
        program.waits("wWinMain", "uv_run", WAIT_EX)
        if number:
            base = program.jitted(0x8000)
            program.register((base, base + 0x8000))
            chain = ("wWinMain", "v8::Execution::Call", Private(base), "v8::internal::Builtin", WAIT_EX)
            program.waits(*chain)


def electron_32(host: Host, name: str) -> None:
    """Electron of 32 bits: nothing registers its code; JavaScript waits in a builtin of the program."""
    functions = "main napi_module_register Call Builtin"
    program = program_32(host, name, functions=functions)
    _made_32(program)
    program.waits("main", "Call", Private32(_CODE), "Builtin", WAIT_EX_32)


def bare_node(host: Host64, name: str) -> None:
    """Node without unwind data: JavaScript waits in a builtin."""
    program = host.program(
        name, functions="main .v8::Execution::Call .v8::internal::Builtin napi_module_register"
    )
    base = program.jitted(0x8000, EXECUTE_READWRITE)
    program.waits("main", "v8::Execution::Call", Private(base), "v8::internal::Builtin", WAIT_EX)


def mono_game(host: Host, name: str) -> None:
    """An older game of Unity: Mono registers no code; it waits through Mono."""
    program = program_32(host, name, "mono-2.0-bdwgc.dll", functions="main")
    _made_32(program)
    program.waits(
        *("mono-2.0-bdwgc!mono_thread_start", "mono-2.0-bdwgc!mono_runtime_invoke"),
        *(Private32(_CODE), "mono-2.0-bdwgc!mono_wait", WAIT_EX_32),
    )


def luajit_game(host: Host64, name: str) -> None:
    """A game with LuaJIT, which registers no code, and an overlay that hooks it by way of a relay."""
    program = host.program(
        name, "lua51.dll", "overlay64.dll", "user32.dll", "win32u.dll", functions="main Frame"
    )
    base = program.jitted(_SIZE, EXECUTE_READ)
    program.waits("main", "lua51!lua_pcall", "lua51!lj_vm_call", Private(base), "lua51!lua_sleep", WAIT_EX)
    place, target = program.at("kernelbase!CreateFileW"), program.at("overlay64!HookCreateProcessW")
    relay = place + 0x800000
    program.process.region(relay & ~0xFFF, size=0x1000, protection=EXECUTE_READ)
    program.process.space.write(relay, b"\xff\x25\0\0\0\0" + struct.pack("<Q", target))
    program.process.space.write(place, b"\xe9" + struct.pack("<i", relay - place - 5))
    program.waits("main", "Frame", "kernelbase!CreateFileW", WAIT_EX)


def swiftshader(host: Host64, name: str) -> None:
    """The GPU process of a browser without graphics card: a worker was interrupted in code of SwiftShader."""
    program = host.program(name, "chrome.dll", "vk_swiftshader.dll", functions="wWinMain")
    base = program.jitted(0x2000, EXECUTE_READ)
    program.waits("wWinMain", "chrome!ChromeMain", "chrome!base::WaitableEvent::Wait", WAIT_EX)
    chain = ("vk_swiftshader!marl::Scheduler::Worker::run", "vk_swiftshader!sw::PixelProcessor::draw")
    program.interrupted(*chain, Private(base))
    program.waits(chain[0], WAIT_EX)


def defender(host: Host64, name: str) -> None:
    """Defender: its engine was interrupted in code that it translated."""
    program = host.program(name, "mpengine.dll", functions="main")
    base = program.jitted(_SIZE, EXECUTE_READWRITE)
    program.waits("mpengine!ScanThread", "mpengine!DTContext::Run", "mpengine!WaitForWork", WAIT_EX)
    program.interrupted("mpengine!ScanThread", "mpengine!DTContext::Run", Private(base))


def git_bash(host: Host64, name: str) -> None:
    """Git Bash: a signal handler of Cygwin returns to _sigbe, which nothing called."""
    program = host.program(name, "msys-2.0.dll", functions="main loop")
    thread = program.thread("main")
    program.waits("main", "loop", "msys-2_0!_sigbe", "msys-2_0!call_signal_handler", WAIT_EX, thread=thread)
    behind_no_call(program, thread.user_stack_limit, 0x4000, "msys-2_0!_sigbe")


def own_stack(host: Host64, name: str, ground: str, *files: str) -> None:
    """A coroutine: its stack is memory of its own, with the TEB's limits, and ends in `ground`."""
    program = host.program(name, *files, functions="main context finish work")
    program.waits("main", WAIT_EX)
    thread = program.thread("main")
    stack = program.process.space.reserve(0x4000)
    program.process.region(stack, size=0x4000)
    assert thread.teb is not None
    thread.teb["NtTib.StackBase"] = stack + 0x4000
    thread.teb["NtTib.StackLimit"] = stack
    program.waits("work", WAIT_EX, ground=(ground,), base=stack + 0x4000, thread=thread)
    behind_no_call(program, stack, 0x4000, ground)


def behind_no_call(program: Program, start: int, size: int, function: str) -> None:
    """Has a stack return to a place in a function where no call is, instead of behind its first one."""
    base, routine = program.frame(function)
    space, return_address = program.process.space, base + routine.returns()
    place = next(at for at in range(start, start + size, 8) if space.read_int(at, 8) == return_address)
    space.write_int(place, base + routine.rva + 0x11, 8)


def closure(host: Host64, name: str) -> None:
    """Python: a thread was started at a closure of libffi, which jumps into its module."""
    program = host.program(name, "libffi-8.dll", "_ctypes.dll", functions="main")
    base = program.process.space.reserve(0x1000)
    target = program.at("libffi-8!ffi_closure_win64_inner")
    code = b"\xf3\x0f\x1e\xfa\x4c\x8d\x15\xf5\xff\xff\xff\xff\x25\x02\0\0\0\0\0" + struct.pack("<Q", target)
    program.process.region(base, code, size=0x1000, protection=EXECUTE_READ)
    program.waits("main", WAIT_EX)
    chain = ("libffi-8!ffi_closure_win64_inner", "_ctypes!closure_fcn", "_ctypes!_CallPythonObject", WAIT_EX)
    program.waits(*chain, thread=program.thread(win32_start=base))


def protected(host: Host64, name: str) -> None:
    """A protector changed SizeOfImage in the loader's entry of the program."""
    program = host.program(name, functions="main")
    entry = program.modules[""][0].entry
    assert entry is not None
    entry["SizeOfImage"] = 0x3000
    program.waits("main", WAIT_EX)


def guarded_exports(host: Host64, name: str) -> None:
    """EMET and exploit protection watch reads of the export tables of ntdll and kernelbase."""
    program = host.program(name, functions="main")
    thread = program.thread()
    program.waits("main", WAIT_EX, thread=thread)
    ntdll = program.modules["ntdll"][0].base
    breaks_at(host, thread, ntdll + program.process.space.read_int(ntdll + _EXPORTS, 4) + 0x1C)
    host.kernel.space.write_int(
        thread.kthread["TrapFrame"] + host.kernel.isf.offset("_KTRAP_FRAME", "Dr7"), 0xF0401, 8
    )


def hard_link(host: Host64, name: str) -> None:
    """A program with two names: rustup's cargo.exe is a hard link to rustup.exe."""
    program = host.program(name, functions="main")
    isf, space, process = host.kernel.isf, host.kernel.space, program.process.eprocess
    path = f"\\Device\\HarddiskVolume2\\Users\\ann\\.cargo\\bin\\{name}"
    section = program.modules[""][0].section
    assert section is not None
    file = host.kernel.file(section.path)
    _put(
        space,
        Obj(space, isf, "_UNICODE_STRING", file.at("FileName")),
        "\\Users\\ann\\.cargo\\bin\\rustup.exe",
    )
    kind = "_SECTION" if isf.has("_SECTION", "u1.ControlArea") else "_SECTION_OBJECT"
    opened = Obj(space, isf, kind, space.allocate(0x100))
    if kind == "_SECTION":
        opened["u1.ControlArea"] = section.control_area.address
    else:
        opened["Segment"] = space.allocate(0x100)
        space.write_int(
            opened["Segment"] + isf.offset("_SEGMENT", "ControlArea"), section.control_area.address
        )
    process["SectionObject"] = opened.address
    audit = Obj(space, isf, "_UNICODE_STRING", space.allocate(0x20))
    _put(space, audit, path)
    process["SeAuditProcessCreationInfo.ImageFileName"] = audit.address
    program.waits("main", WAIT_EX)


def _put(space: Space, string: Obj, text: str) -> None:
    """Writes a UNICODE_STRING."""
    data = text.encode("utf-16-le")
    place = space.allocate(len(data))
    space.write(place, data)
    string["Length"], string["MaximumLength"], string["Buffer"] = len(data), len(data), place


def hypercall(host: Host64, code: bytes = (b"\x0f\x01\xc1\xc3" * 4).ljust(0x1000, b"\x90")) -> None:
    """A thread of the kernel that was interrupted in the hypercall page: vmcall, ret, and nothing else."""
    page = host.kernel.space.reserve(0x1000)
    host.kernel.space.write(page, code)
    thread = host.kernel.system.thread(host.number(), teb=False)
    stack = Stack64(host.kernel.space, thread.stack_base).start()
    host.descend(stack, ("KiStartSystemThread", "PspSystemThreadStartup", "KeBalanceSetManager"))
    stack.interrupt(Entry(entries.DEVICE, "kernel"), page + 3, registers_64("kernel"), POISON)
    host.descend(stack, ("KiInterruptDispatch",))
    host.switch_out(thread, stack, PREEMPTED)


def ordinary(host: Host, name: str, *files: str, threads: int = 2) -> AnyProgram:
    """A program without anything odd: it waits, and so does a worker of its thread pool."""
    program = host.program(name, *files, functions="main Loop Work")
    for _ in range(threads):
        program.waits("main", "Loop", WAIT_EX)
    program.waits("ntdll!TppWorkerThread", call="ntdll!NtWaitForWorkViaWorkerFactory")
    return program


def ordinary_32(host: Host, name: str) -> None:
    """The same of 32 bits."""
    program = program_32(host, name, functions="main Loop")
    program.waits("main", "Loop", WAIT_EX_32)
