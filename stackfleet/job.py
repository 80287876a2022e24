# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The description of a task: the image, the options for reading it, and the limits."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from typing import Any, Optional

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Reading:
    """The options for reading images. Each decides the content of tables: a new value redoes images.

    Attributes:
        plugin_dirs: folders of plugins, searched before Volatility's
        symbol_dirs: folders of symbol tables, searched before Volatility's
        cache_path: folder of Volatility's cache; None for a folder in the lake, one for each machine
        offline: whether Volatility downloads nothing at all
        fetch_symbols: whether symbols of user modules are downloaded
        carve: whether to add freed and orphan traces
        scan_stacks: whether to add stacks from trap frames that only a scan finds
        scan_threads: whether to add threads that only a pool scan finds
        scan_processes: whether to add processes that only a pool scan finds
        processors: whether to add stacks of idle processors
        sha256: whether all files of an image are hashed
        binaries: folders with files of modules
    """

    plugin_dirs: tuple[str, ...] = ()
    symbol_dirs: tuple[str, ...] = ()
    cache_path: Optional[str] = None
    offline: bool = False
    fetch_symbols: bool = False
    carve: bool = False
    scan_stacks: bool = False
    scan_threads: bool = False
    scan_processes: bool = False
    processors: bool = False
    sha256: bool = False
    binaries: tuple[str, ...] = ()

    def digest(self) -> str:
        """Returns a digest of these options, except the cache folder."""
        options = dataclasses.asdict(dataclasses.replace(self, cache_path=None))
        return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of an attempt at an image.

    Attributes:
        seconds: time limit; None for no limit
        memory: limit in bytes of resident memory of the process and its children; None for no limit
        retries: number of further attempts after a failure that may be temporary
    """

    seconds: Optional[float] = None
    memory: Optional[int] = None
    retries: int = 0


@dataclasses.dataclass(frozen=True)
class Custody:
    """The manifest's entries about the run: values of --case and --note, and its name."""

    case: str = ""
    note: str = ""
    run: str = ""


@dataclasses.dataclass(frozen=True)
class Job:
    """The job of reading one image.

    Attributes:
        path: absolute path of the image
        modified: its time of modification in ns
        probe: result of `provenance.probe` for the file
        lake: absolute path of the lake's folder, or its URI
        replaces: ImageIds under which the path was read when the file had another content
    """

    path: str
    size: int
    modified: int
    probe: str
    lake: str
    reading: Reading
    limits: Limits = Limits()
    custody: Custody = Custody()
    replaces: tuple[str, ...] = ()


def reading(options: dict[str, Any]) -> Reading:
    """Returns options from their JSON form, in which tuples are lists."""
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    return Reading(**plain)


def plugin_folders(folders: tuple[str, ...]) -> list[str]:
    """Returns the folders of plugins: the requested folders, and the one in this package's source tree."""
    tree_folder = HERE.parent / "volatility3_plugins"
    return [*folders, *([str(tree_folder)] if tree_folder.is_dir() else [])]
