# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A security product that hooks functions of every process, each by way of a relay of its own."""

from __future__ import annotations

import struct

from tests.forge.vad import EXECUTE_READ
from tests.support.clean.host64 import JITTED, Host64, Private
from tests.support.clean.host86 import AnyProgram, Host, Program86

HOOKED = (
    "ntdll!NtCreateFile",
    "ntdll!NtMapViewOfSection",
    "ntdll!NtSuspendThread",
    "kernelbase!VirtualProtect",
)
_TARGET = "guard!HookNtCreateFile"
_DISTANCE, _DISTANCE_86, _STEP = 0x10000000, -0x40000000, 0x10000
"""Distance of the relays from ntdll (user mode of x86 ends not far above it), and between two processes."""
_RELAY = 0x40
_SANDBOXED = b"\x48\xba"
"""mov rdx, thunk: behind the number in a stub that a browser's sandbox has patched, which keeps it."""
_CALLS = 3
"""The relay that calls, of HOOKED."""


def relays(target: int) -> tuple[bytes, ...]:
    """Relays that lead to a function: push, exchange, return; one that moves Rsp; a jump; one that calls."""
    address = struct.pack("<Q", target)
    return (
        b"\x50\x48\xb8" + address + b"\x48\x87\x04\x24\xc3",
        b"\x48\x83\xec\x08\x50\x48\xb8" + address + b"\x48\x89\x44\x24\x08\x58\xc3",
        b"\xff\x25\0\0\0\0" + address,
        b"\x48\xb8" + address + b"\xff\xd0\xc3",
    )


def relays_86(target: int) -> tuple[bytes, ...]:
    """Relays of x86: push, return; two jumps; one that calls."""
    address = struct.pack("<I", target)
    return (
        b"\x68" + address + b"\xc3",
        b"\xb8" + address + b"\xff\xe0",
        b"\xb9" + address + b"\xff\xe1",
        b"\xb8" + address + b"\xff\xd0\xc3",
    )


def hook(program: AnyProgram) -> int:
    """Hooks a process; returns the address of its relays."""
    if "guard" not in program.modules:
        program.load("guard.dll")
    space = program.process.space
    distance, made = (_DISTANCE_86, relays_86) if isinstance(program, Program86) else (_DISTANCE, relays)
    base = program.at(HOOKED[0]) // _STEP * _STEP + distance + program.process.pid * _STEP
    program.process.region(base, size=0x1000, protection=EXECUTE_READ)
    for number, (function, code) in enumerate(zip(HOOKED, made(program.at(_TARGET)))):
        place, relay = program.at(function), base + _RELAY * number
        if space.read(place, 1) == b"\xe9" or space.read(place + 8, 2) == _SANDBOXED:
            continue
        space.write(relay, code)
        space.write(place, b"\xe9" + struct.pack("<i", relay - place - 5))
    return base


def hook_all(host: Host) -> None:
    """Hooks every program there is, the 32-bit halves too."""
    for program in host.programs:
        hook(program)


def caught(host: Host64, name: str) -> None:
    """A program whose thread waits in the product, which a relay called: that stands on the stack."""
    program = host.program(name, "guard.dll", functions="main Protect")
    base = hook(program)
    at = base + _RELAY * _CALLS
    code = program.process.space.read(at, 0x10)
    relay = code.ljust(JITTED.returns() - JITTED.rva - 5, b"\x90") + b"\xe8\0\0\0\0\xc3"
    program.process.space.write(at, relay)
    program.waits("main", "Protect", "kernelbase!VirtualProtect", Private(at - JITTED.rva), _TARGET)
