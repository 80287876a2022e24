# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs Volatility's real command line on an image file."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
from typing import Dict, List, Optional, Sequence, Tuple

from volatility3 import schemas

from . import isf, warm

REPOSITORY = warm.ROOT
PLUGINS = warm.PLUGINS

Row = dict


class Result:
    """What a run gave: `rows` (JSON renderer only; children in `__children`), texts, exit code.

    Asking for the rows of a run that failed is an AssertionError that shows what it printed.
    """

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.stdout = done.stdout
        self.stderr = done.stderr
        self.returncode = done.returncode

    @property
    def rows(self) -> list[Row]:
        if self.returncode:
            raise AssertionError(f"vol ended with {self.returncode}\n{self.stdout}\n{self.stderr}")
        return list(json.loads(self.stdout))

    @property
    def flat(self) -> list[Row]:
        """All rows, parents before their children, depth first."""
        return list(_walk(self.rows))


def _walk(rows: list[Row]) -> list[Row]:
    return [entry for row in rows for entry in [row, *_walk(row.get("__children", []))]]


def trust(symbols: pathlib.Path, cache: pathlib.Path) -> None:
    """Records the tables as valid, once: checking a kernel's against the schema takes seconds.

    So with those of the plugins, which Volatility would check in each run that has a new cache.
    """
    record = cache / "valid_isf.hashcache"
    if not record.exists():
        record.parent.mkdir(parents=True, exist_ok=True)
        tables = [isf.load(path) for path in sorted(symbols.rglob("*.json*"))]
        hashes = [schemas.create_json_hash(table.data) for table in tables]
        record.write_text(json.dumps([*hashes, *_own_hashes()]))


@functools.lru_cache(maxsize=None)
def _own_hashes() -> Tuple[Optional[str], ...]:
    paths = sorted((REPOSITORY / "symbols").rglob("*.json"))
    return tuple(schemas.create_json_hash(isf.load(path).data) for path in paths)


def prepare(
    image: pathlib.Path,
    plugin: str,
    *options: str,
    symbols: pathlib.Path,
    renderer: str = "json",
    plugins: Optional[pathlib.Path] = PLUGINS,
    arguments: Sequence[str] = (),
    cache: Optional[pathlib.Path] = None,
) -> Tuple[List[str], Dict[str, str]]:
    """The command of `run` and its environment."""
    cache = cache or symbols.with_name(symbols.name + ".cache")
    trust(symbols, cache)
    script = pathlib.Path(sys.executable).with_name("vol")
    command = [sys.executable, str(script), "-q", "--offline", "-r", renderer]
    command += ["-s", str(symbols), "--cache-path", str(cache), "-f", str(image)]
    if plugins is not None:
        command += ["-p", str(plugins)]
    return [*command, *arguments, plugin, *options], {**os.environ, **home(cache)}


def home(folder: pathlib.Path) -> Dict[str, str]:
    """The variables by which Volatility finds its cache and vol.json: both are in this folder."""
    return dict.fromkeys(("XDG_CACHE_HOME", "HOME", "APPDATA"), str(folder))


def run(
    image: pathlib.Path,
    plugin: str,
    *options: str,
    symbols: pathlib.Path,
    renderer: str = "json",
    plugins: Optional[pathlib.Path] = PLUGINS,
    arguments: Sequence[str] = (),
    cache: Optional[pathlib.Path] = None,
    cwd: Optional[pathlib.Path] = None,
    timeout: float = 300,
) -> Result:
    """`vol -q --offline -r RENDERER ... PLUGIN OPTIONS` in a process of its own (see `warm`).

    Args:
        symbols: a private, writable symbol directory (Volatility writes into it).
        plugins: directory for `-p`, None for none.
        arguments: more options before the plugin's name.
        cache: cache directory; default: one beside `symbols`, since each goes with one symbol
            directory.
        cwd: where files that the plugin writes go; default: beside the symbols.
    """
    command, environment = prepare(
        image,
        plugin,
        *options,
        symbols=symbols,
        renderer=renderer,
        plugins=plugins,
        arguments=arguments,
        cache=cache,
    )
    # The server has imported the plugins of this checkout, and no others.
    call = warm.call if plugins == PLUGINS else _run
    return Result(call(command, environment, str(cwd or symbols), timeout))


def _run(
    command: List[str], environment: Dict[str, str], cwd: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment, cwd=cwd, check=False
    )
