# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.locks` on processes whose critical sections and traces Windows code made."""

from __future__ import annotations

import pathlib
import struct
from typing import List, Tuple

import pytest
from volatility3.plugins.windows import locks

from tests.forge import context, kernels, real_sets, vol
from tests.forge.kernel import Kernel
from tests.support import grid
from tests.support.only import only

# Set, kernel, RVA of RtlCriticalSectionList in that ntdll; 0: the sections' list leads to it.
SETS = (
    ("7601.24384-x64-heap", "win7-x64", 0x128078),
    ("19044.1766-x64-heap", "win10-x64", 0x165570),
    ("16299.15-x86-heap", "win10-x86", 0),
    ("16299.15-x86-heap", "win10-x64", 0),
    ("2600.5512-x86-heap", "xp-x86", 0),
)


def head_of(real: real_sets.RealSet) -> int:
    """RVA of RtlCriticalSectionList: what is on the sections' list and is no section's."""
    size, code = real.pointer_size, "<Q" if real.pointer_size == 8 else "<I"

    def pointer(address: int) -> int:
        for region in real.regions:
            if region.va <= address < region.va + len(region.data):
                return int(struct.unpack_from(code, region.data, address - region.va)[0])
        return 0

    # _RTL_CRITICAL_SECTION.DebugInfo, _RTL_CRITICAL_SECTION_DEBUG.ProcessLocksList: two pointers in.
    first = pointer(real.truth["heap"]["critical_sections"][0]["critical_section"]) + 2 * size
    link, heads = pointer(first), []
    while link != first:
        # The debug information names its section, which names it in turn.
        if pointer(pointer(link - size)) != link - 2 * size:
            heads.append(link - real.base)
        link = pointer(link)
    return only(heads)


def image_with(
    shared_dir: pathlib.Path, name: str, kernel_name: str, head: int, symbols: bool
) -> Tuple[Kernel, dict]:
    real = real_sets.load(shared_dir / "real_std" / f"{name}.tar.xz")
    head = (head or head_of(real)) if symbols else 0
    known = kernels.load(kernel_name)
    kernel = Kernel(known.table, **{**known.options(), **real.kernel_options()})
    app = real_sets.process(kernel, real, symbols=bool(head))
    if head:
        half = app if real.pointer_size * 8 == kernel.bits else app.wow
        assert half is not None
        table = half.modules[-1].symbols
        assert table is not None
        table.data["symbols"]["RtlCriticalSectionList"] = {"address": head}
    return kernel, dict(real.truth)


def check(found: List[grid.Node], truth: dict) -> None:
    by_address = {node.row["Lock"]: node for node in found}
    sections = truth["heap"]["critical_sections"]
    assert sections
    for section in sections:
        node = by_address[section["critical_section"]]
        # Several stacks are logged while an RTL_RESOURCE is made: it names one of them.
        logged = [(row["CreatorBackTraceIndex"], row["frames"]) for row in section.get("stacks", [section])]
        assert (node.row["Index"], grid.frames(node)) in logged
        assert node.row["LockType"] == section.get("Type", "critical section")
        assert node.row["LockCount"] == (0 if "stacks" in section else -1)
    assert len(by_address) == len(found)
    assert not by_address.keys() & set(truth["heap"].get("deleted_sections", []))
    if "deleted_sections" in truth["heap"]:
        # The rest is ntdll's own: of its data, of its database and of the heaps.
        rest = by_address.keys() - {section["critical_section"] for section in sections}
        module = range(truth["module"]["base"], truth["module"]["base"] + truth["module"]["size"])
        heaps = {heap["heap"] >> 16 for heap in truth["heap"]["heaps"]}
        own = {
            address
            for address in rest
            if address in module or address == truth["database"] or address >> 16 in heaps
        }
        assert rest == own
    assert all(node.row["Status"] == "" for node in found)


@pytest.mark.shared
@pytest.mark.parametrize("symbols", [True, False], ids=["symbols", "search"])
@pytest.mark.parametrize(("name", "kernel_name", "head"), SETS)
def test_every_section_has_its_creator(
    name: str, kernel_name: str, head: int, symbols: bool, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    kernel, truth = image_with(shared_dir, name, kernel_name, head, symbols)
    opened = context.open_image(kernel.image(), tmp_path)
    check(grid.run(opened, locks.Locks, pid=[1000]), truth)


@pytest.mark.shared
@pytest.mark.cli
@pytest.mark.parametrize(("name", "kernel_name", "head"), SETS)
def test_through_the_command_line(
    name: str, kernel_name: str, head: int, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    kernel, truth = image_with(shared_dir, name, kernel_name, head, False)
    image = kernel.image()
    result = vol.run(
        image.save(tmp_path / "a.dmp"),
        "windows.locks",
        "--pid",
        "1000",
        symbols=image.install(tmp_path / "symbols"),
    )
    assert result.returncode == 0, result.stderr
    check([grid.Node(row, row["__children"]) for row in result.rows], truth)
