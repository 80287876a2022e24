# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.heaptraces` on forged images through the real command line."""

from __future__ import annotations

import csv
import io
import pathlib
from typing import NamedTuple

import pytest

from tests.forge import vol
from tests.support.heapimage import HEAP, HeapImage
from winstacks.heaps.decode import umdh

pytestmark = pytest.mark.cli


class SavedImage(NamedTuple):
    """A WoW64 process with a heap, its image and a symbol directory."""

    forged: HeapImage
    file: pathlib.Path
    symbols: pathlib.Path


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> SavedImage:
    forged = HeapImage("win10-x64", wow64=True)
    heap = forged.heap(segment_creator=0)
    for number in range(30):
        heap.extended(number, forged.record(number % 3))
    heap.plain(10)
    forged.put(heap.regions(), HEAP)
    folder = tmp_path_factory.mktemp("wow64")
    image = forged.image()
    return SavedImage(forged, image.save(folder / "image.raw"), image.install(folder / "symbols"))


def run(image: SavedImage, *options: str, renderer: str = "json") -> vol.Result:
    return vol.run(image.file, "windows.heaptraces", *options, symbols=image.symbols, renderer=renderer)


def test_a_log_of_a_32_bit_half(image: SavedImage) -> None:
    result = run(image, "--dump", renderer="csv")
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    sums = [int(row["Bytes"]) for row in rows if row["Count"] not in ("N/A", "-")]
    assert sums == [155, 145, 135, 10]
    assert {row["PID"] for row in rows} == {"1000"}
    log = umdh.parse((image.symbols / "umdh.1000.x86.log").read_text(encoding="utf-8").splitlines())
    forged = image.forged
    assert sorted(log.traces.values()) == sorted(tuple(forged.stack(number)) for number in range(3))
    assert [(heap.heap, sum(allocation.size for allocation in heap.allocations)) for heap in log.heaps] == [
        (HEAP, 435)
    ]
    assert {(module.base, module.size) for module in log.modules} == {
        (module.base, module.size) for module in (forged.app, forged.ntdll)
    }
    assert "not in the UMDH log: 1 block in use without a trace" in result.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("this is no log\n", "it has no data of a heap"),
        ("*- - Start of data for heap @ 10 - -\n", "no end"),
    ],
)
def test_a_baseline_that_is_no_log(text: str, reason: str, image: SavedImage, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "baseline.log"
    file.write_text(text)
    result = run(image, "--baseline", str(file))
    assert (result.returncode, result.stdout.strip()) == (1, "")
    assert "The baseline cannot be used" in result.stderr
    assert reason in result.stderr


def test_a_baseline_that_is_not_there(image: SavedImage, tmp_path: pathlib.Path) -> None:
    result = run(image, "--baseline", str(tmp_path / "none.log"))
    assert (result.returncode, result.stdout.strip()) == (2, "")
    assert f"argument --baseline: '{tmp_path / 'none.log'}' cannot be read: No such file" in result.stderr


def test_nothing_to_show_is_no_error(tmp_path: pathlib.Path) -> None:
    image = HeapImage("win10-x64", flags=0).image()
    result = vol.run(
        image.save(tmp_path / "image.raw"), "windows.heaptraces", symbols=image.install(tmp_path / "symbols")
    )
    assert (result.returncode, result.rows) == (0, [])
    assert "+ust 0x1000" in result.stderr
