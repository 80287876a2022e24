# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process of an image, written by `windows.minidump`, has the rows that it has in the image."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Callable, Dict, Sequence, Tuple

import pytest
from volatility3.plugins.minidump import callstacks, gflags, heaptraces, locks, stacktracedb
from volatility3.plugins.windows import callstacks as image_callstacks
from volatility3.plugins.windows import gflags as image_gflags
from volatility3.plugins.windows import heaptraces as image_heaptraces
from volatility3.plugins.windows import locks as image_locks
from volatility3.plugins.windows import stacktracedb as image_stacktracedb

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.golden import images
from tests.minidump.test_plugins import Cells, shown
from tests.support.processdumps import OpenedDump
from tests.support.writtendumps import write_dump
from winstacks.memory.decode.machine import Machine
from winstacks.process.threads import processes

IMAGES: Dict[str, Callable[[], Any]] = {
    "sample-win10-x64": lambda: sample.build().image(),
    "vista-x64": images.vista,
    "clean-win10-x64": images.clean("win10-x64"),
    "clean-win7-x86": images.clean("win7-x86"),
    "missing-win7-x64": images.clean("win7-x64", missing=True),
    "deadlock-win10-x64": images.deadlock,
    **{
        name: images.undamaged(name)
        for name in (
            *("sample-win11-x64", "traced-xp-x86", "traced-2003-x64", "traced-win7-x86", "traced-win10-x86"),
            *("stacks-win7-x86", "stacks-2003-x64", "stacks-wow64-win10-x64", "callbacks-win11-x64"),
            *("callbacks-xp-x86", "segment-heap-win10-x64", "page-heap-win7-x86", "traps-xp-x86"),
        )
    },
    **{
        name: images.subject(name)
        for name in ("heaps-win10-x64", "heaps-wow64", "heaps-xp-x86", "named-win10-x64")
    },
}
SOME: Dict[str, Tuple[int, ...]] = {
    "clean-win10-x64": (516, 852, 912, 932, 940),
    "missing-win7-x64": (516, 636, 912, 932),
}
"""The processes of images with many that are compared: of each kind one."""

PLUGINS: Sequence[Tuple[Any, Any, Dict[str, Any]]] = (
    (gflags.GFlags, image_gflags.GFlags, {}),
    (stacktracedb.StackTraceDb, image_stacktracedb.StackTraceDb, {"carve": True}),
    (locks.Locks, image_locks.Locks, {}),
    (heaptraces.HeapTraces, image_heaptraces.HeapTraces, {"blocks": True}),
    (callstacks.CallStacks, image_callstacks.CallStacks, {}),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("of_images")


@pytest.fixture(scope="module")
def image_of(folder: pathlib.Path) -> Callable[[str], Opened]:
    """Opens an image by its name; the last one is kept."""

    @functools.lru_cache(maxsize=1)
    def opened(name: str) -> Opened:
        return context.open_image(IMAGES[name](), folder, f"{name}.img")

    return opened


def of_user_mode(rows: Cells, *parts: str) -> Cells:
    """The stacks of some parts, with their frames."""
    found: Cells = []
    expected = False
    for depth, row in rows:
        expected = row["Part"] in parts if not depth else expected
        found += [(depth, row)] if expected else []
    return found


def seen_by_a_dump(rows: Cells) -> Cells:
    """All rows but the sentence of a deadlock that an ERESOURCE closes: a dump of the process has none."""
    return [
        (depth, row)
        for depth, row in rows
        if row.get("OwnerRole") != "deadlock" or "ERESOURCE" not in row["Evidence"]
    ]


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_rows_are_those_of_the_image(
    name: str, image_of: Callable[[str], Opened], folder: pathlib.Path
) -> None:
    """Row by row, all columns: State, WaitReason and Status of the threads, too."""
    opened, path = image_of(name), folder / "process.dmp"
    compared = 0
    for process in processes(opened.image, SOME.get(name)):
        if not process.space.layer_name or not process.space.peb:
            continue
        compared += 1
        dump = write_dump(opened, process, path)
        assert dump.memory.unread == 0
        for of_dump, of_image, options in PLUGINS:
            expected = shown(opened.rows(of_image, pid=[process.space.pid], **options))
            found = shown(OpenedDump(path).rows(of_dump, **options))
            if of_image is image_callstacks.CallStacks:
                expected = of_user_mode(expected, "user", "wow64")
            assert found == seen_by_a_dump(expected), (process.space.pid, of_image.__name__)
    assert compared


@pytest.mark.parametrize("name", ["sample-win10-x64", "heaps-wow64", "stacks-wow64-win10-x64"])
def test_rows_of_the_32_bit_half(name: str, image_of: Callable[[str], Opened], folder: pathlib.Path) -> None:
    """--format wow64: the rows of Arch x86. The part that an image calls wow64 is all that it has."""
    opened, path = image_of(name), folder / "narrow.dmp"
    halves = [process for process in processes(opened.image) if process.wow64 is not None]
    assert halves
    for process in halves:
        write_dump(opened, process, path, Machine.I386)
        for of_dump, of_image, options in PLUGINS:
            rows = shown(opened.rows(of_image, pid=[process.space.pid], **options))
            expected = [(depth, row) for depth, row in rows if row["Arch"] == "x86"]
            if of_image is image_callstacks.CallStacks:
                expected = [(depth, of_narrow_dump(row)) for depth, row in of_user_mode(expected, "wow64")]
            found = shown(OpenedDump(path).rows(of_dump, **options))
            assert found == seen_by_a_dump(expected), (process.space.pid, of_image.__name__)


def of_narrow_dump(row: Dict[str, Any]) -> Dict[str, Any]:
    """A row of the part wow64: native there, and a start in 64-bit code is in no 32-bit dump."""
    start = row["StartAddress"]
    beyond = isinstance(start, int) and start > Machine.I386.address_mask
    gone = dict.fromkeys(("StartAddress", "StartSymbol"), "NotAvailableValue") if beyond else {}
    return dict(row, Part="user", **gone)
