# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The list of published techniques, and planting. `python -m tests.machines` plants them all."""

from __future__ import annotations

import pathlib
import re
from typing import Set

import pytest

from tests.support.clean.host64 import Host64
from tests.support.findingimages import found

from . import machines
from .techniques import Technique, all_techniques

TECHNIQUES = all_techniques()
DOCS = pathlib.Path(__file__).parents[2] / "docs" / "tracefindings.md"


def test_there_are_fifty_techniques_and_each_has_a_source() -> None:
    assert len(TECHNIQUES) >= 50
    assert len({technique.name for technique in TECHNIQUES}) == len(TECHNIQUES)
    for technique in TECHNIQUES:
        assert re.search(r"\b(19|20)\d\d\b|\bT1\d\d\d\b", technique.source), technique.name


def test_the_page_has_their_number() -> None:
    shown = sum(technique.shown for technique in TECHNIQUES)
    number = f"{len(TECHNIQUES)} published techniques (stacks can show {shown} of them)"
    assert number in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("technique", [TECHNIQUES[0], TECHNIQUES[-2]], ids=lambda technique: technique.name)
def test_a_planted_technique_is_found(technique: Technique) -> None:
    """In a machine of one process more."""
    host = Host64(machines.KERNEL)
    planted = technique.plant(host)
    image = host.kernel.image()
    technique.change(planted)
    rows = found(image)
    assert {row["Severity"] for row in rows if row["PID"] in (planted.pid, 0)} & {"high", "medium"}


def test_which_pages_are_missing_goes_by_the_seed_and_the_page() -> None:
    """A machine with a process more has lost the same."""
    lost: list[Set[int]] = []
    for more in (False, True):
        host = Host64(machines.KERNEL)
        program = host.program("first.exe", functions="main")
        program.waits("main", "kernelbase!WaitForSingleObjectEx")
        if more:
            host.program("second.exe", functions="main")
        before = set(program.process.space.own_pages())
        assert machines.lose(host, 7) > 0
        lost.append(before - set(program.process.space.own_pages()))
    assert lost[0] == lost[1]
    assert lost[0]
