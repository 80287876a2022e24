# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check of waits that the thread pool, or the dispatcher of APCs, called itself."""

from __future__ import annotations

from typing import List, Optional, Tuple

import pytest

from tests.forge.code import Routine, module_options, system_call_stub
from tests.forge.dump import Image
from tests.support import waitobjects
from tests.support.callstackimages import BEHIND_SYSCALL, MAIN, NUMBER, StackImage
from tests.support.clean.host64 import Host64
from tests.support.clean.host86 import Host86, Program86
from tests.support.clean.narrow import WAIT_EX
from tests.support.clean.wow import Program32
from tests.support.findingimages import CODE, PRIVATE, RETURNS, TID, X64, X86, answered, found
from tests.support.only import only

CHECK = "wait_in_dispatcher"
POOL = Routine(0x1100, pushes=(3,), alloc=0x40)
STUB = Routine(0x1300, unwind=False)
WAIT = Routine(0x1100, pushes=(3, 7), alloc=0x60)
TIMER = "ntdll!RtlpTpTimerCallback"
CALLBACK = ("app", MAIN, 1, "unwind")
APC = "KiUserApcDispatcher"


class Waiting(StackImage):
    """A thread that waits, below a dispatcher.

    Args:
        name: of the kernel
        dispatcher: its name: that of APCs, or a function of the thread pool
        between: what stands between the dispatcher and the wait
        waits: name of the system call
        around: name of the function around it
    """

    def __init__(
        self,
        name: str,
        dispatcher: str = "RtlpTpTimerCallback",
        between: Tuple[Tuple[str, Routine, int, str], ...] = (),
        waits: str = "NtWaitForSingleObject",
        around: str = "WaitForSingleObjectEx",
    ) -> None:
        super().__init__(name)
        options = module_options([POOL, STUB], 0x5800, 64)
        options["contents"][STUB.rva] = system_call_stub(NUMBER)
        exports = {waits: STUB.rva}
        if dispatcher != APC:
            exports[dispatcher] = POOL.rva
        self.modules["pool"] = self.app.module("ntdll.dll", exports=exports, **options)
        self.modules["waits"] = self.app.module(
            "kernelbase.dll", exports={around: WAIT.rva}, **module_options([WAIT], 0x5800, 64)
        )
        wait = ("waits", WAIT, 0, "leaf")
        if dispatcher == APC:
            self.called = (*between, wait)
            thread = self.dispatched(TID, (APC,), 0x33)
        else:
            self.called = (("pool", POOL, 0, "unwind"), *between, wait)
            thread = self.waiting(TID)
        self.waiter = thread
        place = thread.kthread["TrapFrame"] + self.kernel.isf.offset("_KTRAP_FRAME", "Rip")
        self.kernel.space.write_int(place, self.modules["pool"].base + STUB.rva + BEHIND_SYSCALL, 8)

    def callback_at(self, address: int) -> None:
        """Puts a return address in the place of that which the callback has."""
        frames: List[Tuple[int, int, str]] = self.expected[TID, "user"].frames
        base = self.modules["app"].base
        sp = next(sp for at, sp, _ in frames if base <= at < base + 0x2000)
        self.app.space.write_int(sp - 8, address, 8)

    def image(self) -> Image:
        return self.kernel.image()


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("dispatcher", ["RtlpTpTimerCallback", "TppWorkpExecuteCallback", APC])
def test_a_wait_that_a_dispatcher_called(name: str, dispatcher: str) -> None:
    row = only(found(Waiting(name, dispatcher).image(), CHECK))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("medium", "likely", "unwind")
    assert (row["TID"], row["Kind"], row["Frame"]) == (TID, "user", 2)
    assert row["Symbol"].startswith(f"ntdll!{dispatcher}+")
    message = f"ntdll!NtWaitForSingleObject+0x14 called by ntdll!{dispatcher}+0x20; VAD"
    assert row["Evidence"].startswith(message)
    assert row["Technique"] == "T1497.003, T1055.004"


