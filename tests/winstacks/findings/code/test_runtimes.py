# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code that runtimes made and registered nowhere: what calls it, and what it calls."""

from __future__ import annotations

from typing import List, Sequence, Union

import pytest

from tests.forge.code import Routine
from tests.forge.paging import State
from tests.forge.vad import EXECUTE_READWRITE
from tests.support.clean import codelists
from tests.support.clean.host64 import JITTED, Host64, Private
from tests.support.clean.narrow import Private32, code_of
from tests.support.clean.wow import Program32
from tests.support.findingimages import found
from tests.support.only import only
from winstacks.findings.code import runtimes

WAIT_EX = "kernelbase!WaitForSingleObjectEx"
CODE, OTHER = 0x21000000, 0x21800000
OUT = "clr!CallDescrWorkerInternal"


def narrow(chain: Sequence[Union[str, Private32]]) -> List[str]:
    """The severities of a 32-bit stack, by range."""
    host = Host64("win10-x64")
    program = Program32(host, "devenv.exe", "clr.dll", functions="main")
    for base in (CODE, OTHER):
        program.wide.process.region(base, size=0x4000, protection=EXECUTE_READWRITE)
        program.narrow.space.write(base + 0x100, code_of(Routine(0x100)))
    codelists.no_clr(program.narrow)
    program.waits(*chain, WAIT_EX)
    return [row["Severity"] for row in found(host.kernel.image(), "unbacked")]


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ((OUT, Private32(CODE)), ["medium"]),
        ((OUT, Private32(CODE), Private32(OTHER)), ["medium", "low"]),
        ((OUT, "main", Private32(CODE)), ["high"]),
        ((OUT, "kernelbase!SleepEx", Private32(CODE)), ["medium"]),
        (("main", "kernelbase!SleepEx", Private32(CODE)), ["high"]),
        (("main", Private32(CODE)), ["high"]),
    ],
)
def test_a_runtime_that_called_code_of_32_bits(
    chain: Sequence[Union[str, Private32]], expected: List[str]
) -> None:
    """What frame pointers find above code that nothing proves is a guess, and low in any case."""
    assert narrow(chain) == expected


@pytest.mark.parametrize(
    ("chain", "expected"), [((OUT, Private32(CODE)), "low"), (("main", Private32(CODE)), "medium")]
)
def test_a_runtime_on_both_sides_of_code(
    chain: Sequence[Union[str, Private32]], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime whose exported function waits: that and its caller are sure."""
    monkeypatch.setattr(runtimes, "PROGRAMS", ("kernelbase",))
    assert narrow(chain) == [expected]


@pytest.mark.parametrize(
    "file", ["lua51.dll", "vk_swiftshader.dll", "mpengine.dll", "mono-2.0-bdwgc.dll", "node.dll", "other.dll"]
)
@pytest.mark.parametrize("waits", [False, True])
def test_code_that_a_module_called(file: str, waits: bool) -> None:
    """Implants sleep: where code waits in Windows, the runtime above it lowers the finding by one step.

    A module that is no runtime lowers that of interrupted code by one step, and no other.
    """
    host = Host64("win10-x64")
    program = host.program("game.exe", functions="main")
    module = program.load(file, functions="Run", path=f"C:\\Game\\{file}")
    base = program.jitted(0x2000, EXECUTE_READWRITE)
    chain = ("main", f"{file[:-4].replace('.', '_')}!Run", Private(base))
    if waits:
        program.waits(*chain, WAIT_EX)
    else:
        program.interrupted(*chain)
    assert module.base
    rows = found(host.kernel.image(), "unbacked")
    of_runtime = file != "other.dll"
    expected = ("medium" if of_runtime else "high") if waits else "low" if of_runtime else "medium"
    assert [row["Severity"] for row in rows] == [expected]
    assert ("is next to it on the stack" in rows[0]["Innocent"]) == (waits and of_runtime)
    assert ("the thread was interrupted there" in rows[0]["Innocent"]) == (not waits)


@pytest.mark.parametrize(("exports", "severity"), [({"napi_module_register": 0x1180}, "low"), ({}, "medium")])
def test_a_program_that_has_node_in_it(exports: dict[str, int], severity: str) -> None:
    host = Host64("win10-x64")
    program = host.program("editor.exe", functions="main")
    program.load(
        "editor.node", functions="Run", path="C:\\Editor\\editor.node", exports={"Run": 0x1100, **exports}
    )
    program.interrupted("main", "editor!Run", Private(program.jitted(0x2000, EXECUTE_READWRITE)))
    assert [row["Severity"] for row in found(host.kernel.image(), "unbacked")] == [severity]


def test_a_stub_that_registered_code_called() -> None:
    """CoreCLR copies its write barrier to memory of its own. It has not moved the stack."""
    host = Host64("win10-x64")
    program = host.program("service.exe", "clr.dll", functions="main")
    base, stub = program.jitted(0x2000), program.jitted(0x1000)
    program.register((base, base + 0x2000))
    program.interrupted(OUT, Private(base), at=stub + JITTED.rva)
    rows = found(host.kernel.image(), "unbacked")
    assert [row["Severity"] for row in rows] == ["low", "low"]


def test_code_of_64_bits_with_a_runtime_on_both_sides() -> None:
    """It has no unwind data, so that a scan finds the runtime above it; it called the runtime for sure."""
    host = Host64("win10-x64")
    program = host.program("game.exe", "lua51.dll", functions="main")
    base = program.jitted(0x2000, EXECUTE_READWRITE)
    program.waits("main", "lua51!lj_vm_call", Private(base), "lua51!lua_sleep", WAIT_EX)
    assert [row["Severity"] for row in found(host.kernel.image(), "unbacked")] == ["low"]


@pytest.mark.parametrize(
    ("file", "ranges", "severity"),
    [("mpengine.dll", 1, "medium"), ("user32.dll", 1, "high"), ("user32.dll", 4, "medium")],
)
def test_code_below_a_stack_that_is_not_in_the_image(file: str, ranges: int, severity: str) -> None:
    """Where a runtime is loaded that may have called it, or as much code as a compiler makes; without these
    the finding says that the caller is unknown, and is not certain."""
    host = Host64("win10-x64")
    program = host.program("scanner.exe", file, functions="main")
    thread = program.thread()
    bases = [program.jitted(0x2000, EXECUTE_READWRITE) for _ in range(ranges)]
    program.interrupted("main", Private(bases[0]), thread=thread)
    image = host.kernel.image()
    program.process.space.set_state(thread.user_stack_limit, 0x4000, State.MISSING)
    row = only(found(image, "unbacked"))
    assert (row["Severity"], row["Confidence"]) == (severity, "likely")
    assert row["Innocent"].endswith("its caller is unknown")
