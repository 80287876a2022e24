# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a lake promises: images are there whole or not at all, once, and as they were written."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Set

import deltalake
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from stackfleet import digests, lakefolder, newfiles, snapshots, store
from stackfleet import lake as lake_module
from stackfleet.columns import UNITED
from stackfleet.lake import Depth, Lake, LakeError, NewImage
from stackfleet.layout import TABLES
from stackfleet.snapshots import Snapshot
from stackfleet.store import Store
from stackfleet.storeerrors import ConflictError
from tests.conftest import ROOT
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import called, fleet, started, wait
from tests.support.only import only

STACKS = 50


def add(uri: str, image_id: str, stack: str = "nt!A", **more: Any) -> None:
    traces = [{"StackKey": f"{number:032x}", "Stack": f"{stack} {number}"} for number in range(STACKS)]
    findings = [{"Severity": "high", "Finding": "unbacked", "Symbol": stack}]
    fleetlakes.add(Lake(uri, create=True), image_id, host=image_id, traces=traces, findings=findings, **more)


def counted(uri: str) -> Dict[str, int]:
    """The stacks of each image, as any reader of Delta counts them."""
    table = DeltaTable(uri).to_pyarrow_table(filters=[("Table", "=", "traces")], columns=["ImageId"])
    return {item["values"]: item["counts"] for item in table.column(0).value_counts().to_pylist()}


def damaged(uri: str, depth: Depth = Depth.SIZE) -> Dict[str, str]:
    return {item.image_id: item.reason for item in Lake(uri).contents(depth).damaged}


def assert_whole(uri: str, *image_ids: str) -> None:
    """These images are there with all their stacks, no others, and none of them is damaged."""
    assert counted(uri) == dict.fromkeys(image_ids, STACKS)
    assert not damaged(uri, Depth.CONTENT)


@pytest.fixture
def lake(fresh: pathlib.Path) -> str:
    """Three images."""
    for number in range(3):
        add(str(fresh), f"i{number}")
    return str(fresh)


def test_an_image_is_one_commit(lake: str) -> None:
    table = DeltaTable(lake)
    assert table.version() == 3
    rows = table.to_pyarrow_table()
    assert set(rows.column("Table").to_pylist()) == {"traces", "findings", "image", "keys", "manifests"}
    assert_whole(lake, "i0", "i1", "i2")


def test_an_image_that_is_read_again_replaces_its_rows(lake: str) -> None:
    with pytest.raises(LakeError, match="another run has added this image"):
        add(lake, "i1", stack="nt!B")
    add(lake, "i1", stack="nt!B", before="attempt")
    stacks = called("sql", lake, "SELECT DISTINCT left(Stack, 4) FROM traces WHERE ImageId = 'i1'")
    assert stacks.stdout.split()[-1] == "nt!B"
    assert_whole(lake, "i0", "i1", "i2")


