# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Removes images from a lake: images replaced under their path, or added by mistake."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from .contents import Contents
from .lake import Lake, LakeError
from .merging import merge
from .planning import WrongUseError
from .tablelog import LogError


def forget(lake: Lake, selectors: Sequence[str], run: str) -> dict[str, str]:
    """Removes the manifests and rows of images; returns the names of the images by ImageId.

    Args:
        lake: the lake, to which nobody else writes
        selectors: complete ImageIds, or paths or names of files
        run: name of the run under which new files with the rows of other images are recorded

    Raises:
        WrongUseError: one of the selectors names no image; nothing was removed
        LakeError: a file cannot be removed
    """
    contents, names = lake.contents(), {}
    for selector in selectors:
        named = _images(contents, selector)
        if not named:
            raise WrongUseError(
                f"{selector} names no image of this lake: use a complete ImageId, a path or a file name"
            )
        names.update(named)
    try:
        lake.take_out(names)
    except (LogError, OSError) as error:
        raise LakeError(f"{lake.folder}: the lake cannot be written: {error}") from error
    merge(lake, run)
    return names


def _images(contents: Contents, selector: str) -> dict[str, str]:
    """Returns the names of the images that a selector matches, by ImageId."""
    matches = {}
    for manifest in contents.manifests:
        names = (manifest["image_id"], manifest["path"], pathlib.PurePath(manifest["path"]).name)
        if selector in names:
            matches[manifest["image_id"]] = manifest["path"]
    for image in contents.damaged:
        path = "" if image.manifest is None else image.manifest["path"]
        if selector in (image.image_id, path, pathlib.PurePath(path).name):
            matches[image.image_id] = path or image.reason
    return matches
