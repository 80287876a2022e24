# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of clean images: which functions each has, where these lie, and what a system call stub is.

Names are those of Microsoft's symbols; one with a dot in front is in the PDB only, all others are exported.
Functions lie 80h bytes apart from 1100h on, in the order of their names. Code is call sites and nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from typing import Any, Dict, List, Tuple

from tests.forge.code import R12, R13, R14, R15, RBP, RBX, RDI, RSI, Routine, module_options

FIRST, STEP, STUB_STEP = 0x1100, 0x80, 0x20
TEXT, RDATA, DATA = 0x6000, 0x3000, 0x1000
UNWIND_RVA = 0x1000 + TEXT + 0x2000
"""Unwind data, behind export tables."""
DATA_RVA = 0x1000 + TEXT + RDATA
HEAD_RVA = DATA_RVA + 0x100
"""The head of ntdll's list of function tables."""
GETTER = "RtlGetFunctionTableListHead"

FOLDERS = {
    "clr": "\\Windows\\Microsoft.NET\\Framework64\\v4.0.30319",
    "chrome": "\\Program Files\\Google\\Chrome\\Application",
    "jvm": "\\Program Files\\Java\\jre\\bin\\server",
    "mpengine": "\\ProgramData\\Microsoft\\Windows Defender\\Definition Updates",
    "autohotkey": "\\Program Files\\AutoHotkey",
    "guard": "\\Program Files\\Guard",
    "guard32": "\\Program Files\\Guard",
    **dict.fromkeys(("vk_swiftshader", "ms-teams"), "\\Program Files\\WindowsApps\\Teams"),
    **dict.fromkeys(("bash", "mintty", "msys-2"), "\\Program Files\\Git\\usr\\bin"),
    **dict.fromkeys(("ruby", "x64-msvcrt-ruby300"), "\\Ruby\\bin"),
    **dict.fromkeys(("python", "libffi-8", "_ctypes"), "\\Users\\ann\\Python"),
    **dict.fromkeys(("game", "shooter", "boost", "overlay64", "mono-2", "lua51"), "\\Program Files\\Games"),
}
"""Where modules lie that are not Windows' own."""

