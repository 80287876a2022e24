# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""32-bit programs on x64: both stacks of their threads."""

from __future__ import annotations

from typing import Sequence, Union

from tests.forge import trapentries as entries
from tests.forge.stacks64 import Stack64
from tests.forge.thread import Thread
from tests.forge.trapentries import Entry
from tests.forge.vad import EXECUTE_READWRITE
from tests.support.callstackimages86 import context32

from .host64 import IN_FAULT, Host64, Link, Program, Shown, Shows
from .narrow import BEHIND_STUB, GROUND, WAIT, WAIT_EX, Narrow, Private32

_LOADED = ("ntdll!LdrInitializeThunk", "ntdll!_LdrpInitialize", "wow64!Wow64LdrpInitialize")
SIMULATED = (*_LOADED, "wow64!RunCpuSimulation", "wow64cpu!BTCpuSimulate", "wow64cpu!ServiceNoTurbo")
_MODULES = ("wow64.dll", "wow64cpu.dll", "wow64win.dll")
Chain = Sequence[Union[str, Private32]]


class Program32:
    """A 32-bit program on x64: WoW64's own 64-bit modules, and the 32-bit half.

    The 64-bit half has an image of the program, too, which a real one lacks. In another `folder` than the
    32-bit image it leaves that one the section of the file.
    """

    def __init__(
        self, host: Host64, name: str, *files: str, functions: str = "main", folder: str = ""
    ) -> None:
        self.host = host
        self.wide = Program(host, name, _MODULES, "start", {}, folder, {})
        self.process = self.wide.process
        self.wow = self.process.wow64()
        self.narrow = Narrow(self.wow, host.narrow_bases, name, functions, files)

    def thread(self, start: str) -> Thread:
        """A thread; all of a WoW64 process begin in LdrInitializeThunk."""
        return self.wide.thread(win32_start=self.narrow.at(start))

    def waits(self, *chain: Union[str, Private32], call: str = WAIT, wide: Sequence[Link] = ()) -> Shows:
        """A thread that waits: its 32-bit stack ends in a stub, the other one in the system call of that."""
        thread = self.thread(next(link for link in chain if isinstance(link, str)))
        teb = self.wow.thread(thread, context=context32(0, 0, 0))
        stack = self.narrow.stack(self.narrow.space.read_int(teb + 4, 4), (*GROUND, *chain), call)
        assert thread.teb is not None
        ip = self.narrow.at(call) + BEHIND_STUB
        stack.sp += 4
        self.narrow.space.write(thread.teb["TlsSlots[1]"] + 4, context32(ip, stack.sp, stack.bp))
        chain64 = wide or ("wow64!Wow64SystemServiceEx", "wow64!whNtWaitForSingleObject")
        function = "wow64win!NtUserGetMessage" if wide else "ntdll!NtWaitForSingleObject"
        shown = self.wide.waits(*chain64, call=function, ground=SIMULATED, thread=thread)
        return [shown, self._narrow(thread, call, *reversed([*GROUND, *chain]))]

    def faults(self, *chain: Union[str, Private32]) -> Shows:
        """A thread that waits for a page in 32-bit code: the trap frame has its registers."""
        thread = self.thread(next(link for link in chain if isinstance(link, str)))
        teb = self.wow.thread(thread, context=context32(0x11111111, 0x22222222, 0x33333333))
        stack = self.narrow.stack(self.narrow.space.read_int(teb + 4, 4), (*GROUND, *chain))
        address, _ = stack.frames.pop()
        stack.sp += 4
        native = Stack64(self.wide.process.space, thread.user_stack_base)
        native.registers[5] = stack.bp
        native.sp = stack.sp
        entry = Entry(entries.PAGE_FAULT, "user32")
        kernel = self.host.enter(thread, native, address - 6, entry, "KiPageFault")
        self.host.switch_out(thread, kernel, IN_FAULT)
        return [self._narrow(thread, *reversed([*GROUND, *chain]))]

    def _narrow(self, thread: Thread, *links: Union[str, Private32]) -> Shown:
        return Shown(self.wide.process.pid, thread.tid, "wow64", self.narrow.frame_names(*links))


def waiting(host: Host64) -> Shows:
    """A 32-bit program that waits: its 64-bit stack ends at LdrInitializeThunk, as those of WoW64 all do."""
    program = Program32(host, "acrobat.exe", functions="WinMain Worker")
    return [*program.waits("WinMain", WAIT_EX), *program.waits("Worker", WAIT_EX)]


def messages(host: Host64) -> Shows:
    """The same in a call of win32k: wow64win has the stub."""
    program = Program32(host, "outlook.exe", "user32.dll", functions="WinMain")
    return program.waits(
        *("WinMain", "user32!GetMessageW"),
        call="user32!NtUserGetMessage",
        wide=("wow64!Wow64SystemServiceEx", "wow64win!whNtUserGetMessage"),
    )


def faulting(host: Host64) -> Shows:
    """A thread that waits for a page in 32-bit code, which has no stack of 64 bits then."""
    return Program32(host, "teams.exe", functions="WinMain Parse").faults("WinMain", "Parse")


def made_code(host: Host64) -> Shows:
    """.NET in 32 bits: nothing registers function tables there. At capture none of it is on a stack.

    A frame in such code is a finding; that clr is loaded lowers its confidence.
    """
    program = Program32(host, "devenv.exe", "clr.dll", functions="main")
    program.wide.process.region(0x21000000, size=0x4000, protection=EXECUTE_READWRITE)
    return program.waits("clr!Thread::intermediateThreadProc", "clr!CLREvent::WaitEx", WAIT_EX)


SITUATIONS = (waiting, messages, faulting, made_code)
