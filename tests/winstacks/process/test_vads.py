# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Protection and private bytes of VADs, as Volatility's own plugin shows them."""

from __future__ import annotations

import pathlib

import pytest
from volatility3.plugins.windows import vadinfo

from tests.forge import context
from tests.forge.phys import PAGE
from tests.forge.vad import Vad
from tests.support import grid
from tests.support.only import only
from tests.support.tracedkernels import KERNELS, new_kernel
from winstacks.process.spaces import AddressSpaces
from winstacks.process.vads import Vads

PLAIN = range(1, 8)
COUNTS = ("VadCount", "VadRoot.NumberGenericTableElements", "NumberOfVads")
WITH_MODIFIERS = (0x09, 0x0C, 0x11, 0x14, 0x16, 0x19, 0x1C, 0x00)


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
def test_protections_are_those_of_vadinfo(name: str, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel(name, 0)
    app = kernel.process("app.exe", pid=1000)
    for number, protection in enumerate((*PLAIN, *WITH_MODIFIERS)):
        app.vads.append(Vad(0x20000000 + number * 0x10000, 0x1000, protection=protection))
    opened = context.open_image(kernel.image(), tmp_path)
    listed = [node.row for node in grid.run(opened, vadinfo.VadInfo, pid=[1000])]
    shown = {row["Start VPN"]: row["Protection"] for row in listed}
    space = only(AddressSpaces.list_spaces(opened.image, [1000]))
    vads, _ = opened.image.service(Vads).list_regions(space)
    found = {vad.start: vad.protection_name for vad in vads}
    assert len(found) > len(PLAIN) + len(WITH_MODIFIERS)
    assert found == shown


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
def test_charges_are_those_of_vadinfo(name: str, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel(name, 0)
    app = kernel.process("app.exe", pid=1000)
    app.module("app.exe")
    sizes = [0x1000, 0x4000, 0x100000]
    for number, size in enumerate(sizes):
        app.vads.append(Vad(0x20000000 + number * 0x1000000, size))
    opened = context.open_image(kernel.image(), tmp_path)
    listed = [node.row for node in grid.run(opened, vadinfo.VadInfo, pid=[1000])]
    shown = {row["Start VPN"]: row["CommitCharge"] * PAGE for row in listed}
    space = only(AddressSpaces.list_spaces(opened.image, [1000]))
    vads, _ = opened.image.service(Vads).list_regions(space)
    assert {vad.start: vad.private for vad in vads} == shown
    assert set(sizes) < set(shown.values()) and 0 in shown.values()


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
def test_vads_ascend_although_the_root_is_in_the_middle(name: str, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel(name, 0)
    app = kernel.process("app.exe", pid=1000)
    app.vads += [Vad(0x20000000 + number * 0x10000, 0x1000) for number in (4, 1, 3, 0, 2)]
    opened = context.open_image(kernel.image(), tmp_path)
    space = only(AddressSpaces.list_spaces(opened.image, [1000]))
    vads, whole = opened.image.service(Vads).list_regions(space)
    starts = [vad.start for vad in vads]
    assert whole and len(starts) > 5 and starts == sorted(starts)


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
@pytest.mark.parametrize("side", ["Left", "Right"])
def test_a_link_back_into_the_tree_loses_what_was_behind_it(
    side: str, name: str, tmp_path: pathlib.Path
) -> None:
    """The count of VADs need not show what such a link has lost."""
    kernel = new_kernel(name, 0)
    app = kernel.process("app.exe", pid=1000)
    app.vads += [Vad(0x20000000 + number * 0x10000, 0x1000) for number in range(30)]
    image = kernel.image()
    nodes = [vad.node for vad in sorted(app.vads, key=lambda vad: vad.start)]
    root, child = nodes[len(nodes) // 2], nodes[len(nodes) // 4]
    assert root is not None and child is not None
    child.first([f"VadNode.{side}", f"Core.VadNode.{side}", f"{side}Child"], root.address)
    for count in COUNTS:
        app.eprocess.maybe(count, 5)
    opened = context.open_image(image, tmp_path)
    space = only(AddressSpaces.list_spaces(opened.image, [1000]))
    vads, whole = opened.image.service(Vads).list_regions(space)
    assert not whole and 5 < len(vads) < len(nodes)


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
@pytest.mark.parametrize("side", ["Left", "Right"])
def test_a_link_that_is_zero_loses_what_was_behind_it(side: str, name: str, tmp_path: pathlib.Path) -> None:
    """The process has a count of its VADs in each version."""
    kernel = new_kernel(name, 0)
    app = kernel.process("app.exe", pid=1000)
    app.vads += [Vad(0x20000000 + number * 0x10000, 0x1000) for number in range(30)]
    image = kernel.image()
    root = sorted(app.vads, key=lambda vad: vad.start)[len(app.vads) // 2].node
    assert root is not None
    root.first([f"VadNode.{side}", f"Core.VadNode.{side}", f"{side}Child"], 0)
    opened = context.open_image(image, tmp_path)
    space = only(AddressSpaces.list_spaces(opened.image, [1000]))
    vads, whole = opened.image.service(Vads).list_regions(space)
    assert not whole and 5 < len(vads) < len(app.vads)
