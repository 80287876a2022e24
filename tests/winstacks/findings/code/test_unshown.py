# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Executable memory of no file in processes that have lost a stack."""

from __future__ import annotations

import pytest

from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.vad import EXECUTE_READ, EXECUTE_READWRITE
from tests.machines import product
from tests.support.clean.host64 import Host64, Private
from tests.support.findingimages import Row, found
from tests.support.only import only

SLEEP = "kernelbase!SleepEx"
UNSHOWN = "is not all in the image: whether it leads there is unknown"


def _rows(
    *files: str,
    protection: int = EXECUTE_READWRITE,
    lost: bool = True,
    headers: bool = True,
    codes: int = 1,
    hooked: bool = False,
) -> list[Row]:
    host = Host64("win10-x64")
    program = host.program("victim.exe", *files, functions="main Work")
    bases = [program.jitted(protection=protection) for _ in range(codes)]
    program.waits("main", *(Private(base) for base in bases[:1]), SLEEP)
    if hooked:
        product.hook_all(host)
    image = host.kernel.image()
    for thread in program.process.threads if lost else ():
        program.process.space.set_state(thread.user_stack_base - PAGE, PAGE, State.MISSING)
    if not headers:
        module, _ = program.modules[""]
        program.process.space.set_state(module.base, PAGE, State.MISSING)
        assert module.section is not None
        module.section.set_state(0, PAGE, State.MISSING)
    return [row for row in found(image, "unbacked") if UNSHOWN in row["Innocent"]]


def test_code_of_no_file_is_low_where_the_stack_is_lost() -> None:
    row = only(_rows())
    assert (row["Severity"], row["Confidence"], row["Frame"]) == ("low", "possible", None)
    assert row["Innocent"].startswith("nothing known in this process; the stack of TID ")
    assert "region of 0x2000 bytes" in row["Evidence"]


def test_where_the_stack_is_there_it_is_the_evidence() -> None:
    assert _rows(lost=False) == []


def test_a_runtime_or_much_generated_code_explains_it() -> None:
    assert _rows("clr.dll") == []
    assert _rows(codes=4) == []


def test_without_code_there_is_none() -> None:
    assert _rows(codes=0) == []


def test_relays_of_a_product_are_none() -> None:
    assert _rows(codes=0, hooked=True) == []


@pytest.mark.parametrize(("protection", "count"), [(EXECUTE_READWRITE, 1), (EXECUTE_READ, 0)])
def test_where_a_program_may_have_a_runtime_memory_for_everything_counts(protection: int, count: int) -> None:
    rows = _rows(protection=protection, headers=False)
    assert len(rows) == count
    assert all("but the exports of the program" in row["Innocent"] for row in rows)


def test_findings_that_lost_pages_may_explain_come_behind_those_that_nothing_explains() -> None:
    """Their processes are listed in the other order."""
    host = Host64("win10-x64")
    for name in ("doubtful.exe", "clear.exe"):
        program = host.program(name, functions="main Work")
        program.waits("main", Private(program.jitted(protection=EXECUTE_READWRITE)), SLEEP)
    image = host.kernel.image()
    for program in host.programs[-2:]:
        for thread in program.process.threads:
            program.process.space.set_state(thread.user_stack_base - PAGE, PAGE, State.MISSING)
    module, _ = host.programs[-2].modules[""]
    host.programs[-2].process.space.set_state(module.base, PAGE, State.MISSING)
    assert module.section is not None
    module.section.set_state(0, PAGE, State.MISSING)
    rows = found(image, "unbacked")
    assert [row["Process"] for row in rows if UNSHOWN in row["Innocent"]] == ["clear.exe", "doubtful.exe"]
