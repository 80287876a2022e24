# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Many images in few files: the answers stay, what does not count goes, and logs are made anew."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import shutil
from typing import Any, Dict, List, Set

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stackfleet import keys, merging, questions
from stackfleet.agreement import Depth
from stackfleet.columns import to_stored
from stackfleet.database import Database
from stackfleet.entries import Entries
from stackfleet.forgetting import forget
from stackfleet.lake import Lake, LakeError
from stackfleet.layout import KEYS, TABLES, table_file
from stackfleet.manifests import Manifest
from stackfleet.merging import merge
from tests.support import fleetlakes
from tests.support.fleetrun import called
from tests.support.only import only

HOSTS, STACKS, SETS = 12, 40, 7


def image_tables(chance: random.Random, host: int) -> Dict[str, Any]:
    """The tables of an image: some keys are on all hosts, some on few, some on this one only."""
    numbers = [
        chance.choice((chance.randrange(10), 10 + host * 50 + chance.randrange(30))) for _ in range(STACKS)
    ]
    sets = {number % SETS for number in numbers}
    # A third of the hosts have another version of each module than the rest, and each has one of its own.
    versions = {number: 10 * number + int(host % 3 == 0) for number in range(1, 5)}
    listed = {number: sorted(versions[1 + (number + more) % 4] for more in range(2)) for number in sets}
    listed[0] = [1000 + host] if host % 2 else listed.get(0, [versions[1]])
    halves = {
        number: (number * 0x9E3779B97F4A7C15 % (1 << 64), set_number(listed[number % SETS]))
        for number in numbers
    }
    return {
        "traces": [
            {
                "StackKey": "".join(f"{half:016x}" for half in halves[number]),
                "ShapeKey": f"{number // 4:032x}",
                "Stack": f"m!f{number}",
                "ModuleSet": set_number(listed[number % SETS]),
                "Unbacked": int(number % 9 == 0),
                "Kind": "std" if number % 5 else "heap",
            }
            for number in numbers
        ],
        "modules": [
            {"Version": version, "Module": f"m{version}"}
            for version in sorted({version for numbers in listed.values() for version in numbers})
        ],
        "modulesets": [
            {"ModuleSet": set_number(numbers), "Versions": numbers}
            for numbers in {tuple(numbers) for numbers in listed.values()}
        ],
    }


def set_number(versions: Any) -> int:
    """The number of a set: it is in the key of a stack, too, which has the versions of its modules in it."""
    return hash(tuple(versions)) & 0x7FFFFFFFFFFFFFFF


