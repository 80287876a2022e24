# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs the commands of a case and keeps what came out, without what differs from place to place."""

from __future__ import annotations

import hashlib
import json
import lzma
import pathlib
import re
import shutil
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from volatility3.framework import constants

from tests.forge import vol

from .cases import CASES, Case, Keeps
from .matrix import words_of

DATA = pathlib.Path(__file__).with_name("data")

LONG = 1 << 22
"""Characters of rows above which a digest of each row is kept."""
SMALL = 1 << 14
"""Characters of a written file above which its size and digest are kept."""

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+>")
_BANNER = re.compile(r"^Volatility 3 Framework [\d.]+\n", re.M)
_LOGGER = re.compile(r"^(DEBUG|INFO|WARNING|ERROR|CRITICAL) +[\w.]+ *: ?", re.M)
_TRACE = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*", re.M)
_MADE = re.compile(r'("Report made", ?")[-: \d]+')
_TEMPORARY = re.compile(r"tmp_\w{8}\.vol3")
_VERSION = re.compile(r"(?<![\d.])[23]\.0\.0(?![\d.])")
_VOLATILITY = re.compile(rf"(?<![\d.]){re.escape(constants.PACKAGE_VERSION)}(?![\d.])")

Place = Tuple[pathlib.Path, str]


class Run(NamedTuple):
    """What one command gave.

    Attributes:
        words: the plugin and its options
        code: the exit code
        stdout: lines; a row each, or a digest of each row
        stderr: lines
        files: of written files by name the lines, or one line with size and digest
    """

    words: str
    code: int
    stdout: List[str]
    stderr: List[str]
    files: Dict[str, List[str]]


def record(case: Case) -> List[Run]:
    """Makes the image of a case and runs all of its commands."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        folder = pathlib.Path(name).resolve()
        image, symbols = case.make(folder)
        for file, text in case.inputs.items():
            (folder / file).write_text(text, encoding="utf-8")
        saved = folder / "saved.json"
        known: Tuple[str, ...] = ("--save-config", str(saved))
        runs = []
        for words in case.runs:
            runs.append(_run(case, words, folder, (image, symbols), known))
            known = _known(saved)
    return runs


def _known(saved: pathlib.Path) -> Tuple[str, ...]:
    """Arguments that tell Volatility where the kernel is, so that only the first run searches it."""
    if not saved.exists():
        return ()
    kept = saved.with_name("kernel.json")
    if not kept.exists():
        held = json.loads(saved.read_text("utf-8"))
        kernel = {name: value for name, value in held.items() if name.startswith("kernel.")}
        kept.write_text(json.dumps(kernel), encoding="utf-8")
    return "-c", str(kept)


def _run(
    case: Case,
    words: str,
    folder: pathlib.Path,
    place: Tuple[pathlib.Path, pathlib.Path],
    known: Tuple[str, ...],
) -> Run:
    image, symbols = place
    plugin, *options = words_of(words, folder)
    out = folder / "out"
    out.mkdir()
    done = vol.run(
        image,
        f"{case.plugins}.{plugin}",
        *options,
        symbols=symbols,
        renderer="jsonl",
        arguments=("-o", str(out), *known),
        cwd=out,
    )
    # A report has its command line: the environment of the lowest versions has another name.
    environment = (pathlib.Path(sys.prefix), "<checkout>/.venv/test")
    places = [(folder, "<folder>"), environment, (vol.REPOSITORY, "<checkout>")]
    stdout, stderr = (normal(text, places) for text in (done.stdout, done.stderr))
    files = {}
    for path in sorted(out.rglob("*")):
        if path.is_file():
            files[_TEMPORARY.sub("tmp_.vol3", path.relative_to(out).as_posix())] = _file(path, places)
    shutil.rmtree(out)
    rows, messages = ([line for line in text.splitlines() if line] for text in (stdout, stderr))
    run = Run(words, done.returncode, rows, messages, files)
    return shortened(run, case.keeps)


def normal(text: str, places: Sequence[Place]) -> str:
    """A text without what differs from place to place and from version to version."""
    for place, name in places:
        text = text.replace(str(place), name)
    text = _MADE.sub(r"\1<time>", text)
    text = _TRACE.sub("Traceback:\n", _BANNER.sub("", text))
    text = _LOGGER.sub(r"\1: ", _TEMPORARY.sub("tmp_.vol3", _ADDRESS.sub("at 0x>", text)))
    return _VERSION.sub("<version>", _VOLATILITY.sub("<volatility>", text))


def _file(path: pathlib.Path, places: Sequence[Place]) -> List[str]:
    data = path.read_bytes()
    try:
        text = normal(data.decode("utf-8"), places)
    except UnicodeDecodeError:
        return [_digested(data)]
    if len(text) > SMALL or "\0" in text:
        return [_digested(text.encode("utf-8"))]
    return text.split("\n")


def _digested(data: bytes) -> str:
    return f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"


def shortened(run: Run, keeps: Keeps) -> Run:
    """A run as it is kept.

    Args:
        run: a whole one
        keeps: a digest of all, of each row, or the text; a digest of each row also where rows are long
    """
    if keeps is Keeps.DIGEST:
        count = f"{len(run.stdout)} rows, {len(run.stderr)} messages, {len(run.files)} files"
        whole = json.dumps([run.code, run.stdout, run.stderr, run.files], sort_keys=True)
        return Run(run.words, run.code, [count, _digested(whole.encode())], [], {})
    if keeps is Keeps.ROWS or sum(map(len, run.stdout)) > LONG:
        return run._replace(stdout=[hashlib.sha256(row.encode()).hexdigest()[:16] for row in run.stdout])
    return run


def path_of(case: str) -> pathlib.Path:
    """Where the runs of a case are kept."""
    return DATA / f"{case}.jsonl.xz"


def load(path: pathlib.Path) -> List[Run]:
    """Reads kept runs; none if there is no file."""
    if not path.exists():
        return []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [Run(**json.loads(line)) for line in file]


def save(path: pathlib.Path, runs: Sequence[Run]) -> None:
    """Keeps runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        for run in runs:
            kept: Dict[str, Any] = run._asdict()
            file.write(json.dumps(kept, ensure_ascii=False) + "\n")


def stale() -> List[pathlib.Path]:
    """Files of cases that are no more."""
    return [path for path in sorted(DATA.glob("*.jsonl.xz")) if path.name.split(".jsonl")[0] not in CASES]
