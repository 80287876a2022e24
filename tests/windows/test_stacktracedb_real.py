# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.stacktracedb` on databases that Windows wrote, through the real command line."""

from __future__ import annotations

import pathlib
import struct
from typing import List, Tuple

import pytest

from tests.conftest import SHARED
from tests.forge import real_sets, vol
from tests.support import realtruth

COMMITTED = sorted((pathlib.Path(__file__).parents[1] / "data" / "real_std").glob("*.tar.xz"))


def _cases(paths: List[pathlib.Path]) -> List[Tuple[pathlib.Path, str]]:
    return [(path, kernel) for path in paths for kernel in realtruth.kernels_of(path.name)]


def _name(value: object) -> str:
    return value.name.replace(".tar.xz", "") if isinstance(value, pathlib.Path) else str(value)


REAL = _cases(sorted((SHARED / "real_std").glob("*.tar.xz")))


def _run(path: pathlib.Path, kernel: str, symbols: bool, folder: pathlib.Path, *options: str) -> vol.Result:
    real = real_sets.load(path)
    image = realtruth.image_of(real, kernel, symbols)
    file = image.save(folder / "image.dmp")
    pid = "0" if real.truth["kind"] == "kernel" else "1000"
    result = vol.run(
        file,
        "windows.stacktracedb",
        "--pid",
        pid,
        *options,
        symbols=image.install(folder / "symbols"),
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.shared
@pytest.mark.parametrize("symbols", [True, False], ids=["symbols", "search"])
@pytest.mark.parametrize(("path", "kernel"), REAL, ids=_name)
def test_every_set_comes_back_exactly(
    path: pathlib.Path, kernel: str, symbols: bool, tmp_path: pathlib.Path
) -> None:
    result = _run(path, kernel, symbols, tmp_path)
    realtruth.check(result.rows, real_sets.load(path).truth)


@pytest.mark.shared
@pytest.mark.parametrize(("path", "kernel"), REAL, ids=_name)
def test_the_dump_is_what_windows_returned(path: pathlib.Path, kernel: str, tmp_path: pathlib.Path) -> None:
    real = real_sets.load(path)
    result = _run(path, kernel, False, tmp_path, "--dump")
    written = realtruth.dumped(tmp_path, real)
    assert written is not None
    stds = [row for row in result.rows if row["File output"] is not None]
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
    released = {entry["index"] for entry in truth.get("freed", [])}
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
@pytest.mark.parametrize(("path", "kernel"), _cases(COMMITTED), ids=_name)
def test_the_committed_sets_come_back_exactly(
    path: pathlib.Path, kernel: str, tmp_path: pathlib.Path
) -> None:
    result = _run(path, kernel, False, tmp_path)
    realtruth.check(result.rows, real_sets.load(path).truth)


@pytest.mark.cli
@pytest.mark.parametrize(("path", "kernel"), _cases(COMMITTED), ids=_name)
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
