# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Tests that repeat a claim on more cases.

Each of these runs some cases by `python3 dev.py test`, and all by `.ci/run`: on more images and kernels, with
more damage, for more orders of events. They have the marker `deep`, which `-m "not install"` takes in.
"""

from __future__ import annotations

import collections
from typing import Counter, Dict, List

import pytest

FIRST: Dict[str, int] = {
    "tests/golden/test_golden.py::test_outputs": 8,
    "tests/hostile/test_names.py::test_every_plugin": 0,
    "tests/hostile/test_sample.py::test_what_is_silent_cannot_be_told": 1,
    "tests/hostile/test_tiers.py::test_command_line": 0,
    "tests/hostile/test_tiers.py::test_plugins": 1,
    "tests/hostile/test_undamaged.py::test_of_a_forged_image": 4,
    "tests/hostile/test_undamaged.py::test_of_a_real_set": 2,
    "tests/minidump/test_of_images.py": 2,
}
"""How many cases of a test, or of each test of a file, run by default: the first ones."""


def mark(items: List[pytest.Item]) -> None:
    """Gives the marker `deep` to the cases of tests that do not run by default."""
    seen: Counter[str] = collections.Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        seen[name] += 1
        most = FIRST.get(name, FIRST.get(name.partition("::")[0]))
        if most is not None and seen[name] > most:
            item.add_marker("deep")
