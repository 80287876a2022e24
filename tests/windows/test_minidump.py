# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""windows.minidump: its rows, the files that it writes, and what it says where it cannot."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from volatility3.framework import exceptions
from volatility3.plugins.windows import minidump

from tests.forge import context, kernels, sample, vol
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.minidump.test_plugins import shown
from tests.support.only import only
from tests.support.writtendumps import taken_by_others
from winstacks.memory import bulk
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.minidump import resident
from winstacks.minidump.decode import system, threadstates
from winstacks.minidump.decode.dumpfile import Minidump
from winstacks.minidump.decode.memory import memory_info_list, memory_ranges
from winstacks.minidump.resident import ResidentMemory
from winstacks.process.threads import processes
from winstacks.rows import plugin as plugins
from winstacks.rows.plugin import FAILED

UPDATER, LEGACY = 4312, 5120

Rows = List[Tuple[int, Dict[str, Any]]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("minidump"))


def rows(opened: Opened, **options: Any) -> Rows:
    return shown(opened.rows(minidump.MiniDump, **options))


def streams(found: Rows) -> Dict[str, str]:
    return {row["Member"]: row["Value"] for depth, row in found if depth == 1}


def read(path: pathlib.Path) -> Minidump:
    data = path.read_bytes()
    return Minidump(lambda offset, length: data[offset : offset + length], len(data))


def test_rows_say_what_a_dump_would_have(opened: Opened) -> None:
    found = rows(opened, pid=[UPDATER])
    (_, first), *_ = found
    assert (first["PID"], first["Process"], first["Arch"]) == (UPDATER, "updater.exe", "x64")
    assert (first["Member"], first["File output"], first["Status"]) == ("bytes of memory", "Disabled", "")
    assert int(first["Value"]) % 0x1000 == 0 < int(first["Value"])
    listed = streams(found)
    assert (listed["ThreadListStream"], listed["ModuleListStream"]) == ("3", "3")
    assert (listed["CommentStreamW"], listed["CommentStreamA"]) == ("1", "1")


def test_registers_that_are_not_known_are_named(opened: Opened) -> None:
    """A frame of a system call lacks volatile registers, that of an interrupt none; each has its row."""
    threads = {row["TID"]: row for _, row in rows(opened, pid=[UPDATER]) if row["Member"] == "ContextFlags"}
    assert set(threads) == {4316, 4320, 4324}
    assert threads[4316]["NotSaved"] == "Rcx R8 R9 R10 R11"
    assert threads[4320]["NotSaved"] == ""
    assert {row["Value"] for row in threads.values()} == {"0x100003"}
    assert [row["Status"] for row in threads.values()] == ["", "", "running"]


def test_what_the_image_does_not_tell_is_named(opened: Opened) -> None:
    found = [
        row for depth, row in rows(opened, pid=[UPDATER]) if depth == 2 and row["TID"] == "NotApplicableValue"
    ]
    assert all(row["Value"] == "UnreadableValue" for row in found)
    assert {row["Member"]: row["Status"] for row in found}[
        "KernelTime"
    ] == "0 stands for unknown in 3 of its structures"


def test_all_processes_without_pid(opened: Opened) -> None:
    """System has no user half: its row says so, and the others have a dump each."""
    firsts = {row["PID"]: row["Status"] for depth, row in rows(opened) if not depth}
    assert firsts == {4: "no PEB", UPDATER: "", LEGACY: "", 6200: ""}


def test_the_32_bit_half(opened: Opened) -> None:
    found = rows(opened, pid=[LEGACY, UPDATER], format="wow64")
    firsts = {row["PID"]: (row["Arch"], row["Status"]) for depth, row in found if not depth}
    assert firsts == {LEGACY: ("x86", ""), UPDATER: ("x64", "no 32-bit half")}


def test_a_format_that_there_is_not(opened: Opened) -> None:
    with pytest.raises(
        exceptions.RenderException, match="--format: unknown value elf; choose from native, wow64"
    ):
        opened.construct(minidump.MiniDump, format="elf").run()


