# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Techniques whose code lies in memory of no image."""

from __future__ import annotations

import functools
from typing import Any

from tests.forge.process import Process
from tests.forge.vad import EXECUTE_READ
from tests.support.clean.host64 import Host64, Private, Through
from tests.support.clean.host86 import Host

from .implants import (
    APC,
    CALLBACK,
    DELAY,
    EXCEPTION,
    IMPLANT,
    SLEEP,
    WAIT_EX,
    Call,
    interrupted,
    memory,
    victim,
    waits,
)
from .techniques import Plant, Technique

_INIT = ("ntdll!LdrInitializeThunk", "ntdll!_LdrpInitialize", "ntdll!LdrpInitializeProcess")
_POOL = "ntdll!TppWorkerThread"
_GUI = ("user32.dll", "win32u.dll")
_PROCEDURE = ("main", "user32!GetMessageW", "user32!DispatchMessageWorker", "user32!UserCallWinProcCheckWow")


def below(*chain: Call, **options: Any) -> Plant:
    """Plants a thread that waits below code in memory of no image."""
    return functools.partial(_below, chain=chain, options=options)


def _below(host: Host, chain: Any, options: Any) -> Process:
    return waits(host, *chain, **options)


def hijacked(host: Host) -> Process:
    """SetThreadContext: the thread was interrupted in the code."""
    program = victim(host)
    interrupted(program, "main", "Loop", at=memory(program) + 0x110)
    return program.process


def delegate(host: Host64) -> Process:
    """Managed code that is registered called code that is not, by a delegate."""
    program = victim(host, "clr.dll", name="runner.exe")
    managed, code = program.jitted(), memory(program)
    program.register((managed, managed + 0x2000))
    chain = ("clr!Thread::intermediateThreadProc", "clr!CallDescrWorkerInternal")
    program.waits(*chain, Private(managed), Private(code), SLEEP, call=DELAY)
    return program.process


def page_file(host: Host) -> Process:
    """A view of a section that the page file backs: it has no file."""
    program = victim(host)
    base = memory(program, EXECUTE_READ, file="\\section")
    program.waits("main", Private(base), WAIT_EX)
    program.process.finish()
    vad = next(vad for vad in program.process.vads if vad.start == base)
    assert vad.node is not None
    isf, space = host.kernel.isf, host.kernel.space
    area = space.read_int(vad.node["Subsection"] + isf.offset("_SUBSECTION", "ControlArea"))
    space.write_int(area + isf.offset("_CONTROL_AREA", "FilePointer"), 0)
    return program.process


def managed_only(host: Host64) -> Process:
    """An assembly that was loaded from memory: its code is made by CLR, and registered as all is."""
    program = victim(host, "clr.dll", name="loader.exe")
    managed = program.jitted()
    program.register((managed, managed + 0x2000))
    program.waits("clr!CallDescrWorkerInternal", Private(managed), "clr!CLREvent::WaitEx", WAIT_EX)
    return program.process


