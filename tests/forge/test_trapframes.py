# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The forged frames are the real ones, byte for byte."""

from __future__ import annotations

import pathlib
from typing import Dict, Optional

import pytest

from tests.forge import trapentries as kinds
from tests.forge import trapframes as forge
from tests.support import real_trapframes
from tests.support.real_trapframes import RealFrame

SOFTWARE_64 = {"trap1f", "trap2f", "trape1", "trap12", "direct_435b0"}
FAULTS_64 = {"trap08", "trap0a", "trap0b", "trap0c", "trap0d", "trap11"}
# Entries 1 to 4 of the interrupt templates also store a time stamp; the APC exit rewrites its frame; the
# floating-point fault puts its control word over the error code.
LEFT_OUT_64 = {"interrupt1", "interrupt2", "interrupt3", "interrupt4", "service_apc", "trap10"}

FAULTS_86 = {"fault0e", "trap0a", "trap0b", "trap0c", "trap0d", "trap11"}
# KiCallbackReturn also stores Ecx; the debug service and the assertion move Eip; #GP repairs Ds.
LEFT_OUT_86 = {"trap2b", "trap2d", "trap2a"}


def kind_64(real: RealFrame) -> Optional[str]:
    if real.kind in LEFT_OUT_64:
        return None
    named: Dict[str, str] = {
        "service": kinds.SYSCALL,
        "service_internal": kinds.ZW,
        "fault0e": kinds.PAGE_FAULT,
    }
    named.update({"interrupt0": kinds.DEVICE, "interrupt5": kinds.DEVICE, "trap02": kinds.NMI})
    named.update(dict.fromkeys(SOFTWARE_64, kinds.SOFTWARE))
    named.update(dict.fromkeys(FAULTS_64, kinds.FAULT))
    return named.get(real.kind, kinds.EXCEPTION)


def kind_86(real: RealFrame) -> Optional[str]:
    fast_path = real.mode == "v86" and real.kind in ("trap06", "trap0d")
    if real.kind in LEFT_OUT_86 or fast_path or (real.kind, real.mode) == ("trap0d", "kernel"):
        return None
    named: Dict[str, str] = {"service": kinds.SYSENTER, "service_int2e": kinds.INT2E, "service_zw": kinds.ZW}
    named.update({"interrupt": kinds.DEVICE, "unexpected30": kinds.DEVICE, "trap02": kinds.NMI})
    named.update(dict.fromkeys(FAULTS_86, kinds.FAULT))
    if real.kind == "trap2c":
        # In 5.1 a service (KiSetLowWaitHighThread), in 5.2 an assertion, which moves Eip.
        return kinds.INT2E if real.build.startswith("5.1") else None
    return named.get(real.kind, kinds.EXCEPTION)


def again(real: RealFrame, kind: str) -> forge.Forged:
    members, registers = real.members, dict(real.registers)
    if real.arch == "x64":
        if members["Rip"].status == "computed":
            registers["rip"] = members["Rip"].value
        # The stub's own instructions (cli, sub) change the flags before it pushes them.
        registers["eflags"] = members["EFlags"].value
        registers["gs_base_kernel"] = members["GsSwap"].value
        previous, mode, rip = members["TrapFrame"].value, members["PreviousMode"].value, members["Rip"].value
        poison = forge.stack_poison
    else:
        registers["system_call_return"] = rip = members["Eip"].value
        previous, mode = members["Edx"].value, members["PreviousPreviousMode"].value
        poison = forge.stack_poison_86
    entry = kinds.Entry(
        kind,
        real.mode,
        debug=real.debug_active,
        previous=previous,
        previous_mode=mode,
        clears_dr7=real.build.startswith("5.2"),
        linkage=rip,
    )
    return forge.forge(real.arch, entry, registers, real.address, poison)


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_real_frames_again(shared_dir: pathlib.Path, build: str) -> None:
    count: Dict[str, int] = {}
    for real in real_trapframes.load(shared_dir, build):
        kind = kind_64(real) if real.arch == "x64" else kind_86(real)
        if kind is None:
            continue
        # From x86 kernel mode the frame ends at Eip, SegCs and EFlags; above is the interrupted stack.
        pushed = 0x74 if (real.arch, real.mode) == ("x86", "kernel") and kind != kinds.NMI else len(real.data)
        assert again(real, kind).data[:pushed] == real.data[:pushed], real.label
        count[kind] = count.get(kind, 0) + 1
    print(f"{build}: {count}")
    assert set(count) == set(kinds.KINDS_64 if build.endswith("x64") else kinds.KINDS_86)
    assert sum(count.values()) > 75
