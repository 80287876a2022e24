# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forms of techniques that no rule was made for when the others were forged.

They are kept apart from the others: what a rule does in situations that its author had at hand says little.
"""

from __future__ import annotations

import struct

from tests.forge.process import Process
from tests.forge.stacks64 import Stack64
from tests.support.clean.host64 import JITTED, WAITING, Host64, Private
from tests.support.clean.host86 import Host

from .implants import IMPLANT, SLEEP, WAIT_EX, chain_of, interrupted, memory, victim
from .inimages import breakpoint_in, stomped
from .techniques import Plant, Technique

_UNMAPPED = 0x6F0000001000
_DATA = 0xA000
"""RVA of .data in forged DLLs."""
_VENDOR = "C:\\Program Files\\Vendor\\vendorui.dll"
_TEMP = "C:\\Users\\ann\\AppData\\Local\\Temp"


def stomped_by_all(host: Host) -> Process:
    """Each process that maps a DLL has the same implant in it: the copies agree, the file does not."""
    for number in range(4):
        program = victim(host, name=f"office{number}.exe")
        program.load("vendorui.dll", functions="Render Paint", path=_VENDOR)
        stomped(program, "vendorui!Paint")
        program.waits("main", "vendorui!Paint", WAIT_EX)
    return program.process


def in_data(host: Host) -> Process:
    """Code in the section .data of a DLL, which was made executable."""
    program = victim(host)
    module = program.load("vendorui.dll", functions="Render Paint", path=_VENDOR)
    program.process.space.write(module.base + _DATA, b"\x90" * 0x80)
    interrupted(program, "main", at=module.base + _DATA + 0x40)
    return program.process


def in_data_of_driver(host: Host64) -> Process:
    """A thread of the kernel in the section .data of a driver."""
    host.driver("vendorflt.sys", "DriverEntry Worker")
    base = host.drivers["vendorflt"][0].base
    host.kernel.space.write(base + _DATA, (b"\x90" * 11 + b"\xe8\0\0\0\0") * 0x20)
    thread = host.kernel.system.thread(host.number(), teb=False)
    stack = Stack64(host.kernel.space, thread.stack_base).start()
    host.descend(stack, ("KiStartSystemThread", "PspSystemThreadStartup"))
    stack.enter(base + _DATA - JITTED.rva, JITTED)
    stack.call(base + _DATA - JITTED.rva, JITTED)
    host.switch_out(thread, stack, WAITING)
    return host.kernel.system


def returns_to(value: int) -> Plant:
    """Plants a stack whose function returns to an address that is no code."""

    def plant(host: Host64) -> Process:
        program = victim(host)
        thread = program.thread("main")
        program.waits("main", "Work", WAIT_EX, thread=thread)
        space, return_address = program.process.space, program.at("Work") + 0x20
        limits = range(thread.user_stack_limit, thread.user_stack_base, 8)
        place = next(at for at in limits if space.read_int(at, 8) == return_address)
        space.write_int(place, value, 8)
        return program.process

    return plant


def pivoted(host: Host) -> Process:
    """The stack pointer is in memory of the implant's own, outside the limits in the TEB."""
    program = victim(host)
    stack = program.process.space.reserve(0x4000)
    program.process.region(stack, size=0x4000)
    program.waits("main", "Work", WAIT_EX, base=stack + 0x4000)
    return program.process


def own_table(host: Host64) -> Process:
    """The implant registers a function table for its own code, and the program called it."""
    program = victim(host, name="viewer.exe")
    base = memory(program)
    program.register((base, base + 0x2000))
    program.waits(*chain_of(base, ("main", IMPLANT, SLEEP)), call="ntdll!NtDelayExecution")
    return program.process


def dropped_interpreter(host: Host) -> Process:
    """A genuine interpreter in a folder for temporary files runs a script that calls private code."""
    program = victim(host)
    program.load("lua51.dll", path=f"{_TEMP}\\lua51.dll")
    base = memory(program)
    program.waits(*chain_of(base, ("lua51!lua_pcall", "lua51!lj_vm_call", IMPLANT, SLEEP)))
    return program.process


