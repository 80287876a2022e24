# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A folder of images, symbol tables, other input files, and the runs that use them.

    files/DIGEST        every file by its content (sparse where it holds zeros)
    log/*.jsonl         what each process of the harvest saw
    corpus.json         all of that, merged

A digest does not depend on where the holes of a sparse file are.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import tempfile
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

PAGE = 0x1000
DAMAGED = "damaged"
"""The kind of an image of which only its bytes are known."""

Json = Dict[str, Any]
TableSet = List[List[str]]
"""The symbol tables of an image: path below the symbol directory, digest."""


class Run(NamedTuple):
    """A command line without what differs from place to place.

    Words may hold `{file:DIGEST:NAME}`, an input file; `{folder}`, an empty folder; `{absent}`, one that is
    not there.

    Attributes:
        image: the digest of the image file
        tables: the digest of its set of symbol tables
        renderer: its name; `both` is CSV and JSON of the same grid
        arguments: the words before the plugin
        plugin: its name
        options: the words behind the plugin
    """

    image: str
    tables: str
    renderer: str
    arguments: Tuple[str, ...]
    plugin: str
    options: Tuple[str, ...]

    @property
    def key(self) -> str:
        """What the run is found by in a recording, in a form that can be read."""
        words = [*self.arguments, self.plugin, *self.options]
        head = [self.image[:16], self.tables[:8], self.renderer]
        return " ".join([*head, *(json.dumps(word) if _hard(word) else word for word in words)])


def _hard(word: str) -> bool:
    return not word or not word.isprintable() or " " in word or '"' in word


def run_of(data: List[Any]) -> Run:
    """Makes a run of what JSON keeps of it."""
    image, tables, renderer, arguments, plugin, options = data
    return Run(image, tables, renderer, tuple(arguments), plugin, tuple(options))


class Corpus:
    """The folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder.resolve()
        self._known: Dict[Tuple[str, int, int, int], str] = {}

    def path(self, digest: str) -> pathlib.Path:
        """Where a file is."""
        return self.folder / "files" / digest

    def keep(self, path: pathlib.Path) -> str:
        """Puts a file into the corpus unless it is there; returns its digest."""
        state = path.stat()
        stamp = (str(path), state.st_ino, state.st_mtime_ns, state.st_size)
        if stamp not in self._known:
            self._known[stamp] = self._copy(path)
        return self._known[stamp]

    def _copy(self, path: pathlib.Path) -> str:
        files = self.folder / "files"
        files.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=files, prefix="new-", delete=False) as copy:
            for offset, data in pages(path):
                digest.update(offset.to_bytes(8, "little") + data)
                copy.seek(offset)
                copy.write(data)
            size = path.stat().st_size
            copy.truncate(size)
        digest.update(size.to_bytes(8, "little"))
        name = digest.hexdigest()
        if self.path(name).exists():
            os.unlink(copy.name)
        else:
            os.replace(copy.name, self.path(name))
        return name

    def log(self, kind: str, data: Any) -> None:
        """Notes something; `merge` sorts it out."""
        folder = self.folder / "log"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([kind, data]) + "\n")

    def merge(self) -> Json:
        """Makes `corpus.json` of the logs and returns it."""
        images: Json = {}
        tables: Json = {}
        runs: Json = {}
        for path in sorted((self.folder / "log").glob("*.jsonl")):
            for line in path.read_text("utf-8").splitlines():
                kind, data = json.loads(line)
                if kind == "image":
                    known = images.setdefault(data["digest"], {**data, "tests": []})
                    if data["kind"] not in ("", DAMAGED):
                        known.update(name=data["name"], kind=data["kind"])
                    known["tests"] = sorted({*known["tests"], data["test"]})
                    known.pop("test", None)
                elif kind == "tables":
                    tables[data["digest"]] = data["files"]
                elif kind == "run":
                    run = run_of(data["run"])
                    known = runs.setdefault(run.key, {"run": list(run), "tests": []})
                    known["tests"] = sorted({*known["tests"], data["test"]})
        for digest, image in images.items():
            image["pages"] = sum(1 for _ in pages(self.path(digest)))
        made = {"images": images, "tables": tables, "runs": runs}
        self.save(made)
        return made

    def save(self, made: Json) -> None:
        """Writes `corpus.json`."""
        text = json.dumps(made, indent=1, sort_keys=True)
        written = self.folder / "corpus.new"
        written.write_text(text, encoding="utf-8")
        os.replace(written, self.folder / "corpus.json")

    def load(self) -> Json:
        """Reads `corpus.json`."""
        made: Json = json.loads((self.folder / "corpus.json").read_text("utf-8"))
        return made


def table_set(files: TableSet) -> str:
    """The digest of a set of symbol tables."""
    return hashlib.sha256(json.dumps(sorted(files)).encode()).hexdigest()


def pages(path: pathlib.Path) -> Iterator[Tuple[int, bytes]]:
    """Yields the pages of a file that do not only hold zeros, with their offsets."""
    zeros = bytes(PAGE)
    with path.open("rb") as file:
        size, end = os.fstat(file.fileno()).st_size, 0
        while end < size:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA) // PAGE * PAGE
            except OSError:
                return
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            for offset in range(start, end, PAGE):
                data = file.read(PAGE)
                if data and data != zeros[: len(data)]:
                    yield offset, data
            end = -(-end // PAGE) * PAGE
