# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a task is told: which image, how it is to be read, and within which limits."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from typing import Any, Optional

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Reading:
    """How images are read. Each field decides what tables hold: another one means that images are redone.

    Attributes:
        plugin_dirs: folders of plugins, before those of Volatility
        symbol_dirs: folders of symbol tables, before those of Volatility
        cache_path: where Volatility caches; None for a folder in the lake, one for each machine
        offline: whether Volatility downloads nothing at all
        fetch_symbols: whether symbols of user modules are downloaded
        carve: freed and orphan traces, too
        scan_stacks: stacks from trap frames that only a scan finds, too
        scan_threads: threads that only a pool scan finds, too
        scan_processes: processes that only a pool scan finds, too
        processors: stacks of processors that were idle, too
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
        """Returns what tells these options from others, that of the cache apart."""
        said = dataclasses.asdict(dataclasses.replace(self, cache_path=None))
        if not self.binaries:
            # Lakes that were made before there was this option stay as they are.
            del said["binaries"]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What an attempt at an image may take.

    Attributes:
        seconds: None for no limit
        memory: bytes of resident memory of the process and its children; None for no limit
        retries: further attempts after one that failed in a way that may pass
    """

    seconds: Optional[float] = None
    memory: Optional[int] = None
    retries: int = 0


@dataclasses.dataclass(frozen=True)
class Custody:
    """What the manifest says of the run.

    Attributes:
        case: of --case
        note: of --note
        run: name of the run
    """

    case: str = ""
    note: str = ""
    run: str = ""


@dataclasses.dataclass(frozen=True)
class Job:
    """One image.

    Attributes:
        path: of the image, absolute
        size: of the file in bytes
        modified: its time of modification in ns
        probe: what `custody.probe` says of its content
        lake: folder of the lake, absolute
        reading: how it is read
        limits: what it may take
        custody: what the manifest says of the run
        replaces: ImageIds under which the path was read when the file had other content
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


def to_json(value: Any) -> dict[str, Any]:
    """Returns a record as JSON has it."""
    made: dict[str, Any] = dataclasses.asdict(value)
    return made


def reading(said: dict[str, Any]) -> Reading:
    """Returns options from their JSON, in which tuples are lists."""
    plain: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in said.items()
    }
    return Reading(**plain)


def plugin_folders(asked: tuple[str, ...]) -> list[str]:
    """Returns the folders of plugins: those asked for, and that of the tree in which this package lies."""
    beside = HERE.parent / "volatility3_plugins"
    return [*asked, *([str(beside)] if beside.is_dir() else [])]
