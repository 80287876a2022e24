# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Entries of KernelCallbackTable that lead elsewhere than user32's own."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.vad import EXECUTE_READ, READWRITE
from tests.support import flattables
from tests.support.only import only

KERNELS = ("win7-x64", "win10-x64", "win11-x64", "xp-x86", "win10-x86")
LENGTH = 120


class Machine:
    """A process whose KernelCallbackTable is in memory of its own."""

    def __init__(self, name: str) -> None:
        known = kernels.load(name)
        self.kernel = Kernel(known.table, **known.options())
        self.process = self.kernel.process("app.exe", pid=1000)
        self.user32 = self.process.module("user32.dll").base
        self.product = self.process.module("product.dll").base
        self.code, self.table = self._region(EXECUTE_READ), self._region(READWRITE)
        self.size = self.process.space.pointer_size
        for number in range(LENGTH):
            self.put(number, self.user32 + 0x1000 + 0x10 * number)
        peb = self.process.peb
        assert peb is not None
        peb["KernelCallbackTable"] = self.table

    def _region(self, protection: int) -> int:
        base = self.process.space.reserve(PAGE)
        self.process.region(base, b"", size=PAGE, protection=protection)
        return base

    def put(self, number: int, address: int) -> None:
        self.process.space.write_int(self.table + number * self.size, address, self.size)

    def rows(self, folder: pathlib.Path) -> List[Dict[str, Any]]:
        return flattables.stacks(context.open_image(self.kernel.image(), folder), kinds=["callback"])


def said(rows: List[Dict[str, Any]]) -> List[Tuple[int, str, str, str]]:
    return [(row["PID"], row["OwnerName"], row["Stack"] or "", row["Status"]) for row in rows]


@pytest.fixture(params=KERNELS)
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine(request.param)


def test_the_table_of_user32_has_no_row(machine: Machine, tmp_path: pathlib.Path) -> None:
    assert machine.rows(tmp_path) == []


def test_entries_that_lead_elsewhere(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.put(3, machine.code + 0x10)
    machine.put(LENGTH - 1, machine.product + 0x1000)
    rows = machine.rows(tmp_path)
    assert said(rows) == [
        (1000, "KernelCallbackTable", "<private>", ""),
        (1000, "KernelCallbackTable", "product+0x1000", ""),
    ]
    places = [machine.table + number * machine.size for number in (3, LENGTH - 1)]
    assert [int(row["Owner"], 16) for row in rows] == places


def test_a_table_that_leads_to_no_image_has_a_row_for_each_entry(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    for number in range(LENGTH):
        machine.put(number, machine.code + number)
    assert len(machine.rows(tmp_path)) == LENGTH


def test_the_table_ends_where_no_code_is_meant(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.put(3, 0)
    machine.put(4, machine.code)
    assert machine.rows(tmp_path) == []


def test_a_table_that_is_not_in_the_image_is_told(machine: Machine, tmp_path: pathlib.Path) -> None:
    image = machine.kernel.image()
    machine.process.space.set_state(machine.table, PAGE, State.MISSING)
    rows = flattables.stacks(context.open_image(image, tmp_path), kinds=["callback"])
    assert only(said(rows)) == (1000, "KernelCallbackTable", "", "unreadable")
