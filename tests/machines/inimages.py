# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Techniques whose code lies in mapped images, and images that are not what they seem."""

from __future__ import annotations

import struct

from tests.forge.pe import RDATA, TEXT, Section
from tests.forge.process import Process
from tests.support.clean.everyday import breaks_at
from tests.support.clean.host64 import Host64
from tests.support.clean.host86 import AnyProgram, Host
from tests.support.clean.libraries import DATA
from tests.support.clean.libraries import RDATA as RDATA_SIZE
from tests.support.clean.libraries import TEXT as TEXT_SIZE

from .implants import IMPLANT, SLEEP, WAIT_EX, chain_of, interrupted, memory, victim
from .techniques import Plant, Technique

_CODE = bytes.fromhex("4831c0 4883c008 90 51 52 58 5a 59 90 90")
_RARE_FUNCTIONS = "Render Paint"
_EVERYTHING = 0xE0000060


def stomped(program: AnyProgram, function: str) -> None:
    """Writes other code over the start of a function."""
    program.process.space.write(program.at(function), _CODE)


def stomping(host: Host) -> Process:
    """A module that other processes have: a thread waits in the code that took the place of its own."""
    program = victim(host, "combase.dll")
    stomped(program, "combase!WaitCoalesced")
    program.waits("main", "combase!WaitCoalesced", WAIT_EX)
    return program.process


def stomping_alone(host: Host) -> Process:
    """A module that no other process has."""
    program = _mapped(victim(host), "rare.dll")
    stomped(program, "rare!Paint")
    program.waits("main", "rare!Paint", WAIT_EX)
    return program.process


def worker_factory(host: Host) -> Process:
    """The start routine of the worker factory is written over: new workers begin in the code."""
    program = victim(host)
    stomped(program, "ntdll!TppWorkerThread")
    program.waits("ntdll!TppWorkerThread", WAIT_EX)
    return program.process


def threadless(host: Host64) -> Process:
    """An export calls the code first; the thread waits there."""
    program = victim(host)
    base, place = memory(program), program.at("kernelbase!DeviceIoControl")
    program.process.space.write(place, b"\xe8" + struct.pack("<i", (base + 0x100 - place - 5) % (1 << 31)))
    program.waits(*chain_of(base, ("main", "kernelbase!DeviceIoControl", IMPLANT, WAIT_EX)))
    return program.process


def unhooked(host: Host) -> Process:
    """The product's hooks are taken out of ntdll: all others have them."""
    victim_program = victim(host)
    place = victim_program.at("ntdll!NtCreateFile")
    other = next(
        program for program in host.programs if program is not victim_program and program.process.user
    )
    section = other.modules["ntdll"][1].options["contents"]
    rva = place - victim_program.modules["ntdll"][0].base
    victim_program.process.space.write(place, section[rva])
    victim_program.waits("main", "kernelbase!CreateFileW", call="ntdll!NtCreateFile")
    return victim_program.process


def _mapped(program: AnyProgram, file: str) -> AnyProgram:
    """Loads a DLL that no other process has: what happens to one file happens to all that map it."""
    program.load(file, functions=_RARE_FUNCTIONS, key="rare")
    return program


def phantom(host: Host) -> Process:
    """A DLL from a transaction that was rolled back: its file has no name any more."""
    program = _mapped(victim(host), "phantom.dll")
    program.waits("main", "rare!Paint", WAIT_EX)
    section = program.modules["rare"][0].section
    assert section is not None
    host.kernel.file(section.path).text("FileName", "")
    return program.process


def ghost(host: Host) -> Process:
    """A program whose file is about to be deleted."""
    program = victim(host, name="ghost.exe")
    section = program.modules[""][0].section
    assert section is not None
    host.kernel.file(section.path)["DeletePending"] = 1
    return program.process


def doppelganger(host: Host) -> Process:
    """A program from a transaction that was rolled back."""
    program = victim(host, name="double.exe")
    section = program.modules[""][0].section
    assert section is not None
    host.kernel.file(section.path).text("FileName", "")
    return program.process


def hollow(host: Host) -> Process:
    """Private memory in the place of the program."""
    program = victim(host, name="hollow.exe")
    vad = next(vad for vad in program.process.vads if vad.start == program.modules[""][0].base)
    vad.file, vad.section, vad.image = None, None, False
    return program.process


def other_headers(host: Host) -> Process:
    """An image was mapped over with another one: the headers are that one's."""
    program = _mapped(victim(host), "overloaded.dll")
    base = program.modules["rare"][0].base
    program.process.space.write(base + 0x88, struct.pack("<I", 0x61234567))
    stomped(program, "rare!Paint")
    program.waits("main", "rare!Paint", WAIT_EX)
    return program.process


def unlisted(host: Host) -> Process:
    """An image is mapped as a section, in no loader list, and its code is another one."""
    program = victim(host)
    program.load("unlisted.dll", functions=_RARE_FUNCTIONS, key="rare", listed=False)
    stomped(program, "rare!Paint")
    program.waits("main", "rare!Paint", WAIT_EX)
    return program.process


