# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a run of Volatility's command line costs: processor time and the most memory it held.

Things that are compared run in turns (A B A B), and the cheapest run of each counts: other work of the
machine can only add to the cost of a run.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Callable, List, NamedTuple, Optional, Sequence

from tests.forge.vol import REPOSITORY

from .images import Image

_HERE = pathlib.Path(__file__).resolve().parent


class Cost(NamedTuple):
    """Processor time (user and system) in seconds; the largest resident size in megabytes (2^20 bytes)."""

    seconds: float
    memory: float


class Run(NamedTuple):
    """A run of the command line: its cost and what it printed."""

    cost: Cost
    output: str


class RunFailedError(RuntimeError):
    """A measured command did not end well: its figures would mean nothing."""


def vol(
    image: Image,
    plugin: str,
    *options: str,
    renderer: str = "quick",
    keep: bool = False,
    tree: pathlib.Path = REPOSITORY,
) -> Run:
    """Runs `vol ... PLUGIN OPTIONS` in a process of its own.

    Args:
        image: the image
        plugin: one of Volatility's, ours or of `benchmarks/plugins`
        options: of the plugin
        renderer: how the rows are printed
        keep: return what is printed
        tree: the checkout whose plugins run
    """
    arguments = arguments_of(image, renderer, tree, plugin)
    return launched([*arguments, plugin, *options], image.cache, keep=keep, output_folder=True)


OWN = {
    "windows.work": "plugins",
    "windows.floor": "plugins",
    "minidump.opening": "plainplugins",
}
"""The plugins of benchmarks, and their folders. Those of `plugins` import the library at the start of each
command that finds them, which users do not pay for."""


def arguments_of(image: Image, renderer: str, tree: pathlib.Path = REPOSITORY, plugin: str = "") -> List[str]:
    """Returns the arguments of `vol` that go before the name of a plugin."""
    plugins = str(tree / "volatility3_plugins")
    own = next((folder for name, folder in OWN.items() if plugin.startswith(name)), "")
    if own:
        plugins += f";{tree / 'benchmarks' / own}"
    arguments = ["-q", "--offline", "-r", renderer, "-f", str(image.file), "-s", str(image.symbols)]
    return [*arguments, "--cache-path", str(image.cache), "-p", plugins]


def launched(
    arguments: Sequence[str],
    cache: pathlib.Path,
    python: Sequence[str] = (),
    keep: bool = False,
    output_folder: bool = False,
) -> Run:
    """Runs `vol ARGUMENTS` in a process of its own.

    Args:
        arguments: as the command line takes them
        cache: where Volatility keeps what it caches
        python: options of Python itself
        keep: return what is printed
        output_folder: give it a folder for the files that it writes, which are thrown away
    """
    executable = pathlib.Path(sys.executable).with_name("vol")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *python, str(executable), *(["-o", folder] if output_folder else [])]
        return measured([*command, *arguments], keep, XDG_CACHE_HOME=str(cache))


def measured(
    command: Sequence[str], keep: bool = False, cwd: Optional[pathlib.Path] = None, **variables: str
) -> Run:
    """Runs a command; what it costs has all processes in it for which it waits.

    Args:
        command: the command
        keep: return what is printed
        cwd: the folder in which it runs
        variables: of its environment
    """
    with tempfile.TemporaryDirectory() as folder:
        files = {name: pathlib.Path(folder) / name for name in ("cost", "output", "errors")}
        environment = dict(os.environ, **variables)
        # Users have Volatility's bytecode cached, whatever the machine that measures is set to.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        whole = [sys.executable, str(_HERE / "launch.py"), str(files["cost"]), *command]
        with files["output"].open("wb") as output, files["errors"].open("wb") as errors:
            subprocess.run(whole, stdout=output, stderr=errors, env=environment, cwd=cwd, check=True)
        figures = json.loads(files["cost"].read_text(encoding="utf-8"))
        if figures["code"]:
            raise RunFailedError(files["errors"].read_text(encoding="utf-8"))
        text = files["output"].read_text(encoding="utf-8") if keep else ""
    return Run(Cost(figures["seconds"], figures["memory"]), text)


def in_turns(works: Sequence[Callable[[], Cost]], repeats: int) -> List[Cost]:
    """Returns the cheapest run of each of several works, which take turns."""
    runs: List[List[Cost]] = [[work() for work in works] for _ in range(repeats)]
    return [min(column, key=lambda cost: cost.seconds) for column in zip(*runs)]
