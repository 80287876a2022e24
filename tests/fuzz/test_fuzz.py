# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A little fuzzing, and what longer fuzzing found."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

from tests.fuzz import corpus
from tests.hostile import decoders

ROOT = pathlib.Path(__file__).resolve().parents[2]
FINDS = sorted((pathlib.Path(__file__).resolve().parent / "finds").glob("*.*"))
FORMATS = sorted({path.stem for path in corpus.FOLDER.glob("*.zip")} & decoders.targets().keys())
SECONDS = 12
SEED = "-seed=1"
"""Draws the same inputs each time: no change is refused for one that nobody had seen before."""

needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not there for this Python"
)


@needs_atheris
def test_every_decoder_for_a_moment() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "all", str(SECONDS), SEED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    told = re.search(r"^all: (\d+) s of processor time$", done.stderr, re.MULTILINE)
    # The last input may take long.
    assert told is not None and int(told[1]) >= SECONDS, done.stderr[-5000:]
    assert "exiting as requested" in done.stderr


@needs_atheris
def test_fuzzing_begins_with_the_kept_inputs() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "manifest", "1", SEED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    count = len(decoders.targets()["manifest"].seeds()) + len(corpus.kept("manifest"))
    assert f"seed corpus: files: {count} " in done.stderr, done.stderr[-5000:]


@pytest.mark.parametrize("name", FORMATS)
def test_kept_inputs(name: str) -> None:
    """Each decodes as its decoder declares."""
    kept = corpus.kept(name)
    assert len(kept) >= 5
    assert (corpus.FOLDER / f"{name}.zip").stat().st_size <= 2 * corpus.MOST_BYTES
    for data in kept.values():
        decoders.targets()[name].decode(data, b"")


def test_inputs_are_kept_for_the_lines_that_they_reach() -> None:
    """Of two that reach the same, the smaller one; of the undamaged ones none."""
    target = decoders.targets()["smalldump"]
    cut, longer = b"PAGEDU64", b"PAGEDU64" + bytes(100)
    assert corpus.chosen(target, [longer, cut, *target.seeds()])[:1] == [cut]
    assert target.seeds()[0] not in corpus.chosen(target, target.seeds())


@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.name)
def test_finds(path: pathlib.Path) -> None:
    """Each decodes as its decoder declares; the file's name begins with the decoder's."""
    name = path.name.rpartition(".")[0]
    decoders.targets()[name].decode(path.read_bytes(), b"")
