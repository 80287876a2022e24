# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The data sets of real heaps: memory of a process as ntdll left it, and what is in it."""

from __future__ import annotations

import functools
import json
import pathlib
import tarfile
from typing import Any, Dict, NamedTuple, Tuple

from volatility3.plugins.windows.tracing.decode import extents

NAMES = ("7601.24384-x64-heap", "19044.1766-x64-heap")


class HeapSet(NamedTuple):
    """A data set: its truth and its regions (address, bytes, what it is)."""

    truth: Dict[str, Any]
    regions: Tuple[Tuple[int, bytes, str], ...]

    @property
    def memory(self) -> extents.Extents:
        return extents.Extents((address, data) for address, data, _ in self.regions)


@functools.lru_cache(maxsize=None)
def load(folder: pathlib.Path, name: str) -> HeapSet:
    """Reads a set from its archive in the folder of reference data."""
    with tarfile.open(folder / "real_std" / f"{name}.tar.xz") as archive:
        files = {
            pathlib.PurePosixPath(member.name).name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
            if member.isfile()
        }
    truth = json.loads(files["truth.json"])
    regions = [(region["va"], files[region["file"]], region["what"]) for region in truth["regions"]]
    return HeapSet(truth, tuple(regions))
