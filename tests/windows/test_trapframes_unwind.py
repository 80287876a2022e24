# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.trapframes --unwind`: registers that no trap frame holds come from the walk up the stack."""

from __future__ import annotations

import pathlib
from typing import Any, Dict

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.windows import trapframes

from tests.forge import context
from tests.forge import trapentries as entries
from tests.forge.code import R12, R13, R14, R15, RBP, RBX, RDI, RSI
from tests.forge.context import Opened
from tests.support.callstackimages import UNWIND_DATA, StackImage
from tests.support.only import only

COLUMNS = {
    RBX: "Rbx",
    RBP: "Rbp",
    RSI: "Rsi",
    RDI: "Rdi",
    R12: "R12",
    R13: "R13",
    R14: "R14",
    R15: "R15",
}
MASK = (1 << 48) - 1


@pytest.fixture(scope="module")
def image() -> StackImage:
    forged_image = StackImage()
    forged_image.trap = forged_image.interrupted(1008)
    return forged_image


@pytest.fixture(scope="module")
def opened(image: StackImage, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(image.kernel.image(), tmp_path_factory.mktemp("unwind"))


def frames(opened: Opened, **options: Any) -> Dict[int, Dict[str, Any]]:
    rows = opened.rows(trapframes.TrapFrames, scan_stacks=True, **options)
    return {
        row["TrapFrame"]: {
            name: None if isinstance(value, interfaces.renderers.BaseAbsentValue) else value
            for name, value in row.items()
        }
        for _, row in rows
    }


def test_every_non_volatile_register_of_the_interrupted_code_is_found(
    image: StackImage, opened: Opened
) -> None:
    row = frames(opened, unwind=True)[image.trap & MASK]
    assert {number: row[name] for number, name in COLUMNS.items()} == image.at_trap


def test_without_the_option_they_stay_absent(image: StackImage, opened: Opened) -> None:
    row = frames(opened)[image.trap & MASK]
    assert [row[name] for name in ("R12", "R13", "R14", "R15", "Rbx")] == [None] * 5


def test_the_user_frame_too(image: StackImage, opened: Opened) -> None:
    """What the system call did not save the functions below it did."""
    row = next(row for row in frames(opened, unwind=True).values() if row["Mode"] == "user")
    assert {number: row[name] for number, name in COLUMNS.items()} == image.at_entry


def test_a_walk_that_guesses_adds_nothing(image: StackImage, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage("win11-x64")
    trap = forged_image.interrupted(1008)
    # Without its unwind data, what the fault handler's callee kept is not known.
    forged_image.kernel.space.write(forged_image.nt + UNWIND_DATA, bytes(0x200))
    row = frames(context.open_image(forged_image.kernel.image(), tmp_path), unwind=True)[trap & MASK]
    assert [row[name] for name in ("R12", "R13", "R14", "R15", "Rbx")] == [None] * 5


def test_the_unwind_data_of_an_entry_tell_that_it_stored_no_rsi(tmp_path: pathlib.Path) -> None:
    """The interrupt's entry, whose return address lies below the frame, pushes Rbp and nothing else."""
    forged_image = StackImage()
    forged_image.preempted(1008, entries.SOFTWARE, entered=True)
    row = only(
        row
        for row in frames(context.open_image(forged_image.kernel.image(), tmp_path)).values()
        if row["Mode"] == "kernel"
    )
    assert (row["TrapKind"], row["Rsi"], row["Unsure"]) == ("interrupt", None, "")
