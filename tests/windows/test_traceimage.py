# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.traceimage` on forged images."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import pathlib
from typing import Any, Dict

import pytest
from volatility3.framework import constants
from volatility3.framework.renderers import format_hints
from volatility3.plugins.windows import traceimage, traces

from tests.forge import context, kernels, sample, vol
from tests.forge.context import Opened
from tests.forge.dump import BITMAP
from tests.forge.kernel import Kernel
from tests.forge.obj import CAPTURED
from tests.forge.paging import State
from tests.support import grid
from tests.support.environments import set_time, system_process
from tests.support.only import only, rows_of
from winstacks.columns import dictionary, tables, words
from winstacks.memory.decode.status import text
from winstacks.process.spaces import AddressSpaces
from winstacks.stacklist import imagefacts
from winstacks.stacklist.crash import Crash
from winstacks.stacklist.stack import StackRecord

ALL = ("xp-x86", "win7-x86", "win10-x86", "2003-x64", "win7-x64", "win10-x64", "win11-x64")
HOUR = 36_000_000_000
THREADS = ("kernel", "user", "wow64")


def row(opened: Opened, **options: Any) -> Dict[str, Any]:
    node = only(grid.run(opened, traceimage.TraceImage, **options))
    assert node.children == []
    return node.row


def forged(name: str = "win10-x64", **options: object) -> Kernel:
    known = kernels.load(name)
    return Kernel(known.table, **{**known.options(), **options})


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


def test_the_columns_are_those_of_the_schema(sampled: Opened) -> None:
    shown = sampled.construct(traceimage.TraceImage).run().columns
    types = {
        dictionary.STR: str,
        dictionary.INT: int,
        dictionary.BOOL: bool,
        dictionary.HEX: format_hints.Hex,
        dictionary.HEXSTR: str,
        dictionary.TIME: datetime.datetime,
    }
    assert [(column.name, column.type) for column in shown] == [
        (column.name, types[column.type]) for column in tables.IMAGE
    ]


def test_the_facts_are_the_columns(sampled: Opened) -> None:
    facts = imagefacts.gather(sampled.image, imagefacts.Totals(), imagefacts.Warnings())
    stack = StackRecord("user", "key", sampled.image.kernel, None, None, (), ())
    of_crash = imagefacts._crash_facts(Crash(True, 0xD1, (1, 2, 3, 4), stack))
    assert list({**facts, **of_crash}) == [column.name for column in tables.IMAGE]


@pytest.mark.parametrize("name", ALL)
def test_every_windows(name: str, tmp_path: pathlib.Path) -> None:
    kernel = forged(name, cpus=2)
    set_time(kernel, "InterruptTime", HOUR)
    set_time(kernel, "TimeZoneBias", 8 * HOUR)
    system_process(kernel, "services.exe", 600, "ACCOUNTS-7")
    kernel.process("app.exe", pid=1000).thread(1004)
    opened = context.open_image(kernel.image(), tmp_path)
    found = row(opened)
    file = only(json.loads(found["Files"]))
    path = next(path for path in tmp_path.iterdir() if path.name.startswith("image."))
    assert file == {"path": str(path), "size": path.stat().st_size, "sha256": None}
    build = kernel.version[2]
    expected = {
        "ImageId": opened.image.service(imagefacts.identity).image_id,
        "Schema": dictionary.SCHEMA,
        "VolatilityVersion": constants.PACKAGE_VERSION,
        "KernelBuild": build,
        "BuildLab": f"{build}.1.forge_release.240229-1200",
        "Product": "workstation",
        "Arch": f"x{'64' if kernel.bits == 64 else '86'}",
        "Processors": 2,
        "CaptureTime": CAPTURED,
        "BootTime": CAPTURED - datetime.timedelta(hours=1),
        "BootTimeSource": "InterruptTime",
        "TimeZoneBias": 480,
        "ComputerName": "ACCOUNTS-7",
        "Processes": 3,
        "ProcessesFoundOtherwise": 0,
        "ProcessesUnreadable": 0,
        "Threads": 1,
        "Stacks": 2,
        "Databases": 0,
        "Status": "",
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"pid": [4312]}, {"tid": [4320]}, {"kinds": ["user"]}, {"kinds": ["std"]}),
        *({"carve": True}, {"scan_stacks": True}, {"scan_threads": True}, {"processors": True}),
        *({"kinds": ["lock"]}, {"kinds": ["wow64", "heaplog"]}),
    ],
)
def test_counts_are_those_of_the_traces(options: Dict[str, Any], sampled: Opened) -> None:
    listed = [row for _, row in sampled.rows(traces.StackTraces, **options)]
    stacks = [row for row in listed if row["Kind"] in THREADS and row["Count"] is not None]
    threads = {row["Owner"] for row in stacks}
    found = row(sampled, **options)
    kinds = options.get("kinds", words.KINDS)
    assert found["ImageId"] == listed[0]["ImageId"]
    if set(THREADS).isdisjoint(kinds):
        assert [found[name] for name in ("Threads", "Stacks", "StacksIncomplete")] == [None] * 3
    else:
        assert found["Stacks"] == len(stacks)
        assert found["StacksIncomplete"] == sum(row["Incomplete"] for row in stacks)
    if "kinds" not in options:
        assert found["Threads"] == len(threads)
    databases = {row["Owner"] for row in listed if row["Kind"] in ("std", "heaplog")}
    walked = "tid" not in options and not {"std", "heaplog"}.isdisjoint(kinds)
    assert found["Databases"] == (len(databases) if walked else None)


