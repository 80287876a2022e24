# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `windows.stacktracedb` must print of a database that Windows wrote, from that database's truth."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from tests.forge import kernels, real_sets
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.real_sets import RealSet
from tests.support.only import only

Row = Dict[str, Any]

SATURATED = 0x7FF
"""TraceCount of 7 and later has 11 bits."""

KERNELS = {
    "2600": ("xp-x86",),
    "3790": ("win7-x64",),
    "7601": ("win7-x64",),
    "9600": ("win7-x64",),
    "16299": ("win10-x86", "win10-x64"),
    "19044": ("win10-x64",),
    "22000": ("win11-x64",),
}
"""Which of the forge's kernels a set goes into, by its build; an x86 set in an x64 kernel is a WoW64 half."""


def kernels_of(name: str) -> Tuple[str, ...]:
    return KERNELS[name.split(".")[0]]


def cases(paths: Iterable[pathlib.Path]) -> List[Tuple[pathlib.Path, str]]:
    """Parameters for a test: each set with each kernel into which it goes."""
    return [(path, kernel) for path in paths for kernel in kernels_of(path.name)]


def case_name(value: object) -> str:
    """The name of a parameter, of a set without the ending of its file."""
    return value.name.replace(".tar.xz", "") if isinstance(value, pathlib.Path) else str(value)


def image_of(real: RealSet, kernel_name: str, symbols: bool) -> Image:
    """Forges an image with a set in it: at the kernel's own addresses, or in process 1000."""
    identity = kernels.load(kernel_name)
    options = {**identity.options(), **real.kernel_options()}
    if real.truth["kind"] == "kernel":
        options.pop("base", None)
        options["nt_global_flag"] = 0x2000
        return real_sets.kernel_of(real, identity.table, **options).image()
    kernel = Kernel(identity.table, **options)
    real_sets.process(kernel, real, pid=1000, symbols=symbols)
    return kernel.image()


def masked(address: int) -> int:
    """The form of an address that Volatility's columns have."""
    return address & 0xFFFFFFFFFFFF


def header_figures(truth: Mapping[str, Any]) -> List[int]:
    """CommittedMemory, ReservedMemory, Lookups, BackTraces as Windows computes them."""
    header = truth["header"]
    width = (1 << 64) if truth["arch"] == "x64" else (1 << 32)
    base = header["CommitBase"]
    return [
        (header.get("CurrentUpperCommitLimit", 0) - base) % width,
        header["EntryIndexArray"] - base,
        header["NumberOfEntriesLookedUp"],
        header["NumberOfEntriesAdded"],
    ]


def expected_traces(truth: Mapping[str, Any]) -> List[Tuple[Any, ...]]:
    """(Index, TraceCount, Depth, Hash, EntryAddress, Status, frames) of every live entry, in row order."""
    rows = []
    for entry in truth["entries"]:
        words = [] if entry["index"] else ["unindexed"]
        if truth["generation"] == "7" and entry["count"] == SATURATED:
            words.append("saturated")
        rows.append(
            (
                entry["index"] or None,
                entry["count"],
                entry["depth"],
                entry["hash"],
                masked(entry["va"]),
                ", ".join(words),
                tuple(map(masked, entry["frames"])),
            )
        )
    return sorted(rows, key=lambda row: (row[0] is None, row[0] or row[4]))


def shown_traces(rows: Sequence[Row], database: int) -> List[Tuple[Any, ...]]:
    """The same of the rows that were printed for a database."""
    return [
        (
            row["Index"],
            row["Count"],
            row["Depth"],
            row["BackTraceHash"],
            row["EntryAddress"],
            row["Status"],
            tuple(frame["Address"] for frame in row["__children"]),
        )
        for row in rows
        if row["Database"] == masked(database) and row["EntryAddress"] is not None
    ]


def database_row(rows: Sequence[Row], database: int) -> Row:
    return only(row for row in rows if row["Database"] == masked(database) and row["EntryAddress"] is None)


def check(rows: Sequence[Row], truth: Mapping[str, Any]) -> None:
    """Asserts that the rows are exactly the truth: header figures, every live entry, every frame."""
    row = database_row(rows, truth["database"])
    figures = [row[name] for name in ("CommittedMemory", "ReservedMemory", "Lookups", "BackTraces")]
    assert figures == header_figures(truth)
    assert row["Status"] == ""
    assert shown_traces(rows, truth["database"]) == expected_traces(truth)
    for trace in rows:
        for number, frame in enumerate(trace["__children"]):
            assert frame["Frame"] == number
            assert (frame["Index"], frame["EntryAddress"]) == (trace["Index"], trace["EntryAddress"])


def dumped(folder: pathlib.Path, real: RealSet) -> Optional[bytes]:
    """The file that `--dump` wrote for a set's database, None if there is none."""
    truth = real.truth
    pid = 0 if truth["kind"] == "kernel" else 1000
    path = folder / f"backtraces.{pid}.{truth['arch']}.{masked(truth['database']):x}.bin"
    return path.read_bytes() if path.exists() else None
