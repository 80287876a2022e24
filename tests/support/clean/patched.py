# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code of x64 that differs from its file for good reasons, and code that resembles gadgets."""

from __future__ import annotations

import struct

from tests.forge.code import Routine
from tests.forge.vad import EXECUTE_READ

from .host64 import Host64, Program, Shows
from .libraries import STUB_STEP, behind, place_of, stub

WAIT_EX = "kernelbase!WaitForSingleObjectEx"
_SANDBOXED = ("NtCreateFile", "NtOpenFile", "NtMapViewOfSection")


def browser(host: Host64) -> Shows:
    """A browser's parent and two children: in each child ntdll's stubs lead to thunks in private memory.

    The broker patches them before the child runs: mov eax, number; mov rdx, thunk; jmp rdx. A thunk jumps on
    into the browser. All children have the same thunks, and wait in stubs that were left alone.
    """
    shows = [host.program("msedge.exe", functions="wWinMain Loop").waits("wWinMain", "Loop", WAIT_EX)]
    for _ in range(2):
        program = host.program("msedge.exe", "chrome.dll", functions="wWinMain Loop")
        intercept(program)
        shows.append(
            program.waits("wWinMain", "chrome!ChromeMain", "chrome!base::WaitableEvent::Wait", WAIT_EX)
        )
        shows.append(program.waits("chrome!content::RendererMain", WAIT_EX))
    return shows


def in_a_thunk(host: Host64) -> Shows:
    """A child that waits in a call of its sandbox: the browser goes on by its copy of a patched stub."""
    program = host.program("chrome.exe", "chrome.dll", functions="wWinMain")
    copy = intercept(program) + 0x40 * _SANDBOXED.index("NtMapViewOfSection")
    chain = ("wWinMain", "kernelbase!MapViewOfFile", "chrome!sandbox::TargetNtMapViewOfSection")
    shown = program.waits(*chain, call="ntdll!NtMapViewOfSection", ip=copy + behind(host.later))
    return [shown._replace(functions=("<private>", *shown.functions))]


def intercept(program: Program) -> int:
    """Patches stubs as a sandbox's broker does; returns the address of the thunks.

    Each thunk has a copy of the stub that it replaces, and the jump into the browser behind it.
    """
    base = program.process.space.reserve(0x1000)
    program.process.region(base, size=0x1000, protection=EXECUTE_READ)
    target = program.at("chrome!sandbox::TargetNtCreateFile")
    for place, name in enumerate(_SANDBOXED):
        thunk = base + 0x40 * place
        number = program.service(f"ntdll!{name}")
        jump = b"\x48\xb8" + struct.pack("<Q", target) + b"\xff\xe0"
        program.process.space.write(thunk, stub(number, program.host.later).ljust(0x20, b"\xcc") + jump)
        patch = b"\x4c\x8b\xd1\xb8" + struct.pack("<I", number)
        patch += b"\x48\xba" + struct.pack("<Q", thunk + 0x20) + b"\xff\xe2"
        assert len(patch) <= STUB_STEP
        program.process.space.write(program.at(f"ntdll!{name}"), patch)
    return base


def guarded(host: Host64) -> Shows:
    """A security product in two processes: it has put a jump into its own module in front of functions.

    The hooks of ntdll's stubs and of kernelbase lead into guard.dll, a file. One thread waits in such a hook:
    the stub behind the jump is reached by a copy of its first instructions, which no return address shows.
    """
    shows = []
    for name in ("winword.exe", "excel.exe"):
        program = host.program(name, "guard.dll", functions="wWinMain Open")
        for function in ("ntdll!NtCreateFile", "ntdll!NtMapViewOfSection", "kernelbase!CreateFileW"):
            hook(program, function, "guard!HookNtCreateFile")
        shows.append(program.waits("wWinMain", WAIT_EX))
        shows.append(
            program.waits(
                "Open", "kernelbase!CreateFileW", "guard!HookNtCreateFile", call="ntdll!NtCreateFile"
            )
        )
    return shows


def hook(program: Program, function: str, target: str) -> None:
    """Puts a jump to a function in front of another."""
    place = program.at(function)
    program.process.space.write(place, b"\xe9" + struct.pack("<i", program.at(target) - place - 5))


def interrupt_2e(host: Host64) -> Shows:
    """A system whose hypervisor asks for it (10 and later): stubs call the kernel by int 2Eh."""
    program = host.program("ctfmon.exe", "user32.dll", "win32u.dll", functions="main")
    if not host.later:
        return [program.waits("main", WAIT_EX)]
    return [
        program.waits("main", WAIT_EX, interrupt=True),
        program.waits("main", "user32!GetMessageW", call="win32u!NtUserGetMessage", interrupt=True),
    ]


def entry_jumps(host: Host64) -> Shows:
    """A debug build of MSVC: each function is called through a jump at the start of .text (/INCREMENTAL).

    The thread was started at such a jump.
    """
    functions = "main Worker"
    jumps = {0x1000 + 5 * place: place_of(functions, name) for place, name in enumerate(functions.split())}
    code = {rva: b"\xe9" + struct.pack("<i", target - rva - 5) for rva, target in jumps.items()}
    program = host.program("debugbuild.exe", functions=functions, code=code)
    base = program.modules[""][0].base
    return [
        program.waits(name, WAIT_EX, thread=program.thread(win32_start=base + rva))
        for name, rva in zip(functions.split(), jumps)
    ]


def behind_no_return(host: Host64) -> Shows:
    """A call of a function that does not return, last in its own: a thunk of an import lies behind it.

    So the return address is that of a jump through memory, with a call in front.
    """
    functions = "main Fail Thunks"
    code = {place_of(functions, "Fail") + Routine(0).returns(): b"\xff\x25\0\x20\0\0"}
    return [host.program("aborted.exe", functions=functions, code=code).waits("main", "Fail", WAIT_EX)]


SITUATIONS = (browser, in_a_thunk, guarded, interrupt_2e, entry_jumps, behind_no_return)
