# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs what a corpus holds on a tree of plugins and writes down what each run gave.

    OUT/entries.jsonl.xz    a line for each run: key, digest, exit code, texts, files
    OUT/about.json          what was run, and on what

What is left out of the texts: names of temporary and of the tree's folders, addresses of Python objects, the
frames of a traceback, the version of Volatility.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import traceback
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from volatility3.framework import constants

from . import matrix, runner
from .corpus import Corpus, Run, run_of

FEW = 2
"""So many runs are made without opening the image first."""
MAX_TEXT = 1 << 20
"""Bytes of a written file that is kept as text."""

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+>")
_TEMPORARY = re.compile(r"tmp_\w{8}\.vol3")
_BANNER = re.compile(r"^Volatility 3 Framework [\d.]+$", re.M)
_TRACE = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*", re.M)
_FILE = re.compile(r"\{file:([0-9a-f]+):([^}]*)\}")


class Settings(NamedTuple):
    """What the command line of a replay says."""

    corpus: pathlib.Path
    out: pathlib.Path
    tree: pathlib.Path
    matrix: bool
    plain: bool
    jobs: int
    only: str


class Replay:
    """A replay in progress; `work` is a folder for what is temporary."""

    def __init__(self, settings: Settings, work: pathlib.Path) -> None:
        self.settings = settings
        self.work = work
        self.corpus = Corpus(settings.corpus)
        self.held = self.corpus.load()
        self.folder = settings.tree.resolve() / "volatility3_plugins"
        constants.OFFLINE = True
        self.plugins = runner.load(self.folder)
        self.ours = sorted(set(self.plugins) - set(runner.CORE))
        self.shortcuts = runner.Shortcuts(self.plugins, settings.plain)
        self.runs: Dict[str, List[Run]] = {}
        for each in self.held["runs"].values():
            run = run_of(each["run"])
            self.runs.setdefault(run.image, []).append(run)
        self.selected = matrix.select(self.held["images"], self.held["runs"]) if settings.matrix else {}
        self.baseline = self._baseline()

    def images(self) -> List[str]:
        """The images to run, the longest first."""
        found = [name for name in self.held["images"] if self.settings.matrix or name in self.runs]
        found = [name for name in found if name.startswith(self.settings.only)]
        return sorted(
            found, key=lambda name: (name not in self.selected, -len(self.runs.get(name, [])), name)
        )

    def image(self, name: str, part: pathlib.Path) -> None:
        """Runs everything on an image, in a process of its own, and writes a part of the recording."""
        about = self.held["images"][name]
        home = self.work / f"image-{name[:16]}"
        home.mkdir()
        file = home / ("image" + "".join(pathlib.Path(about["name"]).suffixes))
        file.symlink_to(self.corpus.path(name))
        runs = {run.key: run for run in self.runs.get(name, [])}
        if name in self.selected:
            chosen = self.selected[name]
            facts = self._facts(file, about["tables"]) if chosen else {}
            for plugin in self.ours:
                whole = _short(plugin) in chosen or matrix.EVERY in chosen
                for options in matrix.options(self.plugins[plugin], facts) if whole else [[]]:
                    run = Run(name, about["tables"], "both", (), _short(plugin), tuple(options))
                    runs.setdefault(run.key, run)
        self._start(file, about["tables"], len(runs))
        with lzma.open(part.with_suffix(".new"), "wt", encoding="utf-8", preset=1) as out:
            for key, run in sorted(runs.items()):
                began = time.monotonic()
                entry = self._entry(key, self._perform(run, file))
                out.write(json.dumps([*entry, round(time.monotonic() - began, 2)]) + "\n")
        os.replace(part.with_suffix(".new"), part)
        shutil.rmtree(home)

    def helps(self, part: pathlib.Path) -> None:
        """Records what the plugins say of themselves."""
        with lzma.open(part, "wt", encoding="utf-8", preset=1) as out:
            failed = "\n".join(runner.failures()).encode()
            entry = self._entry("modules that cannot be imported", (runner.Done(0, failed, b""), []))
            out.write(json.dumps([*entry, 0]) + "\n")
            for plugin in self.ours:
                with _folder(self.work) as work:
                    done = runner.call(["-p", str(self.folder), plugin, "--help"], work)
                out.write(json.dumps([*self._entry(f"help {plugin}", (done, []), work), 0]) + "\n")

    def _start(self, file: pathlib.Path, tables: str, runs: int) -> None:
        """Makes this process what the runs fork from; to open the image first does not pay for a few."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self.shortcuts.forget()
        if runs > FEW and not self.settings.plain:
            runner.open_once(self._front(file, tables), self.shortcuts)

    def _front(self, file: pathlib.Path, tables: str, renderer: str = "both") -> List[str]:
        symbols = self.work / f"symbols-{tables[:16]}"
        cache = self.work / f"cache-{os.getpid()}-{tables[:16]}"
        if not symbols.exists():
            with tempfile.TemporaryDirectory(dir=self.work) as folder:
                made = pathlib.Path(folder, "symbols")
                for name, digest in self.held["tables"][tables]:
                    (made / name).parent.mkdir(parents=True, exist_ok=True)
                    (made / name).symlink_to(self.corpus.path(digest))
                made.mkdir(exist_ok=True)
                with contextlib.suppress(OSError):
                    made.rename(symbols)
        cache.mkdir(exist_ok=True)
        words = ["-q", "--offline", "-r", renderer, "-s", str(symbols), "--cache-path", str(cache)]
        return [*words, "-f", str(file), "-p", str(self.folder)]

    def _perform(self, run: Run, file: pathlib.Path) -> Tuple[runner.Done, List[List[Any]]]:
        with _folder(self.work) as work:
            inputs, output = work / "inputs", work / "output"
            inputs.mkdir()
            output.mkdir()
            arguments = [self._word(word, inputs) for word in run.arguments]
            options = [self._word(word, inputs) for word in run.options]
            front = self._front(file, run.tables, run.renderer)
            done = runner.call([*front, "-o", str(output), *arguments, run.plugin, *options], work)
            wrote = [_written(name, path) for name, path in runner.files(work)]
            texts = [_normal(text, [(work, "<work>")]) for text in (done.stdout, done.stderr)]
        return runner.Done(done.code, *texts), wrote

    def _word(self, word: str, inputs: pathlib.Path) -> str:
        if word == "{folder}":
            made = inputs / "folder"
            made.mkdir(exist_ok=True)
            return str(made)

        def put(match: Any) -> str:
            path = inputs / match[2]
            if not path.is_symlink():
                path.symlink_to(self.corpus.path(match[1]))
            return str(path)

        return _FILE.sub(put, word.replace("{absent}", str(inputs / "absent")))

    def _entry(
        self, key: str, given: Tuple[runner.Done, List[List[Any]]], work: Optional[pathlib.Path] = None
    ) -> List[Any]:
        done, wrote = given
        places = [(work, "<work>")] if work else []
        places += [
            (self.work, "<temporary>"),
            (self.corpus.folder, "<corpus>"),
            (self.settings.tree.resolve(), "<tree>"),
            (pathlib.Path(sys.prefix), "<python>"),
        ]
        texts = [_normal(text, places) for text in (done.stdout, done.stderr)]
        shown = [text.decode("utf-8", "backslashreplace") for text in texts]
        value = [done.code, *shown, wrote]
        return [key, hashlib.sha256(json.dumps(value).encode()).hexdigest(), *value]

    def _facts(self, file: pathlib.Path, tables: str) -> Dict[str, str]:
        """What options may name in an image, as Volatility's own plugins list it."""
        facts: Dict[str, str] = {}
        for plugin in runner.CORE[1:]:
            with _folder(self.work) as work:
                done = runner.call([*self._front(file, tables, "json"), plugin], work)
            try:
                rows = json.loads(done.stdout)
            except ValueError:
                continue
            matrix.learn(facts, rows)
        if self.baseline:
            facts["baseline"] = self.baseline
        return facts

    def _baseline(self) -> str:
        """The largest file that the tests gave to --baseline."""
        words = [word for each in self.held["runs"].values() for word in each["run"][5]]
        found = [match for match in map(_FILE.fullmatch, words) if match]
        found.sort(key=lambda match: (self.corpus.path(match[1]).stat().st_size, match[1]))
        return str(found[-1][0]) if found else ""


