# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Environments of forged processes, and the clock of a forged kernel."""

from __future__ import annotations

from typing import Mapping, Optional

from tests.forge.kernel import Kernel
from tests.forge.obj import Obj
from tests.forge.process import Process


def give_environment(process: Process, variables: Mapping[str, str], session: int = 0) -> int:
    """Puts a process into a session and gives it an environment; returns the address of that."""
    text = "".join(f"{name}={value}\0" for name, value in variables.items()) + "\0"
    data = text.encode("utf-16-le")
    address = process.space.allocate(len(data), 16)
    process.space.write(address, data)
    parameters = process.obj("_RTL_USER_PROCESS_PARAMETERS")
    parameters["Environment"] = address
    assert process.peb is not None
    process.peb.put(ProcessParameters=parameters, SessionId=session)
    return address


def system_process(kernel: Kernel, name: str, pid: int, computer: str, session: int = 0) -> Process:
    """A process that knows the name of the computer."""
    process = kernel.process(name, pid=pid)
    variables = {"ALLUSERSPROFILE": "C:\\ProgramData", "COMPUTERNAME": computer, "OS": "Windows_NT"}
    give_environment(process, variables, session)
    return process


def set_time(kernel: Kernel, name: str, value: int, again: Optional[int] = None) -> None:
    """Sets a KSYSTEM_TIME of KUSER_SHARED_DATA.

    Args:
        kernel: the kernel
        name: SystemTime, InterruptTime or TimeZoneBias
        value: in units of 100 ns
        again: another value for the second copy of its upper half
    """
    shared = Obj(kernel.space, kernel.isf, "_KUSER_SHARED_DATA", kernel.kuser)
    shared[f"{name}.LowPart"] = value & 0xFFFFFFFF
    shared[f"{name}.High1Time"] = value >> 32
    shared[f"{name}.High2Time"] = (value if again is None else again) >> 32
