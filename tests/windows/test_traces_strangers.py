# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Callbacks of running systems that nobody here wrote: ReactOS, whose kernels have timer tables of NT 5.2."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pytest

from tests.forge import vol
from tests.support.strangers import IMAGES, unpacked

pytestmark = [pytest.mark.shared, pytest.mark.cli]

ALWAYS = "nt!IopTimerDispatch"
"""The kernel's timer for drivers, which runs from boot on."""
COMPLETING, QUEUED = "ros-running", "nt!IopCompleteRequest"
"""The image in which an I/O request is about to be completed, and the routine of the APC that is queued."""


@pytest.mark.parametrize("packed", IMAGES, ids=lambda path: path.name.partition(".")[0])
def test_each_timer_leads_into_code_of_a_loaded_module(packed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    image = unpacked(packed, tmp_path)

    def rows(*words: str) -> List[Dict[str, Any]]:
        return list(vol.run(image, *words, symbols=tmp_path / "symbols").rows)

    frames = rows("windows.traceframes", "--kinds", "callback")
    assert len(frames) >= 3
    assert {(row["Backing"], row["How"], row["Sp"], row["Status"]) for row in frames} == {
        ("image", "awaited", None, "")
    }
    assert ALWAYS in {row["Symbol"] for row in frames}
    if packed.name.startswith(COMPLETING):
        assert QUEUED in {row["Symbol"] for row in frames}
    found = rows(
        "windows.tracefindings", "--check", "kernel_no_module", "kernel_unloaded", "section_not_code"
    )
    assert [row for row in found if row["Kind"] == "callback"] == []
    assert [row for row in found if "callback" in (row["Evidence"] or "")] == []
