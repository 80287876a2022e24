# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images of a few megabytes that claim to hold gigabytes."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import context
from tests.hostile import forking, plugins
from tests.hostile.amplifiers import AMPLIFIERS
from tests.hostile.tier2 import MORE_MEGABYTES, MORE_SECONDS


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_amplifier(name: str, tmp_path: pathlib.Path) -> None:
    made = AMPLIFIERS[name]
    opened = context.open_image(made.build(), tmp_path)
    plugins.trust_tables()
    plugin = next(each for each in plugins.discover() if plugins.full_name(each) == f"windows.{made.plugin}")

    def run() -> float:
        before = forking.megabytes()
        grid = opened.construct(plugin, **made.options).run()
        for _ in grid._generator:
            pass
        return before

    report = forking.call(run, MORE_SECONDS + 2)
    assert not report.error, report.error
    assert report.seconds < MORE_SECONDS
    assert report.megabytes < report.value + MORE_MEGABYTES
