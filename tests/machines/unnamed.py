# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Innocent programs with code of no file, whose generators no list names.

In most programs that generate code, one DLL generates it, calls it and is called by it: CPython's and PHP's
compilers, QEMU, JavaScriptCore, regular expressions (PCRE2 with sljit), drivers and renderers of graphics
cards, libraries for neural networks, Numba, VBA. A list of such DLLs cannot be complete.
"""

from __future__ import annotations

import dataclasses
from typing import List

from tests.forge import trapentries as entries
from tests.forge.code import SITE, module_options
from tests.forge.vad import EXECUTE_READ, EXECUTE_READWRITE, Vad
from tests.support.clean.host64 import JITTED, Host64, Private, Program
from tests.support.clean.host86 import Host
from tests.support.clean.libraries import DATA_RVA
from tests.support.clean.narrow import WAIT_EX as WAIT_EX_32
from tests.support.clean.narrow import Private32

from .programs import program_32

WAIT_EX, SLEEP = "kernelbase!WaitForSingleObjectEx", "kernelbase!SleepEx"
_PROGRAMS = "C:\\Program Files\\"
_NARROW = 0x21000000
_SIZE = 0x4000
_RESERVED = 1 << 24
_FUNCTIONS = 8


def _program(host: Host64, folder: str, name: str, **files: str) -> Program:
    """A program in a folder of its own, with DLLs of that folder and their functions."""
    program = host.program(name, functions="main Loop Work", folder=f"{_PROGRAMS}{folder}")
    for file, functions in files.items():
        program.load(f"{file}.dll", functions, path=f"{_PROGRAMS}{folder}\\{file}.dll")
    program.waits("main", "Loop", WAIT_EX)
    return program


def _large(program: Program, protection: int = EXECUTE_READ) -> int:
    """The one range that an engine reserves for all of its code; returns the address of some code in it."""
    base = program.process.space.reserve(_RESERVED)
    code = module_options([dataclasses.replace(JITTED, unwind=False)], 0, 64)["contents"]
    program.process.vads.append(Vad(base, _RESERVED, protection=protection))
    for rva, data in code.items():
        program.process.space.write(base + rva, data)
    return base


def _many(program: Program, protection: int = EXECUTE_READ) -> List[int]:
    """The ranges of a compiler that allocates memory for each function."""
    return [program.jitted(protection=protection) for _ in range(_FUNCTIONS)]


def python_jit(host: Host64) -> None:
    """CPython 3.13: its compiler makes each trace memory of its own; a trace calls the interpreter."""
    program = _program(host, "Python313", "python.exe", python313="Py_Main Eval Call Sleep")
    first, second, *_ = _many(program)
    program.waits("main", "python313!Py_Main", "python313!Eval", Private(first), "python313!Sleep", SLEEP)
    program.interrupted("main", "python313!Py_Main", "python313!Eval", Private(second))


def php_jit(host: Host64) -> None:
    """PHP 8: a view of a section that the page file backs, for reading and execution, in each worker."""
    for _ in range(3):
        program = _program(host, "PHP", "php-cgi.exe", php8="php_main execute_ex zend_call")
        base = _large(program)
        program.waits("main", "php8!php_main", "php8!execute_ex", Private(base), "php8!zend_call", WAIT_EX)


def emulator(host: Host64) -> None:
    """QEMU: its translated code is in memory for everything, between two functions of the program itself."""
    program = host.program(
        "qemu-system-x86_64.exe", functions="main cpu_exec helper_io", folder=f"{_PROGRAMS}qemu"
    )
    base = _large(program, EXECUTE_READWRITE)
    program.waits("main", "cpu_exec", Private(base), "helper_io", WAIT_EX)
    program.interrupted("main", "cpu_exec", Private(base))


def script_engine(host: Host64) -> None:
    """JavaScriptCore: a reserved range of code, on both sides the engine."""
    program = _program(host, "Mail", "mail.exe", JavaScriptCore="JSEvaluateScript vmEntry operationCall")
    base = _large(program, EXECUTE_READWRITE)
    chain = ("main", "javascriptcore!JSEvaluateScript", "javascriptcore!vmEntry", Private(base))
    program.waits(*chain, "javascriptcore!operationCall", WAIT_EX)
    program.interrupted(*chain)


def regular_expressions(host: Host64) -> None:
    """PCRE2: a compiled expression in memory for everything; a thread was interrupted in it."""
    program = _program(host, "Editor", "editor.exe", **{"libpcre2-8": "pcre2_match jit_machine"})
    bases = _many(program, EXECUTE_READWRITE)
    program.interrupted("main", "Work", "libpcre2-8!pcre2_match", "libpcre2-8!jit_machine", Private(bases[0]))


def graphics_driver(host: Host64) -> None:
    """A driver of a graphics card, in DriverStore: shaders, called by and calling the driver."""
    folder = "C:\\Windows\\System32\\DriverStore\\FileRepository\\nv_dispi.inf_amd64"
    program = _program(host, "Viewer", "viewer.exe")
    program.load("nvoglv64.dll", "DrvPresent Compile Run Wait", path=f"{folder}\\nvoglv64.dll")
    base, *_ = _many(program)
    program.waits("main", "nvoglv64!DrvPresent", "nvoglv64!Run", Private(base), "nvoglv64!Wait", WAIT_EX)
    program.interrupted("nvoglv64!Compile", "nvoglv64!Run", Private(base))


def software_renderer(host: Host64) -> None:
    """llvmpipe: its workers run code that LLVM made; one waits for a page there."""
    program = _program(host, "Modeller", "modeller.exe", libgallium_wgl="thread_function rasterize")
    bases = _many(program)
    chain = ("libgallium_wgl!thread_function", "libgallium_wgl!rasterize")
    for base in bases[:2]:
        program.interrupted(*chain, Private(base), kind=entries.PAGE_FAULT)
    program.waits(chain[0], WAIT_EX)


def neural_network(host: Host64) -> None:
    """oneDNN in PyTorch: kernels that it made, interrupted on two threads of its pool."""
    program = _program(
        host, "Python311\\Lib\\site-packages\\torch\\lib", "trainer.exe", torch_cpu="omp_worker dnnl_execute"
    )
    base, *_ = _many(program, EXECUTE_READWRITE)
    for _ in range(2):
        program.interrupted("torch_cpu!omp_worker", "torch_cpu!dnnl_execute", Private(base))


def numba(host: Host64) -> None:
    """Numba: each function is an object of LLVM in memory of its own; a wrapper calls the kernel."""
    program = _program(host, "Anaconda", "python.exe", python311="Py_Main Eval", llvmlite="LLVMPY_Run")
    wrapper, kernel, *_ = _many(program)
    program.interrupted("main", "python311!Py_Main", "python311!Eval", Private(wrapper), Private(kernel))


def office_macro(host: Host64) -> None:
    """VBA: compiled macros between two functions of VBE7, in an Office program."""
    program = _program(host, "Microsoft Office", "excel.exe")
    folder = f"{_PROGRAMS}Common Files\\Microsoft Shared\\VBA\\VBA7.1"
    program.load("VBE7.dll", "rtcRun EbCall rtcSleep", path=f"{folder}\\VBE7.dll")
    base = program.jitted(0x4000, EXECUTE_READWRITE)
    program.waits("main", "vbe7!rtcRun", "vbe7!EbCall", Private(base), "vbe7!rtcSleep", SLEEP)


def window_thunk(host: Host, behind: str = "59 83 c4 10 ff e1") -> None:
    """32 bits: a thunk of AutoHotkey's CallbackCreate, which user32 calls and which calls the program.

    `behind` is the code to which the call returns: pop ecx; add esp, 16; jmp ecx.
    """
    program = program_32(
        *(host, "AutoHotkey.exe", "user32.dll"), functions="main Dispatch Callback", folder=f"{_PROGRAMS}64"
    )
    program.process.region(_NARROW, size=_SIZE, protection=EXECUTE_READWRITE)
    pointer = program.narrow.modules[""][0].base + DATA_RVA
    program.narrow.space.write(pointer, program.narrow.at("Callback").to_bytes(4, "little"))
    before = bytes.fromhex("e8 00 00 00 00 8d 44 24 08 50 ff 15") + pointer.to_bytes(4, "little")
    program.narrow.space.write(
        _NARROW + 0x100 + 2 * SITE - len(before), before + bytes.fromhex(f"{behind} cc")
    )
    window = ("user32!DispatchMessageWorker", "user32!UserCallWinProcCheckWow")
    program.waits("main", "Dispatch", *window, Private32(_NARROW), "Callback", WAIT_EX_32)


PROGRAMS = (
    *(python_jit, php_jit, emulator, script_engine, regular_expressions, graphics_driver),
    *(software_renderer, neural_network, numba, office_macro, window_thunk),
)
