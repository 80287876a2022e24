# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images of a few megabytes that claim to hold gigabytes: the work is in proportion to what they hold.

What it takes in seconds is measured by `python3 -m tests.hostile --tier 4`.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.hostile.amplifiers import AMPLIFIERS, MOST
from tests.hostile.tier4 import Amplified


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_amplifier(name: str, tmp_path: pathlib.Path) -> None:
    amplified = Amplified(name, tmp_path)
    done, messages, error = amplified.count()
    assert not error, error
    cut = AMPLIFIERS[name].cut
    assert not cut or any(cut in message for message in messages), messages
    assert MOST[AMPLIFIERS[name].plugin].exceeded(done, amplified.size) == []