@pytest.fixture(scope="module")
def singles(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A lake in which each image has files of its own."""
    folder, chance = tmp_path_factory.mktemp("merging") / "lake", random.Random(36)
    lake = fleetlakes.new_lake(folder)
    kept: List[Manifest] = []
    for number in range(HOSTS):
        kept.append(
            fleetlakes.keep(lake, f"i{number:02}", host=f"pc-{number}", **image_tables(chance, number))
        )
        lake.keep(kept[-1])
    lake.enter(kept)
    lake.publish(fleetlakes.manifest("u1", {}, status="failed", reason="no kernel"))
    return folder


@pytest.fixture
def lake(singles: pathlib.Path, tmp_path: pathlib.Path) -> Lake:
    return Lake(str(shutil.copytree(singles, tmp_path / "lake")))


def answers(lake: Lake) -> Dict[str, Any]:
    """The rows of all views in their order, and what is rare."""
    found: Dict[str, Any] = {}
    with Database(lake) as database:
        for table in TABLES:
            found[table] = sorted(database.rows(f"FROM {table}"), key=lambda row: row["ImageId"])
        found[KEYS].sort(key=repr)
        for by in questions.KEYS:
            found[by] = list(database.rows(questions.rare(by, (), 3, 0, database.images, False).sql))
    return found


def files(lake: Lake, table: str = "traces") -> List[str]:
    return sorted(path.name for path in (lake.folder / "tables" / table).glob("*.parquet"))


def test_answers_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with images on both sides of the end of a file, and if a batch becomes part of another one."""
    before = answers(lake)
    assert before["StackKey"] and before["ShapeKey"]
    monkeypatch.setattr(merging, "PART_ROWS", 100)
    monkeypatch.setattr(merging, "GROUP_ROWS", 30)
    assert merge(lake, "run").images == 0
    assert merge(lake, "run", least=HOSTS).images == HOSTS
    assert len(files(lake)) > 2 and all(file.startswith("batch") for file in files(lake))
    assert answers(lake) == before
    fleetlakes.add(lake, "i05more", host="pc-x")
    known = answers(lake)
    assert merge(lake, "again", everything=True).images == HOSTS + 1
    assert answers(lake) == known
    assert merge(lake, "again", everything=True).images == 0
    assert not lake.contents(Depth.CONTENT).damaged


def test_what_is_rare_is_what_plain_python_counts(singles: pathlib.Path) -> None:
    """Counted anew from the rows of traces and modules, without any SQL."""
    lake = Lake(str(singles))
    with Database(lake) as database:
        traces = list(database.rows("FROM traces"))
        has: Dict[int, Set[str]] = {}
        for row in database.rows("SELECT Version, ImageId FROM modules"):
            has.setdefault(row["Version"], set()).add(row["ImageId"])
        listed = {row["ModuleSet"]: row["Versions"] for row in database.rows("FROM modulesets")}
        for by in questions.KEYS:
            shown = list(database.rows(questions.rare(by, (), 3, 0, database.images, False).sql))
            hosts: Dict[str, Set[str]] = {}
            among: Dict[str, Set[str]] = {}
            for row in traces:
                hosts.setdefault(row[by], set()).add(row["ImageId"])
                images = set.intersection(*(has[version] for version in listed[row["ModuleSet"]]))
                among.setdefault(row[by], set()).update(images)
            expected = {
                key: (len(images), len(among[key])) for key, images in hosts.items() if len(images) <= 3
            }
            assert {row[by]: (row["Hosts"], row["Among"]) for row in shown} == expected
            shares = [(not row["Comparable"], row["Hosts"] / row["Among"]) for row in shown]
            assert shares == sorted(shares)
            for limit in (1, len(shown) // 2):
                first = database.rows(questions.rare(by, (), 3, limit, database.images, False).sql)
                assert [row[by] for row in first] == [row[by] for row in shown[:limit]]


def test_another_engine_counts_the_same(singles: pathlib.Path) -> None:
    polars = pytest.importorskip("polars")
    tables = singles / "tables"
    counted = polars.scan_delta(str(tables / "manifests")).select("ImageId", "Attempt")
    rows = polars.scan_delta(str(tables / KEYS)).join(counted, on=["ImageId", "Attempt"], how="semi")
    few = (
        rows.filter(polars.col("Sure") & polars.col("StackHigh").is_not_null())
        .group_by("StackHigh", "StackLow")
        .agg(polars.col("HostKey").n_unique().alias("Hosts"))
        .filter(polars.col("Hosts") <= 3)
        .collect()
    )
    with Database(Lake(str(singles))) as database:
        shown = database.rows(questions.rare("StackKey", (), 3, 0, database.images, False).sql)
        ours = {(*keys.halves(row["StackKey"]), row["Hosts"]) for row in shown}
    assert ours == set(few.rows())


def test_keys_are_counted_anew_where_their_table_is_damaged(lake: Lake) -> None:
    before = answers(lake)
    merge(lake, "run", everything=True)
    name = only(files(lake, KEYS))
    os.truncate(lake.folder / "tables" / KEYS / name, 100)
    assert not lake.contents().damaged
    assert not lake.contents().counted
    assert answers(lake) == before


def test_what_is_forgotten_is_in_no_file(lake: Lake) -> None:
    merge(lake, "run", everything=True)
    with lake.alone():
        forgotten = forget(lake, ["i03", "i07.raw"], "forget")
        assert (set(forgotten.names), forgotten.unreadable) == ({"i03", "i07"}, [])
    for table in TABLES:
        for name in files(lake, table):
            there = pq.read_table(lake.folder / "tables" / table / name).column("ImageId").to_pylist()
            assert {"i03", "i07"}.isdisjoint(there)
    assert len(lake.contents(Depth.CONTENT).manifests) == HOSTS - 1
    assert not lake.contents(Depth.CONTENT).damaged


def image_ids(lake: Lake, table: str) -> Set[str]:
    """The images with rows in any file of a table that can be read."""
    found: Set[str] = set()
    for name in files(lake, table):
        with contextlib.suppress(pa.ArrowInvalid):
            path = lake.folder / "tables" / table / name
            found.update(pq.read_table(path).column("ImageId").to_pylist())
    return found


def test_what_is_forgotten_of_a_damaged_batch_is_in_no_file_that_can_be_read(lake: Lake) -> None:
    """A batch of which a file is damaged stays, as other images need it."""
    merge(lake, "run", everything=True)
    batch = only(files(lake))
    os.truncate(lake.folder / "tables" / "traces" / batch, 100)
    others = {f"i{number:02}" for number in range(HOSTS)} - {"i03"}
    done = called("forget", lake.folder, "i03")
    assert (done.returncode, done.stdout) == (3, "i03 is forgotten: /images/i03.raw\n")
    assert f"tables/traces/{batch} is damaged, and may still have rows" in done.stderr
    for table in ("image", "modules", KEYS):
        assert image_ids(lake, table) == others
    assert {manifest.image_id for manifest in lake.contents(Depth.CONTENT).damaged} == others
    assert {"SHA-256" in finding.reason for finding in lake.contents(Depth.CONTENT).damaged} == {False}
    done = called("forget", lake.folder, *sorted(others))
    assert (done.returncode, done.stderr) == (0, "")
    assert [image_ids(lake, table) for table in TABLES] == [set()] * len(TABLES)
    assert not files(lake)


def test_what_is_forgotten_beside_a_damaged_manifest_is_in_no_file(lake: Lake) -> None:
    merge(lake, "run", everything=True)
    entries = Entries(lake.folder)
    entries.put([entries.by_id["i05"]._replace(manifest="{}")])
    assert forget(lake, ["i03"], "forget").unreadable == []
    for table in TABLES:
        assert "i03" not in image_ids(lake, table)
    assert "i05" in image_ids(lake, "traces")


def test_compact_shortens_logs(lake: Lake) -> None:
    before = answers(lake)
    assert called("compact", lake.folder).returncode == 0
    for table in (*TABLES, "manifests"):
        assert len(list((lake.folder / "tables" / table / "_delta_log").glob("*.json"))) == 1
    assert answers(lake) == before
    fleetlakes.add(lake, "i99", host="pc-99")
    assert not lake.contents(Depth.CONTENT).damaged


def test_another_attempt_takes_the_place_of_rows_in_a_batch(lake: Lake) -> None:
    merge(lake, "run", everything=True)
    before = answers(lake)
    known = lake.manifest("i04")
    assert known is not None
    rows = {}
    for table in TABLES:
        path = table_file(str(lake.folder), table, "i04", "second")
        found = [fleetlakes.arrow(table, "i04", [{"ComputerName": "pc-4"}])] if table == "image" else []
        batch = pa.record_batch(found[0].combine_chunks().to_batches()[0]) if found else None
        empty = pa.record_batch(
            [pa.array([], column.type) for column in merging.stored(table)], merging.stored(table)
        )
        merged_table = empty if batch is None else to_stored(table, batch, "second")
        pq.write_table(pa.Table.from_batches([merged_table]), path)
        rows[table] = merged_table.num_rows
    lake.publish({**known, "attempt": "second", "tables": lake.tables("i04", "second", rows)})
    for _ in range(2):
        after = answers(lake)
        for table in ("traces", "modules", KEYS):
            assert after[table] == [row for row in before[table] if row["ImageId"] != "i04"]
        merge(lake, "run")
    assert len(files(lake)) == 2
    assert not lake.contents(Depth.CONTENT).damaged


def test_a_batch_that_is_damaged_is_named_and_stays(lake: Lake) -> None:
    merge(lake, "run", everything=True)
    fleetlakes.add(lake, "i99", host="pc-99")
    name = only(file for file in files(lake) if file.startswith("batch"))
    os.truncate(lake.folder / "tables" / "traces" / name, 100)
    contents = lake.contents()
    assert [manifest["image_id"] for manifest in contents.manifests if manifest["tables"]] == ["i99"]
    assert len(contents.damaged) == HOSTS
    done = called("compact", lake.folder)
    assert (done.returncode, done.stderr.count("not merged: ")) == (3, HOSTS)
    assert name in files(lake)


def test_files_that_were_changed_become_no_batch(lake: Lake) -> None:
    path = table_file(str(lake.folder), "traces", "i02", "attempt")
    data = path.read_bytes()
    path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    merged = merge(lake, "run", everything=True)
    assert [(finding.image_id, "SHA-256" in finding.reason) for finding in merged.damaged] == [("i02", True)]
    assert merged.images == HOSTS - 1
    assert path.name in files(lake)
    done = called("compact", lake.folder)
    assert (done.returncode, done.stderr.count("not merged: ")) == (3, 1)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("table", ["traces", "manifests"])
def test_a_log_that_cannot_be_read_is_made_anew(table: str, batch: bool, lake: Lake) -> None:
    if batch:
        merge(lake, "run", everything=True)
    before = answers(lake)
    for path in (lake.folder / "tables" / table / "_delta_log").iterdir():
        path.write_bytes(b"")
    if table == "manifests":
        with pytest.raises(LakeError, match="run rebuilds it"):
            lake.contents()
    else:
        assert len(lake.contents().damaged) == HOSTS
    assert lake.mend() == [table]
    assert answers(lake) == before
    assert not lake.contents(Depth.CONTENT).damaged


@pytest.mark.parametrize("data", [b"", b"{", bytes(300)])
def test_a_torn_commit_takes_its_own_images_only(data: bytes, lake: Lake) -> None:
    """A power failure may leave the last commit of any log without its content."""
    fleetlakes.add(lake, "i98", host="pc-98")
    last = max((lake.folder / "tables" / "traces" / "_delta_log").glob("*.json"))
    last.write_bytes(data)
    assert [manifest.image_id for manifest in lake.contents().damaged] == ["i98"]
    fleetlakes.add(lake, "i99", host="pc-99")
    assert [manifest.image_id for manifest in lake.contents().damaged] == ["i98"]
    fleetlakes.add(lake, "i98", host="pc-98")
    assert not lake.contents().damaged