def test_brief(opened: Opened) -> None:
    found = rows(opened, pid=[UPDATER], brief=True)
    assert list(found[0][1]) == ["PID", "Process", "TID", "Member", "Value", "Status"]


@pytest.mark.cli
def test_a_file_and_its_custody(tmp_path: pathlib.Path) -> None:
    """On the real command line: the file is where -o says, and its comments say where it comes from."""
    image = sample.build().image()
    path = tmp_path / "evidence.dmp"
    image.save(path)
    symbols = image.install(tmp_path / "symbols")
    out = tmp_path / "out"
    out.mkdir()
    result = vol.run(
        path,
        "windows.minidump",
        *("--pid", str(UPDATER), "--dump", "--sha256"),
        symbols=symbols,
        arguments=("-o", str(out)),
    )
    assert result.returncode == 0, result.stderr
    row = only(result.rows)
    file = only(out.iterdir())
    assert row["File output"] == file.name
    assert taken_by_others(file)
    dump = read(file)
    assert (dump.status, [stream for stream in dump.streams if stream.status]) == ((), [])
    ranges, faults = memory_ranges(dump)
    assert (sum(piece.length for piece in ranges), faults) == (int(row["Value"]), ())
    comments = {kind: text for kind, text, _ in system.comments(dump)}
    custody = comments[11]
    for part in (f"--pid {UPDATER}", "evidence.dmp", "SHA-256", "ImageId: i", "winstacks 4.", "updater.exe"):
        assert part in custody
    assert "Thread 4316: 0 stands for unknown in its CONTEXT: Rcx R8 R9 R10 R11" in comments[10]


@pytest.mark.cli
def test_the_name_is_that_of_one_plugin(tmp_path: pathlib.Path) -> None:
    """Volatility takes a part of a name: `windows.minidump` is none of the plugins for dumps."""
    path = tmp_path / "none.dmp"
    path.write_bytes(b"none")
    (tmp_path / "symbols").mkdir()
    for plugin, words in (("windows.minidump", "--format"), ("minidump.info", "--brief")):
        result = vol.run(path, plugin, "--help", symbols=tmp_path / "symbols")
        assert result.returncode == 0, result.stderr
        assert words in result.stdout


