# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs Volatility's own `main` many times in one process that has imported everything once.

Each run is a fork. Those of one image share a parent that has opened the image before, so that a few things
need not be done again that come out the same each time: see `Shortcuts`. All else is the real command line.
"""

from __future__ import annotations

import inspect
import os
import pathlib
import resource
import signal
import sys
import tempfile
import traceback
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple, Type

import volatility3.plugins
from volatility3 import cli, framework, schemas
from volatility3.cli import text_renderer
from volatility3.framework import constants, interfaces
from volatility3.framework.automagic import windows

CPU_SECONDS = 300
ADDRESS_SPACE = 6 << 30
OUTPUT = 32 << 20
"""Where a run is cut off, as some images yield rows without end: up to there it is the same each time."""
CORE = ("windows.info.Info", "windows.pslist.PsList", "windows.threads.Threads")
"""Plugins of Volatility itself that are wanted beside those of the tree."""

Plugins = Dict[str, Type[interfaces.plugins.PluginInterface]]


class Done(NamedTuple):
    """What a run gave: exit code (None: killed), bytes."""

    code: Any
    stdout: bytes
    stderr: bytes


class BothRenderer(text_renderer.CLIRenderer):
    """CSV and JSON of the same grid, CSV first: it shows the rows up to an exception."""

    name = "both"
    structured_output = True

    def get_render_options(self) -> List[Any]:
        """Nothing, as all renderers."""
        return []

    def render(self, grid: interfaces.renderers.TreeGrid) -> None:
        """Renders twice."""
        for kind in (text_renderer.CSVRenderer, text_renderer.JsonRenderer):
            made = kind()
            for name in ("filter", "column_hide_list"):
                setattr(made, name, getattr(self, name))
            made.render(grid)
            print(flush=True)


class Shortcuts:
    """What is not done again for each run, since it does not depend on the plugins of the tree.

    The folder of plugins is searched once, Volatility's parser knows only the plugins that are run, symbol
    tables are not checked against their schema, pages of zeros are not searched for references to themselves,
    and what a scan for the page tables or for a PDB found is kept from the opening before. `replay --plain`
    does without all this except for the check of the schema.
    """

    def __init__(self, plugins: Plugins, plain: bool = False) -> None:
        self.opening = False
        self._scans: Dict[Any, List[Any]] = {}
        self._scan = interfaces.layers.DataLayerInterface.scan
        schemas.valid = lambda *_, **__: True
        if plain:
            return
        failed = failures()
        framework.import_files = lambda *_: list(failed)
        framework.list_plugins = lambda: dict(plugins)
        interfaces.layers.DataLayerInterface.scan = self._scan_once()
        windows.DtbSelfReferential.__call__ = _passing_zeros(windows.DtbSelfReferential.__call__)

    def _scan_once(self) -> Callable[..., Any]:
        # It imports plugins: not before it is known where they are.
        from volatility3.framework.symbols.windows import pdbutil

        kept = (windows.PageMapScanner, pdbutil.PdbSignatureScanner)

        def scan(layer: Any, context: Any, scanner: Any, *rest: Any, **named: Any) -> Any:
            if not isinstance(scanner, kept):
                return self._scan(layer, context, scanner, *rest, **named)
            state = (
                tuple(map(type, scanner.tests)) if isinstance(scanner, kept[0]) else tuple(scanner._pdb_names)
            )
            sections = tuple(map(tuple, named.get("sections") or ()))
            where = (layer.name, type(layer), layer.config.get("page_map_offset"), layer.maximum_address)
            key = (*where, type(scanner), state, sections)
            if key in self._scans:
                return list(self._scans[key])
            found = list(self._scan(layer, context, scanner, *rest, **named))
            if self.opening:
                self._scans[key] = found
            return found

        return scan

    def forget(self) -> None:
        """Drops what was found in an image."""
        self._scans.clear()


def _passing_zeros(function: Callable[..., Any]) -> Callable[..., Any]:
    zeros = bytes(0x1000)

    def test(self: Any, data: bytes, data_offset: int, page_offset: int) -> Any:
        if data[page_offset : page_offset + 0x1000] == zeros:
            return None
        return function(self, data, data_offset, page_offset)

    return test


def load(folder: pathlib.Path) -> Plugins:
    """Imports all plugins; returns those of the folder and the CORE ones by their names."""
    volatility3.plugins.__path__ = [str(folder), *constants.PLUGINS_PATH]
    failures()
    found: Plugins = {}
    for name, plugin in framework.list_plugins().items():
        place = pathlib.Path(inspect.getfile(plugin)).resolve()
        if name in CORE or folder.resolve() in place.parents:
            found[name] = plugin
    return found


def failures() -> List[str]:
    """Imports all plugins; returns the names of modules that cannot be."""
    return sorted(framework.import_files(volatility3.plugins, True))


def call(words: Sequence[str], folder: pathlib.Path) -> Done:
    """Runs the command line in a fork, in a folder."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _run(words, folder, out.fileno(), err.fileno())
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return Done(os.WEXITSTATUS(status) if os.WIFEXITED(status) else None, out.read(), err.read())


def _run(words: Sequence[str], folder: pathlib.Path, out: int, err: int) -> None:
    """The child: never returns."""
    code = 120
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        signal.alarm(CPU_SECONDS * 3)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT, OUTPUT))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
        cli.console.setStream(sys.stderr)
        code = main(words)
        sys.stdout.flush()
    finally:
        os._exit(code)


def main(words: Sequence[str]) -> int:
    """What Python does with `vol`: runs it, and makes an exit code of how it ends."""
    sys.argv = ["vol", *words]
    cli.CommandLine.CLI_NAME = "vol"
    try:
        cli.CommandLine().run()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except Exception:  # noqa: BLE001  (Python itself would show any)
        traceback.print_exc()
        return 1
    return 0


def open_once(words: Sequence[str], shortcuts: Shortcuts) -> None:
    """Opens an image in this process, so that the forks need not search it again."""
    shortcuts.opening = True
    said = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout = sys.stderr = nowhere
        cli.console.setStream(nowhere)
        try:
            main([*words, CORE[0]])
        finally:
            sys.stdout, sys.stderr = said
            cli.console.setStream(sys.stderr)
            shortcuts.opening = False


def files(folder: pathlib.Path) -> Iterator[Tuple[str, pathlib.Path]]:
    """Yields the files below a folder by their names there."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix(), path
