# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A plugin for pytest that keeps what the tests run our plugins on: images, tables, options, input files.

Runs of the command line are seen where `tests.forge.vol` prepares them, those in the test's own process
where `tests.forge.context` opens an image and constructs a plugin. An image whose file a test changes is kept
as it is at each run, and so is one whose bytes in memory a forked child damages (`tests.hostile.memory`).
"""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .corpus import DAMAGED, Corpus, table_set

FOLDER = "RECORD_CORPUS"
"""The environment variable that names the corpus."""

_TWO = ("json", "csv")


class Harvest:
    """What is put in the place of the functions of `vol` and `context`."""

    def __init__(self, folder: str) -> None:
        from tests.forge import context, dump, vol
        from tests.hostile import memory

        self._corpus = Corpus(pathlib.Path(folder))
        self._kinds: Dict[str, str] = {}
        self._opening: Optional[Any] = None
        self._root = vol.PLUGINS
        self._symbols = context.symbol_directory
        dump.Image.save = self._saving(dump.Image.save)  # type: ignore[method-assign]
        memory.install = self._installing(memory.install)
        vol.prepare = self._preparing(vol.prepare)
        context.open_image = self._opening_image(context.open_image)
        context.open_file = self._opening_file(context.open_file)
        context.Opened.construct = self._constructing(context.Opened.construct)  # type: ignore[method-assign]

    def _saving(self, function: Any) -> Any:
        @functools.wraps(function)
        def save(image: Any, path: pathlib.Path, *rest: Any, **named: Any) -> Any:
            kernel = image._kernel
            wow64 = any(each.wow is not None for each in kernel.processes)
            version = ".".join(map(str, kernel.version))
            form = path.name[path.name.index(".") :] if "." in path.name else ""
            self._kinds[str(path)] = f"{version} {image.bits}{' wow64' if wow64 else ''} {form}"
            return function(image, path, *rest, **named)

        return save

    def _preparing(self, function: Any) -> Any:
        @functools.wraps(function)
        def prepare(image: pathlib.Path, plugin: str, *options: str, **named: Any) -> Any:
            made = function(image, plugin, *options, **named)
            if named.get("plugins", self._root) == self._root:
                symbols = named["symbols"]
                tables = self._tables(symbols, sorted(symbols.rglob("*.json*")))
                arguments = self._words(named.get("arguments", ()))
                self._run(
                    image, tables, plugin, self._words(options), arguments, named.get("renderer", "json")
                )
            return made

        return prepare

    def _opening_image(self, function: Any) -> Any:
        @functools.wraps(function)
        def open_image(image: Any, *rest: Any, **named: Any) -> Any:
            self._opening = image
            try:
                return function(image, *rest, **named)
            finally:
                self._opening = None

        return open_image

    def _opening_file(self, function: Any) -> Any:
        @functools.wraps(function)
        def open_file(path: pathlib.Path) -> Any:
            image = self._opening
            opened = function(path)
            folder = self._symbols()
            if image is not None:
                files = [
                    folder / "windows" / each.pdb / f"{each.guid}-{each.age}.json" for each in image.tables
                ]
            else:
                beside = path.parent / "symbols"
                folder = beside if beside.is_dir() else folder
                files = sorted(folder.rglob("*.json*"))
            opened.recorded = (path, self._tables(folder, files))
            self._image(path, opened.recorded[1])
            return opened

        return open_file

    def _installing(self, function: Any) -> Any:
        @functools.wraps(function)
        def install(opened: Any, data: bytes) -> Any:
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                path = self._corpus.path(self._corpus.keep(pathlib.Path(file.name)))
            self._kinds[str(path)] = DAMAGED
            opened.recorded = (path, opened.recorded[1])
            return function(opened, data)

        return install

    def _constructing(self, function: Any) -> Any:
        @functools.wraps(function)
        def construct(opened: Any, plugin: Any, **options: Any) -> Any:
            made = function(opened, plugin, **options)
            place = getattr(opened, "recorded", None)
            if place is not None:
                path, tables = place
                name = plugin.__module__.rsplit(".", 1)[-1]
                self._run(path, tables, f"windows.{name}", self._as_words(options))
            return made

        return construct

    def _tables(self, folder: pathlib.Path, files: Sequence[pathlib.Path]) -> str:
        kept = sorted([path.relative_to(folder).as_posix(), self._corpus.keep(path)] for path in files)
        digest = table_set(kept)
        self._corpus.log("tables", {"digest": digest, "files": kept})
        return digest

    def _image(self, path: pathlib.Path, tables: str) -> str:
        digest = self._corpus.keep(path)
        kind = self._kinds.get(str(path), "")
        data = {"digest": digest, "name": path.name, "size": path.stat().st_size, "kind": kind}
        self._corpus.log("image", {**data, "tables": tables, "test": _test()})
        return digest

    def _run(
        self,
        path: pathlib.Path,
        tables: str,
        plugin: str,
        options: Optional[List[str]],
        arguments: Sequence[str] = (),
        renderer: str = "json",
    ) -> None:
        digest = self._image(path, tables)
        if options is None or not (self._root / (plugin.replace(".", "/") + ".py")).is_file():
            return
        run = [digest, tables, "both" if renderer in _TWO else renderer, list(arguments), plugin, options]
        self._corpus.log("run", {"run": run, "test": _test()})

    def _words(self, words: Sequence[str]) -> List[str]:
        """Words of a command line with what they name in the corpus."""
        kept: List[str] = []
        for word in words:
            path = pathlib.Path(word)
            if not path.is_absolute():
                kept.append(word)
            elif path.is_file():
                kept.append(f"{{file:{self._corpus.keep(path)}:{path.name}}}")
            elif path.is_dir():
                kept.append("{folder}")
            else:
                kept.append("{absent}/" + path.name)
            if kept[-1] == "{folder}" and kept[-2:-1] == ["-o"]:
                del kept[-2:]
        return kept

    def _as_words(self, options: Dict[str, Any]) -> Optional[List[str]]:
        """Options of a plugin as the command line takes them; None if it cannot."""
        words: List[str] = []
        for name, value in sorted(options.items()):
            if value is None or value is False:
                continue
            word = "--" + name.replace("_", "-")
            if value is True:
                words.append(word)
            elif isinstance(value, (list, tuple)):
                words += [word, *map(str, value)]
            elif isinstance(value, (int, str)):
                (kept,) = self._words([str(value)])
                words.append(f"{word}={kept}")
            else:
                return None
        return words if "--fetch-symbols" not in words else None


def _test() -> str:
    """The file of the test that runs."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[0]


def pytest_configure() -> None:
    """Starts the harvest in this process."""
    if os.environ.get(FOLDER):
        Harvest(os.environ[FOLDER])


__all__: Tuple[str, ...] = ("FOLDER", "Harvest", "pytest_configure")
