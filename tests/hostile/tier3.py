# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The real command line on damaged image files."""

from __future__ import annotations

import functools
import io
import json
import os
import pathlib
import random
import resource
import subprocess
import tempfile
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

import pyarrow.ipc
import pyarrow.parquet
import volatility3.plugins
from volatility3 import framework
from volatility3.cli import text_renderer

from tests.forge import vol

from . import mutations, plugins, subjects
from .forking import Violation
from .tier2 import MORE_MEGABYTES, MORE_SECONDS, Damager, Subject, numbers_of

_CANDIDATES = ("quick", "csv", "pretty", "json", "jsonl", "mermaid", "arrow", "parquet", "none")
_TEXT = set("\n\r\t")
_NOT_OPENED = "Unsatisfied requirement"
CPU_SECONDS = 120


@functools.lru_cache(maxsize=None)
def renderers() -> Tuple[str, ...]:
    """The renderers that this Volatility has, of those that are tried."""
    framework.import_files(volatility3.plugins, True)
    known = {
        class_subclass.name.lower()
        for class_subclass in framework.class_subclasses(text_renderer.CLIRenderer)
    }
    return tuple(candidate for candidate in _CANDIDATES if candidate in known)


class Done(NamedTuple):
    """What a run of the command gave, and what it cost."""

    code: int
    stdout: bytes
    stderr: str
    seconds: float
    megabytes: float


class Target:
    """An image file in a folder of its own, with its symbol tables, and the undamaged runs on it."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.subject = Subject(name, folder)
        image = subjects.BUILDERS[name]()
        self.folder = folder
        self.symbols = image.install(folder / "symbols")
        self.dump = image.save(folder / "whole.dmp").read_bytes()
        self._whole: Dict[str, Done] = {}

    def run(
        self, file: pathlib.Path, renderer: str, name: str, words: Sequence[str]
    ) -> Tuple[Done, List[str]]:
        """Runs the command in a fresh folder; returns what it gave and where it wrote outside `-o`."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            work, output = pathlib.Path(place, "work"), pathlib.Path(place, "output")
            work.mkdir()
            output.mkdir()
            before = self._files()
            command, environment = vol.prepare(
                file,
                name,
                *words,
                symbols=self.symbols,
                renderer=renderer,
                arguments=["-o", str(output)],
            )
            environment = dict(environment, HOME=str(work), PYTHONIOENCODING="utf-8:strict")
            done = _measure(command, environment, work)
            written = [
                f"wrote {path}" for path in sorted(self._files() - before) if output not in path.parents
            ]
        return done, written

    def whole(self, renderer: str, name: str, words: Sequence[str]) -> Done:
        """The undamaged run."""
        key = " ".join((renderer, name, *words))
        if key not in self._whole:
            file = self.folder / "undamaged.raw"
            file.write_bytes(self.subject.data)
            self._whole[key] = self.run(file, renderer, name, words)[0]
        return self._whole[key]

    def _files(self) -> Set[pathlib.Path]:
        cache = self.symbols.with_name(self.symbols.name + ".cache")
        return {path for path in self.folder.rglob("*") if path.is_file() and cache not in path.parents}


def attack(target: Target, seed: str, number: int) -> List[Violation]:
    """Makes one run on a damaged file; returns what it violated."""
    chance = random.Random(f"{seed}/3/{number}")
    subject = target.subject
    plugin = chance.choice(subject.plugins)
    options = plugins.options(plugin, chance)
    name, words = plugins.full_name(plugin), plugins.arguments(options)
    renderer = chance.choice(renderers())
    if chance.random() < 0.75:
        data, file = bytearray(subject.data), target.folder / "damaged.raw"
        _, done = Damager(subject, subject.base(plugin, {}), chance).apply(data)
    else:
        data, file = bytearray(target.dump), target.folder / "damaged.dmp"
        done = list(_anywhere(data, chance))
    file.write_bytes(data)
    result, written = target.run(file, renderer, name, words)
    title = f"{subject.name}, -r {renderer} {name} {' '.join(words)}, {'; '.join(done)}"
    wrong, slow = [*written, *_wrong(result, renderer)], []
    if result.seconds > MORE_SECONDS or result.megabytes > MORE_MEGABYTES:
        whole = target.whole(renderer, name, words)
        if result.seconds > whole.seconds + MORE_SECONDS:
            slow.append(f"took {result.seconds:.1f} s, undamaged {whole.seconds:.1f} s")
        if result.megabytes > whole.megabytes + MORE_MEGABYTES:
            wrong.append(f"took {result.megabytes:.0f} MB, undamaged {whole.megabytes:.0f} MB")
    found = [(fault, False) for fault in wrong] + [(fault, True) for fault in slow]
    return [Violation(number, f"{title}: {violation}", is_slow) for violation, is_slow in found]


def parts(seed: str, numbers: Sequence[int]) -> List[Callable[[], List[Violation]]]:
    """Returns the runs as parts that may be made at the same time: those on one image each."""
    shares = ((name, numbers_of(name, numbers)) for name in sorted(subjects.BUILDERS))
    return [functools.partial(run_subject, name, seed, share) for name, share in shares if share]


def run_subject(name: str, seed: str, numbers: Sequence[int]) -> List[Violation]:
    """Makes the runs on one image."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        target = Target(name, pathlib.Path(folder))
        return [violation for number in numbers for violation in attack(target, seed, number)]


def _anywhere(data: bytearray, chance: random.Random) -> Iterator[str]:
    """Damages a crash dump: its header and runs now and then, its pages, its end."""
    for _ in range(chance.choice((1, 3, 10, 50))):
        high = 0x2000 if chance.random() < 0.1 else len(data)
        mutation = chance.choice(mutations.ALL)
        low, high = mutation(data, 0, high, chance)
        yield f"{mutation.__name__} {low:#x}..{high:#x}"
    if chance.random() < 0.3:
        cut = chance.randrange(len(data))
        del data[cut:]
        yield f"cut at {cut:#x}"


def _measure(command: Sequence[str], environment: Dict[str, str], work: pathlib.Path) -> Done:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdout=out, stderr=err, env=environment, cwd=str(work), preexec_fn=_limit
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        out.seek(0)
        err.seek(0)
        return Done(
            process.returncode,
            out.read(),
            err.read().decode("utf-8", "replace"),
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,
        )


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def _wrong(result: Done, renderer: str) -> Iterator[str]:
    if "Traceback" in result.stderr or b"Traceback" in result.stdout:
        yield result.stderr
        return
    if result.code:
        if result.code != 1 or _NOT_OPENED.encode() not in result.stdout:
            yield f"ended with {result.code}: {result.stderr}"
        return
    try:
        if renderer == "json":
            json.loads(result.stdout)
        elif renderer == "jsonl":
            for line in result.stdout.splitlines():
                json.loads(line or "null")
        elif renderer == "parquet":
            pyarrow.parquet.read_table(io.BytesIO(result.stdout))
        elif renderer == "arrow":
            pyarrow.ipc.open_stream(result.stdout).read_all()
        else:
            text = result.stdout.decode("utf-8")
            bad = sorted({text for text in text if not text.isprintable()} - _TEXT)
            if bad:
                yield f"printed {bad}"
    except (ValueError, pyarrow.ArrowException) as error:
        yield f"what {renderer} printed cannot be read: {error}"
