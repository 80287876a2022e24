# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the plugins do without their symbol tables, and where a file cannot be written."""

from __future__ import annotations

import logging
import os
import pathlib
import re
import subprocess
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.framework import exceptions, interfaces
from volatility3.plugins.windows import gflags, handletraces, heaptraces, locks, stacktracedb, traces

from tests.forge import context, sample, vol
from tests.forge.context import Opened
from tests.forge.handles import HandleTable, named
from tests.support.tracedkernels import new_kernel, put_database, traces_of
from winstacks.memory import tables


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """The sample in a context into which none of our tables was loaded."""
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def creators(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """An XP whose handles have creators and nothing else."""
    kernel = new_kernel("xp-x86", 0x2000)
    table = HandleTable(kernel.process("app.exe", pid=1000))
    index = put_database(kernel, "5.1", traces_of(kernel))[1]
    table.add(0x84, named(kernel, "_KEVENT", "Event", "Ready"), creator=index)
    table.finish()
    return context.open_image(kernel.image(), tmp_path_factory.mktemp("creators"))


@pytest.mark.parametrize(
    ("plugin", "image"),
    [
        (gflags.GFlags, "bare"),
        (handletraces.HandleTraces, "creators"),
        (heaptraces.HeapTraces, "bare"),
        (locks.Locks, "bare"),
        (stacktracedb.StackTraceDb, "bare"),
    ],
)
def test_a_missing_table_is_found_before_the_first_row(
    plugin: Any,
    image: str,
    tmp_path: pathlib.Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing else is said: whether there is anything to show is not known then."""
    new_plugin = request.getfixturevalue(image).construct(plugin)
    monkeypatch.setattr(tables, "_BESIDE", [tmp_path])
    with pytest.raises(exceptions.RenderException) as error:
        new_plugin.run()
    assert "windows/stacktraces/" in str(error.value) and "copy the 'symbols' folder" in str(error.value)
    assert not caplog.records


def test_every_table_is_looked_for(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kind with several generations one is enough: the others are of other Windows."""
    own = tables._BESIDE[0]
    files = sorted(own.glob("*.json"))
    kinds = {re.sub(r"-[0-9.]+-", "-", file.stem) for file in files}
    assert kinds == {f"{kind}-{arch}" for kind in tables.KINDS for arch in ("x64", "x86", "arm64")}
    for kind in kinds:
        folder = tmp_path / kind
        folder.mkdir()
        for path in files:
            if re.sub(r"-[0-9.]+-", "-", path.stem) != kind:
                (folder / path.name).symlink_to(path)
        monkeypatch.setattr(tables, "_BESIDE", [folder])
        arch = kind.rsplit("-", 1)[-1]
        with pytest.raises(tables.MissingTableError, match="copy the 'symbols' folder"):
            tables.check(arch)
        tables.check({"x64": "x86", "x86": "x64", "arm64": "x64"}[arch])


def test_a_folder_of_tables_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: List[Any] = []
    real = os.listdir

    def listing(folder: Any) -> List[str]:
        listed.append(folder)
        return real(folder)

    monkeypatch.setattr(os, "listdir", listing)
    tables.check("x64")
    assert listed == tables._BESIDE[:1]


@pytest.mark.parametrize("plugin", ["windows.stacktracedb", "windows.locks", "windows.heaptraces"])
def test_a_folder_that_takes_no_file_is_said_before_the_first_row(
    plugin: str, tmp_path: pathlib.Path
) -> None:
    if not pathlib.Path("/proc/self").is_dir():
        pytest.skip("there is no /proc, in which nobody can make a file")
    image = sample.build().image()
    symbols = image.install(tmp_path / "symbols")
    found = vol.run(
        image.save(tmp_path / "image.raw"), plugin, "--dump", symbols=symbols, arguments=("-o", "/proc")
    )
    assert (found.returncode, found.stdout.strip()) == (2, "")
    assert "argument -o/--output-dir: no file can be written to '/proc'" in found.stderr


class _Full(interfaces.plugins.FileHandlerInterface):
    """A file on a disk that is full."""

    def __init__(self, filename: str) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        """Without it, newer Pythons (3.14) take the class for abstract."""


@pytest.mark.parametrize("plugin", [locks.Locks, stacktracedb.StackTraceDb, traces.StackTraces])
def test_a_file_that_cannot_be_written_costs_no_row(
    plugin: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    new_plugin = opened.construct(plugin, dump=True)
    new_plugin.set_open_method(_Full)
    with caplog.at_level(logging.ERROR):
        rows = context.printed(new_plugin)
    outputs = [row["File output"] for _, row in rows if isinstance(row["File output"], str)]
    assert outputs and set(outputs) == {"Error outputting file"}
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors and all("cannot be written: No space left on device" in error for error in errors)


WRONG = {
    "a file instead of a folder": (
        ["-o", "{file}"],
        ["windows.tracereport"],
        "-o/--output-dir: no file can be written to '{file}': it is not a folder",
    ),
    "a folder that accepts no file": (
        ["-o", "/proc"],
        ["windows.tracegraph"],
        "-o/--output-dir: no file can be written to '/proc'",
    ),
    "a severity": (
        [],
        ["windows.tracefindings", "--severity", "urgent"],
        "--severity: invalid choice: 'urgent'",
    ),
    "a check": ([], ["windows.tracefindings", "--check", "unbaked"], "--check: invalid choice: 'unbaked'"),
    "a check to explain": ([], ["windows.tracefindings", "--explain", "x"], "--explain: invalid choice: 'x'"),
    "a format": ([], ["windows.tracegraph", "--format", "svg"], "--format: invalid choice: 'svg'"),
    "a folder of files": (
        [],
        ["windows.locks", "--binaries", "{file}"],
        "--binaries: there is no folder '{file}'",
    ),
}
"""Wrong command lines: options of Volatility, the plugin with its options, and the answer."""


@pytest.mark.cli
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_option_is_refused_before_the_image_is_opened(wrong: str, tmp_path: pathlib.Path) -> None:
    """The image is no image, which a plugin would complain about if it had come so far."""
    file = tmp_path / "text.txt"
    file.write_text("text")
    (tmp_path / "symbols").mkdir()
    arguments, command, answer = WRONG[wrong]
    if "/proc" in arguments and not pathlib.Path("/proc/self").is_dir():
        pytest.skip("there is no /proc, in which nobody can make a file")
    arguments, command = ([text.format(file=file) for text in part] for part in (arguments, command))
    done = vol.run(file, *command, symbols=tmp_path / "symbols", arguments=arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: argument {answer.format(file=file)}" in done.stderr
    assert file.read_text() == "text"


@pytest.mark.cli
@pytest.mark.skipif(os.name == "nt", reason="limits of file sizes are those of POSIX")
@pytest.mark.parametrize(
    ("command", "file"),
    [("windows.tracereport", "tracereport.html"), ("windows.traces --dump", "traceframes.jsonl")],
)
def test_a_full_disk_makes_the_command_fail(command: str, file: str, tmp_path: pathlib.Path) -> None:
    """After all rows, with the path of the file; no part of the file is left under any name."""
    image, out = sample.build().image(), tmp_path / "out"
    saved, symbols = image.save(tmp_path / "image.raw"), image.install(tmp_path / "symbols")
    # What Volatility caches is written while there is room.
    assert vol.run(saved, "windows.gflags", symbols=symbols).rows
    out.mkdir()
    line, environment = vol.prepare(
        saved, *command.split(), symbols=symbols, renderer="pretty", arguments=("-o", str(out))
    )
    done = subprocess.run(limited(line, 0x9000), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert f"{out / file} cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Error outputting file" in done.stdout
    assert not [path.name for path in out.iterdir() if path.name == file or path.suffix == ".vol3"]


def limited(line: List[str], room: int) -> List[str]:
    """Returns a command of Python that can write no file of more bytes than there is room."""
    limit = f"import resource, runpy, sys; del sys.argv[0]; room = {room}; "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)); "
    limit += "runpy.run_path(sys.argv[0], None, '__main__')"
    return [line[0], "-c", limit, *line[1:]]


def prepare_buffered(plugin: str, renderer: str, folder: pathlib.Path) -> Tuple[List[str], Dict[str, str]]:
    """A command about the sample, and its environment: Python buffers its output, as it does by default."""
    image = sample.build().image()
    line, environment = vol.prepare(
        image.save(folder / "image.raw"),
        plugin,
        symbols=image.install(folder / "symbols"),
        renderer=renderer,
    )
    environment["PYTHONUNBUFFERED"] = ""
    return line, environment


@pytest.mark.cli
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full, a disk that is full")
@pytest.mark.parametrize("renderer", ["csv", "json", "quick"])
def test_rows_that_do_not_reach_standard_output_make_the_command_fail(
    renderer: str, tmp_path: pathlib.Path
) -> None:
    """Python ignores the error of its last flush: it loses a text of 5 KB, such as this JSON, in silence."""
    line, environment = prepare_buffered("windows.gflags", renderer, tmp_path)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            line, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert done.returncode == 1
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.cli
@pytest.mark.skipif(os.name == "nt", reason="the limits of POSIX")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_text_that_reaches_a_file_in_part_makes_the_command_fail(
    unbuffered: str, tmp_path: pathlib.Path
) -> None:
    """Without its buffer, Python takes the part for the whole: the JSON was cut, and the code was 0."""
    line, environment = prepare_buffered("windows.gflags", "json", tmp_path)
    environment["PYTHONUNBUFFERED"] = unbuffered
    whole = subprocess.run(line, stdout=subprocess.PIPE, env=environment, check=True).stdout
    with (tmp_path / "rows.json").open("wb") as rows:
        done = subprocess.run(
            limited(line, len(whole) - 100),
            stdout=rows,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            check=False,
        )
    assert done.returncode == 1
    assert "standard output cannot be written: File too large" in done.stderr


@pytest.mark.cli
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full, a disk that is full")
def test_messages_that_do_not_reach_standard_error_change_nothing_else(tmp_path: pathlib.Path) -> None:
    """Python would end with 120 after all rows were written."""
    line, environment = prepare_buffered("windows.callstacks", "quick", tmp_path)
    whole = subprocess.run(line, capture_output=True, env=environment, check=True)
    assert b"WARNING" in whole.stderr
    with open("/dev/full", "wb") as full:
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=full, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, whole.stdout)


@pytest.mark.cli
@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize("renderer", ["csv", "jsonl", "pretty", "quick"])
@pytest.mark.parametrize("name", ["gflags", "traceframes"])
def test_who_reads_the_rows_may_stop(name: str, renderer: str, tmp_path: pathlib.Path) -> None:
    """The rows of windows.gflags fit into a buffer, which the last flush writes."""
    line, environment = prepare_buffered(f"windows.{name}", renderer, tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        line, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, check=False
    )
    os.close(writer)
    assert done.returncode == 0
    assert "Broken pipe" not in done.stderr and "Traceback" not in done.stderr