def test_memory_regions_tell_what_is_not_in_the_image_as_reserved(
    opened: Opened, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = read(written(opened, tmp_path, monkeypatch))
    infos, faults = memory_info_list(dump)
    assert faults == ()
    assert infos[0].BaseAddress == 0
    ranges, _ = memory_ranges(dump)
    committed = [(info.BaseAddress, info.RegionSize) for info in infos if info.State == 0x1000]
    pages = {start + at for start, _, size in ranges for at in range(0, size, 0x1000)}
    committed_pages = {start + at for start, size in committed for at in range(0, size, 0x1000)}
    assert committed_pages == pages
    reserved = sum(info.RegionSize for info in infos if info.State == 0x2000)
    comment = next(text for kind, text, _ in system.comments(dump) if kind == 10)
    assert f"{reserved} bytes in " in comment


def written(
    opened: Opened, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> pathlib.Path:
    """Returns the dump of a process."""
    found = run(opened, folder, monkeypatch, **options)
    return folder / str(found[0][1]["File output"])


def run(opened: Opened, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Rows:
    from volatility3.cli import CommandLine

    plugin = opened.construct(minidump.MiniDump, **{"pid": [UPDATER], "dump": True, **options})
    line = CommandLine()
    line.output_dir = str(folder)
    plugin.set_open_method(line.file_handler_class_factory())
    found = context.printed(plugin)
    for file in folder.glob("*.dmp"):
        taken_by_others(file)
    return found


def test_the_columns_of_brief_have_the_name_of_the_file(
    opened: Opened, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(opened, tmp_path, monkeypatch, brief=True)
    assert [file] == list(tmp_path.iterdir())
    assert "File output" not in run(opened, tmp_path, monkeypatch, brief=True, dump=False)[0][1]


@pytest.mark.skipif(os.name == "nt", reason="limits of file sizes are those of POSIX")
@pytest.mark.parametrize("room", [0x1000, 0x20000])
def test_a_full_disk_leaves_no_half_file(
    opened: Opened, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Where the system refuses more bytes: the row says so, and no file is left under any name."""
    failures: List[int] = []
    monkeypatch.setattr(plugins, "fail_at_exit", lambda: failures.append(1))
    with room_for(room):
        found = run(opened, tmp_path, monkeypatch)
    assert found[0][1]["File output"] == FAILED
    assert StatusCode.NOT_WRITTEN.value in found[0][1]["Status"]
    assert list(tmp_path.iterdir()) == []
    assert failures == [1]


@pytest.mark.skipif(os.name == "nt", reason="limits of file sizes are those of POSIX")
def test_a_disk_without_room_is_found_before_the_first_row(
    opened: Opened, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        room_for(0),
        pytest.raises(exceptions.RenderException, match=f"no file can be written to '{tmp_path}"),
    ):
        run(opened, tmp_path, monkeypatch)
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def room_for(room: int) -> Iterator[None]:
    """Lets no file of this process grow beyond a number of bytes."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_is_broken_off_leaves_no_file(
    opened: Opened, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def content(memory: ResidentMemory) -> Iterator[bytes]:
        yield b"x" * 0x1000
        raise KeyboardInterrupt

    monkeypatch.setattr(ResidentMemory, "content", content)
    with pytest.raises(KeyboardInterrupt):
        run(opened, tmp_path, monkeypatch)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_while_writing_is_counted(
    opened: Opened, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an image on a failing disk: zeros stand there, the row and the dump say how many."""
    real = bulk.read_extents

    def failing(context: Any, layer: str, start: int, length: int, *more: Any, **named: Any) -> Any:
        return Extents(()) if length > 0x2000 else real(context, layer, start, length, *more, **named)

    monkeypatch.setattr(resident.bulk, "read_extents", failing)
    found = run(opened, tmp_path, monkeypatch)
    unread = threadstates.thread_states(read(tmp_path / str(found[0][1]["File output"])))
    assert unread.unread_bytes > 0
    assert f"{unread.unread_bytes} unreadable bytes are 0" in found[0][1]["Status"]


def test_pages_of_zeros_need_no_room(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB that a process has touched and never written: the file has them, the disk has not."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("zeros.exe", pid=1000, session=1)
    process.module("ntdll.dll")
    size = 64 << 20
    start = 0x10000000
    process.region(start, size=size)
    opened = context.open_image(kernel.image(), tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    path = written(opened, out, monkeypatch, pid=[1000])
    ranges, _ = memory_ranges(read(path))
    assert any(piece.start <= start and piece.length >= size for piece in ranges)
    assert path.stat().st_size > size
    if os.name != "nt":
        assert path.stat().st_blocks * 512 < 4 << 20


def test_nothing_is_kept_of_a_page(opened: Opened) -> None:
    """Memory of adjacent pages is one range, and is handed out in pieces of a megabyte at most."""
    process = only(processes(opened.image, [UPDATER]))
    memory = ResidentMemory(opened.image, process.space, [], 1 << 47)
    pieces = [len(piece) for piece in memory.content()]
    assert sum(pieces) == memory.size == sum(memory.ranges[1::2])
    assert max(pieces) <= resident.CHUNK
    ends = [start + size for start, size in zip(memory.ranges[::2], memory.ranges[1::2])]
    assert all(end < start for end, start in zip(ends, memory.ranges[2::2]))


def test_forged_page_tables_cannot_make_a_dump_endless(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = only(processes(opened.image, [UPDATER]))
    whole = ResidentMemory(opened.image, process.space, [], 1 << 47)
    monkeypatch.setattr(resident, "MOST_OF_THE_IMAGE", 0)
    cut = ResidentMemory(opened.image, process.space, [], 1 << 47)
    assert (cut.size, cut.cut) == (0, whole.ranges[0])
    monkeypatch.undo()
    monkeypatch.setattr(resident, "MAX_RANGES", 3)
    cut = ResidentMemory(opened.image, process.space, [], 1 << 47)
    assert (list(cut.ranges), cut.cut) == (list(whole.ranges[:6]), whole.ranges[6])
