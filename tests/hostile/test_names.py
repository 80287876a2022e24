# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names that were chosen to harm who reads them come out harmless, from every plugin and renderer."""

from __future__ import annotations

import pathlib
from typing import Set

import pytest

from tests.forge import context
from tests.forge.context import Opened
from tests.hostile import forking, pluginruns, plugins, subjects
from tests.hostile.names import NAMES
from tests.support import poolscans


@pytest.mark.parametrize("kernel", ["win10-x64", "xp-x86"])
def test_every_plugin(kernel: str, tmp_path: pathlib.Path) -> None:
    opened = context.open_image(subjects.BUILDERS[f"names-{kernel}"](), tmp_path)
    report = forking.call(lambda: _texts(opened))
    assert not report.error, report.error
    text = "\n".join(report.value)
    assert all(name not in text for name in NAMES if not name.isprintable())
    assert "\\x1b[31mred" in text
    assert "\\u202egnp" in text


def _texts(opened: Opened) -> Set[str]:
    """Returns the texts of all rows, as every plugin and renderer takes them."""
    shown = set()
    with poolscans.made_once():
        for plugin in plugins.discover():
            outcome = pluginruns.perform(opened, plugin, plugins.switches(plugin))
            assert not outcome.wrong, (plugin, outcome.wrong)
            shown |= {value for row in outcome.rows for value in row if isinstance(value, str)}
    return shown
