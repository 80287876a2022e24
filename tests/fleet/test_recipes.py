# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What docs/fleet.md recommends, run as it stands there."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from typing import Dict

import pytest

from tests.conftest import ROOT
from tests.docs import pages
from tests.forge import vol
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import fleet
from tests.support.only import only

pytestmark = pytest.mark.once

PAGE = pages.read(ROOT / "docs" / "fleet.md")


def block(language: str, word: str) -> str:
    return only(
        block.text for block in pages.blocks(PAGE) if block.language == language and word in block.text
    )


@pytest.fixture(scope="module")
def folder(few: Fleet, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Images, one of which is none, and their lake."""
    new_folder = tmp_path_factory.mktemp("recipes")
    for path in few.paths[:2]:
        shutil.copy(path, new_folder)
    (new_folder / "cut.dmp").write_bytes(pathlib.Path(few.paths[0]).read_bytes()[:5000])
    fleet("run", *new_folder.glob("*.dmp"), "-o", new_folder / "lake", *few.options, code=3)
    return new_folder


@pytest.mark.parametrize(
    ("word", "package", "answer"),
    [("polars", "polars", "std"), ("duckdb", "duckdb", "done"), ("to_pandas", "pandas", "unbacked")],
)
def test_other_readers(word: str, package: str, answer: str, folder: pathlib.Path) -> None:
    pytest.importorskip(package)
    command = [sys.executable, "-c", block("python", word)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert answer in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="is for a shell that Windows lacks")
def test_the_loop_over_vol_keeps_what_failed(
    folder: pathlib.Path, few: Fleet, tmp_path: pathlib.Path
) -> None:
    script = pathlib.Path(sys.executable).with_name("vol")
    words = [sys.executable, str(script), "--offline", "-s", str(few.symbols), "-p", str(vol.PLUGINS)]
    program = tmp_path / "vol"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.join([*words, "--cache-path", str(few.folder / "cache")])} "$@"\n'
    )
    program.chmod(0o755)
    known: Dict[str, str] = dict(os.environ, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["sh", "-c", block("sh", "vol -q")], cwd=folder, env=known, check=True)
    lines = [line.split() for line in (folder / "codes.txt").read_text().splitlines()]
    codes = {image: code for code, image in lines}
    assert codes.pop("cut.dmp") == "1"
    assert set(codes.values()) == {"0"}
    assert len(list(folder.glob("*.dmp.parquet"))) == 2
    assert (folder / "cut.dmp.log").read_text()
