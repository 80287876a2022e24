# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Techniques that hide code while it sleeps."""

from __future__ import annotations

import functools
import struct
from typing import Any

from tests.forge.process import Process
from tests.forge.vad import EXECUTE_READ, READWRITE
from tests.support.clean.host64 import Host64, Program
from tests.support.clean.host86 import Host
from tests.support.clean.narrow import WAIT_EX as WAIT_EX_32
from tests.support.clean.narrow import Private32
from tests.support.clean.wow import Program32

from .implants import DELAY, IMPLANT, SLEEP, WAIT_EX, chain_of, memory, victim, waits
from .techniques import Plant, Technique

_POOL = "ntdll!TppWorkerThread"
_CONTEXT_SIZE, _FLAGS, _SP, _IP = 0x4D0, 0x30, 0x98, 0xF8


def below(*chain: Any, **options: Any) -> Plant:
    """Plants a thread that waits below masked code."""
    return functools.partial(_below, chain=chain, options=options)


def _below(host: Host, chain: Any, options: Any) -> Process:
    return waits(host, *chain, **options)


def prepared(program: Program, before: int = 0) -> None:
    """A thread that waits, with a prepared CONTEXT for NtContinue on its stack."""
    thread = program.thread("main")
    base = memory(program, masked=True, asleep=True)
    program.waits(
        *chain_of(base, (IMPLANT, WAIT_EX)), thread=thread, base=thread.user_stack_base - 2 * _CONTEXT_SIZE
    )
    data = bytearray(_CONTEXT_SIZE)
    struct.pack_into("<I", data, _FLAGS, 0x10001F)
    place = thread.user_stack_base - _CONTEXT_SIZE - 0x30
    struct.pack_into("<Q", data, _SP, place - 0x200)
    struct.pack_into("<Q", data, _IP, program.at("ntdll!NtContinue") - before)
    program.process.space.write(place, bytes(data))


def timers(host: Host64, before: int = 0) -> Process:
    """Contexts for NtContinue, run by timers; the thread itself waits in masked memory."""
    program = victim(host, "advapi32.dll")
    prepared(program, before)
    return program.process


def chain_of_apcs(host: Host64) -> Process:
    """APCs let the system call return to the middle of a function, which nothing called."""
    program = victim(host)
    thread = program.thread("main")
    program.waits(thread=thread, ground=("ntdll!RtlUserThreadStart", "ntdll!RtlDispatchAPC"))
    return_address = program.at("ntdll!RtlDispatchAPC") + 0x20
    space = program.process.space
    place = next(
        at
        for at in range(thread.user_stack_limit, thread.user_stack_base, 8)
        if space.read_int(at, 8) == return_address
    )
    space.write_int(place, return_address - 0xF, 8)
    return program.process


def cut(host: Host64) -> Process:
    """The return address of the callback is null while it sleeps."""
    program = victim(host)
    thread = program.thread("main")
    program.waits("main", "Work", SLEEP, call=DELAY, thread=thread)
    return_address = program.at("Work") + 0x20
    space = program.process.space
    place = next(
        at
        for at in range(thread.user_stack_limit, thread.user_stack_base, 8)
        if space.read_int(at, 8) == return_address
    )
    space.write_int(place, 0, 8)
    return program.process


def narrow(host: Host64) -> Process:
    """32 bits: an APC of a timer calls the code, whose memory may not be executed until then."""
    program = Program32(host, "gargoyle.exe", functions="main")
    program.wide.process.region(0x21000000, size=0x2000, protection=READWRITE)
    program.narrow.space.write(0x21000000, (b"\x40" * 0x11A + b"\xff\x15\0\x50\0\x70").ljust(0x200, b"\x40"))
    program.waits("main", Private32(0x21000000), WAIT_EX_32)
    program.wide.process.space.tables.forbid_execution(0x21000000)
    return program.wide.process


def terminated(host: Host) -> Process:
    """The thread has ended while it sleeps; a timer begins another one."""
    program = victim(host)
    memory(program, masked=True, asleep=True)
    return program.process


TECHNIQUES = (
    Technique("Ekko", "C5pider (2022)", timers),
    Technique(
        "Ekko behind padding", "Hunt-Sleeping-Beacons 4, thefLink (2026)", functools.partial(timers, before=8)
    ),
    Technique("Foliage", "A. Hudson (2021)", chain_of_apcs),
    Technique(
        "Zilean",
        "C5pider, Havoc (2022)",
        below(_POOL, "ntdll!RtlpTpWaitCallback", protection=EXECUTE_READ),
        x86=True,
    ),
    Technique(
        "Cronos",
        "Idov31 (2022)",
        below("main", IMPLANT, SLEEP, call=DELAY, masked=True, asleep=True),
        x86=True,
    ),
    Technique(
        "Sleep mask in memory for everything",
        "Cobalt Strike 4.4, sleep mask kit (2021)",
        below(IMPLANT, SLEEP, call=DELAY, masked=True),
        x86=True,
    ),
    Technique(
        "Sleep mask in memory for reading",
        "Cobalt Strike 4.7 (2022)",
        below(IMPLANT, SLEEP, call=DELAY, masked=True, asleep=True),
        x86=True,
    ),
    Technique(
        "Sleep without access",
        "Nighthawk 0.1, MDSec (2021)",
        below(IMPLANT, SLEEP, call=DELAY, away=True),
        x86=True,
    ),
    Technique("Gargoyle", "J. Lospinoso (2017)", narrow),
    Technique("ThreadStackSpoofer", "mgeeky (2021)", cut),
    Technique("A stub from masked memory", "KrakenMask, RtlDallas (2023)", below(IMPLANT, masked=True)),
    Technique("DeathSleep", "janoglezcampos (2022)", terminated, shown=False),
)
