# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Takes images out of a lake: what was replaced under its path, or was not meant to be there."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from .contents import Contents
from .lake import Lake, LakeError
from .merging import merge
from .planning import WrongUseError
from .tablelog import LogError


def forget(lake: Lake, selectors: Sequence[str], run: str) -> dict[str, str]:
    """Removes the manifests and rows of images; returns what these were called, by ImageId.

    Args:
        lake: the lake, which nobody else writes to
        selectors: whole ImageIds, or paths or names of files
        run: under which it is kept what new files with the rows of others have

    Raises:
        WrongUseError: one of them names no image; nothing was removed then
        LakeError: something cannot be removed
    """
    contents, found = lake.contents(), {}
    for selector in selectors:
        named = _images(contents, selector)
        if not named:
            raise WrongUseError(f"{selector} is no ImageId, path or name of a file of an image in this lake")
        found.update(named)
    try:
        lake.take_out(found)
    except (LogError, OSError) as error:
        raise LakeError(f"{lake.folder}: the lake cannot be written: {error}") from error
    merge(lake, run)
    return found


def _images(contents: Contents, selector: str) -> dict[str, str]:
    """Returns the images that a selector names: what they are called, by ImageId."""
    found = {}
    for manifest in contents.manifests:
        names = (manifest["image_id"], manifest["path"], pathlib.PurePath(manifest["path"]).name)
        if selector in names:
            found[manifest["image_id"]] = manifest["path"]
    for each in contents.damaged:
        path = "" if each.manifest is None else each.manifest["path"]
        if selector in (each.image_id, path, pathlib.PurePath(path).name):
            found[each.image_id] = path or each.reason
    return found
