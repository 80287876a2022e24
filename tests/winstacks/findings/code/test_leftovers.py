# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Return addresses into code of no file on stacks to which no walk leads, because pages are lost."""

from __future__ import annotations

import pathlib
import struct
from typing import Callable, Tuple

import pytest
from volatility3.plugins.minidump import tracefindings

from tests.forge.minidump import Module, Writer
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.thread import Thread
from tests.forge.vad import EXECUTE_READWRITE
from tests.machines import product
from tests.support.clean.host64 import Host64, Private, Program
from tests.support.findingimages import Row, found
from tests.support.only import only
from tests.support.processdumps import OpenedDump
from winstacks.findings.code import leftovers
from winstacks.memory.decode.structure import integers
from winstacks.stacks.decode.budget import most_scanned

SLEEP = "kernelbase!SleepEx"
LEFT = "no walk leads to the value"

Lose = Callable[[Program, Thread], None]


def _kernel_stack(program: Program, thread: Thread) -> None:
    """Loses the stack with the thread's registers."""
    kernel = program.process.kernel.space
    kernel.set_state(thread.stack_limit, thread.stack_base - thread.stack_limit, State.MISSING)


def _code_of_windows(program: Program, thread: Thread) -> None:
    """Loses the code, headers and tables of ntdll, and the code of kernelbase: no scan knows a caller."""
    assert thread.teb is not None
    program.process.space.set_state(thread.teb.address, PAGE, State.MISSING)
    for name in ("ntdll", "kernelbase"):
        module, _ = program.modules[name]
        program.process.space.set_state(module.base, module.size, State.MISSING)
        if module.section is not None:
            module.section.set_state(0, module.size, State.MISSING)


def _rows(name: str, lose: Lose, *files: str, lost_code: bool = False, check: str = "unbacked") -> list[Row]:
    host = Host64("win10-x64")
    program = host.program(name, *files, functions="main Work")
    code = program.jitted(protection=EXECUTE_READWRITE)
    shown = program.waits(Private(code), SLEEP, start="main")
    thread = next(thread for thread in program.process.threads if thread.tid == shown.tid)
    image = host.kernel.image()
    lose(program, thread)
    if lost_code:
        program.process.space.set_state(code, 0x2000, State.MISSING)
    rows = [row for row in found(image, check) if row["Finding"] == "unbacked"]
    assert all(code <= row["Address"] < code + 0x2000 for row in rows)
    return rows


def test_a_value_behind_a_call_in_private_code_is_a_finding() -> None:
    row = only(_rows("victim.exe", _kernel_stack))
    assert (row["Severity"], row["Confidence"], row["How"], row["Frame"]) == (
        "medium",
        "possible",
        "scan",
        None,
    )
    assert LEFT in row["Innocent"] and "the stack has the address at 0x" in row["Evidence"]


def test_all_checks_together_read_the_values_of_a_stack_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def noting(data: bytes, size: int) -> Tuple[int, ...]:
        read.append(data)
        return integers(data, size)

    monkeypatch.setattr(leftovers, "integers", noting)
    assert _rows("victim.exe", _kernel_stack, check="")
    assert read and len(read) == len(set(read))


def test_where_only_the_code_of_windows_is_lost_a_scan_finds_the_frame() -> None:
    row = only(_rows("victim.exe", _code_of_windows))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("medium", "possible", "scan")


@pytest.mark.parametrize("lose", [_kernel_stack, _code_of_windows])
def test_where_the_code_is_lost_too_it_is_low_and_says_so(lose: Lose) -> None:
    row = only(_rows("victim.exe", lose, lost_code=True))
    assert (row["Severity"], row["Confidence"]) == ("low", "possible")
    assert "whether a call precedes it is unknown" in row["Innocent"]


def test_a_runtime_that_is_loaded_explains_it() -> None:
    row = only(_rows("service.exe", _kernel_stack, "clr.dll"))
    assert (row["Severity"], LEFT in row["Innocent"]) == ("low", False)
    assert "clr.dll loaded" in row["Innocent"]


