# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.stacktracedb` on databases that Windows wrote; on the committed ones through the command line."""

from __future__ import annotations

import pathlib
import struct
from typing import List

import pytest
from volatility3.plugins.windows.stacktracedb import StackTraceDb

from tests.conftest import SHARED
from tests.forge import context, real_sets, vol
from tests.support import grid, realtruth
from tests.support.stddata import COMMITTED

REAL = realtruth.cases(sorted((SHARED / "real_std").glob("*.tar.xz")))


def _run(path: pathlib.Path, kernel: str, folder: pathlib.Path, *options: str) -> vol.Result:
    real = real_sets.load(path)
    image = realtruth.image_of(real, kernel, False)
    file = image.save(folder / "image.dmp")
    result = vol.run(
        file,
        "windows.stacktracedb",
        "--pid",
        str(_pid(real)),
        *options,
        symbols=image.install(folder / "symbols"),
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr
    return result


def _pid(real: real_sets.RealSet) -> int:
    return 0 if real.truth["kind"] == "kernel" else 1000


@pytest.mark.shared
@pytest.mark.parametrize("symbols", [True, False], ids=["symbols", "search"])
@pytest.mark.parametrize(("path", "kernel"), REAL, ids=realtruth.case_name)
def test_every_set_comes_back_exactly(
    path: pathlib.Path, kernel: str, symbols: bool, tmp_path: pathlib.Path
) -> None:
    """And its dump is what Windows returned, however it was found."""
    real = real_sets.load(path)
    opened = context.open_image(realtruth.image_of(real, kernel, symbols), tmp_path)
    realtruth.check(grid.rendered(opened, StackTraceDb, pid=[_pid(real)]), real.truth)
    if not symbols:
        dumped = grid.rendered(opened, StackTraceDb, tmp_path, pid=[_pid(real)], dump=True)
        _check_dump(real, dumped, tmp_path)


def _check_dump(real: real_sets.RealSet, rows: List[vol.Row], folder: pathlib.Path) -> None:
    written = realtruth.dumped(folder, real)
    assert written is not None
    stds = [row for row in rows if row["File output"] is not None]
    assert [row["__children"] for row in stds] == [[]]
    if real.dump is not None:
        assert written == real.dump
    else:
        _check_without_original(written, real)


def _check_without_original(written: bytes, real: real_sets.RealSet) -> None:
    """Where Windows' own buffer is not to be had, its content follows from the truth."""
    truth = real.truth
    form, code = ("<QQII", "Q") if truth["arch"] == "x64" else ("<IIII", "I")
    header = struct.calcsize(form)
    assert list(struct.unpack_from(form, written)) == realtruth.header_figures(truth)
    record = struct.Struct(f"<{code}IHH32{code}")
    records = list(record.iter_unpack(written[header:]))
    assert len(records) == truth["header"]["NumberOfEntriesAdded"]
    # One that never got an index is not in it.
    released = {entry["index"] for entry in truth.get("freed", []) if entry["index"]}
    for entry in truth["entries"]:
        frames = entry["frames"] + [0] * (32 - entry["depth"])
        if entry["index"]:
            assert records[entry["index"] - 1] == (
                0,
                entry["count"],
                entry["index"] & 0xFFFF,
                entry["depth"],
                *frames,
            )
            assert entry["index"] not in released
    assert all(records[index - 1][1] == 0 for index in released)


@pytest.mark.cli
@pytest.mark.parametrize(("path", "kernel"), realtruth.cases(COMMITTED), ids=realtruth.case_name)
def test_the_committed_sets_come_back_exactly(
    path: pathlib.Path, kernel: str, tmp_path: pathlib.Path
) -> None:
    real = real_sets.load(path)
    realtruth.check(_run(path, kernel, tmp_path).rows, real.truth)
    _check_dump(real, _run(path, kernel, tmp_path, "--dump").rows, tmp_path)


@pytest.mark.cli
@pytest.mark.parametrize(("path", "kernel"), realtruth.cases(COMMITTED), ids=realtruth.case_name)
def test_one_changed_frame_is_noticed(path: pathlib.Path, kernel: str, tmp_path: pathlib.Path) -> None:
    """The check above must be able to fail."""
    real = real_sets.load(path)
    entry = next(entry for entry in real.truth["entries"] if entry["depth"] > 4)
    place = entry["va"] + real.truth["frames_offset"] + 3 * real.pointer_size
    frame = entry["frames"][3] ^ 0x10
    changed = real.patched(place, frame.to_bytes(real.pointer_size, "little"))
    image = realtruth.image_of(changed, kernel, False)
    result = vol.run(
        image.save(tmp_path / "image.dmp"),
        "windows.stacktracedb",
        symbols=image.install(tmp_path / "symbols"),
    )
    with pytest.raises(AssertionError):
        realtruth.check(result.rows, real.truth)


def test_sets_are_committed() -> None:
    """The tests above must not pass for want of sets."""
    assert len(COMMITTED) >= 2
