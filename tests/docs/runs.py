# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs the commands that the documentation quotes, on the sample image, as a shell does."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Dict, List

from tests.conftest import ROOT
from tests.forge import ask, context, real_sets, sample, vol, warm
from tests.support import processdumps, realtruth, smalldumps, warmfleet, warmreader

from . import pages
from .pages import Block

_BANNER = re.compile(r"Volatility 3 Framework [\d.]+")
_QUOTED_BANNER = "Volatility 3 Framework 2.28.2"
"""Volatility's first line, which has its version: quotes have this one, whichever version runs."""
REAL = "heaps-of-19044.dmp"
"""The image with heaps that an ntdll of Windows 10 21H2 made; it is built when a command asks for it."""
_REAL_SET = ROOT / "tests" / "data" / "real_std" / "19044.1766-x64-heap.tar.xz"


_PRINTS_TABLE = """\
import duckdb
found = duckdb.sql({!r})
rows = [found.columns, *([str(cell) for cell in row] for row in found.fetchall())]
widths = [max(map(len, column)) for column in zip(*rows)]
for row in rows:
    print(" | ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
"""
"""Shows a table in the same way with any version of DuckDB."""


class Runner:
    """The sample image in a folder, and commands that run there.

    `vol` is Volatility with the plugins of this checkout, `stackfleet` that of this checkout. They get the
    options that whoever has run `dev.py demo` has in an alias (docs/sample.md). Quotes have all lines of the
    standard output, and none of the standard error.

    Args:
        folder: an empty folder
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._image = image = sample.build().image()
        image.save(folder / "sample.dmp")
        symbols = image.install(folder / "symbols")
        vol.trust(symbols, folder / "cache")
        self._symbols = symbols
        programs = folder / "bin"
        programs.mkdir()
        asking = [sys.executable, "-S", ask.__file__]
        words = [*asking, warm.server(), "-q", "--offline", "-s", str(symbols)]
        words += ["--cache-path", str(folder / "cache"), "-p", str(vol.PLUGINS)]
        program = programs / "vol"
        text = f'#!/bin/bash\n{shlex.join(words)} "$@"\n'
        program.write_text(text)
        program.chmod(0o755)
        fleet = [*asking, warm.server(warmfleet.__name__)]
        reading = ["--symbol-dirs", str(symbols), "--cache-path", str(folder / "cache"), "--offline"]
        program = programs / "stackfleet"
        program.write_text(
            f'#!/bin/bash\nif [ "$1" = run ]; then\n    {shlex.join(fleet)} "$@" {shlex.join(reading)}\n'
            f'else\n    {shlex.join(fleet)} "$@"\nfi\n'
        )
        program.chmod(0o755)
        self._environment = dict(
            {**os.environ, **vol.home(folder / "cache")},
            PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
            PYTHONWARNINGS="ignore",
            PYTHONPATH=str(ROOT),
            COLUMNS="120",
            **{warmfleet.READERS: warm.server(warmreader.__name__)},
        )
        self.output = functools.lru_cache(maxsize=None)(self._output)

    def _output(self, command: str) -> List[str]:
        """Returns the lines that a command prints, up to the last one that is not blank."""
        self.make_files(command)
        done = self.run(["bash", "-c", command])
        if "usage: vol" in done.stderr or "Traceback" in done.stderr:
            raise AssertionError(f"{command}\n{done.stderr}")
        return [
            _QUOTED_BANNER if _BANNER.fullmatch(line) else line
            for line in done.stdout.rstrip("\n").split("\n")
        ]

    def make_files(self, text: str) -> None:
        """Makes the dumps and images beside the sample that a command or a script names."""
        if REAL in text:
            self._build_real()
        for name in processdumps.SAMPLE:
            if name in text:
                self._write_dump(self.folder / name)
        if smalldumps.SAMPLE in text and not (self.folder / smalldumps.SAMPLE).exists():
            smalldumps.write_of_sample(self._opened, self.folder / smalldumps.SAMPLE)

    def _build_real(self) -> None:
        path = self.folder / REAL
        if not path.exists():
            image = realtruth.image_of(real_sets.load(_REAL_SET), "win10-x64", symbols=False)
            image.save(path)
            image.install(self._symbols)

    def _write_dump(self, path: pathlib.Path) -> None:
        """Makes the dump of a process of the sample when a command first asks for it."""
        if not path.exists():
            processdumps.write_of_sample(self._opened, path)

    @functools.cached_property
    def _opened(self) -> context.Opened:
        """The sample, opened in this process."""
        return context.open_image(self._image, self.folder, "opened.dmp")

    def script(self, text: str) -> List[str]:
        """Returns the lines that a Python script prints, which has the names that a plugin has.

        It runs beside the sample, whose symbols Volatility finds.
        """
        names = {"context": self._opened.context, "config_path": "plugins"}
        self.make_files(text)
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, "script of the documentation", "exec"), names)
        finally:
            os.chdir(before)
        return printed.getvalue().strip("\n").split("\n")

    def sql(self, text: str) -> List[str]:
        """Returns the result of a statement for DuckDB as lines with ` | ` between columns."""
        done = self.run([sys.executable, "-c", _PRINTS_TABLE.format(text)])
        assert not done.returncode, done.stderr
        return done.stdout.strip("\n").split("\n")

    def run(self, command: List[str]) -> "subprocess.CompletedProcess[str]":
        """Runs a command beside the sample, with `vol` and `stackfleet` of this checkout on the path."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def console(self, block: Block) -> List[str]:
        """Returns the lines of a console block: its commands, and what they print now."""
        lines: List[str] = []
        spoke = False
        for numbers in pages.commands(block):
            words = [block.lines[number] for number in numbers]
            command = " ".join(word.rstrip("\\") for word in words)[2:]
            assert command.startswith(("vol ", "stackfleet ", "mkdir -p hang && vol ")), (
                f"not a command that reads the sample: {command}"
            )
            printed = self.output(command)
            lines += [*([""] if spoke else []), *words, *(printed if any(printed) else ())]
            spoke = any(printed)
        return [line.rstrip() for line in lines]

    def current(self, text: str) -> str:
        """Returns a page with what its commands and scripts print now."""
        printed: Dict[int, List[str]] = {}
        before = None
        for block in pages.blocks(text):
            if block.mark is None and block.language == "console":
                printed[block.start] = self.console(block)
            elif block.mark is None and block.language == "text" and before is not None:
                run = self.sql if before.language == "sql" else self.script
                printed[block.start] = run(before.text)
            before = block if block.language in pages.PRINTING and block.mark is None else None
        return pages.with_blocks(text, lambda block: printed.get(block.start, block.lines))
