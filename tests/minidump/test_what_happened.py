# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`minidump.info --brief` tells what happened in at most ten lines, and `traceimage` in one row."""

from __future__ import annotations

import lzma
import pathlib
import struct
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.cli import text_renderer
from volatility3.plugins.minidump import info, traceimage, traces

from tests.conftest import SHARED
from tests.forge import smalldump, vol
from tests.forge.minidump import Writer
from tests.forge.smalldump import Driver, SmallDump
from tests.support.only import only
from tests.support.processdumps import OpenedDump
from winstacks.stacklist.decode.exceptioncodes import exception_name, exception_words

REAL = SHARED / "real_minidumps"
FILES = sorted((*REAL.glob("*.dmp"), *REAL.glob("more/*.dmp")))
SMALL = SHARED / "real_trapframes" / "triage_x64.dmp.xz"
MOST = 10


def brief(path: pathlib.Path) -> List[Tuple[str, str, str]]:
    rows = [row for _, row in OpenedDump(path).rows(info.Info, brief=True)]
    return [(str(row["Member"]), str(row["Value"]), str(row["Status"])) for row in rows]


def facts(path: pathlib.Path) -> Dict[str, Any]:
    _, row = only(OpenedDump(path).rows(traceimage.TraceImage))
    return {name: value for name, value in row.items() if name.startswith("Crash")}


@pytest.mark.shared
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_real_files(path: pathlib.Path) -> None:
    rows, told = brief(path), facts(path)
    assert len(rows) <= MOST
    values = {name: value for name, value, _ in rows}
    assert " 1 processors" not in values["Windows"]
    assert list(values)[-2:] == ["Windows", "Lacks"]
    assert values["Lacks"].startswith("full memory")
    if path.stem.startswith("tiny-exe-with-cet"):
        assert values["Crash"] == "none: the file has no exception and no bug check"
        assert not [value for value in told.values() if isinstance(value, (str, int))]
        return
    assert values["Crash"].startswith(f"exception {told['CrashCode']:#x} {told['CrashName']}")
    assert values["At"] == f"{told['CrashSymbol']} ({told['CrashAddress']})"
    assert values["Process"] == f"{told['CrashProcess']} ({told['CrashPID']}), thread {told['CrashTID']}"
    rows_of_traces = {row["TraceId"]: row for _, row in OpenedDump(path).rows(traces.StackTraces)}
    trace = rows_of_traces[told["CrashTraceId"]]
    assert (trace["StackKey"], str(trace["Stack"])) == (told["CrashKey"], told["CrashStack"])


def forged(path: pathlib.Path, code: int) -> None:
    """A dump whose exception is the last thing in the file."""
    writer = Writer()
    writer.system_info()
    writer.misc_info(100)
    writer.modules([])
    writer.threads([])
    writer.exception(8, code, 0x1000, (), bytes(0x4D0))
    path.write_bytes(writer.bytes())


@pytest.mark.parametrize(
    ("code", "cut", "said"),
    [
        (0x80000003, 0, "exception 0x80000003 BREAKPOINT"),
        (0, 0, "none: the exception of the file has the code 0"),
        # The place of the registers is cut off, which some writers leave out; then the record itself.
        (0x80000003, 8, "exception 0x80000003 BREAKPOINT"),
        (0x80000003, 9, "unknown: ExceptionStream cannot be read"),
    ],
)
def test_an_exception_is_never_denied(code: int, cut: int, said: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dump.dmp"
    forged(path, code)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut])
    assert next(value for name, value, _ in brief(path) if name == "Crash") == said


def test_an_exception_behind_the_end_of_the_directory(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dump.dmp"
    forged(path, 0x80000003)
    data = bytearray(path.read_bytes())
    count, directory = struct.unpack_from("<II", data, 8)
    rows = data[directory : directory + 12 * (count - 1)]
    struct.pack_into("<I", data, 12, len(data))
    path.write_bytes(data + rows)
    said = next(value for name, value, _ in brief(path) if name == "Crash")
    assert said == "unknown: the directory of the file's streams is cut"


@pytest.mark.parametrize("cut", [0, 8])
def test_a_file_that_ends_within_a_stream_is_truncated(cut: int, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dump.dmp"
    forged(path, 0x80000003)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut])
    _, row = only(OpenedDump(path).rows(traceimage.TraceImage))
    assert row["Completeness"] == ("truncated" if cut else "some")
    lacks = next(value for name, value, _ in brief(path) if name == "Lacks")
    assert ("8 bytes at its end" in lacks) == bool(cut)


EXPECTED = {
    "null_write_av": "exception 0xc0000005 ACCESS_VIOLATION: write of 0x0",
    "tiny-exe-fastfail": "exception 0xc0000409 STACK_BUFFER_OVERRUN: fast fail 7 FATAL_APP_EXIT",
    "write_av_non_canonical": "exception 0xc0000005 ACCESS_VIOLATION: read of 0xffffffffffffffff, "
    "or an access whose address the processor did not report",
}
"""The parameters as PyPI's `minidump` reads them."""


@pytest.mark.shared
@pytest.mark.parametrize("name", EXPECTED)
def test_exceptions_in_words(name: str) -> None:
    assert brief(REAL / f"{name}.dmp")[0] == ("Crash", EXPECTED[name], "")