def writable_section(host: Host) -> Process:
    """A DLL that has a section for writing and execution; other programs have loaded it."""
    sections = [
        Section(".text", 0x1000, TEXT_SIZE, _EVERYTHING),
        Section(".rdata", 0x1000 + TEXT_SIZE, RDATA_SIZE, RDATA),
        Section(".data", 0x1000 + TEXT_SIZE + RDATA_SIZE, DATA, TEXT | 1 << 31),
        Section(".pdata", 0x2000 + TEXT_SIZE + RDATA_SIZE, 0x1000, RDATA),
    ]
    for _ in range(3):
        program = victim(host)
        program.load("writable.dll", functions=_RARE_FUNCTIONS, key="rare", sections=sections)
        program.waits("main", "rare!Render", WAIT_EX)
    stomped(program, "rare!Paint")
    program.waits("main", "rare!Paint", WAIT_EX)
    return program.process


def cave(host: Host) -> Process:
    """Code in the gap behind the last function of a DLL that all have."""
    program = victim(host)
    base = program.modules["kernelbase"][0].base
    at = base + 0x1F00
    program.process.space.write(at, b"\x90" * 0x40)
    interrupted(program, "main", at=at + 0x10)
    return program.process


def hooked_sleep(host: Host) -> Process:
    """SleepEx is hooked by the implant itself, to mask its memory: the thread waits behind the hook."""
    program = victim(host)
    base, place = memory(program, masked=True, asleep=True), program.at(SLEEP)
    program.process.space.write(place, b"\x48\xb8" + struct.pack("<Q", base + 0x100) + b"\xff\xe0")
    program.waits(*chain_of(base, ("main", IMPLANT, SLEEP)), call="ntdll!NtDelayExecution")
    return program.process


def breakpoint_in(function: str, *files: str) -> Plant:
    """Plants a hardware breakpoint in a process without debugger."""

    def plant(host: Host) -> Process:
        program = victim(host, *files)
        thread = program.thread("main")
        program.waits("main", WAIT_EX, thread=thread)
        breaks_at(host, thread, program.at(function))
        return program.process

    return plant


def nothing(host: Host) -> Process:
    """Nothing that stacks show: a process that waits."""
    return victim(host).process


TECHNIQUES = (
    Technique(
        "Module stomping", "F-Secure, Hiding malicious code with module stomping (2019)", stomping, x86=True
    ),
    Technique(
        "Module stomping of a DLL of its own", "Cobalt Strike, module_x64 (2017)", stomping_alone, x86=True
    ),
    Technique(
        "PoolParty, worker factory start routine",
        "A. Leviev, SafeBreach, Black Hat Europe (2023)",
        worker_factory,
        x86=True,
    ),
    Technique("Threadless injection", "C. Coburn, Bsides Cymru (2023)", threadless),
    Technique(
        "Unhooking of ntdll",
        "ired.team: Full DLL unhooking (2019); Perun's Fart, Sektor7 (2021)",
        unhooked,
        x86=True,
    ),
    Technique("Phantom DLL hollowing", "F. Orr (2020)", phantom, x86=True),
    Technique("Process ghosting", "G. Landau, Elastic (2021)", ghost, x86=True),
    Technique(
        "Process doppelgänging", "T. Liberman, E. Kogan, Black Hat Europe (2017)", doppelganger, x86=True
    ),
    Technique("Process hollowing", "J. Leitch (2011); ATT&CK T1055.012", hollow, x86=True),
    Technique("Module overloading", "hasherezade (2020)", other_headers, x86=True),
    Technique(
        "Section mapping of a DLL that no list has", "F. Orr: DLL hollowing (2019)", unlisted, x86=True
    ),
    Technique("Mockingjay", "Security Joes (2023)", writable_section, x86=True),
    Technique("Code caves", "ATT&CK T1055; F. Orr (2020)", cave, x86=True),
    Technique("Shellcode fluctuation", "mgeeky (2021)", hooked_sleep),
    Technique(
        "Patchless AMSI bypass",
        "C. Coburn: In-process patchless AMSI bypass (2022)",
        breakpoint_in("amsi!AmsiScanBuffer", "amsi.dll"),
        x86=True,
    ),
    Technique("TamperingSyscalls", "rad9800 (2022)", breakpoint_in("ntdll!NtMapViewOfSection"), x86=True),
    Technique("Blindside", "Cymulate (2022)", breakpoint_in("ntdll!NtOpenFile"), x86=True),
    Technique("Process herpaderping", "J. Shaw (2020)", nothing, shown=False),
    Technique("AMSI patch", "RastaMouse (2018)", nothing, shown=False),
    Technique("ETW patch", "A. Chester, xpn (2020)", nothing, shown=False),
    Technique("DLL side-loading", "ATT&CK T1574.002", nothing, shown=False),
)