def dropped_library(host: Host) -> Process:
    """A DLL of no renown in a folder for temporary files is on both sides of private code."""
    program = victim(host)
    program.load("helper.dll", functions="Start Run Callback", path=f"{_TEMP}\\helper.dll")
    base = memory(program)
    program.waits(*chain_of(base, ("helper!Start", "helper!Run", IMPLANT, "helper!Callback", SLEEP)))
    return program.process


def pool_calls_windows(host: Host) -> Process:
    """A timer of the pool calls a waiting function of Windows directly, which no module asked for."""
    program = victim(host)
    pool = ("ntdll!TppWorkerThread", "ntdll!TppTimerpExecuteCallback", "ntdll!RtlpTpTimerCallback")
    program.waits(*pool, "kernelbase!GetQueuedCompletionStatus", call="ntdll!NtRemoveIoCompletion")
    return program.process


def vendor_gadget(host: Host64) -> Process:
    """A stack returns to `jmp rbx` in a DLL of a vendor."""
    program = victim(host)
    module = program.load("vendorui.dll", functions="Render Paint", path=_VENDOR)
    program.process.space.write_file(module.base + 0x11C0, b"\xff\xe3")
    thread = program.thread("main")
    program.waits("main", "vendorui!Paint", WAIT_EX, thread=thread)
    space, return_address = program.process.space, program.at("vendorui!Paint") + 0x20
    limits = range(thread.user_stack_limit, thread.user_stack_base, 8)
    place = next(at for at in limits if space.read_int(at, 8) == return_address)
    space.write_int(place, return_address + 0x20, 8)
    return program.process


def exit_time(process: Process) -> None:
    """Lets a process have ended, by what its structure says."""
    process.eprocess["ExitTime.QuadPart"] = 0x1DA000000000000


def waiting(host: Host) -> Process:
    """A process with private code on a stack."""
    program = victim(host)
    base = memory(program)
    program.waits(*chain_of(base, ("main", IMPLANT, WAIT_EX)))
    return program.process


def jumped(host: Host64) -> Process:
    """The entry of a function jumps to private code, which waits; the function itself is not on the stack."""
    program = victim(host)
    base, place = memory(program), program.at("kernelbase!DeviceIoControl")
    program.process.space.write(place, b"\x48\xb8" + struct.pack("<Q", base + JITTED.rva) + b"\xff\xe0")
    program.waits("main", Private(base), WAIT_EX)
    return program.process


TECHNIQUES = (
    Technique(
        "All copies stomped", "F. Orr: Masking malicious memory artifacts (2020)", stomped_by_all, x86=True
    ),
    Technique("Code in .data of a DLL", "Security Joes, Mockingjay (2023)", in_data, x86=True),
    Technique("Code in .data of a driver", "ATT&CK T1014; kdmapper's forks (2021)", in_data_of_driver),
    Technique("Return to no memory", "ATT&CK T1036 (2019)", returns_to(_UNMAPPED)),
    Technique("Stack pivot", "ATT&CK T1055; W. Burgess, WithSecure (2022)", pivoted, x86=True),
    Technique("Own function table", "ATT&CK T1055; klezVirus (2023)", own_table),
    Technique("Dropped interpreter", "ATT&CK T1059.011 (2024)", dropped_interpreter, x86=True),
    Technique("Dropped DLL on both sides", "ATT&CK T1574 (2020)", dropped_library, x86=True),
    Technique(
        "Breakpoint in kernelbase",
        "rad9800: TamperingSyscalls (2022)",
        breakpoint_in("kernelbase!CreateFileW"),
        x86=True,
    ),
    Technique(
        "Breakpoint in advapi32",
        "C. Coburn: In-process patchless AMSI bypass (2022)",
        breakpoint_in("advapi32!CryptAcquireContextW", "advapi32.dll"),
        x86=True,
    ),
    Technique("Pool calls Windows", "thefLink, Hunt-Sleeping-Beacons (2023)", pool_calls_windows, x86=True),
    Technique("Gadget of a vendor's DLL", "namazso (2018)", vendor_gadget),
    Technique("ExitTime written", "ATT&CK T1014; FU rootkit (2004)", waiting, change=exit_time, x86=True),
    Technique("Jump at an entry", "ATT&CK T1055; C. Coburn (2023)", jumped),
)
