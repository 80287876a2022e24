# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`stackfleet run`: what it reads, what it passes over, and what it refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import pathlib
import shlex
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, Set, Tuple

import pytest
from deltalake import DeltaTable

from stackfleet import lake as lake_module
from stackfleet.lake import Lake, NewImage
from stackfleet.manifests import unopened
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet, Machine, new_fleet
from tests.support.fleetnight import Run
from tests.support.fleetrun import called, fleet, manifests, rows
from tests.support.only import only

NOWHERE = os.path.join(os.devnull, "a")
"""A folder that nothing can make: Volatility makes a folder of symbols where it may download."""


@pytest.fixture(scope="module")
def lake(few: Fleet, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A lake of three images."""
    lake_folder = tmp_path_factory.mktemp("lake") / "lake"
    fleet("run", *few.paths, "-o", lake_folder, *few.options, code=0)
    return lake_folder


@pytest.fixture
def mine(lake: pathlib.Path, fresh: pathlib.Path) -> pathlib.Path:
    """A copy of it, into which `run` reads."""
    return pathlib.Path(shutil.copytree(lake, fresh))


def attempts(lake: pathlib.Path) -> Dict[str, str]:
    return {name: manifest["attempt"] for name, manifest in manifests(lake).items()}


def test_done_images_are_passed_over(few: Fleet, mine: pathlib.Path, run: Run) -> None:
    before = attempts(mine)
    assert "3 images were done before" in run(*few.paths).stderr
    assert attempts(mine) == before


def test_left_over_files_go_and_are_never_read(mine: pathlib.Path) -> None:
    expected = rows(mine, "traces")
    left = [mine / "Table=traces" / name for name in ("part-0.parquet", "part-00001-cut-c000.snappy.parquet")]
    for path in left:
        path.write_bytes(b"half a file")
        os.utime(path, (0, 0))
    assert rows(mine, "traces") == expected
    fleet("compact", mine, code=0)
    assert not any(path.exists() for path in left)
    assert rows(mine, "traces") == expected


def test_other_options_redo_and_say_so(few: Fleet, mine: pathlib.Path, run: Run) -> None:
    done = run(few.paths[0], "--carve", "--sha256")
    assert "1 image is read again: the options differ" in done.stderr
    found = manifests(mine)[pathlib.Path(few.paths[0]).name]
    assert found["reading"]["carve"] is True
    assert len(found["files"][0]["sha256"]) == 64
    assert len(rows(mine, "image")) == 3


def test_a_redo_that_fails_leaves_what_is_done(few: Fleet, mine: pathlib.Path, run: Run) -> None:
    image, expected = few.paths[0], rows(mine, "traces")
    run(image, "--carve", variables={"STACKFLEET_FULL": "1"}, code=3)
    assert rows(mine, "traces") == expected
    stdout = fleet("status", mine, "--format", "csv").stdout
    assert "File too large" in stdout, stdout
    assert stdout.count(image) == 2
    assert "1 image has failed before" in run(image, "--carve", code=None).stderr
    run(image, "--carve", "--retry-failed")
    assert fleet("status", mine, "--format", "csv").stdout.count(image) == 1
    assert manifests(mine)[pathlib.Path(image).name]["reading"]["carve"] is True


def test_other_versions_redo_and_say_so(few: Fleet, mine: pathlib.Path, run: Run) -> None:
    for known in manifests(mine).values():
        known["versions"]["volatility3"] = "1"
        fleetlakes.put_manifest(Lake(str(mine)), known)
    assert "1 image is read again: the version of volatility3 was 1" in run(few.paths[0]).stderr


def test_failed_images_are_tried_again_only_if_asked(
    few: Fleet, fresh: pathlib.Path, run: Run, tmp_path: pathlib.Path
) -> None:
    image = tmp_path / "a.dmp"
    image.write_bytes(b"no image")
    run(image, code=3)
    first = attempts(fresh)
    assert manifests(fresh)["a.dmp"]["image_id"] == unopened(str(image))
    assert "--retry-failed" in run(image, code=3).stderr
    assert attempts(fresh) == first
    run(image, "--retry-failed", code=3)
    assert attempts(fresh)["a.dmp"] != first["a.dmp"]
    # Once it can be opened it has an ImageId, and only one manifest.
    shutil.copy(few.paths[0], image)
    run(image)
    assert only(Lake(str(fresh)).manifests())["status"] == "done"


def test_an_attempt_that_may_succeed_is_repeated(
    fresh: pathlib.Path, run: Run, tmp_path: pathlib.Path
) -> None:
    image = tmp_path / "a.raw"
    image.write_bytes(b"WAIT" + bytes(1 << 16))
    before = datetime.datetime.now(datetime.timezone.utc)
    done = run(image, "--timeout", "2", "--retries", "1", code=3)
    found = manifests(fresh)["a.raw"]
    assert "--timeout" in found["reason"]
    assert done.stderr.count("failed") == 1
    # The manifest is that of the second attempt, and the first took two seconds.
    assert (datetime.datetime.fromisoformat(found["started"]) - before).total_seconds() > 2


def test_a_copy_is_read_whole_before_it_is_passed_over(
    few: Fleet, mine: pathlib.Path, run: Run, tmp_path: pathlib.Path
) -> None:
    same = shutil.copy(few.paths[0], tmp_path / "same.dmp")
    run(same)
    assert len(manifests(mine)) == 3
    assert manifests(mine)[pathlib.Path(few.paths[0]).name]["copies"] == [str(same)]
    assert "1 image was done before" in run(same).stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
@pytest.mark.parametrize("name", ["a\nb.dmp", "a\u3000b.dmp"])
def test_a_copy_of_an_image_whose_path_is_not_shown_as_it_is(
    name: str, few: Fleet, fresh: pathlib.Path, run: Run, tmp_path: pathlib.Path
) -> None:
    """The path is escaped in Files of the image, and was looked up so: the copy was a second image."""
    first = shutil.copy(few.paths[0], tmp_path / name)
    run(first)
    same = shutil.copy(first, tmp_path / "same.dmp")
    run(same)
    known = only(manifests(fresh).values())
    assert (known["copies"], [file["path"] for file in known["files"]]) == ([str(same)], [str(first)])


def test_two_images_that_differ_in_one_page_that_was_not_sampled(
    few: Fleet, fresh: pathlib.Path, run: Run, tmp_path: pathlib.Path
) -> None:
    """The middle of an image of which only pieces are in the ImageId."""
    images = [tmp_path / "a.dmp", tmp_path / "b.dmp"]
    data = bytearray(pathlib.Path(few.paths[0]).read_bytes())
    # So large that 4096 blocks of 4 KiB leave gaps.
    data += bytes((1 << 26) - len(data))
    images[0].write_bytes(data)
    data[(1 << 25) + 0x3000] = 1
    images[1].write_bytes(data)
    run(*images, "--workers", "2")
    first, renamed = sorted(manifests(fresh).values(), key=lambda known: known["identity"] is not None)
    assert first["identity"] is None
    assert renamed["identity"]["own"] == first["image_id"] != renamed["image_id"]
    assert renamed["identity"]["of"] == first["path"]
    assert "unequal" in renamed["identity"]["compared"]
    assert {row[0] for row in rows(fresh, "image")} == {first["image_id"], renamed["image_id"]}
    assert len({row[0] for row in rows(fresh, "traces")}) == 2


def test_an_image_whose_file_was_moved_is_not_taken_for_a_copy(
    few: Fleet, fresh: pathlib.Path, run: Run, tmp_path: pathlib.Path
) -> None:
    first = pathlib.Path(shutil.copy(few.paths[0], tmp_path / "a.dmp"))
    run(first)
    run(first.rename(tmp_path / "b.dmp"))
    assert "not compared" in manifests(fresh)["b.dmp"]["identity"]["compared"]


WRONG: List[Tuple[str, Tuple[str, ...]]] = [
    ("run IMAGE -o ftp://bucket/lake", ("ftp://bucket/lake: a lake is a folder",)),
    ("run /nowhere/a.dmp -o NEW", ("/nowhere/a.dmp cannot be read",)),
    (f"run {os.curdir} -o NEW", ("is a folder: only dumps (*.dmp) in it are read",)),
    (f"run {os.devnull} -o NEW", ("is not a file",)),
    *(
        (f"run IMAGE -o NEW {option} {NOWHERE}", (f"{option}: there is no folder",))
        for option in ("--symbol-dirs", "--plugin-dirs", "--binaries")
    ),
    (f"export LAKE --to ecs --binaries {NOWHERE}", ("--binaries: there is no folder",)),
    ("run IMAGE -o NEW --timeout soon", ("soon",)),
    (f"run IMAGE -o NEW --memory {'9' * 400}", ("--memory",)),
    ("run IMAGE -o NEW --retries -1", ("--retries: -1 is not a number from 0",)),
    ("rare NEW --limit -1", ("--limit: -1 is not a number from 0",)),
    *((f"run IMAGE -o NEW --shard {shard}", ("--shard",)) for shard in ("0/2", "3/2", "1", "a/b")),
    ("status NEW", ("is not a stackfleet lake",)),
    ("status IMAGE", (".dmp: it is not a folder, and a lake is one",)),
    ("run IMAGE -o IMAGE", ("no lake can be created here",)),
    ("rare ftp://bucket/lake", ("ftp://",)),
    ("nonsense", ("nonsense",)),
    ("", ("COMMAND",)),
    # A wrong word is answered by the right ones.
    *(
        (f"{command} --kind nosuch", ("nosuch", "std", "handle"))
        for command in ("rare LAKE", "diff LAKE a b", "export LAKE --to jsonl")
    ),
    ("findings LAKE --severity urgent", ("urgent", "high", "medium", "low")),
    ("export LAKE --to jsonl --table nosuch", ("nosuch", "traces", "frames")),
    ("sql LAKE 'SELECT * FROM nosuch'", ("nosuch", "traces", "frames", "manifests", "hosts")),
    ("sql LAKE 'SELECT * FROM manifests, nosuch'", ("nosuch", "traces", "frames", "hosts")),
    # An option that would do nothing is refused.
    ("export LAKE --to folded --table frames", ("--table",)),
    ("export LAKE --to jsonl --binaries .", ("--binaries",)),
    ("export LAKE --to jsonl --table frames --kind user", ("--kind",)),
    ("rare LAKE --by Driver --kind kernel", ("kind",)),
    ("rare LAKE --by BugCheck --partial", ("partial",)),
]


@pytest.mark.parametrize(("line", "messages"), WRONG)
def test_wrong_use(
    line: str, messages: Tuple[str, ...], few: Fleet, lake: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    words = {"IMAGE": few.paths[0], "LAKE": str(lake), "NEW": str(tmp_path / "lake")}
    done = fleet(*(words.get(word, word) for word in shlex.split(line)), code=2)
    assert done.stdout == ""
    assert all(message in done.stderr for message in messages), done.stderr


def test_two_runs_at_once_share_a_lake(few: Fleet, fresh: pathlib.Path, run: Run) -> None:
    """Each reads some images alone, and one that both read is in the lake once."""
    with ThreadPoolExecutor() as pool:
        assert len(list(pool.map(lambda paths: run(*paths), (few.paths[:2], few.paths[1:])))) == 2
    run(*few.paths)
    assert len(rows(fresh, "image")) == 3
    fleet("status", fresh, "--verify", code=0)


@pytest.mark.parametrize("alike", [True, False])
def test_what_another_run_adds_meanwhile_is_done_if_it_was_read_alike(
    alike: bool, few: Fleet, fresh: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Lake.add

    def behind(self: Lake, image: NewImage) -> None:
        of_theirs = {"attempt": "theirs", **({} if alike else {"reading_digest": "other"})}
        add(self, dataclasses.replace(image, manifest={**image.manifest, **of_theirs}))
        add(self, image)

    monkeypatch.setattr(Lake, "add", behind)
    done = called("run", few.paths[0], "-o", fresh, *few.options, code=0 if alike else 3)
    assert "another run has added this image" in done.stderr
    assert ("the next run reads it again" in done.stderr) == (not alike)
    assert [manifest["attempt"] for manifest in manifests(fresh).values()] == ["theirs"]
    monkeypatch.undo()
    done = called("run", few.paths[0], "-o", fresh, *few.options)
    assert (done.returncode, "1 image was done before" in done.stderr) == (0, alike)


def test_shards_together_are_all_images(few: Fleet, fresh: pathlib.Path, run: Run) -> None:
    for shard, number in (("1/2", 2), ("2/2", 3)):
        run(*few.paths, "--shard", shard)
        assert len(rows(fresh, "image")) == number


def test_where_the_plugins_are_can_be_said(
    few: Fleet, fresh: pathlib.Path, run: Run, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "plugins" / "windows"
    folder.mkdir(parents=True)
    (folder / "traces.py").write_text("raise ImportError('the plugins of this folder were used')\n")
    run(few.paths[0], "--plugin-dirs", folder.parent, code=3)
    assert "the plugins of this folder were used" in only(manifests(fresh).values())["log"]


def test_a_machine_of_each_name(tmp_path: pathlib.Path) -> None:
    """Names of files may have any character."""
    machines = new_fleet(tmp_path / "images")
    machines.add(Machine(1), "it's a; [b] {c} é")
    machines.ready()
    lake = tmp_path / "the 'lake'"
    fleet("run", *machines.paths, "-o", lake, *machines.options, code=0)
    assert len(rows(lake, "image")) == 1


def _listed(cache: pathlib.Path) -> Set[str]:
    """The symbol tables in a folder's tree that Volatility lists in its cache, by name of file."""
    found = only(cache.rglob("identifier.cache"))
    with contextlib.closing(sqlite3.connect(found)) as database:
        return {name for (name,) in database.execute("SELECT location FROM cache WHERE local = 1")}


def test_runs_with_other_symbol_folders_leave_each_other_their_tables(
    few: Fleet, tmp_path: pathlib.Path
) -> None:
    """Volatility takes the tables of other folders off its list: a lake has a list of its own."""
    home = tmp_path / "home"
    variables = {"XDG_CACHE_HOME": str(home), "APPDATA": str(home)}
    folders = {tmp_path / "one": few.symbols, tmp_path / "other": tmp_path / "tables"}
    shutil.copytree(few.symbols, tmp_path / "tables")

    def run(lake: pathlib.Path) -> None:
        options = ("--symbol-dirs", folders[lake], "--offline", "--workers", 1)
        fleet("run", few.paths[0], "-o", lake, *options, variables=variables, code=0)

    with ThreadPoolExecutor() as pool:
        assert len(list(pool.map(run, folders))) == 2
    for lake, symbols in folders.items():
        assert len(rows(lake, "image")) == 1
        assert [path.parent.parent for path in lake.rglob("identifier.cache")] == [lake / "_cache"]
        tables = {path.as_uri() for path in symbols.rglob("*.json*")}
        assert tables
        assert tables <= _listed(lake)
    assert not list(home.rglob("identifier.cache"))


def test_files_are_merged_while_a_run_goes_on(
    few: Fleet, fresh: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of many images would else have six files for each, and look at all of them in each commit."""
    monkeypatch.setattr(lake_module, "SMALL_FILES", 2)
    called("run", *few.paths, "-o", fresh, "--workers", 1, *few.options, code=0)
    operations = [item["operation"] for item in DeltaTable(str(fresh)).history()]
    assert operations.count("OPTIMIZE") > 1
    called("status", fresh, "--verify", code=0)
