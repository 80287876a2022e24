# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Many images in one run, as they come: every one ends in a manifest, and the plant is found."""

from __future__ import annotations

import collections
import json

from deltalake import DeltaTable

from stackfleet.lake import Depth, Lake
from tests.support.fleetnight import IMAGES, Night
from tests.support.fleetrun import children, fleet, manifests, runs
from tests.support.only import only


def test_every_image_ends_in_a_manifest(night: Night) -> None:
    found = manifests(night.lake)
    assert len(found) == IMAGES
    assert night.code == 3
    failed = {name: manifest["reason"] for name, manifest in found.items() if manifest["status"] == "failed"}
    assert "--timeout" in failed.pop("hangs.raw")
    assert "--memory" in failed.pop("eats.raw")
    for number in range(len(night.bad) - 2):
        assert "no Windows kernel" in failed.pop(f"garbage{number}.raw")
    # Of those that were overwritten at random some cannot be opened: their manifests say so.
    assert all("kernel" in reason or "Error" in reason for reason in failed.values()), failed
    assert f"{len(failed) + len(night.bad)} images are not done" in night.stderr
    assert not children()


def test_a_manifest_describes_its_rows(night: Night) -> None:
    requests = {record["image_id"]: record for record in runs(night.lake)}
    there = DeltaTable(str(night.lake)).to_pyarrow_table(columns=["Table", "ImageId"]).to_pylist()
    counts = collections.Counter((row["Table"], row["ImageId"]) for row in there)
    for manifest in manifests(night.lake).values():
        assert (manifest["case"], manifest["note"]) == ("night", "a test")
        assert "--case" in requests[manifest["run"]]["command"]
        assert {"stackfleet", "volatility3", "plugins", "pyarrow"} <= manifest["versions"].keys()
        assert manifest["started"] < manifest["ended"]
        assert manifest["memory"] > 0
        if manifest["status"] == "done":
            assert manifest["exit"] == "0"
            for name, table in manifest["tables"].items():
                assert counts[name, manifest["image_id"]] == table["rows"]
        else:
            assert manifest["tables"] == {}
    assert not Lake(str(night.lake)).contents(Depth.CONTENT).damaged


def test_nothing_else_is_in_the_lake(night: Night) -> None:
    named = {manifest["image_id"] for manifest in manifests(night.lake).values()}
    table = DeltaTable(str(night.lake))
    images = table.to_pyarrow_table(filters=[("Table", "!=", "runs")], columns=["ImageId"])
    assert set(images.column(0).to_pylist()) == named
    added = set()
    for path in night.lake.glob("_delta_log/*.json"):
        actions = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        added |= {action["add"]["path"] for action in actions if "add" in action}
    there = {path.relative_to(night.lake).as_posix() for path in night.lake.glob("Table=*/*")}
    assert there and there <= added


def test_the_plant_is_among_the_first_ten_of_what_is_rare(night: Night) -> None:
    shown = fleet("rare", night.lake, "--format", "jsonl", "--limit", "10")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert len(rows) == 10
    # What was overwritten at random may look like the plant.
    whole = [row for row in rows if night.overwritten.isdisjoint(row["Hostnames"])]
    plant = only(row for row in whole if row["Stack"].startswith("<no-module>"))
    assert plant["Hostnames"] == [night.planted.host]
    assert plant["Among"] >= 5
    assert "Stacks left out, without an exact key" in shown.stderr


def test_what_was_found_comes_worst_and_rarest_first(night: Night) -> None:
    shown = fleet("findings", night.lake, "--each", "--format", "jsonl", "--severity", "high")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert night.planted.host in [row["Host"] for row in rows if row["Finding"] == "kernel_no_module"]
    assert [row["Hosts"] for row in rows] == sorted(row["Hosts"] for row in rows)
    # The story of a finding, and the command that comes next.
    assert all(row["Group"] and row["Next"].startswith("vol ") for row in rows)
