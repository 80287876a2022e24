# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A run that shows nothing says why, in one wording for all plugins; options without a meaning end it."""

from __future__ import annotations

import logging
import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.framework import exceptions

from tests.forge import context, kernels, sample, vol
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.support import grid
from tests.support.only import only
from tests.windows.test_columns import CLASSES, STACKS

WITH_PID = sorted(set(CLASSES) - {"objecttraces"})


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("answers"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """An image in which nothing is enabled."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    kernel.process("a.exe", pid=1000).module("ntdll.dll")
    return context.open_image(kernel.image(), tmp_path_factory.mktemp("plain"))


def warnings(opened: Opened, name: str, caplog: pytest.LogCaptureFixture, **options: Any) -> List[str]:
    """What a plugin logs."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        grid.run(opened, CLASSES[name], **options)
    return [record.getMessage() for record in caplog.records if record.name == CLASSES[name].__module__]


@pytest.mark.parametrize("name", WITH_PID)
def test_no_such_process(name: str, opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(opened, name, caplog, pid=[77, 66]) == ["There is no process 66, 77 in this image"]
    assert "There is no process 66 in this image" in warnings(opened, name, caplog, pid=[66, 4312])


@pytest.mark.parametrize("name", ["handletraces", "heaptraces", "stacktracedb"])
def test_what_is_said_of_a_selection_names_it(
    name: str, opened: Opened, plain: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    selected = {"handletraces": 6200, "heaptraces": 5120, "stacktracedb": 4}[name]
    answer = only(warnings(opened, name, caplog, pid=[selected])[-1:])
    assert answer.endswith("; --pid leaves out all other processes")
    assert not any("--pid" in line for line in warnings(plain, name, caplog))


@pytest.mark.parametrize("name", ["callstacks", "handletraces", "heaptraces"])
def test_the_kernel_is_no_process_where_it_has_none(
    name: str, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(opened, name, caplog, pid=[0]) == ["There is no process 0 in this image"]


@pytest.mark.parametrize(
    ("name", "options", "answer"),
    [
        ("callstacks", {"tid": [4444]}, "There is no thread 4444 in the processes that are shown"),
        ("trapframes", {"tid": [4444]}, "There is no thread 4444 in the processes that are shown"),
        ("handletraces", {"handle": [0x3C]}, "There is no event of the handle 0x3c"),
        ("stacktracedb", {"index": [999]}, "There is no back trace with the index 999"),
    ],
)
def test_no_such_id(
    name: str, options: Dict[str, Any], answer: str, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(opened, name, caplog, **options) == [answer]


@pytest.mark.parametrize("name", STACKS)
def test_nothing_matches(name: str, opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    answer = only(warnings(opened, name, caplog, find="NoSuch*"))
    assert answer.startswith("No ")
    assert answer.endswith(" match --find 'NoSuch*' (or '*!NoSuch*')")
    answer = only(warnings(opened, name, caplog, find="nt!NoSuch*", unbacked=True))
    assert answer.endswith(" match --find 'nt!NoSuch*' and --unbacked")


def test_a_glob_without_a_module_is_tried_with_any(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    answer = only(warnings(opened, "stacktracedb", caplog, find="NtCreateFile*"))
    assert answer == "--find 'NtCreateFile*' has no '!': it was also tried as '*!NtCreateFile*' too"
    rows = [
        grid.run(opened, CLASSES["stacktracedb"], find=name) for name in ("NtCreateFile*", "*!NtCreateFile*")
    ]
    assert rows[0] == rows[1]
    assert warnings(opened, "stacktracedb", caplog, find="nt!NtCreateFile*") == []


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("stacktracedb", "+kst 0x2000"),
        ("handletraces", "!htrace -enable"),
        ("objecttraces", "gflags /ro"),
        ("heaptraces", "+ust 0x1000"),
    ],
)
def test_what_is_not_enabled_is_said_with_the_flag(
    name: str, flag: str, plain: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    answer = only(warnings(plain, name, caplog))
    assert flag in answer
    answer = only(warnings(plain, name, caplog, find="*!*"))
    assert flag in answer


def test_locks_without_traces_of_their_creators(plain: Opened, caplog: pytest.LogCaptureFixture) -> None:
    assert "No lock is known" in warnings(plain, "locks", caplog)[0]
    answer = only(warnings(plain, "locks", caplog, find="*!*"))
    assert "+kst 0x2000" in answer
    assert "+ust 0x1000" in answer


@pytest.mark.parametrize(
    ("name", "options", "answer"),
    [
        *((name, {"find": ""}, "--find is empty") for name in STACKS),
        ("callstacks", {"frames_to_skip": -1}, "--frames-to-skip is -1"),
        ("callstacks", {"frames_to_capture": -2}, "--frames-to-capture is -2"),
    ],
)
def test_an_option_without_a_meaning_is_an_error(
    name: str, options: Dict[str, Any], answer: str, opened: Opened
) -> None:
    with pytest.raises(exceptions.RenderException, match=answer):
        grid.run(opened, CLASSES[name], **options)


@pytest.mark.cli
def test_the_command_line(tmp_path: pathlib.Path) -> None:
    image = sample.build().image()
    file, symbols = image.save(tmp_path / "a.dmp"), image.install(tmp_path / "symbols")
    done = vol.run(file, "windows.callstacks", "--frames-to-skip", "-1", symbols=symbols)
    assert done.returncode == 2
    assert "argument --frames-to-skip: '-1' is not a number of frames, 0 or more" in done.stderr
    assert "Traceback" not in done.stderr
    done = vol.run(file, "windows.locks", "--find", "", symbols=symbols)
    assert done.returncode == 2
    assert "argument --find: the glob for Symbol is empty" in done.stderr
    done = vol.run(file, "windows.heaptraces", "--pid", "77", symbols=symbols)
    assert (done.returncode, done.rows) == (0, [])
    assert "There is no process 77 in this image" in done.stderr
    assert "+ust" not in done.stderr
