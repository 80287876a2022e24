# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forged image sections, read by Volatility's own classes: what windows.dumpfiles writes of a mapped file."""

from __future__ import annotations

import pathlib
from typing import Any, Dict

import pytest
from volatility3.framework import constants
from volatility3.plugins.windows import pslist

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.phys import PAGE

BASE = 0x60000000
CODE = bytes(range(256)) * 16


@pytest.fixture(params=["win10-x64", "win11-x64", "win7-x64", "xp-x86", "win7-x86", "win10-x86"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    known = kernels.load(request.param)
    kernel = Kernel(known.table, **known.options())
    for pid in (1000, 2000):
        process = kernel.process(f"{pid}.exe", pid=pid)
        process.module(f"{pid}.exe", dll=False)
        process.module("a.dll", BASE, exports={"A": 0x1000}, contents={0x1000: CODE, 0x3000: CODE})
    return kernel


def available(opened: context.Opened, address: int) -> Dict[int, bytes]:
    """Volatility's own reading of a control area: file offset -> page."""
    name = opened.context.modules[opened.kernel].symbol_table_name
    area: Any = opened.context.object(
        f"{name}{constants.BANG}_CONTROL_AREA", opened.layer.name, address & opened.layer.address_mask
    )
    assert area.is_valid()
    memory = opened.context.layers[opened.layer.config["memory_layer"]]
    return {at: memory.read(physical, size) for physical, at, size in area.get_available_pages()}


def test_volatility_reads_the_pages_of_a_section(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process = kernel.processes[-1]
    section = process.modules[-1].section
    assert section is not None
    pristine = process.space.read(BASE, PAGE)
    process.space.write(BASE + 0x1000, b"own")
    opened = context.open_image(kernel.image(), tmp_path)
    found = available(opened, section.control_area.address)
    assert sorted(found) == sorted(section.frames)
    assert found[0] == pristine
    assert found[0x1000] == found[0x3000] == CODE
    names = set()
    for eprocess in pslist.PsList.list_processes(opened.context, opened.kernel):
        for vad in eprocess.get_vad_root().traverse():
            if vad.get_start() == BASE:
                area = vad.ControlArea if vad.has_member("ControlArea") else vad.Subsection.ControlArea
                assert int(area) & opened.layer.address_mask == (
                    section.control_area.address & opened.layer.address_mask
                )
                names.add(vad.get_file_name())
    assert names == {"\\Windows\\System32\\a.dll"}


def test_pages_that_are_not_in_memory(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    section = kernel.processes[-1].modules[-1].section
    assert section is not None
    for process in kernel.processes[1:]:
        process.space.set_state(BASE, 0x8000, State.PROTOTYPE)
    section.set_state(0, PAGE, State.TRANSITION)
    section.set_state(0x1000, PAGE, State.PAGEFILE)
    section.set_state(0x3000, PAGE, State.PROTOTYPE)
    opened = context.open_image(kernel.image(), tmp_path)
    found = available(opened, section.control_area.address)
    assert 0 in found
    assert 0x1000 not in found
    assert 0x3000 not in found


def test_who_writes_to_a_shared_page_gets_a_copy(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    one, two = kernel.processes[1:]
    section = two.modules[-1].section
    assert section is not None
    assert one.space.physical(BASE) == two.space.physical(BASE) == section.frames[0] * PAGE
    one.space.write(BASE + 0x1000, b"own")
    assert one.space.physical(BASE + 0x1000) != two.space.physical(BASE + 0x1000)
    assert one.space.read(BASE + 0x1000, 4) == b"own" + CODE[3:4]
    assert two.space.read(BASE + 0x1000, 4) == CODE[:4]
