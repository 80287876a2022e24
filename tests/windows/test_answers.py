# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A run that shows nothing says why, in one wording for all plugins; options without a meaning end it."""

from __future__ import annotations

import argparse
import logging
import pathlib
from typing import Any, Dict, List, Optional, Tuple

import pytest
from volatility3.framework import exceptions, interfaces

from tests.forge import context, kernels, sample, vol
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.support import grid
from tests.support.only import only
from tests.windows.test_columns import CLASSES, STACKS
from winstacks import options as our_options
from winstacks.rows.requested import RequestedIds

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
    assert answer == "--find 'NtCreateFile*' has no '!': it was also tried as '*!NtCreateFile*'"
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
    # An empty variable of a shell: Volatility's own plugins list all processes.
    done = vol.run(file, "windows.minidump", "--dump", "--pid", symbols=symbols)
    assert (done.returncode, list(tmp_path.glob("*.pid*"))) == (2, [])
    assert "argument --pid: expected at least one argument" in done.stderr
    done = vol.run(file, "windows.minidump", "--dump", "--proc", symbols=symbols)
    assert (done.returncode, list(tmp_path.glob("*.pid*"))) == (2, [])
    assert "argument --process: expected at least one argument" in done.stderr
    done = vol.run(file, "windows.heaptraces", "--pid", "77", symbols=symbols)
    assert (done.returncode, done.rows) == (0, [])
    assert "There is no process 77 in this image" in done.stderr
    assert "+ust" not in done.stderr


def test_a_name_matches_at_any_offset(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    def found(find: str) -> object:
        return grid.run(opened, CLASSES["callstacks"], find=find)

    whole = found("*!count_jobs+0x1d")
    assert whole
    for name in ("count_jobs", "COUNT_JOBS", "spooler!count_jobs", "*!count_jobs+*"):
        assert found(name) == whole
    # A glob and an offset are taken as they are.
    assert not found("spooler!count_jobs+0x1")
    assert not found("spooler!*_jobs")
    assert not found("count_job")


@pytest.mark.parametrize(
    ("find", "names"),
    [
        ("spooler!count_jbs", "spooler!count_jobs"),
        ("count_jobs+0x1", "spooler!count_jobs"),
        ("cuont_jobs", "spooler!count_jobs"),
        ("*JOBS", "spooler!count_jobs"),
    ],
)
def test_a_miss_names_the_nearest(
    find: str, names: str, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    answer = only(warnings(opened, "callstacks", caplog, find=find))
    assert f"; nearest names: {names}" in answer


def test_processes_are_selected_by_name(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    def found(**options: Any) -> object:
        return grid.run(opened, CLASSES["callstacks"], **options)

    spooler, both = found(pid=[6200]), found(pid=[5120, 6200])
    assert spooler
    for names in (["spooler"], ["SPOOLER.EXE"], ["spo*"], ["nosuch", "spooler"]):
        assert found(process=names) == spooler
    assert found(process=["spooler"], pid=[5120]) == both
    assert found(process=["[ls]*.exe"]) == both
    answers = warnings(opened, "callstacks", caplog, process=["spoler", "spooler"])
    assert answers == ["There is no process with the name spoler in this image; nearest names: spooler.exe"]


@pytest.mark.parametrize("name", WITH_PID)
def test_a_name_that_no_process_has_is_answered_as_an_id_is(
    name: str, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    """Volatility's own plugins end with 0 and an empty table where a filter leaves out everything."""
    answer = "There is no process with the name updatr in this image; nearest names: updater.exe"
    assert warnings(opened, name, caplog, process=["updatr"]) == [answer]
    by_name, by_id = (
        grid.run(opened, CLASSES[name], **chosen) for chosen in ({"process": ["updatr"]}, {"pid": [99]})
    )
    assert len(by_name) == len(by_id)
    if name == "tracefindings":
        assert {node.row["Evidence"] for node in by_name} == {
            "no finding: 0 checks examined 0 stacks of 0 processes",
            "no process has the name updatr",
        }
        assert "no process has the ID 99" in {node.row["Evidence"] for node in by_id}
        both = grid.run(opened, CLASSES[name], process=["updatr", "no*"], pid=[99])
        assert "no process has the ID 99 or the name updatr or no*" in {node.row["Evidence"] for node in both}
    else:
        assert by_name == by_id


def test_a_name_that_windows_cut_is_found_by_the_whole(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    kernel.process("mailserver-ser", pid=76)
    kernel.process("mail.exe", pid=80)
    opened = context.open_image(kernel.image(), tmp_path)

    def found(name: str, kernel: bool) -> Optional[Tuple[int, ...]]:
        config = interfaces.configuration.HierarchicalDict({"process": [name]})
        return RequestedIds(config, kernel).processes(lambda: opened.image)

    assert found("mailserver-service.exe", kernel=False) == (76,)
    assert found("mailserver-*", kernel=True) == (76,)
    assert found("nt", kernel=True) == (0,)
    for name in ("nt", "mailserv", "mail.exe.bak"):
        assert found(name, kernel=False) == ()


@pytest.mark.parametrize("text", ["1d2900002d0", "000001d2`900002d0", "zz", ""])
def test_an_address_in_another_form_is_told_how_to_be_written(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    for of in (our_options.offset(), our_options.address("An address")):
        parser.add_argument(f"--{of.name}", type=of.instance_type)
        with pytest.raises(SystemExit):
            parser.parse_args([f"--{of.name}", text])
        message = f"argument --{of.name}: {text!r} is not a number; write an address as 0x"
        assert message in capsys.readouterr().err
    assert parser.parse_args(["--offset", "0x1d2900002d0"]).offset == 0x1D2900002D0


@pytest.mark.cli
def test_a_name_is_no_process_id(tmp_path: pathlib.Path) -> None:
    (tmp_path / "symbols").mkdir()
    missing = tmp_path / "missing.dmp"
    refused = vol.run(missing, "windows.callstacks", "--pid", "mailsrv", symbols=tmp_path / "symbols")
    assert refused.returncode == 2
    assert "argument --pid: 'mailsrv' is not a number; --process takes names of processes" in refused.stderr