TECHNIQUES = (
    Technique(
        "CreateRemoteThread with shellcode",
        "A. Hosseini, Elastic: Ten process injection techniques (2017); ATT&CK T1055.002",
        below(IMPLANT, SLEEP, call=DELAY, started=True),
        x86=True,
    ),
    Technique(
        "Reflective DLL injection",
        "S. Fewer, Harmony Security (2008)",
        below(IMPLANT, IMPLANT, WAIT_EX),
        x86=True,
    ),
    Technique(
        "sRDI",
        "N. Landers, NetSPI: Shellcode reflective DLL injection (2017)",
        below("main", IMPLANT, WAIT_EX),
        x86=True,
    ),
    Technique(
        "Early Bird",
        "H. Gavriel, B. Erbesfeld, Cyberbit (2018)",
        below(Through(APC), IMPLANT, WAIT_EX, ground=_INIT),
    ),
    Technique(
        "APC injection",
        "ATT&CK T1055.004; A. Hosseini, Elastic (2017)",
        below("main", SLEEP, Through(APC, DELAY), IMPLANT, WAIT_EX),
    ),
    Technique(
        "AtomBombing",
        "T. Liberman, enSilo (2016)",
        below("main", SLEEP, Through(APC, DELAY), "ntdll!RtlDispatchAPC", IMPLANT, WAIT_EX),
    ),
    Technique(
        "Thread execution hijacking", "ATT&CK T1055.003; A. Hosseini, Elastic (2017)", hijacked, x86=True
    ),
    Technique(
        "KernelCallbackTable",
        "Microsoft on FinFisher (2018); odzhan, modexp (2019)",
        below(
            "main",
            "user32!GetMessageW",
            Through(CALLBACK, "win32u!NtUserGetMessage"),
            IMPLANT,
            WAIT_EX,
            files=_GUI,
        ),
    ),
    Technique(
        "Extra window memory injection",
        "PowerLoader, by MalwareTech (2013); ATT&CK T1055.011",
        below(*_PROCEDURE, IMPLANT, WAIT_EX, files=_GUI),
        x86=True,
    ),
    Technique(
        "PROPagate",
        "Hexacorn: PROPagate (2017)",
        below(*_PROCEDURE, "user32!__fnDWORD", IMPLANT, WAIT_EX, files=_GUI),
        x86=True,
    ),
    Technique(
        "ListPlanting",
        "Hexacorn: Listplanting (2019); ATT&CK T1055.015",
        below(*_PROCEDURE, IMPLANT, IMPLANT, SLEEP, call=DELAY, files=_GUI, protection=EXECUTE_READ),
        x86=True,
    ),
    Technique(
        "PoolParty, TP_WORK",
        "A. Leviev, SafeBreach, Black Hat Europe (2023)",
        below(_POOL, "ntdll!TppWorkpExecuteCallback", IMPLANT, WAIT_EX),
        x86=True,
    ),
    Technique(
        "PoolParty, TP_TIMER",
        "A. Leviev, SafeBreach, Black Hat Europe (2023)",
        below(_POOL, "ntdll!TppTimerpExecuteCallback", "ntdll!RtlpTpTimerCallback", IMPLANT, WAIT_EX),
        x86=True,
    ),
    Technique(
        "PoolParty, TP_WAIT",
        "A. Leviev, SafeBreach, Black Hat Europe (2023)",
        below(_POOL, "ntdll!RtlpTpWaitCallback", IMPLANT, WAIT_EX),
        x86=True,
    ),
    Technique(
        "PoolParty, TP_ALPC",
        "A. Leviev, SafeBreach, Black Hat Europe (2023)",
        below(_POOL, "ntdll!TppAlpcpExecuteCallback", IMPLANT, WAIT_EX),
        x86=True,
    ),
    Technique(
        "Fibers",
        "ired.team: Executing shellcode with fibers (2019)",
        below(IMPLANT, WAIT_EX, ground=("ntdll!RtlUserFiberStart",)),
    ),
    Technique(
        "Enumeration callbacks",
        "aahmad097: AlternativeShellcodeExec (2020)",
        below("main", "kernelbase!EnumSystemLocalesEx", IMPLANT, SLEEP, call=DELAY),
        x86=True,
    ),
    Technique(
        "Vectored exception handlers",
        "odzhan, modexp: Windows process injection, VEH (2020)",
        below(
            "main",
            Through(EXCEPTION),
            "ntdll!RtlDispatchException",
            "ntdll!RtlpCallVectoredHandlers",
            IMPLANT,
            WAIT_EX,
        ),
    ),
    Technique(
        "TLS callbacks",
        "ATT&CK T1055.005; M. Pietrek, MSJ (1996)",
        below("ntdll!LdrpCallInitRoutine", IMPLANT, WAIT_EX, ground=_INIT),
        x86=True,
    ),
    Technique(
        "Early Cascade injection",
        "Outflank (2024)",
        below(IMPLANT, SLEEP, call=DELAY, ground=_INIT),
        x86=True,
    ),
    Technique(
        "Dirty Vanity",
        "Deep Instinct, Black Hat Europe (2022)",
        below(IMPLANT, SLEEP, call=DELAY, ground=("ntdll!RtlpProcessReflectionStartup",)),
        x86=True,
    ),
    Technique(
        "Waiting thread hijacking",
        "hasherezade, Check Point (2025)",
        below("main", IMPLANT, WAIT_EX, protection=EXECUTE_READ),
        x86=True,
    ),
    Technique("Mapping injection", "A. Cocomazzi: Mapping-Injection (2020)", page_file, x86=True),
    Technique(
        "Code in a view of a data file",
        "ATT&CK T1055; F. Orr: Masking malicious memory artifacts (2020)",
        below("main", IMPLANT, WAIT_EX, protection=EXECUTE_READ, file="\\Users\\ann\\data.bin"),
        x86=True,
    ),
    Technique("Shellcode by a delegate", "TheWover, FuzzySec: D/Invoke (2020)", delegate),
    Technique("execute-assembly", "R. Mudge, Cobalt Strike 3.11 (2018)", managed_only, shown=False),
)
