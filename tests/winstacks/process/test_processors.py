# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
from __future__ import annotations

import pathlib

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.support.only import rows_of
from winstacks.process.processors import MAX_PROCESSORS, Processors


@pytest.mark.parametrize("name", ["xp-x86", "win7-x64", "win11-x64"])
def test_what_a_processor_has(name: str, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    wide = known.arch == "x64"
    kernel = Kernel(known.table, cpus=2, **known.options())
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    kernel.cpus[1].current(thread)
    bases = {kind: kernel.cpus[0].stack(kind) for kind in (("dpc", "ist1", "ist7") if wide else ("dpc",))}
    opened = context.open_image(kernel.image(), tmp_path)
    first, second = rows_of(2, Processors.list_processors(opened.image))
    assert (first.number, second.number) == (0, 1)
    assert first.kprcb == kernel.cpus[0].kprcb.address
    assert second.current_thread == thread.ethread.address
    assert {stack.kind: stack.base for stack in first.stacks} == bases
    assert all(stack.base - stack.limit in (0x3000, 0x6000) for stack in first.stacks)
    assert second.stacks == ()
    offset = kernel.isf.offset("_KPRCB", "ProcessorState.ContextFrame")
    assert second.context == kernel.cpus[1].kprcb.address + offset


@pytest.mark.parametrize("name", ["win7-x64", "win11-x64"])
def test_the_registers_are_where_the_block_points(name: str, tmp_path: pathlib.Path) -> None:
    """KPRCB.Context leads out of the KPRCB, or into it, or nowhere yet."""
    known = kernels.load(name)
    kernel = Kernel(known.table, cpus=2, **known.options())
    outside = kernel.cpus[0].stack("dpc") - 0x1000
    kernel.cpus[0].kprcb["Context"] = outside
    opened = context.open_image(kernel.image(), tmp_path)
    first, second = rows_of(2, Processors.list_processors(opened.image))
    assert first.context == outside
    assert second.context == second.kprcb + kernel.isf.offset("_KPRCB", "ProcessorState.ContextFrame")


@pytest.mark.parametrize("count", [0, 0xFFFFFFFF])
def test_a_number_of_processors_that_cannot_be(count: int, tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    kernel.set("KeNumberProcessors", count, 4)
    opened = context.open_image(kernel.image(), tmp_path)
    found = list(Processors.list_processors(opened.image))
    assert 1 <= len(found) <= MAX_PROCESSORS
    assert found[0].kprcb == kernel.cpus[0].kprcb.address


def test_a_block_is_one_processor(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, cpus=2, **known.options())
    kernel.set("KeNumberProcessors", 64, 4)
    for number in range(2, 64):
        place = kernel.symbol("KiProcessorBlock") + 8 * number
        kernel.space.write_int(place, kernel.cpus[number % 2].kprcb.address)
    opened = context.open_image(kernel.image(), tmp_path)
    found = list(Processors.list_processors(opened.image))
    assert [processor.number for processor in found] == [0, 1]
    assert "entries of KiProcessorBlock repeat the KPRCB of another processor: 62" in caplog.text


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ("KiProcessorBlock", "entries of KiProcessorBlock without a KPRCB: 2."),
        ("KeNumberProcessors", "KeNumberProcessors is not in the image"),
    ],
)
def test_processors_that_are_not_in_the_image_are_told(
    lost: str, told: str, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, cpus=2, **known.options())
    image = kernel.image()
    kernel.space.set_state(kernel.symbol(lost), 1, State.PAGEFILE)
    opened = context.open_image(image, tmp_path)
    caplog.clear()
    assert len(list(Processors.list_processors(opened.image))) <= 1
    assert told in caplog.text
