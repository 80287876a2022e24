# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Frames of images with 30 % of the pages missing that come back with files of modules (--binaries)."""

from __future__ import annotations

import pathlib
from typing import List

from tests.support.clean import images
from tests.support.filedstacks import score

from .results import AT_LEAST, AT_MOST, Line

_GOAL = 0.9
"""The share of the frames that are lost for want of pages of modules which files bring back."""

_SEED = 1


def lines(folder: pathlib.Path) -> List[Line]:
    """Counts frames of every clean image: once pages of modules are missing, once pages of all kinds."""
    found = []
    for name in images.KERNELS:
        for of_files, pages in ((True, "pages of modules"), (False, "all pages")):
            scores = score(name, _SEED, folder / f"{name}-{of_files}", of_files)
            details = (
                f"sure: {scores.whole} in the whole image, {scores.without} without files, "
                f"{scores.given} with them, {scores.named} of these with the same name"
            )
            what = f"frames lost with 30 % of {pages} missing, {name}"
            goal = _GOAL if of_files else None
            found.append(Line(what, "those that files bring back", scores.back, goal, AT_LEAST, details))
            wrong = len(scores.wrong)
            found.append(
                Line(what, "sure with files, and wrong", wrong, 0, AT_MOST, f"{wrong} of {scores.given}")
            )
    return found
