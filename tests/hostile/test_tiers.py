# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A fixed portion of each tier. All of them, and others: `python3 -m tests.hostile --tier N --seed S`."""

from __future__ import annotations

import subprocess
import sys
from typing import Iterable

import pytest

from tests.conftest import ROOT
from tests.hostile import decoders, tier1, tier2, tier3
from tests.hostile.forking import Violation
from tests.support.deep import rounds

SEED = "fixed"
DECODER_RUNS = rounds(30, 8)
"""Of each decoder."""
PLUGIN_RUNS = rounds(5, 2)
"""On each of some images."""
SUBJECTS = ("sample", "owners-win10-x64", "stacks-win10-x64", "heaps-win10-x64")
COMMAND_RUNS = rounds(4, 2)


def _none(found: Iterable[Violation]) -> None:
    wrong = [violation.what for violation in found if not violation.slow]
    assert not wrong, "\n".join(wrong)


def test_decoders() -> None:
    parts = tier1.parts(SEED, range(DECODER_RUNS * len(decoders.targets())))
    _none(violation for part in parts for violation in part())


@pytest.mark.parametrize("name", SUBJECTS)
def test_plugins(name: str) -> None:
    _none(tier2.run_subject(name, SEED, range(PLUGIN_RUNS)))


@pytest.mark.cli
@pytest.mark.once
def test_command_line() -> None:
    _none(tier3.run_subject("sample", SEED, range(COMMAND_RUNS)))


@pytest.mark.parametrize("name", ["tests.hostile", "tests.hostile.tamper"])
def test_the_commands_find_our_plugins(name: str) -> None:
    """As SECURITY.md has them: without pytest, which knows the folder of the plugins already."""
    command = [sys.executable, "-m", name, "--help"]
    assert "--seed" in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
