# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.locks` on processes whose critical sections and traces Windows code made."""

from __future__ import annotations

import pathlib
from typing import List, Tuple

import pytest
from volatility3.plugins.windows import locks

from tests.forge import context, kernels, real_sets, vol
from tests.forge.kernel import Kernel
from tests.support import grid

# Set, kernel, RVA of RtlCriticalSectionList in that ntdll.
SETS = (
    ("7601.24384-x64-heap", "win7-x64", 0x128078),
    ("19044.1766-x64-heap", "win10-x64", 0x165570),
)


def image_with(shared_dir: pathlib.Path, name: str, kernel_name: str, head: int) -> Tuple[Kernel, dict]:
    real = real_sets.load(shared_dir / "real_std" / f"{name}.tar.xz")
    known = kernels.load(kernel_name)
    kernel = Kernel(known.table, **{**known.options(), **real.kernel_options()})
    app = real_sets.process(kernel, real, symbols=bool(head))
    if head:
        table = app.modules[-1].symbols
        assert table is not None
        table.data["symbols"]["RtlCriticalSectionList"] = {"address": head}
    return kernel, dict(real.truth)


def check(found: List[grid.Node], truth: dict) -> None:
    by_address = {node.row["Address"]: node for node in found}
    sections = truth["heap"]["critical_sections"]
    assert sections
    for section in sections:
        node = by_address[section["critical_section"]]
        assert node.row["CreatorBackTraceIndex"] == section["CreatorBackTraceIndex"]
        assert grid.frames(node, "FrameAddress") == section["frames"]
        assert node.row["Status"] == ""
        assert node.row["LockCount"] == -1
    assert len(by_address) == len(found)
    assert all(node.row["Status"] == "" for node in found)


@pytest.mark.shared
@pytest.mark.parametrize("symbols", [True, False], ids=["symbols", "search"])
@pytest.mark.parametrize(("name", "kernel_name", "head"), SETS)
def test_every_section_has_its_creator(
    name: str, kernel_name: str, head: int, symbols: bool, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    kernel, truth = image_with(shared_dir, name, kernel_name, head if symbols else 0)
    opened = context.open_image(kernel.image(), tmp_path)
    check(grid.run(opened, locks.Locks, pid=[1000]), truth)


@pytest.mark.shared
@pytest.mark.cli
@pytest.mark.parametrize(("name", "kernel_name", "head"), SETS)
def test_through_the_command_line(
    name: str, kernel_name: str, head: int, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    kernel, truth = image_with(shared_dir, name, kernel_name, 0)
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
