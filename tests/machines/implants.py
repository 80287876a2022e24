# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Victims of techniques: a program, memory that is no file's in it, and threads that stand there."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Union, overload

from tests.forge.paging import State
from tests.forge.process import Process
from tests.forge.vad import EXECUTE_READWRITE
from tests.support.clean.host64 import JITTED, Host64, Link, Private, Program
from tests.support.clean.host86 import AnyProgram, Host, Host86, Program86

from . import product

WAIT_EX, SLEEP = "kernelbase!WaitForSingleObjectEx", "kernelbase!SleepEx"
DELAY = "ntdll!NtDelayExecution"
APC, CALLBACK, EXCEPTION = "KiUserApcDispatcher", "KiUserCallbackDispatcher", "KiUserExceptionDispatcher"
SIZE = 0x2000
_MASK = b"\x5a\x13\xc7\x88"


class Implant:
    """Where a technique has its code; a chain of calls has the class, and not the memory."""


IMPLANT = Implant()
Call = Union[Link, Implant]


@overload
def victim(host: Host64, *files: str, name: str = ..., functions: str = ...) -> Program: ...
@overload
def victim(host: Host86, *files: str, name: str = ..., functions: str = ...) -> Program86: ...
def victim(host: Host, *files: str, name: str = "", functions: str = "main Loop Work") -> AnyProgram:
    """A program that does its own work, too, and that the security product hooks.

    Args:
        name: of the program; if it is "", no other program of the machine has the name
    """
    program = host.program(name or f"host{len(host.kernel.processes)}.exe", *files, functions=functions)
    product.hook(program)
    program.waits("main", "Loop", WAIT_EX)
    return program


def memory(
    program: AnyProgram,
    protection: int = EXECUTE_READWRITE,
    file: Optional[str] = None,
    masked: bool = False,
    asleep: bool = False,
    away: bool = False,
) -> int:
    """Memory with code.

    Args:
        program: the process
        protection: with which it was made
        file: a data file that is mapped there
        masked: its bytes are encrypted
        asleep: it may not be executed now
        away: nobody may read it now
    """
    base = program.jitted(SIZE, protection, file)
    if masked:
        program.process.space.write(base, _MASK * (SIZE // len(_MASK)))
    if asleep:
        program.process.space.tables.forbid_execution(base)
    if away:
        program.process.space.set_state(base, SIZE, State.PAGEFILE)
    return base


def chain_of(base: int, chain: Sequence[Call]) -> Sequence[Link]:
    """A chain of calls with the code at an address in the place of IMPLANT."""
    return [Private(base) if isinstance(link, Implant) else link for link in chain]


def waits(
    host: Host,
    *chain: Call,
    files: Sequence[str] = (),
    call: str = "ntdll!NtWaitForSingleObject",
    started: bool = False,
    ground: Optional[Sequence[str]] = None,
    **options: Any,
) -> Process:
    """A victim in which a thread waits, called through memory of no image.

    Args:
        host: the machine
        chain: who called whom, the outermost first
        files: which modules it has besides
        call: the stub in which it waits
        started: the thread was started in that memory
        ground: where the stack begins, if it is another place than that of threads
        options: those of `memory`
    """
    program = victim(host, *files)
    base = memory(program, **options)
    thread = program.thread(win32_start=base + JITTED.rva) if started else program.thread("main")
    beginning: Dict[str, Any] = {} if ground is None else {"ground": ground}
    program.waits(*chain_of(base, chain), call=call, thread=thread, **beginning)
    return program.process


def interrupted(program: AnyProgram, *chain: Link, at: int) -> None:
    """A thread that was interrupted at an address; on x86 it waits for a page there."""
    if isinstance(program, Program86):
        program.faults(*chain, at=at)
    else:
        program.interrupted(*chain, at=at)
