# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The lists in which runtimes keep the ranges of their code."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import time
from typing import Dict, Iterator, List, Tuple

import pytest

from tests.forge.code import Routine
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.vad import EXECUTE_READWRITE
from tests.support.clean import codelists as forged
from tests.support.clean.host64 import Host64, Private
from tests.support.clean.libraries import DATA_RVA
from tests.support.clean.narrow import Private32, code_of
from tests.support.clean.wow import Program32
from tests.support.findingimages import found
from tests.support.only import only
from winstacks.findings.code.codelists import VARIABLES, code_cache
from winstacks.memory.decode.memory import Memory, ReadWindows
from winstacks.memory.decode.ranges import Extents

CODE, SIZE = 0x21000000, 0x4000
WAIT_EX = "kernelbase!WaitForSingleObjectEx"
_PATIENCE = 20.0


def narrow(file: str, chain: Tuple[str, ...], write: forged.Writer, low: int, high: int) -> List[str]:
    """The severities of a 32-bit thread that waits below code of a runtime that lists a range."""
    host = Host64("win10-x64")
    program = Program32(host, "ide.exe", file, functions="main")
    program.wide.process.region(CODE, size=SIZE, protection=EXECUTE_READWRITE)
    program.narrow.space.write(CODE + 0x100, code_of(Routine(0x100)))
    write(program.narrow, low, high)
    program.waits(*chain, Private32(CODE), WAIT_EX)
    return [row["Severity"] for row in found(host.kernel.image(), "unbacked")]


IN_JVM = ("jvm!JavaThread::run", "jvm!JavaCalls::call_helper")
IN_CLR = ("clr!CallDescrWorkerInternal",)


@pytest.mark.parametrize(
    ("file", "chain", "write"),
    [
        ("jvm.dll", IN_JVM, forged.hotspot),
        ("jvm.dll", IN_JVM, forged.older_hotspot),
        ("clr.dll", IN_CLR, forged.clr),
    ],
)
@pytest.mark.parametrize(
    ("low", "high", "severity"),
    [
        (CODE, CODE + SIZE, "low"),
        (CODE, CODE + 0x100, "medium"),
        (0x10000, 0x7FFF0000, "medium"),
        (0x70000000, 0x70001000, "medium"),
    ],
)
def test_code_that_a_runtime_lists(
    file: str, chain: Tuple[str, ...], write: forged.Writer, low: int, high: int, severity: str
) -> None:
    """A range counts within one VAD that is no image's."""
    assert narrow(file, chain, write, low, high) == [severity]


def test_ranges_of_which_the_manager_is_not_the_runtimes() -> None:
    """Its functions would lie in an image of another."""
    assert narrow("clr.dll", IN_CLR, forged.foreign_clr, CODE, CODE + SIZE) == ["medium"]


def not_all_there(file: str, chain: Tuple[str, ...], write: forged.Writer, lost: str) -> Dict[str, object]:
    """The finding beside a runtime that lists its code, without its variables or its headers in the image."""
    host = Host64("win10-x64")
    program = Program32(host, "ide.exe", file, functions="main")
    program.wide.process.region(CODE, size=SIZE, protection=EXECUTE_READWRITE)
    program.narrow.space.write(CODE + 0x100, code_of(Routine(0x100)))
    write(program.narrow, CODE, CODE + SIZE)
    program.waits(*chain, Private32(CODE), WAIT_EX)
    image = host.kernel.image()
    if lost:
        module = program.narrow.modules[chain[0].partition("!")[0]][0]
        place = module.base + (DATA_RVA if lost == "variables" else 0)
        if file == "jvm.dll":
            place = program.narrow.at(f"jvm!{VARIABLES[0]}") & ~(PAGE - 1)
        program.narrow.space.set_state(place, PAGE, State.MISSING)
        assert module.section is not None
        module.section.set_state(place - module.base, PAGE, State.MISSING)
    return only(found(image, "unbacked"))