@pytest.mark.parametrize("options", [{"find": "nt!*"}, {"find": "nobody!*"}, {"unbacked": True}])
def test_what_the_tables_select_changes_no_count(options: Dict[str, Any], sampled: Opened) -> None:
    plain, found = row(sampled), row(sampled, **options)
    for name in ("Warnings", "WarningText"):
        del plain[name], found[name]
    assert found == plain


def test_nothing_there_and_nothing_readable_differ(tmp_path: pathlib.Path) -> None:
    """In both images windows.traces has no row with a frame."""
    found = []
    for name, hidden in (("nothing", False), ("unreadable", True)):
        kernel = forged()
        process = kernel.process("app.exe", pid=1000)
        if hidden:
            thread = process.thread(1004)
            kernel.space.set_state(thread.stack_limit, 0x6000, State.MISSING)
            process.space.set_state(thread.user_stack_limit, 0x4000, State.PAGEFILE)
        folder = tmp_path / name
        folder.mkdir()
        opened = context.open_image(kernel.image(), folder)
        rows = [row for _, row in opened.rows(traces.StackTraces)]
        assert not any(isinstance(row["Depth"], int) and row["Depth"] for row in rows)
        found.append(row(opened))
    nothing, unreadable = rows_of(2, found)
    assert (nothing["Threads"], nothing["Stacks"], nothing["StacksIncomplete"]) == (0, 0, 0)
    assert (unreadable["Threads"], unreadable["Stacks"], unreadable["StacksIncomplete"]) == (1, 2, 2)
    assert [json.loads(nothing[name]) for name in ("StacksKnown", "StacksRead", "StructuresAbsent")] == [
        {}
    ] * 3
    assert json.loads(unreadable["StacksKnown"]) == {"kernel": 1, "user": 1}
    assert json.loads(unreadable["StacksRead"]) == {"kernel": 0, "user": 0}
    assert sum(json.loads(unreadable["StructuresAbsent"]).values()) >= 2