def test_where_nothing_is_lost_there_is_a_frame_and_no_such_value() -> None:
    row = only(_rows("victim.exe", lambda program, thread: None))
    assert (row["Severity"], row["Frame"] is not None, LEFT in row["Innocent"]) == ("high", True, False)


def test_the_relay_of_a_product_explains_it() -> None:
    host = Host64("win10-x64")
    product.caught(host, "first.exe")
    image = host.kernel.image()
    for program in host.programs:
        for thread in program.process.threads:
            _kernel_stack(program, thread)
    row = only(found(image, "unbacked"))
    assert row["Severity"] == "low"
    assert "code that calls guard.dll" in row["Innocent"]


def test_much_generated_code_explains_it() -> None:
    """As a compiler has it that no list names: four ranges."""
    host = Host64("win10-x64")
    program = host.program("engine.exe", functions="main")
    codes = [program.jitted() for _ in range(4)]
    shown = program.waits(Private(codes[0]), SLEEP, start="main")
    image = host.kernel.image()
    _kernel_stack(program, next(thread for thread in program.process.threads if thread.tid == shown.tid))
    row = only(found(image, "unbacked"))
    assert (row["Severity"], "much generated code" in row["Innocent"]) == ("low", True)


def _masked(program: Program, code: int) -> None:
    program.process.space.write(code, b"\x5a" * 0x2000)


def _asleep(program: Program, code: int) -> None:
    program.process.space.tables.forbid_execution(code)


@pytest.mark.parametrize(
    ("change", "why"),
    [(_masked, "no call precedes the address"), (_asleep, "the memory was executable, and is not now")],
)
@pytest.mark.parametrize(("files", "count"), [((), 1), (("clr.dll",), 0)])
def test_a_value_that_leads_to_hidden_code_is_low_unless_something_explains_it(
    change: Callable[[Program, int], None], why: str, files: tuple[str, ...], count: int
) -> None:
    host = Host64("win10-x64")
    program = host.program("victim.exe", *files, functions="main Work")
    code = program.jitted(protection=EXECUTE_READWRITE)
    change(program, code)
    shown = program.waits(Private(code), SLEEP, start="main")
    image = host.kernel.image()
    _kernel_stack(program, next(thread for thread in program.process.threads if thread.tid == shown.tid))
    rows = [row for row in found(image, "unbacked") if why in row["Innocent"]]
    assert [(row["Severity"], row["Confidence"]) for row in rows] == [("low", "possible")] * count


def test_threads_that_claim_one_stack_are_not_searched_again_and_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two hundred threads in 80 KB have 13 MB of stacks, as they say."""
    searched = 0

    def counted(data: bytes, size: int) -> Tuple[int, ...]:
        nonlocal searched
        searched += len(data)
        return integers(data, size)

    path = tmp_path / "shared.dmp"
    path.write_bytes(_sharing(200))
    monkeypatch.setattr(leftovers, "integers", counted)
    OpenedDump(path).rows(tracefindings.TraceFindings)
    assert 0 < searched <= most_scanned(path.stat().st_size + PAGE)
    assert "Checks have searched more bytes of stacks than the file has" in caplog.text


def _sharing(count: int) -> bytes:
    """A dump of threads that have one stack and one CONTEXT, in a module whose code is not there."""
    writer, stack, module = Writer(), 0x10000000, 0x7FF600000000
    words = [module + 0x1000 + 16 * (number % 200) for number in range(0x2000)]
    data, context = struct.pack("<8192Q", *words), bytearray(1232)
    for place, form, value in ((0x30, "<I", 0x10000F), (0x98, "<Q", stack), (0xF8, "<Q", module + 0x1234)):
        struct.pack_into(form, context, place, value)
    writer.system_info()
    writer.misc_info(1000)
    writer.modules([Module(module, 0x10000, 1, "C:\\a.dll")])
    places = stack, len(data), writer.put(data), len(context), writer.put(bytes(context))
    threads = (
        struct.pack("<IIIIQQIIII", 1000 + 4 * number, 0, 32, 0, 0x20000000 + 0x2000 * number, *places)
        for number in range(count)
    )
    writer.stream(3, struct.pack("<I", count) + b"".join(threads))
    writer.stream(5, struct.pack("<IQII", 1, *places[:3]))
    return writer.bytes()