FUNCTIONS = {
    "ntdll": "RtlUserThreadStart LdrInitializeThunk KiUserExceptionDispatcher KiUserApcDispatcher "
    "KiUserCallbackDispatcher RtlGetFunctionTableListHead ._LdrpInitialize .LdrpInitializeProcess "
    ".TppWorkerThread .TppTimerpExecuteCallback .RtlpTpTimerCallback .RtlpTpWaitCallback "
    ".TppWorkpExecuteCallback .TppAlpcpExecuteCallback .RtlDispatchException .RtlpExecuteHandlerForException "
    "RtlUserFiberStart .RtlpTpWorkCallback .LdrpDrainWorkQueue .RtlpWaitOnCriticalSection RtlDispatchAPC "
    ".RtlpCallVectoredHandlers .LdrpCallInitRoutine .RtlpProcessReflectionStartup "
    "RtlExitUserThread",
    "kernel32": "BaseThreadInitThunk BaseFiberStart",
    "kernelbase": "WaitForSingleObjectEx WaitForMultipleObjectsEx SleepEx CreateFileW DeviceIoControl "
    "GetQueuedCompletionStatus WaitForSingleObject VirtualProtect MapViewOfFile EnumSystemLocalesEx "
    "BaseDllReadWriteIniFile",
    "user32": "GetMessageW .DispatchMessageWorker .UserCallWinProcCheckWow .__fnDWORD",
    "win32u": "._guard_dispatch_icall_nop",
    "combase": ".CRpcThreadCache::RpcWorkerThreadEntry .CRpcThread::WorkerLoop .WaitCoalesced "
    "CoWaitForMultipleHandles .ClassicSTAThreadWaitForCall",
    "rpcrt4": ".LrpcIoComplete .LRPC_ADDRESS::ProcessIO .LRPC_SCALL::DispatchRequest NdrStubCall2 "
    ".DispatchToStubInCNoAvrf",
    "sechost": "StartServiceCtrlDispatcherW .QueryServiceDispatch .ScDispatcherLoop .ScSvcctrlThreadW",
    "ucrtbase": "._o__beginthreadex .thread_start",
    "clr": ".Thread::intermediateThreadProc .ManagedThreadBase_DispatchOuter "
    ".MethodDescCallSite::CallTargetWorker .CallDescrWorkerInternal .CLREvent::WaitEx "
    ".WaitHandleNative::CorWaitOneNative",
    "chrome": "ChromeMain .content::RendererMain .v8::Execution::Call .v8::Builtin_JSEntry "
    ".v8::Builtins_WasmCompileLazy .base::WaitableEvent::Wait .sandbox::TargetNtMapViewOfSection "
    ".sandbox::TargetNtCreateFile",
    "jvm": ".thread_native_entry .JavaThread::run .JavaCalls::call_helper .Monitor::wait JVM_MonitorWait "
    "gHotSpotVMStructs gHotSpotVMStructEntryTypeNameOffset gHotSpotVMStructEntryFieldNameOffset "
    "gHotSpotVMStructEntryOffsetOffset gHotSpotVMStructEntryAddressOffset gHotSpotVMStructEntryArrayStride",
    "d3d10warp": ".WarpThread::Main .WarpTask::Run .JitCompile",
    "mpengine": ".ScanThread .DTContext::Run .WaitForWork",
    "guard": ".HookNtCreateFile .HookNtWaitForSingleObject",
    "guard32": "HookNtCreateFile",
    "vk_swiftshader": ".marl::Scheduler::Worker::run .sw::PixelProcessor::draw",
    "msys-2.0": "sigsetjmp .call_signal_handler ._sigbe .pthread_wrapper",
    "x64-msvcrt-ruby300": "ruby_run_node .fiber_start .rb_fiber_terminate",
    "libffi-8": "ffi_call ffi_closure_win64_inner",
    "_ctypes": "PyInit__ctypes .closure_fcn ._CallPythonObject",
    "overlay64": "OverlayInit .HookPresent .HookCreateProcessW",
    "mono-2.0-bdwgc": "mono_jit_init .mono_thread_start .mono_runtime_invoke .mono_wait",
    "lua51": "luaJIT_setmode lua_pcall .lj_vm_call .lj_ffi_callback_enter .lua_sleep",
    "advapi32": "SystemFunction032 CryptAcquireContextW",
    "amsi": "AmsiScanBuffer AmsiInitialize",
    "wow64": ".Wow64LdrpInitialize .RunCpuSimulation Wow64SystemServiceEx .whNtWaitForSingleObject",
    "wow64cpu": "BTCpuSimulate .ServiceNoTurbo",
    "wow64win": ".whNtUserGetMessage",
}
STUBS = {
    "ntdll": "NtWaitForSingleObject NtDelayExecution NtCreateFile NtDeviceIoControlFile NtContinue "
    "NtMapViewOfSection NtRemoveIoCompletion NtWaitForWorkViaWorkerFactory NtWaitForMultipleObjects "
    "NtSuspendThread NtAlpcSendWaitReceivePort NtOpenFile NtReadFile ZwWaitForAlertByThreadId",
    "win32u": "NtUserGetMessage NtUserMsgWaitForMultipleObjectsEx NtUserWaitMessage",
    "wow64win": "NtUserGetMessage NtUserWaitMessage",
}
JUMPS = {"BaseDllReadWriteIniFile": {0x15: b"\xff\x23", 0x20: b"\xff\x27", 0x35: b"\xff\xe3"}}
"""Functions with jumps through a register: behind no call, behind one, and by the register itself."""
MACHINE_FRAMES = {
    "KiUserExceptionDispatcher": 0x590,
    "KiUserApcDispatcher": 0x4D0,
    "KiUserCallbackDispatcher": 0x30,
}
_PADDING = b"\x0f\x1f\x84\0\0\0\0\0"
"""A nop of 8 bytes, between two stubs of Windows 10."""
_SHAPES = (
    Routine(0, pushes=(RBX,), alloc=0x20),
    Routine(0, pushes=(RBX, RSI, RDI, R14), alloc=0x48),
    Routine(0, pushes=(RBP, R15), alloc=0x100, frame=(RBP, 0x40), saves={R12: 0x88}),
    Routine(0, alloc=0x28),
    Routine(0, pushes=(RDI,), alloc=0x30, saves={RBX: 0x48}),
    Routine(0, pushes=(RBX, RBP, RSI, RDI, R12, R13, R14, R15), alloc=0x68),
)


