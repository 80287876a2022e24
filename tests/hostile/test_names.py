# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names that were chosen to harm who reads them come out harmless, from every plugin and renderer."""

from __future__ import annotations

import pathlib

import pytest

from tests.hostile import plugins
from tests.hostile.names import NAMES
from tests.hostile.tier2 import Subject


@pytest.mark.parametrize("kernel", ["win10-x64", "xp-x86"])
def test_every_plugin(kernel: str, tmp_path: pathlib.Path) -> None:
    subject = Subject(f"names-{kernel}", tmp_path)
    shown = set()
    for plugin in subject.plugins:
        outcome = subject.base(plugin, plugins.switches(plugin)).outcome
        assert not outcome.wrong
        shown |= {value for row in outcome.rows for value in row if isinstance(value, str)}
    text = "\n".join(shown)
    assert all(name not in text for name in NAMES if not name.isprintable())
    assert "\\x1b[31mred" in text
    assert "\\u202egnp" in text
