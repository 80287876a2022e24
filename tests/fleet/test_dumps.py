# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`stackfleet run` takes dumps of processes among images."""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest
from volatility3.plugins.minidump import traceframes, traces

from stackfleet.database import Database
from stackfleet.job import Reading
from stackfleet.lake import Lake
from tests.forge import context, modulefile, sample
from tests.support.fleetimages import options_for
from tests.support.fleetrun import fleet, manifests
from tests.support.processdumps import OpenedDump, dump_of

pytestmark = pytest.mark.once

UPDATER = 4312


class Read(NamedTuple):
    """Images and dumps in a folder, and what became of them."""

    folder: pathlib.Path
    lake: pathlib.Path
    code: int
    stderr: str
    options: Tuple[object, ...]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    folder = tmp_path_factory.mktemp("dumps")
    image = sample.build().image()
    opened = context.open_image(image, folder, "machine.dmp")
    whole = dump_of(opened, UPDATER, raised=4316)
    written = {
        "app.dmp": whole,
        "small.dmp": dump_of(opened, UPDATER, full=False),
        "cut.dmp": whole[: len(whole) // 2],
        "none.dmp": b"MDMP" + bytes(0x2000),
        "arm.dmp": _of_another_machine(whole),
    }
    for name, data in written.items():
        (folder / name).write_bytes(data)
    options = (*options_for(folder, image), "--workers", 1)
    done = fleet("run", *sorted(folder.glob("*.dmp")), "-o", folder / "lake", *options)
    return Read(folder, folder / "lake", done.returncode, done.stderr, options)


def _of_another_machine(data: bytes) -> bytes:
    """The dump with PROCESSOR_ARCHITECTURE_ARM (winnt.h) in its SystemInfoStream, its first stream."""
    at = int.from_bytes(data[40:44], "little")
    return data[:at] + (5).to_bytes(2, "little") + data[at + 2 :]


def names(read: Read) -> Dict[str, str]:
    """The names of the files by their ImageIds."""
    return {
        manifest["image_id"]: name
        for name, manifest in manifests(read.lake).items()
        if "image_id" in manifest
    }


def rows(lake: pathlib.Path, table: str) -> List[Dict[str, Any]]:
    """The rows of a table in the order in which they were written."""
    with Database(Lake(str(lake))) as database:
        found: List[Dict[str, Any]] = database.table(f"SELECT * FROM {table}").to_pylist()
    return found


def rows_of_file(read: Read, table: str, name: str) -> List[Dict[str, Any]]:
    known = names(read)
    return [row for row in rows(read.lake, table) if known[row["ImageId"]] == name]


def test_the_table_image_says_what_was_read(read: Read) -> None:
    known = names(read)
    found = {
        known[row["ImageId"]]: (row["InputKind"], row["Completeness"], row["Processes"])
        for row in rows(read.lake, "image")
    }
    assert found.pop("machine.dmp")[:2] == ("image", None)
    assert found == {
        "app.dmp": ("process dump", "all", 1),
        "small.dmp": ("process dump", "some", 1),
        "cut.dmp": ("process dump", "truncated", 1),
    }


def test_what_cannot_be_read_is_said(read: Read) -> None:
    assert read.code != 0
    assert "It begins as a dump of one process and is not one" in read.stderr
    assert "machine of type ARM:" in read.stderr
    assert "Traceback" not in read.stderr


@pytest.mark.parametrize(
    ("table", "plugin"), [("traces", traces.StackTraces), ("frames", traceframes.TraceFrames)]
)
def test_rows_are_those_of_the_plugin(read: Read, table: str, plugin: Any) -> None:
    shown = [row for _, row in OpenedDump(read.folder / "app.dmp").rows(plugin)]
    found = rows_of_file(read, table, "app.dmp")
    assert [row["TraceId"] for row in found] == [row["TraceId"] for row in shown] != []
    assert [row["Status"] for row in found] == [row["Status"] for row in shown]


def test_checks_and_trap_frames(read: Read) -> None:
    """Checks that need a kernel say so, and a dump has no trap frames."""
    statuses = [row["Status"] for row in rows_of_file(read, "findings", "app.dmp")]
    assert any("not checked" in status for status in statuses)
    assert not rows_of_file(read, "trapframes", "app.dmp")


def test_cut_files_are_not_like_whole_ones(read: Read, tmp_path: pathlib.Path) -> None:
    """Manifest, state and exit code name files that are cut, in the next run as well."""
    for share in (99, 97, 35):
        path = pathlib.Path(shutil.copy(read.folder / "machine.dmp", tmp_path / f"{share}.dmp"))
        os.truncate(path, path.stat().st_size * share // 100)
    whole = pathlib.Path(shutil.copy(read.folder / "machine.dmp", tmp_path / "whole.dmp"))
    lake = tmp_path / "lake"
    run = ("run", "-o", lake, *read.options)
    done = fleet(*run, *sorted(tmp_path.glob("*.dmp")), code=3)
    assert "3 images are truncated" in done.stderr
    found = manifests(lake)
    assert {manifest["status"] for manifest in found.values()} == {"done"}
    for share in (99, 97, 35):
        finding = found[f"{share}.dmp"]
        assert finding["truncated"] is True
        assert abs(finding["missing_share"] - (100 - share)) <= 1
        assert finding["reason"] == f"the file is truncated: {finding['missing_share']} % are missing"
        assert finding["reason"] in done.stderr
    whole_manifest = found["whole.dmp"]
    assert (whole_manifest["truncated"], whole_manifest["missing_share"], whole_manifest["reason"]) == (
        False,
        0,
        "",
    )
    shown = fleet("status", lake, "--format", "csv").stdout.splitlines()
    assert ["the file is truncated" in line for line in shown[1:]] == [True, True, True, False]
    again = fleet(*run, tmp_path / "97.dmp")
    assert (again.returncode, "1 image is truncated" in again.stderr) == (3, True)
    assert manifests(lake)["97.dmp"]["attempt"] == found["97.dmp"]["attempt"]
    fleet(*run, whole, code=0)
    # A dump of one process, which was cut in the middle, says so without a share.
    cut_dump = manifests(read.lake)["cut.dmp"]
    assert (cut_dump["truncated"], cut_dump["reason"]) == (True, "the file is truncated")
    assert manifests(read.lake)["small.dmp"]["truncated"] is False


def test_one_question_asks_images_and_dumps(read: Read) -> None:
    """The stack of a thread is one in the image and in its dump, unless the dump is of its crash."""
    crashed = {row["TID"] for row in rows(read.lake, "traces") if "exception" in row["Status"]}
    by_file: Dict[str, set[str]] = {}
    for row in rows(read.lake, "traces"):
        if row["PID"] == UPDATER and row["Kind"] == "user" and row["TID"] not in crashed and row["StackKey"]:
            by_file.setdefault(names(read)[row["ImageId"]], set()).add(row["StackKey"])
    assert by_file["machine.dmp"] == by_file["app.dmp"]


def test_files_of_modules_reach_the_tables(read: Read, tmp_path: pathlib.Path) -> None:
    """--binaries is another way to read an image; lakes that were made without it stay as they are."""
    kernel = sample.build()
    files = modulefile.save(kernel.user_modules(), tmp_path / "files")
    options = ("--cache-path", read.folder / "cache", "--offline", "--workers", 1, "--binaries", files)
    fleet("run", read.folder / "small.dmp", "-o", tmp_path / "lake", *options, code=0)
    statuses = [row["Status"] or "" for row in rows(tmp_path / "lake", "frames")]
    assert sum("from the file" in status for status in statuses) > len(statuses) // 2
    without = [row["Status"] or "" for row in rows_of_file(read, "frames", "small.dmp")]
    assert len(without) < len(statuses)
    assert not any("from the file" in status for status in without)
    assert Reading().digest() != Reading(binaries=(str(files),)).digest()
