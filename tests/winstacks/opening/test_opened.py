# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`winstacks.open`: it lists what the plugins list, imports nothing before, and fails with a sentence."""

from __future__ import annotations

import gc
import inspect
import json
import os
import pathlib
import subprocess
import sys
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest
from minidump.minidumpfile import MinidumpFile

import winstacks
from tests.conftest import ROOT, SHARED
from tests.forge import context, sample
from tests.forge.context import Opened as OpenedImage
from tests.support import processdumps, smalldumps
from tests.support.only import only
from winstacks.columns import words
from winstacks.locks.lock import Lock
from winstacks.opening import opened, volatility

REAL = SHARED / "real_minidumps"
FILES = sorted(REAL.glob("*.dmp"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("sample")


@pytest.fixture(scope="module")
def forged(folder: pathlib.Path) -> OpenedImage:
    return context.open_image(sample.build().image(), folder, "sample.dmp")


@pytest.fixture(scope="module")
def image_path(folder: pathlib.Path, forged: OpenedImage) -> pathlib.Path:
    return folder / "sample.dmp"


@pytest.fixture(scope="module")
def image(image_path: pathlib.Path) -> Iterator[winstacks.Opened]:
    with winstacks.open(image_path) as found:
        yield found


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_package_imports_nothing_until_it_is_asked() -> None:
    done = run(
        "import json, sys; import winstacks; winstacks.VERSION; hasattr(winstacks, 'nothing');"
        "print(json.dumps([name for name in sys.modules if name.startswith(('winstacks', 'volatility3'))]))"
    )
    assert json.loads(done.stdout) == ["winstacks"], done.stderr


def test_types_are_those_of_the_functions() -> None:
    """The stub names exactly what the package gives."""
    stub = (ROOT / "winstacks" / "__init__.pyi").read_text(encoding="utf-8")
    names = {line.rpartition(" as ")[2] for line in stub.splitlines() if " as " in line}
    assert names == {"InputError", "Opened", "open"}
    for name in names:
        assert getattr(winstacks, name) is getattr(opened, name)
    assert winstacks.InputError is volatility.InputError
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        winstacks.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.shared
def test_three_lines_in_a_program_that_has_imported_plugins_before() -> None:
    """Volatility's package of plugins then has the folders of that time."""
    done = run(
        "import sys, volatility3.plugins.windows.pslist, winstacks\n"
        "for stack in winstacks.open(sys.argv[1], offline=True).stacks(kinds=['user']):\n"
        "    print(stack.space.process, stack.tid, [frame.symbol for frame in stack.listed()][:1])\n",
        str(REAL / "null_write_av.dmp"),
    )
    assert done.stdout.splitlines()[0] == "crashme.exe 5408 ['crashme+0xa6cd']", done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.shared
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_real_dump_has_the_threads_and_the_exception_that_another_reader_finds(path: pathlib.Path) -> None:
    other = MinidumpFile.parse(str(path))
    with winstacks.open(path, offline=True) as dump:
        assert {thread.tid for thread in dump.threads()} == {one.ThreadId for one in other.threads.threads}
        crash = dump.crash()
        if other.exception is None:
            assert crash is None
        else:
            record = only(other.exception.exception_records)
            assert crash is not None and crash.stack is not None
            assert crash.code == record.ExceptionRecord.ExceptionCode_raw
            assert crash.stack.tid == record.ThreadId
            mask = dump.image.machine.masked(-1)
            address = crash.stack.frames[0].address
            assert address is not None
            assert address & mask == record.ExceptionRecord.ExceptionAddress & mask


def rows(plugin: Any) -> List[Dict[str, object]]:
    return [row for _, row in context.printed(plugin)]


def test_stacks_are_those_of_windows_traces(image: winstacks.Opened, image_path: pathlib.Path) -> None:
    expected = rows(volatility.construct(image_path, {}))
    stacks = list(image.stacks())
    assert [stack.trace_id for stack in stacks] == [row["TraceId"] for row in expected]
    assert {stack.kind for stack in stacks} == set(words.KINDS) - {words.CALLBACK}
    few = list(image.stacks(kinds=["lock"], pids=[4312]))
    assert few and [stack.trace_id for stack in few] == [
        row["TraceId"] for row in expected if row["Kind"] == "lock" and row["PID"] == 4312
    ]


def test_a_frame_says_its_name_how_and_status(image: winstacks.Opened) -> None:
    walked = next(iter(image.stacks(kinds=["user"], pids=[4312])))
    first, *_ = walked.listed()
    assert (first.number, first.symbol, first.address) == (
        0,
        walked.frames[0].shown,
        walked.frames[0].address,
    )
    assert first.how == walked.walked[0].how and first.how in words.HOWS
    recorded = next(iter(image.stacks(kinds=["lock"], pids=[4312])))
    assert {frame.how for frame in recorded.listed()} == {words.RECORDED}


def test_processes_threads_locks_waits_heaps_and_findings(image: winstacks.Opened) -> None:
    assert image.input.kind == words.MEMORY_IMAGE
    processes = {process.space.pid: process for process in image.processes()}
    assert processes[4312].space.process == "updater.exe" and processes[5120].wow64 is not None
    assert {thread.tid for thread in image.threads(pids=[4312])} == {4316, 4320, 4324}
    locks = [lock for lock in image.locks(pids=[4312]) if isinstance(lock, Lock)]
    named = [image.recorded(lock.space, lock.stack) for lock in locks if lock.stack.frames]
    assert any("updater!open_store" in frame.shown for frames in named for frame in frames)
    waits = [wait for process in image.waits() for wait in process.waits]
    assert waits and all(wait.awaited for wait in waits)
    heaps = only(image.heaps(pids=[4312]))
    blocks = [block for group in heaps.contents.groups for block in group.blocks]
    assert len(blocks) == sum(group.allocations for group in heaps.contents.groups) > 20
    found = image.findings(checks=["unbacked"])
    assert {outcome.finding.space.pid for outcome in found if outcome.finding is not None} >= {4312}
    crash = image.crash()
    assert crash is not None and (crash.code, crash.stack) == (0xE2, None)
    assert image.name(processes[4312].space, 0x7FE00041121).symbol == "ntdll!RtlUserThreadStart+0x21"


def test_a_small_dump_has_its_crash_and_refuses_what_it_lacks(
    forged: OpenedImage, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / smalldumps.SAMPLE
    smalldumps.write_of_sample(forged, path)
    with winstacks.open(path) as dump:
        crash = dump.crash()
        assert crash is not None and crash.stack is not None and crash.code == smalldumps.CODE
        assert crash.stack.frames and crash.stack.keys().stack
        assert only(dump.threads()).tid is not None
        # The dump lists no modules of the process: code there is not known to be in none.
        user = only(dump.stacks(kinds=["user"]))
        assert (user.frames[0].shown, user.unbacked, user.keys().quality) == ("<unknown>", None, "partial")
        for refused in (dump.locks, dump.heaps):
            with pytest.raises(winstacks.InputError, match="A small kernel dump has the kernel stack of one"):
                refused()


def test_the_dump_of_a_process_has_what_its_image_has(
    forged: OpenedImage, image: winstacks.Opened, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "spooler.dmp"
    processdumps.write_of_sample(forged, path)

    def first_frames(found: winstacks.Opened) -> Dict[Optional[int], str]:
        stacks = found.stacks(kinds=["user"], pids=[6200])
        return {stack.tid: stack.frames[0].shown for stack in stacks if stack.frames}

    with winstacks.open(path) as dump:
        assert dump.input.kind == words.PROCESS_DUMP
        assert first_frames(dump) == first_frames(image) != {}


REFUSED = {
    "nothing there": ({}, "There is no file"),
    "text": ({}, "Volatility finds no Windows kernel in the file"),
    "empty": ({}, "The file is empty"),
    "a folder": ({}, "The file cannot be read: [Errno 21] Is a directory: "),
    "cut": ({}, "The file begins as a dump of one process and is not one"),
    "folder": ({"symbol_dirs": ["/nowhere/at/all"]}, "There is no folder '/nowhere/at/all' with symbols"),
    "one folder": ({"symbol_dirs": "symbols"}, "symbol_dirs is a list of folders: ['symbols']"),
    "binaries": ({"binaries": ["/nowhere/at/all"]}, "--binaries: there is no folder"),
    "for dumps": ({"kernel_symbols": "a.json"}, "kernel_symbols is for dumps of one process"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_opened_is_said_in_one_sentence(
    case: str, tmp_path: pathlib.Path, image_path: pathlib.Path
) -> None:
    options, sentence = REFUSED[case]
    path = image_path if options else tmp_path / "file"
    contents = {"text": b"no memory" * 1000, "cut": b"MDMP", "empty": b""}
    if case in contents:
        path.write_bytes(contents[case])
    elif case == "a folder":
        path.mkdir()
    with pytest.raises(winstacks.InputError) as raised:
        winstacks.open(path, **options)  # type: ignore[arg-type]
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such file")
def test_a_pipe_is_no_file(tmp_path: pathlib.Path) -> None:
    """To open a pipe waits for its writer, which may never come; here is one."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        os.write(writer, b"MDMP")
        with pytest.raises(winstacks.InputError, match="There is no file"):
            winstacks.open(path)
    finally:
        os.close(writer)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="Linux lists open files there")
def test_a_closed_image_is_let_go(image_path: pathlib.Path) -> None:
    """A file stayed open for each image, and with it all that was known of the last dozens of images."""

    def times_open() -> int:
        links = pathlib.Path("/proc/self/fd").iterdir()
        return [os.readlink(link) for link in links if link.exists()].count(str(image_path))

    gc.collect()
    before = times_open()
    with winstacks.open(image_path) as found:
        assert list(found.stacks(kinds=["kernel"]))
        kept = weakref.ref(found.image.context)
        assert times_open() > before
    assert times_open() == before
    del found
    gc.collect()
    assert kept() is None


CLOSED: Dict[str, Callable[[winstacks.Opened], object]] = {
    "stacks": lambda opened: list(opened.stacks()),
    "processes": lambda opened: list(opened.processes()),
    "findings": lambda opened: opened.findings(),
    "crash": lambda opened: opened.crash(),
    "image": lambda opened: opened.image,
}


@pytest.mark.parametrize("name", CLOSED)
def test_nothing_is_listed_of_a_closed_file(name: str, image_path: pathlib.Path) -> None:
    found = winstacks.open(image_path)
    CLOSED[name](found)
    found.close()
    found.close()
    with pytest.raises(winstacks.InputError, match=r"^The file is closed$"):
        CLOSED[name](found)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", ["processes", "threads", "stacks", "locks", "waits", "heaps"])
def test_a_list_ends_where_the_file_is_closed(name: str, begun: bool, image_path: pathlib.Path) -> None:
    with winstacks.open(image_path) as found:
        items = iter(getattr(found, name)())
        if begun:
            next(items)
    with pytest.raises(winstacks.InputError, match=r"^The file is closed$"):
        next(items)


def test_an_image_without_symbols_is_another_sentence(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "memory.dmp"
    sample.build().image().save(path)
    code = "import sys, winstacks\ntry:\n    winstacks.open(sys.argv[1], offline=True, cache=sys.argv[2])\n"
    code += "except winstacks.InputError as error:\n    print(error)"
    done = run(code, str(path), str(tmp_path / "cache"))
    sentence = "Volatility has no symbols of the Windows kernel in the file: symbol_dirs names folders"
    assert done.stdout.startswith(sentence) and done.stdout.count("\n") == 1, done.stderr


@pytest.mark.shared
@pytest.mark.parametrize("path", sorted(REAL.glob("other_systems/*.dmp")), ids=lambda path: path.stem)
def test_a_dump_of_another_system_is_refused_with_its_name(path: pathlib.Path) -> None:
    with pytest.raises(winstacks.InputError, match=r"^This is a dump of a process of \w+, and"):
        winstacks.open(path, offline=True)


def test_unknown_words_are_refused(image: winstacks.Opened) -> None:
    for wrong in (["kernal"], "kernel"):
        with pytest.raises(winstacks.InputError, match="the words are kernel, user"):
            image.stacks(kinds=wrong)
    with pytest.raises(winstacks.InputError, match="There is no check 'nothing'"):
        image.findings(checks=["nothing"])


def test_an_empty_list_selects_nothing(image: winstacks.Opened) -> None:
    """A program that computes a list may find none: `None` alone means all."""
    for method in (image.processes, image.threads, image.stacks, image.locks, image.waits, image.heaps):
        assert list(method(pids=None)) and not list(method(pids=[])), method.__name__
    assert not list(image.threads(tids=[])) and not list(image.stacks(tids=[]))
    assert not list(image.stacks(kinds=[])) and not image.findings(checks=[])
    assert {outcome.finding for outcome in image.findings(pids=[])} == {None}
    assert "no process is selected" in {outcome.reason for outcome in image.findings(pids=[])}


@pytest.mark.parametrize("wrong", [4312, "4312", ["4312"], [None]], ids=str)
def test_ids_that_are_no_numbers_are_refused(wrong: Any, image: winstacks.Opened) -> None:
    """No process has an ID that is a text: a list without rows would be no answer."""
    methods = (
        image.processes,
        image.threads,
        image.stacks,
        image.locks,
        image.waits,
        image.heaps,
        image.findings,
    )
    for method in methods:
        with pytest.raises(winstacks.InputError, match="A list of numbers is needed"):
            method(pids=wrong)
    for method in (image.threads, image.stacks):
        with pytest.raises(winstacks.InputError, match="A list of numbers is needed"):
            method(tids=wrong)


def test_settings_hold_for_the_process(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from volatility3 import symbols
    from volatility3.framework import constants

    monkeypatch.setattr(constants, "OFFLINE", False)
    monkeypatch.setattr(constants, "CACHE_PATH", constants.CACHE_PATH)
    monkeypatch.setattr(symbols, "__path__", list(symbols.__path__))
    volatility.Settings([tmp_path], tmp_path / "cache").apply()
    assert not constants.OFFLINE
    assert (constants.CACHE_PATH, symbols.__path__[0]) == (str(tmp_path / "cache"), str(tmp_path))
    known = list(symbols.__path__)
    volatility.Settings([tmp_path], offline=True).apply()
    assert constants.OFFLINE and symbols.__path__ == known
    (tmp_path / "file").touch()
    with pytest.raises(winstacks.InputError, match="The cache cannot be in"):
        volatility.Settings(cache=tmp_path / "file" / "cache").apply()


def test_every_option_of_open_is_keyword_only() -> None:
    path, *options = inspect.signature(winstacks.open).parameters.values()
    assert path.name == "path" and {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}
