# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Techniques in the kernel."""

from __future__ import annotations

import dataclasses

from tests.forge.code import Routine
from tests.forge.process import Process
from tests.forge.stacks64 import Stack64
from tests.forge.stacks86 import Stack86
from tests.support.clean.host64 import WAITING, Host64
from tests.support.clean.host86 import WAITING as WAITING_86
from tests.support.clean.host86 import Host, Host86
from tests.support.clean.narrow import code_of

from .implants import WAIT_EX, victim
from .techniques import Technique

_MASK = b"\x5a\x13\xc7\x88"


def mapped_driver(host: Host, masked: bool = False, unloaded: bool = False) -> Process:
    """A thread of the kernel in code of no module."""
    page = host.kernel.space.reserve(0x2000)
    code = (b"\xcc" * (0x10 - 5) + b"\xe8\0\0\0\0") * 0x100
    host.kernel.space.write(page, _MASK * 0x400 if masked else code)
    if unloaded:
        host.kernel.unloaded("helper.sys", page, page + 0x2000)
    thread = host.kernel.system.thread(host.number(), teb=False)
    if isinstance(host, Host86):
        host.kernel.space.write(page + 0x100, code_of(Routine(0x100), ends=True))
        narrow = Stack86(host.kernel.space, thread.stack_base, direct=False).start()
        host.descend(narrow, ("PspSystemThreadStartup",))
        narrow.enter(page, Routine(0x100))
        narrow.call(page, Routine(0x100))
        host.switch_out(thread, narrow, WAITING_86[1:])
        return host.kernel.system
    _, routine = host.frame("KeBalanceSetManager")
    moved = dataclasses.replace(routine, rva=0x100)
    stack = Stack64(host.kernel.space, thread.stack_base).start()
    host.descend(stack, ("KiStartSystemThread", "PspSystemThreadStartup"))
    stack.enter(page, moved)
    stack.call(page, moved)
    host.switch_out(thread, stack, WAITING)
    return host.kernel.system


def pushed(host: Host) -> Process:
    """The same with a pushed return address: no call is before it."""
    return mapped_driver(host, masked=True)


def left(host: Host) -> Process:
    """A driver that was unloaded, and whose thread goes on."""
    return mapped_driver(host, unloaded=True)


def unlinked_driver(host: Host64) -> Process:
    """A driver that took itself off the list of modules; its headers are in memory."""
    host.driver("aimhook.sys", "DriverEntry Worker", listed=False)
    host.system_thread(host.kernel.system, "aimhook!Worker")
    return host.kernel.system


def another(host: Host) -> Process:
    """A process with one thread more."""
    program = victim(host)
    program.waits("main", WAIT_EX)
    return program.process


def _unlink(process: Process, links: int) -> None:
    """Takes an element off a list, and leaves its own links as they were."""
    space = process.kernel.space
    size = space.pointer_size
    following, before = space.read_int(links), space.read_int(links + size)
    space.write_int(before, following)
    space.write_int(following + size, before)


def unlink_process(process: Process) -> None:
    """Takes a process off the list."""
    _unlink(process, process.eprocess.at("ActiveProcessLinks"))


def unlink_thread(process: Process) -> None:
    """Takes the last thread of a process off its lists."""
    for links in ("ThreadListEntry", "Tcb.ThreadListEntry"):
        _unlink(process, process.threads[-1].ethread.at(links))


TECHNIQUES = (
    Technique("Manually mapped driver", "kdmapper, TheCruZ (2020)", mapped_driver, x86=True),
    Technique(
        "Manually mapped driver, pushed return",
        "Kernel call stack spoofing, forum posts on kdmapper (2021)",
        pushed,
    ),
    Technique(
        "Driver that unloads itself", "ATT&CK T1014; Turla Driver Loader, hfiref0x (2016)", left, x86=True
    ),
    Technique("DKOM, driver", "FU rootkit, J. Butler, Black Hat (2004)", unlinked_driver),
    Technique(
        "DKOM, process", "FU rootkit, J. Butler, Black Hat (2004)", another, change=unlink_process, x86=True
    ),
    Technique(
        "DKOM, thread",
        "FUto, P. Silberman, C.H.A.O.S., Uninformed 3 (2006)",
        another,
        change=unlink_thread,
        x86=True,
    ),
)
