# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.traces` and `windows.traceframes` on databases and heaps that Windows wrote."""

from __future__ import annotations

import pathlib

import pytest

from tests.conftest import SHARED
from tests.forge import context, real_sets, vol
from tests.support import flattables, realtruth, strangers
from tests.support.stddata import COMMITTED

from . import test_traces_everywhere

REAL = sorted((SHARED / "real_std").glob("*.tar.xz"))

OTHERS = [path for path in REAL if path.name not in {member.name for member in COMMITTED}]


def check(path: pathlib.Path, kernel: str, folder: pathlib.Path) -> None:
    """Asserts that the flat tables have the traces of a set, and what the plugins have beside them."""
    real = real_sets.load(path)
    opened = context.open_image(realtruth.image_of(real, kernel, False), folder)
    rows, frames = flattables.stacks(opened), flattables.frames(opened)
    below = flattables.by_trace(frames)
    traces = [row for row in rows if row["Kind"] == "std" and row["Depth"]]
    assert sorted(
        (row["BackTraceHash"], row["Count"], [int(row["Address"], 16) for row in below[row["TraceId"]]])
        for row in traces
    ) == sorted((entry["hash"], entry["count"], entry["frames"]) for entry in real.truth["entries"])
    # Windows kept no more than 32 frames of a stack.
    assert max(row["Depth"] for row in traces) <= 32
    for row in traces:
        assert row["Incomplete"] == (row["Depth"] == 32)
        assert row["KeyQuality"] == ("partial" if row["Incomplete"] else "exact")
    for source in flattables.SOURCES:
        assert flattables.of_tables(rows, frames, source) == flattables.of_plugin(opened, source)
    assert len({row["TraceId"] for row in rows}) == len(rows)
    for row in rows:
        own = below.get(row["TraceId"], [])
        assert (row["StackKey"], row["ShapeKey"]) == (flattables.stack_key(own), flattables.shape_key(own))


@pytest.mark.parametrize(("path", "kernel"), realtruth.cases(COMMITTED), ids=realtruth.case_name)
def test_the_committed_sets(path: pathlib.Path, kernel: str, tmp_path: pathlib.Path) -> None:
    check(path, kernel, tmp_path)


@pytest.mark.shared
@pytest.mark.parametrize(("path", "kernel"), realtruth.cases(OTHERS), ids=realtruth.case_name)
def test_every_set(path: pathlib.Path, kernel: str, tmp_path: pathlib.Path) -> None:
    check(path, kernel, tmp_path)


@pytest.mark.shared
@pytest.mark.parametrize("path", REAL, ids=realtruth.case_name)
def test_every_set_with_all_options(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    kernel = realtruth.kernels_of(path.name)[0]
    opened = context.open_image(realtruth.image_of(real_sets.load(path), kernel, False), tmp_path)
    test_traces_everywhere.check(opened, test_traces_everywhere.ALL)


@pytest.mark.shared
@pytest.mark.parametrize("path", REAL[-2:], ids=realtruth.case_name)
def test_carving_adds_and_changes_nothing(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    kernel = realtruth.kernels_of(path.name)[0]
    opened = context.open_image(realtruth.image_of(real_sets.load(path), kernel, False), tmp_path)
    for source in ("database", "heap"):
        plain, carved = (flattables.stacks(opened, carve=carve) for carve in (False, True))
        known = {row["TraceId"]: row for row in carved}
        assert all(known[row["TraceId"]] == row for row in plain)
        options = {"carve": True} if source == "database" else {}
        frames = flattables.frames(opened, carve=True)
        shown = flattables.of_plugin(opened, source, **options)
        assert flattables.of_tables(carved, frames, source) == shown


@pytest.mark.shared
@pytest.mark.cli
def test_callers_in_a_leftover_stack_are_unsure(tmp_path: pathlib.Path) -> None:
    """A ReactOS that boots: KdLogDbgPrint calls no RtlVirtualUnwind, but wrote over its caller."""
    packed = next((path for path in strangers.IMAGES if path.name.startswith("rosx64-busy")), None)
    if packed is None:
        pytest.skip("the images of ReactOS for x64 are not there")
    image = strangers.unpacked(packed, tmp_path)
    options = ("--tid", "8", "--scan-stacks")
    listed = vol.run(image, "windows.traceframes", *options, symbols=tmp_path / "symbols").rows
    found = {row["Symbol"].split("+")[0]: row["Status"] for row in listed if ":trap:" in row["TraceId"]}
    assert list(found)[:3] == ["nt!RtlpTryToUnwindEpilog", "nt!RtlVirtualUnwind", "nt!KdLogDbgPrint"]
    assert list(found.values()) == ["", *["unsure"] * (len(found) - 1)]
