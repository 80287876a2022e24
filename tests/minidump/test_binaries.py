# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps without code: the files that would help are named, and with these the stacks are whole."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest
from volatility3.framework import exceptions

from tests.conftest import SHARED
from tests.forge import context, modulefile, sample, vol
from tests.support.processdumps import OpenedDump, dump_of

UPDATER = 4312
REAL = sorted((SHARED / "real_minidumps").glob("*.dmp"))

Row = Tuple[int, Dict[str, Any]]


class Dumps(NamedTuple):
    """Dumps of a process with and without full memory, and the files of its modules."""

    full: pathlib.Path
    small: pathlib.Path
    files: pathlib.Path


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    folder = tmp_path_factory.mktemp("binaries")
    kernel = sample.build()
    opened = context.open_image(kernel.image(), folder)
    found = Dumps(folder / "full.dmp", folder / "small.dmp", folder / "files")
    found.full.write_bytes(dump_of(opened, UPDATER))
    found.small.write_bytes(dump_of(opened, UPDATER, full=False))
    modulefile.save(kernel.user_modules(), found.files)
    return found


def stacks(path: pathlib.Path, **options: Any) -> List[Row]:
    from volatility3.plugins.minidump import callstacks

    return OpenedDump(path).rows(callstacks.CallStacks, **options)


def frames(rows: List[Row]) -> List[Tuple[Any, ...]]:
    """The frames; a small dump does not tell private memory from none."""
    shown = [row for depth, row in rows if depth]
    named = [(row, "<" if row["Symbol"].startswith("<") else row["Symbol"]) for row in shown]
    return [(row["TID"], row["Frame"], row["Address"], symbol, row["How"]) for row, symbol in named]


def helpful(caplog: pytest.LogCaptureFixture) -> List[str]:
    return [record.message for record in caplog.records if "would help" in record.message]


def test_files_make_the_stacks_of_a_small_dump_those_of_a_full_one(
    dumps: Dumps, caplog: pytest.LogCaptureFixture
) -> None:
    full, small = stacks(dumps.full), stacks(dumps.small)
    named = helpful(caplog)
    begin = "The file of a module would help, give it with --binaries: "
    assert any(text.startswith(f"{begin}ntdll.dll TimeDateStamp ") for text in named)
    given = stacks(dumps.small, binaries=[str(dumps.files)])
    assert helpful(caplog) == named
    assert len(frames(small)) < len(frames(full))
    assert set(frames(given)) == set(frames(full))
    for row in [row for depth, row in given if depth]:
        assert row["Symbol"].startswith("<") or "from the file" in row["Status"]


def test_no_page_of_a_dump_is_called_a_private_copy(dumps: Dumps) -> None:
    """A dump does not show which pages a process shares: code that has the bytes of its file is no finding.

    A dump of a program under Wine showed it, with the program's own file.
    """
    from volatility3.plugins.minidump import tracefindings

    opened = OpenedDump(dumps.full)
    rows = opened.rows(tracefindings.TraceFindings, binaries=[str(dumps.files)], check=["modified_code"])
    assert {row["Status"] for _, row in rows if row["Finding"] == "modified_code"} <= {"not checked"}


def test_a_folder_that_is_not_there_is_refused(dumps: Dumps) -> None:
    with pytest.raises(exceptions.RenderException, match="there is no folder 'nowhere'"):
        stacks(dumps.small, binaries=["nowhere"])


@pytest.mark.cli
def test_the_option_on_the_command_line(dumps: Dumps, tmp_path: pathlib.Path) -> None:
    (tmp_path / "symbols").mkdir()
    given = vol.run(
        dumps.small, "minidump.callstacks", "--binaries", str(dumps.files), symbols=tmp_path / "symbols"
    )
    assert given.returncode == 0, given.stderr
    assert any("from the file" in child["Status"] for row in given.rows for child in row["__children"])


@pytest.mark.shared
@pytest.mark.parametrize("path", REAL, ids=[path.stem for path in REAL])
def test_small_dumps_of_windows_say_which_files_would_help(
    path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = stacks(path)
    named = helpful(caplog)
    form = r".*: (\S+) TimeDateStamp [0-9A-F]{8} SizeOfImage [0-9a-f]+ PDB \S+\.pdb [0-9A-F]{32}-\d+"
    files = [re.fullmatch(form, text) for text in named]
    assert all(files)
    stems = {file[1].rpartition(".")[0].lower() for file in files if file}
    walked = {row["Symbol"].partition("+")[0].lower() for depth, row in rows if depth}
    assert {symbol for symbol in walked if "<" not in symbol and "!" not in symbol} <= stems
