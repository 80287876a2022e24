# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stacks of an image that lost 30 % of the pages of its modules, with the files."""

from __future__ import annotations

import pathlib

from tests.support.filedstacks import score


def test_files_bring_back_the_frames_that_are_lost(tmp_path: pathlib.Path) -> None:
    """On x86, where code is all that tells of a frame; on x64 a small dump shows it (`tests/minidump`)."""
    found = score("win7-x86", 1, tmp_path, of_files=True)
    assert found.without < 0.8 * found.whole
    assert found.back >= 0.9
    assert found.wrong == set()
    assert found.named == found.given
