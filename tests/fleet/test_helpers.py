# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One image read by several processes: what the lake has then, and what becomes of them."""

from __future__ import annotations

import os
import pathlib
import signal
from typing import Any, Dict, List, Tuple

import pytest

from stackfleet.layout import IMAGE, TABLES
from tests.forge import sample
from tests.support.fleetimages import Fleet, new_fleet
from tests.support.fleetrun import PATIENCE, children, fleet, helped, manifests, rows, started, wait

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals that Windows lacks")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """One image with stacks of all kinds."""
    fleet_of_one = new_fleet(tmp_path_factory.mktemp("one") / "images")
    fleet_of_one.add_image(sample.build().image(), "sample")
    fleet_of_one.ready()
    return fleet_of_one


@pytest.fixture(scope="module")
def alone(made: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, List[Tuple[Any, ...]]]:
    """The tables as one process writes them."""
    lake = tmp_path_factory.mktemp("alone") / "lake"
    assert fleet(*_run(made, lake, 0)).returncode == 0
    assert manifests(lake)["sample.dmp"]["helpers"] == []
    return tables(lake)


def _run(made: Fleet, lake: pathlib.Path, split: int) -> List[object]:
    image = made.folder / "sample.dmp"
    return ["run", image, "-o", lake, "--workers", 2, "--split", split, *made.options]


def tables(lake: pathlib.Path) -> Dict[str, List[Tuple[Any, ...]]]:
    return {name: rows(lake, name) for name in TABLES if name != IMAGE}


@pytest.mark.parametrize("how", ["", "die"])
def test_a_helper(how: str, made: Fleet, alone: Any, tmp_path: pathlib.Path) -> None:
    """Also if it dies with the share that it has taken."""
    lake = tmp_path / "lake"
    done = fleet(*_run(made, lake, 2), variables=helped(tmp_path, how), timeout=120)
    assert done.returncode == 0, done.stderr
    assert tables(lake) == alone
    found = manifests(lake)["sample.dmp"]
    [helper] = found["helpers"]
    assert helper["shares"] >= 1
    assert helper["exit"] == ("signal 9" if how else "0")
    assert bool(helper["reason"]) == bool(how)
    assert found["memory"] >= helper["memory"] > 0
    assert not (lake / "pieces").exists()


def test_a_helper_that_hangs_ends_with_the_image(made: Fleet, tmp_path: pathlib.Path) -> None:
    lake = tmp_path / "lake"
    done = fleet(*_run(made, lake, 2), "--timeout", 15, variables=helped(tmp_path, "hang"), timeout=15 + 60)
    assert done.returncode == 3
    assert "--timeout" in manifests(lake)["sample.dmp"]["reason"]
    wait(lambda: not children(), PATIENCE)
    assert not (lake / "pieces").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_helper_ends_with_the_program(number: int, made: Fleet, alone: Any, tmp_path: pathlib.Path) -> None:
    lake = tmp_path / "lake"
    with started(*_run(made, lake, 2), variables=helped(tmp_path, "hang")) as process:
        wait((tmp_path / "helped").exists)
        process.send_signal(number)
        wait(lambda: not children(), PATIENCE)
    assert fleet(*_run(made, lake, 0)).returncode == 0
    assert tables(lake) == alone
    assert not (lake / "pieces").exists()