@pytest.mark.parametrize("name", X64)
def test_what_the_thread_waits_for_is_named(name: str) -> None:
    """By its wait block, as windows.waits says it; without one the evidence has only the call."""
    forged = Waiting(name)
    objects = waitobjects.Waiting(name, kernel=forged.kernel)
    event = objects.event()
    objects.wait(forged.waiter, event)
    row = only(found(forged.image(), CHECK))
    assert row["Evidence"].endswith(f"; WaitsFor event {event.address:#x}")
    assert "WaitsFor" not in only(found(Waiting(name).image(), CHECK))["Evidence"]


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("dispatcher", ["RtlpTpTimerCallback", APC])
def test_a_callback_that_waits_is_silent(name: str, dispatcher: str) -> None:
    assert found(Waiting(name, dispatcher, (CALLBACK,)).image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(
    ("dispatcher", "waits", "around"),
    [
        ("RtlpTpTimerCallback", "NtWaitForWorkViaWorkerFactory", "WaitForSingleObjectEx"),
        ("RtlpTpTimerCallback", "NtWaitForAlertByThreadId", "WaitForSingleObjectEx"),
        ("RtlpTpTimerCallback", "NtWaitForSingleObject", "RtlpWaitOnCriticalSection"),
        ("TppWorkerThread", "NtWaitForSingleObject", "WaitForSingleObjectEx"),
    ],
)
def test_what_the_pool_itself_waits_for_is_silent(
    name: str, dispatcher: str, waits: str, around: str
) -> None:
    """An idle worker, and locks of the pool."""
    assert found(Waiting(name, dispatcher, waits=waits, around=around).image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("to", [RETURNS, None])
def test_a_callback_in_private_memory_is_low(name: str, to: Optional[int]) -> None:
    """Code in no module has no unwind data: the dispatcher is found by a scan."""
    forged = Waiting(name, between=(CALLBACK,))
    if to is not None:
        forged.app.region(PRIVATE, CODE, size=0x1000, protection=6)
        forged.callback_at(to)
    rows = found(forged.image(), CHECK)
    assert [(row["Severity"], row["How"]) for row in rows] == ([("low", "scan")] if to else [])
    assert all(f"through {RETURNS:#x}; VAD" in row["Evidence"] for row in rows)


@pytest.mark.parametrize("name", X64)
def test_without_symbols_the_pool_is_not_checked(name: str) -> None:
    rows = answered(Waiting(name).image(), check=[CHECK])
    assert [row["Severity"] for row in rows] == ["medium", None]
    assert rows[-1]["Evidence"].startswith("without symbols of ntdll (--fetch-symbols) ")
    assert rows[-1]["Evidence"].endswith(": stacks.exe")


def narrow(name: str, *chain: str) -> Image:
    """An image with a thread of 32 bits that waits below some functions, with x64 in a WoW64 process."""
    if name in X86:
        host = Host86(name)
        Program86(host, "sleeps.exe").waits(*chain)
        return host.kernel.image()
    wide = Host64(name)
    Program32(wide, "sleeps.exe").waits(*chain)
    return wide.kernel.image()


@pytest.mark.parametrize("name", [*X86, *X64])
@pytest.mark.parametrize("dispatcher", [TIMER, f"ntdll!{APC}"])
def test_with_32_bits_a_system_call_that_a_dispatcher_made(name: str, dispatcher: str) -> None:
    """Code proves each step: the stub has no frame."""
    row = only(found(narrow(name, dispatcher), CHECK))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("medium", "likely", "leaf")
    assert row["Kind"] == ("user" if name in X86 else "wow64")
    assert row["Symbol"].startswith(f"{dispatcher}+0x")
    assert row["Evidence"].startswith("ntdll!NtWaitForSingleObject+0xc called by ntdll!")


@pytest.mark.parametrize("name", [*X86, *X64])
@pytest.mark.parametrize("dispatcher", [TIMER, f"ntdll!{APC}"])
def test_with_32_bits_a_wait_that_the_chain_leads_from_is_low(name: str, dispatcher: str) -> None:
    """A callback without frame pointer is not on the chain."""
    row = only(found(narrow(name, dispatcher, WAIT_EX), CHECK))
    assert (row["Severity"], row["How"]) == ("low", "framepointer")
    assert row["Innocent"].startswith("a 32-bit callback without a frame pointer")


@pytest.mark.parametrize("name", [*X86, *X64])
@pytest.mark.parametrize("dispatcher", [TIMER, f"ntdll!{APC}"])
@pytest.mark.parametrize("last", [(), (WAIT_EX,)])
def test_with_32_bits_a_callback_that_waits_is_silent(
    name: str, dispatcher: str, last: Tuple[str, ...]
) -> None:
    assert found(narrow(name, dispatcher, "main", *last), CHECK) == []


TPP = ("ntdll!TppWorkerThread", "ntdll!TppTimerpExecuteCallback", "ntdll!RtlpTpTimerCallback")
WORK = ("ntdll!TppWorkerThread", "ntdll!TppWorkpExecuteCallback")
QUEUE = "kernelbase!GetQueuedCompletionStatus"
MAP = "kernelbase!MapViewOfFile"


@pytest.mark.parametrize(
    ("pool", "function", "call"),
    [(TPP, QUEUE, "ntdll!NtRemoveIoCompletion"), (WORK, MAP, "ntdll!NtMapViewOfSection")],
)
@pytest.mark.parametrize("callback", [False, True])
def test_a_function_of_windows_as_the_pool_s_callback(
    pool: Tuple[str, ...], function: str, call: str, callback: bool
) -> None:
    """Whatever the function calls; where a callback of the program called it, there is no finding."""
    host = Host64("win10-x64")
    program = host.program("first.exe", functions="main Callback")
    program.waits(*pool, *(["Callback"] if callback else []), function, call=call)
    rows = found(host.kernel.image(), CHECK)
    assert [row["Severity"] for row in rows] == ([] if callback else ["medium"])
    assert callback or "to the function of Windows" in rows[0]["Innocent"]