@pytest.mark.shared
@pytest.mark.parametrize("name", ["tiny-exe-fastfail", "write_av_non_canonical", "null_write_av"])
def test_the_end_of_a_stack_without_callers_is_explained(name: str) -> None:
    rows = {member: status for member, _, status in brief(REAL / f"{name}.dmp")}
    guesses = [status for member, status in rows.items() if member.startswith("Frame ")]
    # The stacks of x64 end at once: the dump lacks the unwind data. Those of x86 are searched to their end.
    assert (rows["At"], guesses) == (
        ("", ["unsure"] * 5) if name == "null_write_av" else ("no function table", [])
    )


@pytest.mark.shared
def test_a_real_small_dump(tmp_path: pathlib.Path) -> None:
    (tmp_path / "small.dmp").write_bytes(lzma.decompress(SMALL.read_bytes()))
    rows = brief(tmp_path / "small.dmp")
    assert [name for name, _, _ in rows] == [
        *(
            "Crash",
            "Parameters",
            "At",
            "Process",
            "Frame 1",
            "Frame 2",
            "Frame 3",
            "Driver",
            "Windows",
            "Lacks",
        )
    ]
    values = {name: value for name, value, _ in rows}
    assert values["Crash"] == "bug check 0x1000007e SYSTEM_THREAD_EXCEPTION_NOT_HANDLED_M"
    assert values["Parameters"].startswith("0xffffffffc0000005 0xfffff8048b58334c ")
    assert values["At"] == "amdppm+0x334c (0xfffff8048b58334c)"
    assert values["Process"] == "System (4), thread 264"
    assert values["Driver"] == "\\SystemRoot\\System32\\drivers\\amdppm.sys, TimeDateStamp 0xc9c03000"
    assert values["Windows"] == "build 19041, x64, 16 processors, 2021-02-21 01:38:22 UTC"
    told = facts(tmp_path / "small.dmp")
    assert (told["CrashCode"], told["CrashModule"], told["CrashDriver"]) == (0x1000007E, "amdppm", "amdppm")
    assert (told["CrashPID"], told["CrashProcess"], told["CrashTID"]) == (4, "System", 264)
    shown = [row for _, row in OpenedDump(tmp_path / "small.dmp").rows(info.Info)]
    drivers = [row for row in shown if row["Member"] == "driver on the stack"]
    assert [(row["Symbol"], row["How"], row["Status"]) for row in drivers] == [
        ("amdppm+0x334c", "trap", ""),
        ("Wdf01000+0x7c027", "scan", "unsure"),
    ]


@pytest.mark.cli
@pytest.mark.shared
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_ten_lines_on_the_screen(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "symbols").mkdir()
    done = vol.run(path, "minidump.info", "--brief", symbols=tmp_path / "symbols", renderer="pretty")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.lstrip().startswith(("|", "*"))]
    # The first line has the names of the columns.
    assert len(lines) - 1 <= MOST and max(map(len, lines)) <= 120


@pytest.mark.shared
@pytest.mark.parametrize("path", [*FILES, SMALL], ids=[path.stem for path in [*FILES, SMALL]])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_value_is_cut_on_the_screen(
    path: pathlib.Path,
    width: int,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if path == SMALL:
        path = tmp_path / "small.dmp"
        path.write_bytes(lzma.decompress(SMALL.read_bytes()))
    monkeypatch.setenv("COLUMNS", str(width))
    plugin = OpenedDump(path).construct(info.Info, brief=True)
    text_renderer.PrettyTextRenderer().render(plugin.run())
    shown: List[str] = []
    for line in capsys.readouterr().out.splitlines()[1:]:
        assert len(line) <= width
        _, member, value, *_ = (part.strip() for part in line.split(" | "))
        if member:
            shown.append(value)
        else:
            shown[-1] += value
    # The blank between two words may be where a line ends.
    assert [value.replace(" ", "") for value in shown] == [
        value.replace(" ", "") for _, value, _ in brief(path)
    ]


def test_a_driver_that_the_kernel_blames(tmp_path: pathlib.Path) -> None:
    dump, kernel = SmallDump(), 0xFFFFF80312200000
    dump.crash(0xC4, (1, 2, 3, 4), smalldump.context(True, kernel + 0x1234, 0xFFFFD00012345040))
    dump.stack(0xFFFFD00012345000, bytes(0x200))
    dump.drivers([Driver("ntoskrnl.exe", kernel, 0x800000)], broken="bad.sys")
    (tmp_path / "small.dmp").write_bytes(dump.file())
    values = {name: value for name, value, _ in brief(tmp_path / "small.dmp")}
    assert values["Driver"] == "blamed by the kernel: bad.sys"
    assert facts(tmp_path / "small.dmp")["CrashName"] == "DRIVER_VERIFIER_DETECTED_VIOLATION"


def test_words_of_exceptions() -> None:
    assert exception_words(0xC0000005, (8, 0x1000)) == "0xc0000005 ACCESS_VIOLATION: execution of 0x1000"
    assert exception_words(0xC0000006, (0, 0x1000, 0xC000009C)) == (
        "0xc0000006 IN_PAGE_ERROR: read of 0x1000, status 0xc000009c"
    )
    assert exception_words(0xC0000005, (7, 0)) == "0xc0000005 ACCESS_VIOLATION: 0x7 0x0"
    assert exception_words(0xDEADBEEF, ()) == "0xdeadbeef"
    assert exception_words(0xC0000409, (99,)) == "0xc0000409 STACK_BUFFER_OVERRUN: fast fail 99"
    assert exception_name(0xE06D7363) == "C++ exception"
