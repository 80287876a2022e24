# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Techniques that hide who called: system calls of their own, built stacks, gadgets."""

from __future__ import annotations

from tests.forge.process import Process
from tests.support.clean.host64 import GROUND, Host64
from tests.support.clean.libraries import behind, stub
from tests.support.clean.wow import Program32

from .implants import DELAY, IMPLANT, SLEEP, WAIT_EX, chain_of, memory, victim, waits
from .techniques import Plant, Technique

_GADGETS = "kernelbase!BaseDllReadWriteIniFile"


def direct(host: Host64) -> Process:
    """A stub in memory of its own."""
    program = victim(host)
    base = memory(program)
    program.process.space.write(base + 0x400, stub(4, host.later))
    program.waits(*chain_of(base, ("main", IMPLANT)), ip=base + 0x400 + behind(host.later))
    return program.process


def in_the_program(host: Host64) -> Process:
    """Stubs are compiled into the program."""
    program = victim(host, name="whisper.exe", functions="main Loop Stub")
    place = program.at("Stub")
    program.process.space.write_file(place, stub(4, host.later))
    program.waits("main", ip=place + behind(host.later))
    return program.process


def another_number(host: Host64) -> Process:
    """A jump to the syscall of one stub, with the number of another."""
    program = victim(host)
    thread = program.thread("main")
    program.waits("main", "Work", call="ntdll!NtReadFile", thread=thread)
    number = program.service("ntdll!NtOpenFile")
    assert thread.kthread.maybe("SystemCallNumber", number)
    place = thread.kthread["TrapFrame"] + host.kernel.isf.offset("_KTRAP_FRAME", "Rax")
    host.kernel.space.write_int(place, number, 8)
    return program.process


def copied_ntdll(host: Host64) -> Process:
    """A private copy of ntdll, by whose stubs the code calls."""
    program = victim(host)
    base = memory(program)
    place = base + 0x800
    program.process.space.write(place, program.process.space.read(program.at("ntdll!NtReadFile"), 0x20))
    program.waits(*chain_of(base, ("main", IMPLANT)), call="ntdll!NtReadFile", ip=place + behind(host.later))
    return program.process


def heavens_gate(host: Host64) -> Process:
    """A 32-bit program with code of 64 bits of its own."""
    program = Program32(host, "gate.exe", functions="main")
    wide = program.wide
    base = memory(wide)
    wide.process.space.write(base + 0x400, stub(4, host.later))
    wide.waits(*chain_of(base, (IMPLANT,)), ip=base + 0x400 + behind(host.later))
    return wide.process


def built(offset: int) -> Plant:
    """Plants a stack with a frame that returns to a gadget of kernelbase."""

    def plant(host: Host64) -> Process:
        program = victim(host)
        thread = program.thread("main")
        program.waits("main", _GADGETS, WAIT_EX, thread=thread)
        space, return_address = program.process.space, program.at(_GADGETS) + 0x20
        limits = range(thread.user_stack_limit, thread.user_stack_base, 8)
        place = next(at for at in limits if space.read_int(at, 8) == return_address)
        space.write_int(place, return_address - 0x20 + offset, 8)
        return program.process

    return plant


def pushed(host: Host64) -> Process:
    """push of an address and jmp, instead of a call: no call is before where the function returns."""
    return waits(host, "main", IMPLANT, SLEEP, call=DELAY, masked=True)


def whole(host: Host64) -> Process:
    """A stack that is all legitimate functions, each behind a call, down to where threads begin."""
    program = victim(host)
    program.waits("main", "Work", WAIT_EX, ground=GROUND)
    return program.process


TECHNIQUES = (
    Technique("SysWhispers2", "J. Thuraisamy (2020)", in_the_program),
    Technique("Hell's Gate", "am0nsec, smelly (2020)", direct),
    Technique("SysWhispers3", "klezVirus (2022)", another_number),
    Technique("RecycledGate", "thefLink (2021)", another_number),
    Technique("A copy of ntdll", "Dumpert, Outflank (2019); hasherezade (2020)", copied_ntdll),
    Technique("Heaven's Gate", "roy g biv, 29A (2009)", heavens_gate),
    Technique("SilentMoonwalk", "klezVirus, DEF CON 31 (2023)", built(0x15)),
    Technique("LoudSunRun", "susMdT (2023)", built(0x20)),
    Technique("Return address spoofing by jmp rbx", "namazso (2018)", built(0x35)),
    Technique("AceLdr", "K. Avery (2022)", built(0x15)),
    Technique("push and jmp", "Return address spoofing; Kudaes (2022)", pushed),
    Technique("CallStackSpoofer", "W. Burgess, WithSecure (2022)", whole, shown=False),
)
