# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What Windows does otherwise, where that can be had without Windows: its errors, its modules, its paths."""

from __future__ import annotations

import ast
import io
import os
import pathlib
import re
import stat
import sys
import types
from argparse import Namespace
from typing import Any, Iterator, List, Tuple

import pytest
from volatility3.cli import text_renderer
from volatility3.framework import renderers

from stackfleet import cli, output
from stackfleet.lake import Lake, LakeError
from stackfleet.store import is_remote
from tests.conftest import ROOT
from winstacks.names.filefolders import leads_away

ACCESS_DENIED, DISK_FULL = 5, 112


class WindowsError(PermissionError):
    """An OSError as Windows raises it."""

    def __init__(self, number: int) -> None:
        super().__init__(13, "Access is denied")
        self.winerror = number


def refusing(monkeypatch: pytest.MonkeyPatch, times: int, number: int) -> List[float]:
    """Makes the next calls of os.replace fail; returns the pauses that were made in between."""
    real, left = os.replace, [times]
    pauses: List[float] = []

    def replace(source: Any, target: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise WindowsError(number)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(output.time, "sleep", pauses.append)
    return pauses


@pytest.fixture()
def two(tmp_path: pathlib.Path) -> Tuple[pathlib.Path, pathlib.Path]:
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    return tmp_path / "new", tmp_path / "old"


def test_a_file_that_is_being_read_is_replaced_a_little_later(
    two: Tuple[pathlib.Path, pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = refusing(monkeypatch, 2, ACCESS_DENIED)
    output.replace(*two)
    assert two[1].read_text() == "new"
    assert len(pauses) == 2


def test_a_file_that_is_never_let_go_is_an_error_in_the_end(
    two: Tuple[pathlib.Path, pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = refusing(monkeypatch, 100, ACCESS_DENIED)
    with pytest.raises(PermissionError):
        output.replace(*two)
    assert two[1].read_text() == "old"
    assert sum(pauses) < 5


def test_any_other_error_is_not_waited_for(
    two: Tuple[pathlib.Path, pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = refusing(monkeypatch, 100, DISK_FULL)
    with pytest.raises(OSError):
        output.replace(*two)
    assert not pauses


@pytest.mark.parametrize(
    "tag, away", [(0xA0000003, True), (0xA000000C, True), (0x9000001A, False), (0, False)]
)
def test_a_junction_leads_out_of_a_lake_and_a_folder_in_a_cloud_does_not(tag: int, away: bool) -> None:
    """For lstat, a junction is a folder: only its reparse tag says more."""
    info: Any = types.SimpleNamespace(st_mode=stat.S_IFDIR, st_reparse_tag=tag)
    assert leads_away(info) == away


@pytest.mark.parametrize("page", ["cp1252", "cp437", "ascii"])
def test_a_code_page_without_a_letter_ends_no_command(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(requests: Namespace) -> int:
        print("\u043e\u0431\u0440\u0430\u0437.dmp is forgotten")
        return 0

    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, page))
    parser = types.SimpleNamespace(parse_args=lambda arguments: Namespace(command=command, lake="lake"))
    monkeypatch.setattr(cli, "_parser", lambda: parser)
    assert cli.main([]) == 0
    sys.stdout.flush()
    assert b"\\u043e\\u0431" in written.getvalue()


def file_names() -> Iterator[str]:
    """Yields how the names of files begin that plugins write: the constant part up to what the image says."""
    for path in sorted((ROOT / "winstacks").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "write_file(" not in text and "graph.write(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                first = node.values[0].value
                if (
                    isinstance(first, str)
                    and re.fullmatch(r"[a-z]+[.-].*", first)
                    and "{" in ast.unparse(node)
                ):
                    yield first


def test_no_process_of_an_image_gives_a_file_the_name_of_a_device() -> None:
    """`CON.4312.log` is the console, `CON` in front: names begin with a word of ours."""
    names = set(file_names())
    assert {"locks.", "umdh."} <= names
    for name in names:
        for process in ("CON", "NUL", "COM1", "a.", "a "):
            assert not pathlib.PureWindowsPath(f"{name}{process}.bin").is_reserved()


@pytest.mark.parametrize("folder", ["C:\\lake", "C:/lake", "\\\\?\\C:\\lake", "\\\\server\\share\\lake"])
def test_a_folder_of_windows_is_no_address_of_a_store(folder: str) -> None:
    with pytest.raises(LakeError, match="is not a stackfleet lake"):
        Lake(folder)
    assert not is_remote(folder)


@pytest.mark.parametrize("path", ["C:\\my lake", "C:\\lake"])
def test_a_path_in_a_command_is_quoted_as_windows_has_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        shown = cli.quoted(path)
    assert shown == (f'"{path}"' if " " in path else path)


@pytest.mark.parametrize(
    "renderer", ["CSVRenderer", "QuickTextRenderer", "PrettyTextRenderer", "JsonRenderer"]
)
def test_what_is_said_of_code_pages_and_volatility(renderer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page on Windows hosts says which renderers end where a letter is not in the code page."""
    grid = renderers.TreeGrid([("Name", str)], iter([(0, ("\u043e",))]))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "cp1252"))
    if renderer == "JsonRenderer":
        text_renderer.JsonRenderer().render(grid)
    else:
        with pytest.raises(UnicodeEncodeError):
            getattr(text_renderer, renderer)().render(grid)
