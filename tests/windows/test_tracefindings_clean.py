# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.tracefindings` over images of a Windows in which nothing is wrong: nothing above `low`."""

from __future__ import annotations

import pathlib
from typing import Dict, List, Tuple

import pytest
from volatility3.plugins.windows import tracefindings, traces

from tests.forge import context
from tests.forge.context import Opened
from tests.support import grid
from tests.support.clean import images
from tests.support.clean.images import KERNELS, Clean
from winstacks.columns.words import CERTAIN
from winstacks.findings.finding import LOW

Built = Tuple[Clean, Opened]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Built]:
    forged_images = {}
    for name in KERNELS:
        clean = images.build(name)
        forged_images[name] = clean, context.open_image(clean.kernel.image(), tmp_path_factory.mktemp(name))
    return forged_images


MOST_ALARMS = 2
"""The most alarms of a machine's innocent processes where three pages of ten are missing."""


def alarms(opened: Opened, scan: bool) -> List[str]:
    """What is found above `low`."""
    rows = [node.row for node in grid.run(opened, tracefindings.TraceFindings, scan=scan)]
    return [
        f"{row['Severity']} {row['Confidence']} {row['Finding']} {row['Process']} {row['TID']} {row['Kind']} "
        f"{row['Symbol']} "
        f"{row['How']}: {row['Evidence']}"
        for row in rows
        if row["Severity"] not in (LOW, None)
    ]


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_found_above_low(name: str, scan: bool, built: Dict[str, Built]) -> None:
    assert not alarms(built[name][1], scan)


@pytest.mark.parametrize("name", KERNELS)
def test_every_situation_is_there(name: str, built: Dict[str, Built]) -> None:
    """A test of nothing cannot fail: the stacks show what they are about."""
    clean, opened = built[name]
    shown: Dict[Tuple[int, int, str], List[str]] = {}
    for node in grid.run(opened, traces.StackTraces):
        row = node.row
        names = [word.rpartition("+")[0] or word for word in (row["Stack"] or "").split("; ")]
        shown.setdefault((row["PID"], row["TID"], row["Kind"]), []).extend(names)
    for situation, stacks in clean.shows.items():
        for stack in stacks:
            found = iter(shown[stack.pid, stack.tid, stack.kind])
            assert all(function in found for function in stack.functions), (situation, stack)


def test_there_are_sixty_processes(built: Dict[str, Built]) -> None:
    assert sum(clean.processes for clean, _ in built.values()) >= 60


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", KERNELS)
def test_where_three_pages_of_ten_are_missing(name: str, seed: int, tmp_path: pathlib.Path) -> None:
    """What is lost lowers Confidence and not Severity: no alarm is certain, and few processes have one."""
    clean = images.build(name)
    assert images.lose_pages(clean, seed) >= 30
    found = alarms(context.open_image(clean.kernel.image(), tmp_path), scan=False)
    assert len(found) <= MOST_ALARMS and not [alarm for alarm in found if f" {CERTAIN} " in alarm], found