CHANGES: Dict[str, Callable[[str], object]] = {
    "replaced": lambda uri: add(uri, "i1", stack="nt!B", before="attempt"),
    "forgotten": lambda uri: Lake(uri).forget(["i1"]),
    "named by a copy": lambda uri: Lake(uri).add_copy("i0", "/b.raw"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_lake_of_fewer_columns_can_be_changed(name: str, tmp_path: pathlib.Path) -> None:
    """An older version wrote it, whose tables lacked two columns."""
    uri = str(tmp_path / "lake")
    older = pa.schema([field for field in UNITED if field.name not in ("Confidence", "Innocent")])
    with fleetlakes.of_columns(older):
        for image_id in ("i0", "i1"):
            add(uri, image_id)
    assert not damaged(uri, Depth.CONTENT)
    CHANGES[name](uri)
    assert_whole(uri, "i0", *("i1",) * (name != "forgotten"))
    assert set(UNITED.names) < {field.name for field in DeltaTable(uri).schema().fields}


def _adds(uri: str, names: List[str], before: bool) -> List[str]:
    """Adds images one after the other; returns those that another process had added before."""
    refused = []
    for name in names:
        try:
            number = f"{os.getpid()}"
            add(uri, name, stack=number, **({"before": "attempt"} if before else {"attempt": number}))
        except LakeError as error:
            assert "another run" in str(error), error
            refused.append(name)
    return refused


@pytest.mark.parametrize("before", [False, True])
def test_many_writers_lose_nothing_and_double_nothing(before: bool, tmp_path: pathlib.Path) -> None:
    """Four processes add images of their own, and all of them the same three."""
    uri = str(tmp_path / "lake")
    names = [[*(f"own{worker}x{number}" for number in range(2)), "s0", "s1", "s2"] for worker in range(4)]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        refused = pool.starmap(_adds, [(uri, part, before) for part in names])
    assert not [name for part in refused for name in part if name.startswith("own")]
    if not before:
        assert sum(map(len, refused)) == 9
    assert_whole(uri, *(name for part in names for name in part))
    stacks = called("sql", uri, "SELECT ImageId FROM traces GROUP BY 1 HAVING count(DISTINCT Stack[1:3]) > 1")
    assert len(stacks.stdout.splitlines()) == 1, "an image has rows of two writers"


def test_a_commit_whose_answer_was_lost_is_done(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of an object store asks again, and is refused: the object is there."""
    commit, refused = Store.commit, list[Any]()

    def answer_lost(self: Store, *of: Any) -> None:
        commit(self, *of)
        if not refused:
            refused.append(of)
            raise ConflictError("the version exists")

    monkeypatch.setattr(Store, "commit", answer_lost)
    add(lake, "i3", attempt="mine")
    assert (len(refused), counted(lake)["i3"]) == (1, STACKS)
    with pytest.raises(LakeError, match="another run has added this image"):
        add(lake, "i3", attempt="another")
    assert not damaged(lake, Depth.CONTENT)


def test_a_copy_and_a_removal_are_written_beside_other_runs(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits of another run are no reason to leave a copy out, nor to remove nothing."""
    commit = Store.commit

    def overtaken(self: Store, *of: Any) -> None:
        monkeypatch.setattr(Store, "commit", commit)
        add(lake, f"x{len(counted(lake))}")
        Lake(lake).add_copy("i0", f"/{len(counted(lake))}.dmp")
        commit(self, *of)

    monkeypatch.setattr(Store, "commit", overtaken)
    assert Lake(lake).add_copy("i0", "/b.dmp")["copies"] == ["/4.dmp", "/b.dmp"]
    assert Lake(lake).add_copy("i0", "/b.dmp")["copies"] == ["/4.dmp", "/b.dmp"]
    monkeypatch.setattr(Store, "commit", overtaken)
    Lake(lake).forget(["i0"])
    with pytest.raises(LakeError, match="another run has removed the image"):
        Lake(lake).add_copy("i0", "/c.dmp")
    assert sorted(counted(lake)) == ["i1", "i2", "x3", "x4"]
    assert not damaged(lake, Depth.CONTENT)


@pytest.mark.parametrize("image_id", ["i0", "i3"])
def test_an_image_that_takes_long_is_written_once_beside_other_runs(
    image_id: str, lake: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files may go over a slow line while others commit all the time."""
    image = fleetlakes.new_image(tmp_path, image_id, traces=[{}] * STACKS, before="attempt")
    write = DeltaTable.create_write_transaction

    def overtaken(*of: Any, **options: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", write)
        add(lake, "i4")
        add(lake, "i1", before="attempt")
        Lake(lake).forget(["i2"])
        monkeypatch.setattr(Store, "commit", None)
        write(*of, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", overtaken)
    Lake(lake).add_together([image])
    assert Store.commit is None
    assert_whole(lake, *{"i0", "i1", "i4", image_id})


@pytest.mark.parametrize("name", CHANGES)
def test_files_that_are_merged_meanwhile_are_replaced_once(
    name: str, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta alone would remove a file that is no longer there, and leave its rows in the merged one."""
    commit = Store.commit

    def merged(self: Store, *of: Any) -> None:
        monkeypatch.setattr(Store, "commit", commit)
        DeltaTable(lake).optimize.compact()
        commit(self, *of)

    monkeypatch.setattr(Store, "commit", merged)
    CHANGES[name](lake)
    assert_whole(lake, "i0", *("i1",) * (name != "forgotten"), "i2")


def test_a_removal_that_is_tried_again_leaves_what_came_behind_it(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is made: to remove its files is all that is left."""
    purge = Store.purge

    def overtaken(self: Store) -> None:
        monkeypatch.setattr(Store, "purge", purge)
        add(lake, "i0")
        raise ConflictError("the version exists")

    monkeypatch.setattr(Store, "purge", overtaken)
    Lake(lake).forget(["i0"])
    assert sorted(counted(lake)) == ["i0", "i1", "i2"]
    assert len(files(lake, "traces")) == 3


@pytest.mark.parametrize("behind", [False, True])
def test_a_writer_that_sleeps_longer_than_the_log_is_kept_loses_nothing(
    behind: bool, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it sleeps, others commit, and a checkpoint replaces their commits.

    Delta then refuses a commit, unless the writer sleeps between Delta's look at the log and its last step.
    """
    write, log, slept = DeltaTable.create_write_transaction, pathlib.Path(lake, "_delta_log"), list[str]()
    place, aside = log / f"{4:020}.json", log.with_name("aside")

    def writing(*of: Any, **options: Any) -> None:
        if slept:
            write(*of, **options)
            return
        slept.append("here")
        if behind:
            write(*of, **options)
            place.rename(aside)
        for run in ("r1", "r2", "r3"):
            Lake(lake).record(run, {})
        for path in log.iterdir():
            os.utime(path, (time.time() - 7200, time.time() - 7200))
        table = DeltaTable(lake)
        table.create_checkpoint()
        table.cleanup_metadata()
        assert not place.exists() and table.version() == 6
        if behind:
            aside.rename(place)
        else:
            write(*of, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", writing)
    monkeypatch.setattr(snapshots, "FRESH", 0)
    add(lake, "i3")
    assert slept
    assert_whole(lake, "i0", "i1", "i2", "i3")


def test_a_temporary_file_that_another_writer_removes_is_no_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "lake")
    add(uri, "i0")
    scandir = os.scandir

    def removed_meanwhile(folder: Any) -> Any:
        """Lists a folder in which a file goes between its name and its size."""
        if isinstance(folder, int) or not os.fspath(folder).startswith(uri):
            return scandir(folder)
        temporary = pathlib.Path(folder, "part-0.parquet#1")
        temporary.touch()
        entries = list(scandir(folder))
        temporary.unlink()
        return entries

    monkeypatch.setattr(lakefolder.os, "scandir", removed_meanwhile)
    add(uri, "i1")
    assert counted(uri) == {"i0": STACKS, "i1": STACKS}


def commits(uri: str) -> int:
    return len(list(pathlib.Path(uri).glob("_delta_log/*.json")))


def test_a_writer_that_is_killed_leaves_whole_images(tmp_path: pathlib.Path) -> None:
    uri = str(tmp_path / "lake")
    code = (
        "import sys; from tests.fleet import test_lake\n"
        "for number in range(1000):\n"
        "    test_lake.add(sys.argv[1], f'i{number % 7}', before='attempt')\n"
    )
    said = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", code, uri], stderr=subprocess.DEVNULL) as process:
            wait(lambda: process.poll() is not None or commits(uri) > said + 4)  # noqa: B023
            assert process.poll() is None
            os.kill(process.pid, signal.SIGKILL)
        said = commits(uri)
        assert set(counted(uri).values()) == {STACKS}
        assert not damaged(uri, Depth.CONTENT)


class Disk:
    """The rest of a lake after the worst power failure: synced contents and names, without removed ones.

    Attributes:
        events: number of files and folders that were synced
        check: function that is called with the path behind each of these
    """

    def __init__(self, lake: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("asks Linux which file is synced")
        self.lake, self.events = lake, 0
        self.check: Callable[[str], None] = lambda path: None
        self._files: Dict[str, bytes] = {}
        self._names: Dict[str, Set[str]] = {}
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, held: int) -> None:
        path = os.readlink(f"/proc/self/fd/{held}")
        if os.path.isdir(path):
            self._names[path] = set(os.listdir(path))
        else:
            self._files[path] = pathlib.Path(path).read_bytes()
        self.events += 1
        self.check(path)

    def left(self, copy: pathlib.Path) -> pathlib.Path:
        """Puts what is left into a folder; returns the lake in it."""
        shutil.rmtree(copy, ignore_errors=True)
        for path in [self.lake, *self.lake.rglob("*")]:
            above = [path, *path.parents][: len(path.relative_to(self.lake.parents[1]).parts)]
            if all(part.name in self._names.get(str(part.parent), ()) for part in above):
                place = copy / path.relative_to(self.lake)
                if path.is_dir():
                    place.mkdir(parents=True)
                else:
                    place.write_bytes(self._files.get(str(path), b"{"))
        return copy


def test_a_power_failure_leaves_what_was_done(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer's commit may not be synced yet, and files may be merged."""
    folder = tmp_path / "cases" / "lake"
    disk, uri, log, done = Disk(folder, monkeypatch), str(folder), folder / "_delta_log", set[str]()

    def check(path: str) -> None:
        # Files that no commit names yet change nothing.
        if done and "_delta_log" in path:
            left = Lake(str(disk.left(tmp_path / "left")))
            there = left.contents()
            whole = {item["image_id"] for item in left.manifests()} - {
                item.image_id for item in there.damaged
            }
            assert done <= whole, (done - whole, disk.events)

    def between(path: str) -> None:
        """Lets another writer add an image before the first writer syncs its commit."""
        disk.check = check
        image_id = f"between{len(done)}"
        with tempfile.TemporaryDirectory() as rows:
            Lake(uri).add_together([fleetlakes.new_image(pathlib.Path(rows), image_id, traces=[{}])])
        done.add(image_id)
        check(str(log))

    monkeypatch.setattr(store, "CHECKPOINT", 3)
    for number, meanwhile in enumerate((check, between, check, between)):
        for path in log.glob("*"):
            os.utime(path, (time.time() - 7200, time.time() - 7200))
        disk.check = meanwhile
        add(uri, f"i{number}")
        done.add(f"i{number}")
        check(str(log))
    assert not log.joinpath(f"{1:020}.json").exists(), "no checkpoint has taken its place"
    add(uri, "i1", stack="nt!B", before="attempt")
    called("compact", uri, code=0)
    done.remove("i0")
    called("forget", uri, "i0", code=0)
    check(str(log))
    assert disk.events > 60 and done == {"i1", "i2", "i3", "between1", "between4"}


@pytest.mark.parametrize("rest", [b"", b"{", bytes(400)])
def test_a_commit_that_a_power_failure_tore_is_left_out_and_named(rest: bytes, lake: str) -> None:
    torn = pathlib.Path(lake, "_delta_log", f"{3:020}.json")
    torn.write_bytes(rest)
    done = called("rare", lake, "--max-hosts", "9", code=0)
    assert [name in done.stdout for name in ("I0", "I1", "I2")] == [True, True, False]
    done = called("forget", lake, "i0")
    assert done.returncode == 0 and f"{torn.name}, a commit of this lake, is torn" in done.stderr
    add(lake, "i2")
    assert counted(lake) == {"i1": STACKS, "i2": STACKS}


def flip(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


DAMAGE: Dict[str, Callable[[pathlib.Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "missing": lambda path: path.unlink(),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "altered": flip,
}


@pytest.mark.parametrize("table", ["traces", "findings", "image"])
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_takes_its_own_images_only(name: str, table: str, lake: str) -> None:
    file = only(
        path for path in files(lake, table) if pq.read_table(path).column("ImageId")[0].as_py() == "i1"
    )
    before = called("sql", lake, f"SELECT * FROM {table} ORDER BY ALL").stdout
    DAMAGE[name](file)
    done = called("sql", lake, f"SELECT DISTINCT ImageId FROM {table} ORDER BY 1", "--format", "csv")
    if name == "altered" and done.returncode == 0:
        # The byte is of nothing that was asked for, or of no row.
        sql = f"SELECT * FROM {table} ORDER BY ALL"
        assert damaged(lake, Depth.CONTENT) or called("sql", lake, sql).stdout == before
        return
    assert done.returncode == 3, done.stderr
    assert done.stdout.split() == ["ImageId", "i0", "i2"]
    assert "left out: /images/i1.raw (i1)" in done.stderr
    done = called("status", lake, "--verify", "--format", "csv", code=3)
    assert "damaged,/images/i1.raw,i1" in done.stdout or ",i1," in done.stdout
    add(lake, "i1", before="attempt")
    assert_whole(lake, "i0", "i1", "i2")


@pytest.mark.parametrize("table", ["traces", "manifests"])
@pytest.mark.parametrize("name", ["cut", "missing"])
def test_what_a_merged_file_has_lost_can_be_read_again(name: str, table: str, lake: str) -> None:
    """A lost file of manifests stays in the log: without it nobody knows which rows have none."""
    called("compact", lake, code=0)
    file = pathlib.Path(only(DeltaTable(lake).file_uris([("Table", "=", table)])))
    DAMAGE[name](file)
    for image_id in ("i0", "i1", "i2"):
        add(lake, image_id, before="attempt")
    left = damaged(lake, Depth.CONTENT)
    assert counted(lake) == dict.fromkeys(("i0", "i1", "i2"), STACKS)
    assert list(left) == [f"Table={table}/{file.name}"] * (table == "manifests")


def test_what_a_merged_file_has_lost_is_told_until_it_is_read_again(lake: str) -> None:
    """A lost file stays in the log while an image lacks its rows, whatever else is added or removed."""
    called("compact", lake, code=0)
    newest = {path.rpartition("/")[2] for path in DeltaTable(lake).file_uris()}
    only(path for path in files(lake, "traces") if path.name in newest).unlink()
    add(lake, "i10")
    add(lake, "i0", before="attempt")
    Lake(lake).forget(["i10"])
    assert [image_id for image_id in damaged(lake) if image_id.startswith("i")] == ["i1", "i2"]
    add(lake, "i1", before="attempt")
    Lake(lake).add_copy("i1", "/images/copy.raw")
    Lake(lake).forget(["i2"])
    assert not damaged(lake)


def files(lake: str, table: str) -> List[pathlib.Path]:
    return sorted(pathlib.Path(lake, f"Table={table}").glob("*.parquet"))


def test_rows_that_another_program_changed_are_found_in_merged_files(lake: str) -> None:
    """One image's rows are changed; the others in the same file are sound."""
    table = DeltaTable(lake)
    table.optimize.compact()
    assert not damaged(lake, Depth.CONTENT)
    table.update(updates={"Stack": "'nt!Other'"}, predicate="\"Table\" = 'traces' AND \"ImageId\" = 'i1'")
    assert damaged(lake) == {}
    assert damaged(lake, Depth.CONTENT) == {"i1": "traces: its rows differ from the digest in the manifest"}
    table.delete("\"Table\" = 'findings' AND \"ImageId\" = 'i2'")
    assert damaged(lake, Depth.CONTENT)["i2"] == "findings: 0 rows, but 1 in the manifest"


@pytest.mark.parametrize("number", ["1", "NULL"])
def test_numbers_of_rows_that_another_program_changed_are_found(number: str, lake: str) -> None:
    """A sort by wrong numbers may have the right order: that they are 0, 1, 2 ... is a part of the digest."""
    condition = '"Table" = \'traces\' AND "ImageId" = \'i1\' AND "Row" = 0'
    DeltaTable(lake).update(updates={"Row": number}, predicate=condition)
    assert damaged(lake, Depth.CONTENT) == {"i1": "traces: its rows differ from the digest in the manifest"}


def test_another_order_of_rows_changes_no_digest(lake: str) -> None:
    DeltaTable(lake).optimize.z_order(["StackKey"])
    assert not damaged(lake, Depth.CONTENT)


@pytest.mark.parametrize("most", [1 << 10, 1 << 16])
@pytest.mark.parametrize("held", [8, STACKS])
def test_rows_that_files_have_mixed_are_sorted_some_at_a_time(
    held: int, most: int, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's writer mixes the rows of a table that it divides among files, from 100 MB on."""
    add(lake, "i3", stack="nt!" + "A" * 4096)
    table = DeltaTable(lake)
    rows = table.to_pyarrow_table(filters=[("Table", "=", "traces"), ("ImageId", "=", "i3")])
    table.delete("\"Table\" = 'traces' AND \"ImageId\" = 'i3'")
    for part in range(3):
        mixed = rows.take(list(range(part, STACKS, 3))[::-1])
        deltalake.write_deltalake(lake, mixed, mode="append")
    snapshot = Lake(lake).contents(Depth.CONTENT).snapshot
    assert snapshot is not None and not damaged(lake, Depth.CONTENT)
    manifests = {known["image_id"]: known for known in Lake(lake).manifests()}
    monkeypatch.setattr(snapshots, "MOST_BYTES", most)
    monkeypatch.setattr(digests, "MOST_SORTED", held)
    refused = {"i3": "traces: its rows cannot be compared: its rows need more than 1,024 bytes of memory"}
    wrong = digests.compared(snapshot, "traces", manifests, {}, rows=True)
    assert wrong == ({} if most > 4096 else refused)


def test_row_groups_are_small(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newfiles, "ROW_GROUP", 16)
    called("compact", lake, code=0)
    footer = pq.read_metadata(only(DeltaTable(lake).file_uris([("Table", "=", "traces")])))
    assert [footer.row_group(number).num_rows for number in range(3)] == [16, 16, 16]


def test_small_files_of_images_become_one_and_large_ones_stay_as_they_are(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = [{"Stack": f"nt!A {number}"} for number in range(STACKS)]
    images = []
    for number in range(3):
        folder = tmp_path / f"rows{number}"
        folder.mkdir()
        images.append(fleetlakes.new_image(folder, f"i{number}", traces=stacks * (1 + 8 * (number == 2))))
    large = (tmp_path / "rows2" / "traces.parquet").read_bytes()
    monkeypatch.setattr(lake_module, "OWN_FILE", len(large))
    uri = str(tmp_path / "lake")
    Lake(uri, create=True).add_together(images)
    added = [path.read_bytes() for path in files(uri, "traces")]
    assert len(added) == 2 and large in added
    assert counted(uri) == {"i0": STACKS, "i1": STACKS, "i2": 9 * STACKS}
    assert not damaged(uri, Depth.CONTENT)


_WRITER = """
import pathlib, sys
import pyarrow as pa
from stackfleet import columns, newfiles, store

names = [f"function{number}" for number in range(1 << 12)]
rows = {field.name: pa.array(names) for field in columns.SCHEMAS["frames"] if field.type == pa.string()}
batch = pa.RecordBatch.from_pydict(rows)
written = store.Store(sys.argv[1], columns.UNITED)
batches = [batch] * (int(sys.argv[2]) // batch.num_rows)
written.commit(written.snapshot(0), [newfiles.Part("frames", batches)], ["x"])
print(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
"""Writes rows that come at once, and prints the most kilobytes that the process has held."""


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_the_memory_of_a_writer_does_not_grow_with_the_image(tmp_path: pathlib.Path) -> None:
    held = []
    for rows in (300_000, 900_000):
        command = [sys.executable, "-c", _WRITER, str(tmp_path / f"lake{rows}"), str(rows)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        held.append(int(ran.stdout))
    assert held[1] < 1.3 * held[0]


def test_compact_leaves_few_files_and_the_same_answers(lake: str) -> None:
    before = called("sql", lake, "SELECT * FROM traces ORDER BY ALL", "--format", "jsonl").stdout
    called("compact", lake, code=0)
    assert max(len(DeltaTable(lake).file_uris([("Table", "=", name)])) for name in TABLES) == 1
    assert called("sql", lake, "SELECT * FROM traces ORDER BY ALL", "--format", "jsonl").stdout == before
    add(lake, "i1", stack="nt!B", before="attempt")
    assert_whole(lake, "i0", "i1", "i2")


def test_what_is_forgotten_leaves_the_files(lake: str) -> None:
    called("compact", lake, code=0)
    called("forget", lake, "i1", code=0)
    assert counted(lake) == {"i0": STACKS, "i2": STACKS}
    for path in pathlib.Path(lake).glob("Table=*/*.parquet"):
        ids = pq.read_table(path, columns=["ImageId"]).column(0).to_pylist()
        assert "i1" not in ids
    add(lake, "i1")
    assert counted(lake)["i1"] == STACKS


def test_a_log_that_cannot_be_read_is_a_lake_error_of_each_method(lake: str) -> None:
    opened = Lake(lake)
    for path in pathlib.Path(lake).glob("_delta_log/*.json"):
        path.write_text("{", encoding="utf-8")
    for use in (opened.manifests, lambda: opened.manifest("i0"), lambda: opened.forget(["i0"])):
        with pytest.raises(LakeError, match=r"cannot be (read|written): none of its commits"):
            use()


def test_a_log_without_a_commit_is_no_lake_yet(fresh: pathlib.Path) -> None:
    """Delta makes the folder of the log, writes the first commit under another name, and gives it its own."""
    log = fresh / "_delta_log"
    log.mkdir(parents=True)
    log.joinpath(f"{0:020}.json#1").write_text("{", encoding="utf-8")
    assert Lake(str(fresh), create=True).manifests() == []
    with pytest.raises(LakeError, match="is not a stackfleet lake: it has no log of commits in '_delta_log'"):
        Lake(str(fresh))
    add(str(fresh), "i0")
    assert counted(str(fresh)) == {"i0": STACKS}


def test_files_whose_log_is_lost_are_no_new_lake(lake: str) -> None:
    for path in pathlib.Path(lake).glob("_delta_log/*"):
        path.unlink()
    with pytest.raises(LakeError, match="cannot be written: none of its commits can be read"):
        add(lake, "i3")


def test_images_that_are_replaced_together_are_looked_up_once(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, snapshot = Lake(lake), Store.snapshot
    images = [NewImage(item) for item in opened.manifests()]
    seen: List[int] = []

    def counting(store: Store, writing: bool = False) -> Snapshot:
        seen.append(1)
        return snapshot(store, writing)

    monkeypatch.setattr(Store, "snapshot", counting)
    opened.add_together(images)
    assert len(images) == 3 and len(seen) == 1
    assert counted(lake) == {}


def test_other_readers_take_it_as_it_is(lake: str) -> None:
    """As docs/fleet.md shows: nothing of this project is needed."""
    frame = polars.scan_delta(lake).filter(polars.col("Table") == "traces").select("ImageId").collect()
    assert frame.height == 3 * STACKS
    rows = DeltaTable(lake).to_pyarrow_dataset()
    sql = "SELECT count(*) FROM rows WHERE \"Table\" = 'findings' AND Severity = 'high'"
    with duckdb.connect() as connection:
        assert connection.register("rows", rows).execute(sql).fetchall() == [(3,)]


def test_an_old_lake_is_refused_in_a_sentence(tmp_path: pathlib.Path) -> None:
    for name in ("manifest", "tables"):
        (tmp_path / "lake" / name).mkdir(parents=True)
    done = called("status", tmp_path / "lake")
    assert (done.returncode, "Read the images into a new lake" in done.stderr) == (2, True)


def test_a_bucket_is_a_lake(bucket: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("i0", "i1"):
        add(bucket, name)
    with pytest.raises(LakeError, match="another run"):
        add(bucket, "i1")
    add(bucket, "i1", stack="nt!B", before="attempt")
    done = called("sql", bucket, "SELECT Stack FROM traces", "--format", "csv")
    assert done.returncode == 0 and "nt!A 7" in done.stdout and "nt!B 7" in done.stdout, done.stderr
    called("compact", bucket, code=0)
    called("forget", bucket, "i0", code=0)
    done = called("status", bucket, "--verify", "--format", "csv")
    assert (done.returncode, done.stdout.count("/images/")) == (0, 1), done.stderr
    assert not list(tmp_path.iterdir())
    nowhere = called("status", bucket.replace("://", "://no"))
    assert (nowhere.returncode, "404" in nowhere.stderr) == (2, True), nowhere.stderr


def test_a_command_on_a_bucket_ends_before_the_interpreter_does(bucket: str) -> None:
    """Else threads of Arrow may release objects of Python too late, which aborts the command."""
    add(bucket, "i0")
    code = (
        "import atexit; atexit.register(print, 'the interpreter ends')\n"
        "from stackfleet.__main__ import main; raise SystemExit(main())"
    )
    words = [sys.executable, "-c", code, "sql", bucket, "SELECT Stack FROM traces", "--format", "csv"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "nt!A 7" in done.stdout, done
    assert "the interpreter ends" not in done.stdout


def test_a_killed_writer_and_two_at_once_in_a_bucket(bucket: str) -> None:
    """An image that was done stays done; nothing is there twice."""
    code = (
        "import sys; from tests.fleet import test_lake\n"
        "for number in range(99): test_lake.add(sys.argv[1], f'k{number}')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, bucket], stderr=subprocess.DEVNULL) as process:
        wait(lambda: _some(bucket, 2))
        process.kill()
    done = counted(bucket)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        refused = pool.starmap(_adds, [(bucket, [*done, "s0", "s1"], False)] * 2)
    assert [set(done) <= set(part) for part in refused] == [True, True]
    assert_whole(bucket, *done, "s0", "s1")


def test_a_run_into_a_bucket_goes_on_where_it_was_killed(bucket: str, few: Fleet) -> None:
    run = ("run", *few.paths, "-o", bucket, "--workers", 1, *few.options)
    with started(*run) as process:
        wait(lambda: process.poll() is not None or _some(bucket, 0))
        process.kill()
    done = len(counted(bucket))
    again = fleet(*run)
    assert (again.returncode, len(counted(bucket))) == (0, 3), again.stderr
    assert done and f"{done} image{'s were' if done > 1 else ' was'} done before" in again.stderr


def _some(bucket: str, least: int) -> bool:
    """Whether a bucket has more images than these; false where it has no lake yet."""
    with contextlib.suppress(Exception):
        return len(counted(bucket)) > least
    return False


def test_a_store_that_has_no_such_bucket(bucket: str) -> None:
    nowhere = f"{bucket.partition(':')[0]}://nowhere/lake"
    done = called("status", nowhere)
    code = {"s3": "NoSuchBucket", "az": "ContainerNotFound"}[nowhere.partition(":")[0]]
    assert (done.returncode, nowhere in done.stderr, done.stderr.endswith(f": {code}\n")) == (2, True, True)


@pytest.mark.parametrize(
    "name", ["S3://bucket/lake", "s3:/bucket/lake", "s3://", "s3:///lake", "http://host/lake"]
)
def test_what_means_an_object_store_is_no_folder(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LakeError, match="a lake is a folder, or in an object store: SCHEME://BUCKET/PATH"):
        Lake(name, create=True)


@pytest.mark.parametrize("value", ["127.0.0.1:9000", "http://", "http://two words"])
def test_the_name_of_a_server_that_is_no_url(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltalake panics at each."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", value)
    with pytest.raises(
        LakeError, match=re.escape(f"AWS_ENDPOINT_URL is no URL such as https://HOST:PORT: '{value}'")
    ):
        Lake("s3://bucket/lake")


def test_the_folder_may_be_moved(lake: str, tmp_path: pathlib.Path) -> None:
    moved = shutil.move(lake, tmp_path / "moved")
    called("status", moved, "--verify", code=0)