def test_processes_that_no_list_has_or_nobody_can_read(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    kernel.cpus[0].current(kernel.process("hidden.exe", pid=1000, listed=False).thread(1004))
    lost = kernel.process("lost.exe", pid=1008)
    lost.eprocess["Pcb.DirectoryTableBase"] = 0xFFFF0000
    found = row(context.open_image(kernel.image(), tmp_path))
    assert found["Processes"] == 3
    assert (found["ProcessesFoundOtherwise"], found["ProcessesUnreadable"]) == (1, 1)


def test_a_truncated_image(tmp_path: pathlib.Path) -> None:
    """Its last third is gone, with most of the list of processes."""
    image = sample.build().image()
    whole = context.open_image(image, tmp_path)
    cut = row(context.open_truncated(image, tmp_path))
    before = row(whole)
    assert cut["ImageId"] != before["ImageId"]
    known, read = (sum(json.loads(cut[name]).values()) for name in ("StacksKnown", "StacksRead"))
    assert read < known
    assert read < sum(json.loads(before["StacksRead"]).values())
    assert (before["Truncated"], before["MissingShare"]) == (0, 0)
    assert cut["Truncated"] == 1
    message = f"process list damaged, {cut['MissingShare']} % of the file missing"
    assert (cut["KernelBuild"], cut["Status"]) == (before["KernelBuild"], message)
    assert f"({cut['MissingShare']} %)" in cut["WarningText"]
    assert "The thread list of process at 0xffff" in cut["WarningText"]


def test_two_page_directories_of_a_process(tmp_path: pathlib.Path) -> None:
    """32-bit kernels before Vista keep that of hyperspace behind the first: the two are no long address."""
    kernel = forged("xp-x86")
    for number in range(2):
        process = kernel.process("app.exe", pid=1000 + 4 * number)
        process.eprocess["Pcb.DirectoryTableBase"] = process.space.tables.root | (0x40 + number) << 44
    borrower = kernel.process("borrower.exe", pid=1012)
    borrower.eprocess["Pcb.DirectoryTableBase"] = process.space.tables.root | 0x51 << 44
    opened = context.open_image(kernel.image(), tmp_path, "image.raw")
    found = row(opened)
    assert (found["Truncated"] or 0, found["MissingShare"] or 0) == (0, 0)
    assert "The image is truncated" not in found["WarningText"]
    statuses = [space.status or space.remark for space in AddressSpaces.list_spaces(opened.image)]
    assert text(statuses[-1]) == "page tables of process 1004"


@pytest.mark.parametrize(("share", "missing"), [(0.99, 1), (0.97, 4), (0.35, 66)])
@pytest.mark.parametrize("bitmap", [0, BITMAP])
def test_a_crash_dump_that_is_cut(share: float, missing: int, bitmap: int, tmp_path: pathlib.Path) -> None:
    image = sample.build().image()
    image.install(context.symbol_directory())
    path = image.save(tmp_path / "cut.dmp", bitmap)
    os.truncate(path, int(path.stat().st_size * share))
    found = row(context.open_file(path))
    assert found["Truncated"] == 1
    assert abs(found["MissingShare"] - missing) <= 1
    assert f"{found['MissingShare']} % of the file missing" in found["Status"]
    assert "The image is truncated" in found["WarningText"]


def test_a_damaged_list_of_processes_is_said(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    kernel.process("app.exe", pid=1000)
    image = kernel.image()
    kernel.space.write_int(kernel.symbol("PsActiveProcessHead"), 0)
    found = row(context.open_image(image, tmp_path))
    assert found["Status"] == "process list damaged"
    assert found["Warnings"] >= 1
    assert "processes may be missing (--scan-processes looks for them in the pools)" in found["WarningText"]


def test_what_is_not_known_is_absent(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    set_time(kernel, "SystemTime", 0)
    set_time(kernel, "TimeZoneBias", 400 * HOUR)
    for name, size in (("NtBuildLab", 0x40), ("KeNumberProcessors", 4)):
        kernel.set(name, b"\xff" * (0x100 if name == "NtBuildLab" else size))
    found = row(context.open_image(kernel.image(), tmp_path))
    names = ("CaptureTime", "BootTime", "BootTimeSource", "TimeZoneBias", "ComputerName", "BuildLab")
    assert [found[name] for name in (*names, "Processors")] == [None] * 7
    assert found["Status"] == "contradicted: SystemTime TimeZoneBias"


def test_hashes_only_where_they_are_asked_for(sampled: Opened) -> None:
    file = only(json.loads(row(sampled, sha256=True)["Files"]))
    assert file["sha256"] == hashlib.sha256(pathlib.Path(file["path"]).read_bytes()).hexdigest()
    assert json.loads(row(sampled)["Files"])[0]["sha256"] is None


def test_a_file_that_is_gone_is_said(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(forged().image(), tmp_path)
    opened.image.service(imagefacts.identity)
    (tmp_path / "image.dmp").rename(tmp_path / "other.dmp")
    found = row(opened, sha256=True)
    file = only(json.loads(found["Files"]))
    assert file["sha256"] is None
    assert found["Status"] == "1 files not hashed"


@pytest.mark.cli
def test_warnings_are_those_on_the_standard_error(tmp_path: pathlib.Path) -> None:
    image = sample.build().image()
    path, symbols = image.save(tmp_path / "sample.dmp"), image.install(tmp_path / "symbols")
    done = vol.run(path, "windows.traceimage", symbols=symbols)
    found = only(done.rows)
    logged = [line.partition(": ")[2] for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert found["Warnings"] == len(logged) > 0
    assert found["WarningText"].split(" | ") == list(dict.fromkeys(logged))


@pytest.mark.cli
def test_page_files_are_files_of_the_image(tmp_path: pathlib.Path) -> None:
    image = forged().image()
    path, symbols = image.save(tmp_path / "image.dmp"), image.install(tmp_path / "symbols")
    pages = tmp_path / "pagefile.sys"
    pages.write_bytes(b"page file" * 0x1000)
    swap = ["--single-swap-locations", pages.as_uri(), "-q"]
    without = only(vol.run(path, "windows.traceimage", symbols=symbols).rows)
    found = only(vol.run(path, "windows.traceimage", symbols=symbols, arguments=swap).rows)
    assert [file["path"] for file in json.loads(found["Files"])] == [str(path), str(pages)]
    assert found["ImageId"] != without["ImageId"]