@pytest.mark.parametrize(
    ("file", "chain", "write", "lost", "severity"),
    [
        ("clr.dll", IN_CLR, forged.clr, "variables", "low"),
        ("clr.dll", IN_CLR, forged.clr, "headers", "low"),
        ("clr.dll", IN_CLR, forged.clr, "", "low"),
        ("clr.dll", IN_CLR, forged.foreign_clr, "variables", "low"),
        ("clr.dll", IN_CLR, forged.foreign_clr, "", "medium"),
        ("jvm.dll", IN_JVM, forged.hotspot, "variables", "low"),
        ("jvm.dll", IN_JVM, forged.hotspot, "", "low"),
    ],
)
def test_a_list_that_is_not_in_the_image_may_have_the_range(
    file: str, chain: Tuple[str, ...], write: forged.Writer, lost: str, severity: str
) -> None:
    """As function tables of 64-bit code, where a frame of the runtime is beside the code."""
    row = not_all_there(file, chain, write, lost)
    assert row["Severity"] == severity
    assert ("the runtime's own list of code, which may have this range" in str(row["Innocent"])) == bool(lost)


def test_headers_of_clr_that_are_written_over_are_not_absent() -> None:
    """One write to the process's own copy of CLR explains no code."""
    host = Host64("win10-x64")
    program = Program32(host, "ide.exe", "clr.dll", functions="main")
    program.wide.process.region(CODE, size=SIZE, protection=EXECUTE_READWRITE)
    program.narrow.space.write(CODE + 0x100, code_of(Routine(0x100)))
    forged.foreign_clr(program.narrow, CODE, CODE + SIZE)
    program.waits(*IN_CLR, Private32(CODE), WAIT_EX)
    image = host.kernel.image()
    program.narrow.space.write(program.narrow.modules["clr"][0].base, bytes(8))
    assert only(found(image, "unbacked"))["Severity"] == "medium"


@pytest.mark.parametrize(("listed", "severity"), [(0x4000, "low"), (0x1000, "medium")])
def test_the_code_range_of_v8(listed: int, severity: str) -> None:
    """A program with V8 in it whose symbols are at hand; half of the reserved range is too little."""
    host = Host64("win10-x64")
    functions = f"main .v8::Execution::Call .{forged.V8_VARIABLE}"
    program = host.program("node.exe", functions=functions)
    base = program.jitted(0x4000, EXECUTE_READWRITE)
    forged.v8(program, base, listed)
    program.waits("main", "v8::Execution::Call", Private(base), WAIT_EX)
    assert [row["Severity"] for row in found(host.kernel.image(), "unbacked")] == [severity]


class _OtherProcess:
    """The memory of a process that runs on this machine."""

    def __init__(self, pid: int) -> None:
        self._path = pathlib.Path(f"/proc/{pid}/mem")

    def __call__(self, start: int, length: int) -> Extents:
        try:
            with self._path.open("rb", buffering=0) as file:
                file.seek(start)
                return Extents([(start, file.read(length))])
        except (OSError, ValueError, OverflowError):
            return Extents(())


@pytest.fixture
def jvm() -> Iterator[int]:
    """The process ID of a Java program that waits."""
    program = shutil.which("rmiregistry")
    if program is None or shutil.which("nm") is None:
        pytest.skip("no Java is installed (Debian: apt install openjdk-17-jre-headless binutils)")
    run = subprocess.Popen([program, "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield run.pid
    run.kill()
    run.wait()


def _maps(pid: int) -> List[List[str]]:
    return [line.split() for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]


def _variables(pid: int) -> Dict[str, int]:
    """The addresses of what libjvm exports, once it is loaded."""
    library = next(line for line in _maps(pid) if line[-1].endswith("libjvm.so"))
    base = int(library[0].partition("-")[0], 16)
    listed = subprocess.run(["nm", "-D", library[-1]], stdout=subprocess.PIPE, check=True, text=True).stdout
    symbols = (line.partition("@")[0].split() for line in listed.splitlines())
    return {
        symbol[2]: base + int(symbol[0], 16)
        for symbol in symbols
        if len(symbol) == 3 and symbol[2] in VARIABLES
    }


def test_the_code_cache_of_a_real_jvm(jvm: int) -> None:
    """What HotSpot says of itself is where its writable code is."""
    reader, cache, end = _OtherProcess(jvm), None, time.monotonic() + _PATIENCE
    memory = None
    while cache is None and time.monotonic() < end:
        time.sleep(0.1)
        if any(line[-1].endswith("libjvm.so") for line in _maps(jvm)):
            memory = Memory(ReadWindows(reader), 8)
            cache = code_cache(memory, _variables(jvm))
    assert cache is not None
    code = [line[0] for line in _maps(jvm) if line[1] == "rwxp" and len(line) == 5]
    assert code
    for text in code:
        low, _, high = text.partition("-")
        assert cache[0] <= int(low, 16) < int(high, 16) <= cache[1]
