# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which addresses are canonical, which machines are read, and that nothing else decides either."""

from __future__ import annotations

import ast
import re
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.framework import contexts, exceptions, interfaces
from volatility3.framework.layers import physical

from tests.conftest import ROOT
from winstacks.memory import bulk
from winstacks.memory.decode.machine import Machine, UnsupportedMachineError, machine_of, machines_of
from winstacks.rows import requested

WIDTH_DECIDES = {
    "memory/decode/pagetable.py",
    "process/decode/handletable.py",
}
"""They compare the size of a pointer for its own sake: the code for `struct`, how an entry is packed."""


@pytest.mark.parametrize(
    ("machine", "address", "canonical"),
    [
        (Machine.AMD64, 0x7FFFFFFFFFFF, 0x7FFFFFFFFFFF),
        (Machine.AMD64, 0x800000000000, 0xFFFF800000000000),
        (Machine.AMD64, 0xF80312345678, 0xFFFFF80312345678),
        (Machine.AMD64, 0x1234000000001121, 0x1121),
        (Machine.I386, 0x80000000, 0x80000000),
        (Machine.I386, 0xFFFFFFFF, 0xFFFFFFFF),
    ],
)
def test_canonical(machine: Machine, address: int, canonical: int) -> None:
    assert machine.canonical(address) == canonical
    assert machine.is_canonical(canonical)
    assert machine.is_canonical(address) == (address == canonical)


@given(st.sampled_from(list(Machine)), st.integers(0, (1 << 64) - 1))
def test_both_forms_lead_to_each_other(machine: Machine, address: int) -> None:
    canonical, masked = machine.canonical(address), machine.masked(address)
    assert machine.canonical(masked) == canonical
    assert machine.masked(canonical) == masked
    assert canonical < 1 << 8 * machine.pointer_size


def test_numbers_of_pe_headers() -> None:
    assert [machine_of(machine.number) for machine in Machine] == list(Machine)
    assert machines_of(Machine.AMD64) == (Machine.AMD64, Machine.I386)
    assert machines_of(Machine.I386) == (Machine.I386,)
    assert machines_of(Machine.ARM64) == (Machine.ARM64,)
    for number, name in ((0xA641, "ARM64EC"), (0x1C4, "ARM"), (0x1234, "0x1234")):
        with pytest.raises(UnsupportedMachineError, match=f"machine of type {name}: only x64"):
            machine_of(number)


class _ArmLayer(physical.BufferDataLayer):
    """What stands for the page tables of another processor."""

    bits_per_register = 64
    _direct_metadata = {"architecture": "AArch64"}


def test_the_kernel_of_another_machine_is_refused_in_words() -> None:
    context = contexts.Context()
    context.add_layer(_ArmLayer(context, "layer", "arm", bytes(0x1000)))
    context.module("nt", "arm", 0)
    plugin = _Plugin(context)
    with pytest.raises(UnsupportedMachineError, match="AArch64"):
        bulk.machine_of(context.layers["arm"])
    for step in (requested.check_tables, requested.open_image):
        with pytest.raises(exceptions.RenderException, match="machine of type AArch64: only x64"):
            step(plugin)


class _Plugin(interfaces.plugins.PluginInterface):
    """What stands for a plugin."""

    hidden = True
    config_path = "plugin"

    def __init__(self, context: interfaces.context.ContextInterface) -> None:
        self._context = context

    @property
    def config(self) -> dict:
        return {"kernel": "nt"}

    def run(self) -> interfaces.renderers.TreeGrid:
        raise NotImplementedError


def _compared(source: str) -> List[str]:
    """Returns the comparisons of a pointer's size with 4 or 8."""
    found = [ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare)]
    return [
        comparison
        for comparison in found
        if re.search(r"\b(pointer_size|bits_per_register|width)\b [!=]= (4|8|64)", comparison)
    ]


def test_no_processor_is_chosen_by_the_size_of_a_pointer() -> None:
    library = ROOT / "winstacks"
    comparing = {
        path.relative_to(library).as_posix()
        for path in library.rglob("*.py")
        if _compared(path.read_text(encoding="utf-8"))
    }
    assert comparing == {*WIDTH_DECIDES, "memory/bulk.py"}