@dataclasses.dataclass(frozen=True)
class Library:
    """A module's functions, by name; `stubs` are the RVAs of system call stubs with their numbers."""

    file: str
    path: str
    routines: Dict[str, Routine]
    stubs: Dict[str, Tuple[int, int]]
    options: Dict[str, Any]


def place_of(functions: str, name: str) -> int:
    """RVA of a function among those of a program."""
    return FIRST + STEP * functions.split().index(name)


def shaped(rva: int, number: int, name: str = "") -> Routine:
    """A function with one of several frames; the dispatchers of ntdll lie above a machine frame."""
    if name in MACHINE_FRAMES:
        return Routine(rva, machine_frame=True, error_code=False, alloc=MACHINE_FRAMES[name])
    return dataclasses.replace(_SHAPES[number % len(_SHAPES)], rva=rva)


def stub(number: int, later: bool) -> bytes:
    """A system call stub of x64: mov r10, rcx; mov eax, number; (test, jne;) syscall; ret; (int 2Eh; ret)."""
    begin = b"\x4c\x8b\xd1\xb8" + struct.pack("<I", number)
    if not later:
        return begin + b"\x0f\x05\xc3"
    return begin + bytes.fromhex("f604250803fe7f01 7503 0f05c3 cd2ec3")


def behind(later: bool, interrupt: bool = False) -> int:
    """Distance from a stub's start to what is behind its `syscall`, or its `int 2Eh`."""
    return len(stub(0, later)) - (1 if interrupt or not later else 4)


def names_of(stem: str, later: bool) -> Tuple[List[str], List[str]]:
    """The functions and the stubs of a module; up to 8.1 user32 has the stubs of win32u."""
    functions, stubs = FUNCTIONS.get(stem, "").split(), STUBS.get(stem, "").split()
    if stem == "user32" and not later:
        stubs = STUBS["win32u"].split()
    return functions, stubs


def path_of(file: str) -> str:
    """Where a module lies."""
    folder = FOLDERS.get(file.partition(".")[0].lower(), "\\Windows\\System32")
    return f"C:{folder}\\{file}"


@functools.lru_cache(maxsize=None)
def library(file: str, later: bool, base: int, functions: str = "") -> Library:
    """A module of x64.

    Args:
        file: its name
        later: it is of Windows 10 or 11
        base: where it will lie
        functions: their names, if it is none of FUNCTIONS
    """
    stem = file.rpartition(".")[0].lower()
    known, stubs = names_of(stem, later)
    names = functions.split() or known
    routines = {
        name.lstrip("."): shaped(FIRST + STEP * place, place + len(file), name.lstrip("."))
        for place, name in enumerate(names)
    }
    options = module_options(list(routines.values()), UNWIND_RVA, 64)
    contents = options["contents"]
    for name, jumps in JUMPS.items():
        code = bytearray(contents[routines[name].rva] if name in routines else b"")
        for offset, jump in jumps.items() if code else ():
            code[offset : offset + len(jump)] = jump
        if code:
            contents[routines[name].rva] = bytes(code)
    services = {}
    start = -(-(FIRST + STEP * len(names)) // 0x100) * 0x100
    first = 1 if stem == "ntdll" else 0x1001
    for place, name in enumerate(stubs):
        services[name] = start + STUB_STEP * place, first + 3 * place
        contents[services[name][0]] = stub(services[name][1], later) + (_PADDING if later else b"")
    if GETTER in routines:
        getter = routines[GETTER].rva
        contents[getter] = b"\x48\x8d\x05" + struct.pack("<i", HEAD_RVA - getter - 7) + b"\xc3"
        contents[HEAD_RVA] = struct.pack("<QQ", base + HEAD_RVA, base + HEAD_RVA)
    exports = {name: routines[name].rva for name in names if name[0] != "."}
    exports.update((name, rva) for name, (rva, _) in services.items())
    if len(exports) < len(names) + len(stubs):
        symbols = {name: routine.rva for name, routine in routines.items()}
        options["symbols"] = {**symbols, **{name: rva for name, (rva, _) in services.items()}}
    options.update(text=TEXT, rdata=RDATA, data=DATA, exports=exports)
    return Library(file, path_of(file), routines, services, options)
