# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The machines: a developer's desktop, a server, and a workstation whose programs no rule names.

Of x86 there is a desktop: with programs as x64 runs them under WoW64, and a thunk that no rule names.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable

from tests.forge.callbacks import Callbacks
from tests.support.clean import everyday, host86, patched, processes, runtimes, wow
from tests.support.clean.host64 import Host64
from tests.support.clean.host86 import Host, Host86

from . import product, programs, unnamed

KERNEL = "win10-x64"

_SERVICES = {"desktop": 56, "server": 64, "workstation": 20}
_COMMON = (
    "smss.exe",
    "csrss.exe",
    "wininit.exe",
    "services.exe",
    "lsass.exe",
    "winlogon.exe",
    "fontdrvhost.exe",
)
_SHELL = (
    *("explorer.exe", "sihost.exe", "taskhostw.exe", "ctfmon.exe", "SearchHost.exe", "StartMenu.exe"),
    *("ShellHost.exe", "RuntimeBroker.exe", "RuntimeBroker.exe", "RuntimeBroker.exe", "smartscreen.exe"),
    *("conhost.exe", "conhost.exe", "OpenConsole.exe", "audiodg.exe", "SecurityHealth.exe", "OneDrive.exe"),
    *("NVDisplay.exe", "spoolsv2.exe", "wslservice.exe", "vmcompute.exe", "docker.exe", "Widgets.exe"),
)
_ROLES = ("w3wp.exe", "dns.exe", "ntfrs.exe", "sqlagent.exe", "vmtoolsd.exe", "backup.exe", "snmp.exe")


_TIMERS, _DPCS = 200, 3
_CODE = 0x1000
"""RVA of the code of each forged module."""


def ordinary_callbacks(host: Host) -> None:
    """Timers and queued DPCs of the kernel and of drivers, and timers of threads, which have no DPC."""
    made = Callbacks(host.kernel)
    routines = [module.base + _CODE for module in host.kernel.modules]
    for number in range(_TIMERS if made.heads else 0):
        routine = routines[number % len(routines)] if number % 3 else None
        made.timer(routine, 7 * number % len(made.heads))
    for number in range(_DPCS):
        made.queued(routines[number % len(routines)])
    made.finish()


def _base(host: Host64, machine: str) -> None:
    """What every Windows runs."""
    for situation in processes.SITUATIONS:
        situation(host)
    for name in _COMMON:
        programs.ordinary(host, name)
    for _ in range(_SERVICES[machine]):
        everyday.service(host)
    for situation in everyday.SITUATIONS:
        situation(host)
    programs.hypercall(host)
    for name in ("agent.exe", "monitor.exe", "updater.exe"):
        programs.coreclr_service(host, name)


def _desktop(host: Host64) -> None:
    _base(host, "desktop")
    programs.defender(host, "MsMpEng.exe")
    for name in _SHELL:
        programs.ordinary(host, name, "user32.dll", "win32u.dll")
    for _ in range(5):
        patched.browser(host)
    patched.in_a_thunk(host)
    patched.interrupt_2e(host)
    programs.swiftshader(host, "chrome.exe")
    programs.electron(host, "ms-teams.exe")
    programs.electron(host, "Code.exe", 5)
    for name in ("Slack.exe", "Launcher.exe"):
        programs.electron_32(host, name)
    programs.bare_node(host, "node.exe")
    programs.java_ide(host, "idea64.exe")
    programs.java_32(host, "javaw.exe")
    for name in ("tray.exe", "sync.exe"):
        programs.dotnet_32(host, name)
    programs.winforms(host, "accounts.exe")
    programs.mono_game(host, "game.exe")
    programs.luajit_game(host, "shooter.exe")
    for name in ("bash.exe", "mintty.exe"):
        programs.git_bash(host, name)
    programs.own_stack(host, "boost.exe", "finish")
    programs.own_stack(host, "ruby.exe", "x64-msvcrt-ruby300!rb_fiber_terminate", "x64-msvcrt-ruby300.dll")
    programs.closure(host, "python.exe")
    programs.protected(host, "copyguard.exe")
    programs.guarded_exports(host, "winword.exe")
    programs.hard_link(host, "cargo.exe")
    for situation in wow.SITUATIONS:
        situation(host)
    for name in ("Steam.exe", "Dropbox.exe", "AdobeUpdate.exe"):
        programs.ordinary_32(host, name)
    product.caught(host, "excel.exe")
    product.hook_all(host)


def _server(host: Host64) -> None:
    _base(host, "server")
    runtimes.defender(host)
    for name in _ROLES:
        programs.ordinary(host, name)
    for name in ("w3wp.exe", "exchange.exe", "health.exe", "report.exe"):
        programs.coreclr_service(host, name)
    programs.java_ide(host, "java.exe")
    programs.dotnet_32(host, "legacy.exe")
    product.caught(host, "mssense.exe")
    product.hook_all(host)


def _workstation(host: Host64) -> None:
    """A desktop's services and shell, and programs whose code generators no list names."""
    _base(host, "workstation")
    for name in _SHELL:
        programs.ordinary(host, name, "user32.dll", "win32u.dll")
    for program in unnamed.PROGRAMS:
        program(host)
    product.hook_all(host)


MACHINES: Dict[str, Callable[[Host64], None]] = {
    "desktop": _desktop,
    "server": _server,
    "workstation": _workstation,
}


def programs_86(host: Host86) -> None:
    """The programs of x86 with code of no file."""
    for name in ("Slack.exe", "Launcher.exe"):
        programs.electron_32(host, name)
    programs.java_32(host, "javaw.exe")
    for name in ("tray.exe", "sync.exe", "agent.exe"):
        programs.dotnet_32(host, name)
    programs.winforms(host, "accounts.exe")
    programs.mono_game(host, "game.exe")
    unnamed.window_thunk(host)


def _desktop_86(host: Host86) -> None:
    for situation in (host86.system, host86.window, host86.clr, host86.without_a_program):
        situation(host)
    for name in _COMMON:
        programs.ordinary(host, name)
    for _ in range(_SERVICES["desktop"]):
        everyday.service(host)
    for name in _SHELL:
        programs.ordinary(host, name, "user32.dll")
    programs_86(host)
    product.hook_all(host)


MACHINES_86: Dict[str, Callable[[Host86], None]] = {"desktop": _desktop_86}


def names_of(kernel: str) -> Iterable[str]:
    """The machines that a kernel has."""
    return MACHINES_86 if kernel in host86.NARROW else MACHINES


def build(machine: str, kernel: str = KERNEL) -> Host:
    """A machine with all of its pages."""
    if kernel in host86.NARROW:
        narrow = Host86(kernel, ends=True)
        MACHINES_86[machine](narrow)
        return narrow
    host = Host64(kernel)
    MACHINES[machine](host)
    return host
