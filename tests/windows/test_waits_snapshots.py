# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""windows.waits: the threads of ../shared/waits in forged images."""

from __future__ import annotations

import pathlib

import pytest
from volatility3.plugins.windows import waits

from tests.forge import context
from tests.support import waitimages, waitrows

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("label,share", waitrows.CASES)
def test_every_wait(label: str, share: int, tmp_path: pathlib.Path) -> None:
    for snapshot in waitrows.some(label, share):
        opened = context.open_image(waitimages.image_of(snapshot), tmp_path)
        rows = opened.rows(waits.WaitChains, fold=True)
        assert not waitrows.wrong(snapshot, rows), (snapshot.story, snapshot.number)