def _short(plugin: str) -> str:
    """The name of a plugin as users write it: without the class."""
    return plugin.rsplit(".", 1)[0]


def _written(name: str, path: pathlib.Path) -> List[Any]:
    data = path.read_bytes()
    text = None
    if len(data) <= MAX_TEXT and b"\0" not in data:
        text = data.decode("utf-8", "backslashreplace")
    return [_TEMPORARY.sub("tmp_.vol3", name), len(data), hashlib.sha256(data).hexdigest(), text]


def _normal(data: bytes, places: Sequence[Tuple[pathlib.Path, str]]) -> bytes:
    for place, name in places:
        data = data.replace(str(place).encode(), name.encode())
    text = data.decode("utf-8", "surrogateescape")
    text = _TRACE.sub("Traceback:\n", _BANNER.sub("Volatility 3 Framework", text))
    text = _TEMPORARY.sub("tmp_.vol3", _ADDRESS.sub("at 0x>", text))
    return text.encode("utf-8", "surrogateescape")


@contextlib.contextmanager
def _folder(parent: pathlib.Path) -> Iterator[pathlib.Path]:
    made = pathlib.Path(tempfile.mkdtemp(dir=parent, prefix="run-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def main(settings: Settings) -> int:
    """Makes the replay. What an interrupted one has finished is not done again."""
    began = time.monotonic()
    parts = settings.out / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        replay = Replay(settings, pathlib.Path(folder).resolve())
        failed = _spread(replay, parts)
    lines = join(parts, settings.out / "entries.jsonl.xz", bool(settings.only))
    about = {
        "runs": lines,
        "images": len(list(parts.glob("*.xz"))) - 1,
        "selected": len(replay.selected),
        "seconds": round(time.monotonic() - began),
        "volatility": constants.PACKAGE_VERSION,
        "python": sys.version.split()[0],
        "matrix": settings.matrix,
    }
    (settings.out / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
    shutil.rmtree(parts)
    print(json.dumps(about))
    return 1 if failed else 0


def join(parts: pathlib.Path, whole: pathlib.Path, add: bool) -> int:
    """Makes one file of the parts, and of what else it holds already if these are added to it."""
    keys: Set[str] = set()
    made = whole.with_suffix(".new")
    with lzma.open(made, "wt", encoding="utf-8", preset=1) as out:
        for path in [*sorted(parts.glob("*.xz")), *([whole] if add and whole.exists() else [])]:
            with lzma.open(path, "rt", encoding="utf-8") as file:
                for line in file:
                    key = line[: line.index('", "')]
                    if key not in keys:
                        keys.add(key)
                        out.write(line)
    os.replace(made, whole)
    return len(keys)


def _spread(replay: Replay, parts: pathlib.Path) -> int:
    """Gives each image a process, so many at a time; returns how many failed."""
    waiting = [(name, parts / f"{name}.xz") for name in reversed(replay.images())]
    total, failed = len(waiting), 0
    running: Dict[int, str] = {}
    replay.helps(parts / "0.xz")
    while waiting or running:
        while waiting and len(running) < replay.settings.jobs:
            name, part = waiting.pop()
            if part.exists():
                continue
            child = os.fork()
            if not child:
                _child(replay, name, part)
            running[child] = name
        if not running:
            break
        child, status = os.wait()
        name = running.pop(child)
        if status:
            failed += 1
            print(f"\nthe image {name} failed: {status}", file=sys.stderr)
        print(f"\r{total - len(waiting)} of {total} images", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return failed


def _child(replay: Replay, name: str, part: pathlib.Path) -> None:
    code = 1
    try:
        replay.image(name, part)
        code = 0
    except Exception:  # noqa: BLE001  (the parent goes on with the other images)
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _corpus, _out, _tree, _matrix, _plain, _jobs, _only = sys.argv[1:]
    _places = pathlib.Path(_corpus), pathlib.Path(_out), pathlib.Path(_tree)
    sys.exit(main(Settings(*_places, _matrix == "1", _plain == "1", int(_jobs), _only)))
