# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One head line for all findings of a process, a command for each, and a sentence where there is none."""

from __future__ import annotations

import pathlib
import shlex

import pytest

from tests.machines import inkernel, ownmemory
from tests.support.clean.host64 import JITTED, Host64, Private
from tests.support.findingimages import MAPPED, found, nothing_found
from tests.support.only import only
from winstacks.findings.finding import NONE_KNOWN
from winstacks.findings.registry import check_named
from winstacks.options import CHECKS


def _rows() -> list[dict[str, object]]:
    host = Host64("win10-x64")
    planted = ownmemory.TECHNIQUES[0].plant(host)
    other = ownmemory.TECHNIQUES[1].plant(host)
    rows = found(host.kernel.image())
    assert {planted.pid, other.pid} <= {row["PID"] for row in rows}
    return rows


def test_the_findings_of_a_process_have_one_head_line_and_others_have_another() -> None:
    rows = _rows()
    heads: dict[object, set[object]] = {}
    for row in rows:
        heads.setdefault(row["ProcessOffset"], set()).add(row["Group"])
    assert all(len(lines) == 1 for lines in heads.values())
    lines = [line for (line,) in heads.values()]
    assert len(set(lines)) == len(heads) >= 2
    for row in rows:
        count = sum(other["ProcessOffset"] == row["ProcessOffset"] for other in rows)
        begin = "1 finding" if count == 1 else f"{count} findings"
        assert str(row["Group"]).startswith(f"{begin} in {row['Process']} ({row['PID']}): ")


def test_a_head_line_tells_the_worst_finding_first() -> None:
    rows = _rows()
    worst = rows[0]
    head = check_named(str(worst["Finding"])).head
    assert f": {head} at {worst['Address']:#x}" in str(worst["Group"])


def test_findings_in_the_kernel_are_one_story_for_each_place() -> None:
    host = Host64("win10-x64")
    planted = [(technique, technique.plant(host)) for technique in inkernel.TECHNIQUES]
    image = host.kernel.image()
    for technique, process in planted:
        technique.change(process)
    rows = found(image)
    of_kernel = [row for row in rows if row["PID"] in (0, 4)]
    # A thread's start and a frame are two kinds of findings.
    places = {((row["Address"] or 0) >> 16, row["Finding"] == "start_mismatch") for row in of_kernel}
    assert len(places) > 1
    assert len({row["Group"] for row in of_kernel}) == len(places)


def test_the_command_names_file_process_and_address() -> None:
    for row in _rows():
        words = shlex.split(str(row["Next"]))
        assert words[:2] == ["vol", "-f"] and pathlib.Path(words[2]).is_absolute()
        if words[3] == "windows.vadinfo":
            assert words[4:] == ["--pid", str(row["PID"]), "--address", f"{row['Address']:#x}", "--dump"]
        else:
            assert words[3:] == ["windows.callstacks", "--tid", str(row["TID"])]


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_has_a_phrase_for_the_head_line(check: str) -> None:
    assert check_named(check).head


def test_where_nothing_is_found_a_row_says_what_was_examined() -> None:
    host = Host64("win10-x64")
    host.program("first.exe", functions="main").waits("main", "kernelbase!WaitForSingleObjectEx")
    text = only(nothing_found(host.kernel.image(), check=["unbacked", "gadget"]))
    assert text.startswith("no finding: 2 checks examined ")
    assert text.endswith((" process", " processes"))


def test_findings_below_the_severity_that_was_asked_for_are_counted() -> None:
    host = Host64("win10-x64")
    program = host.program("service.exe", "clr.dll", functions="main")
    code = program.jitted()
    program.register((code, code + 0x2000))
    program.interrupted("main", "clr!CallDescrWorkerInternal", at=code + 0x20)
    text = only(nothing_found(host.kernel.image(), check=["unbacked"], severity="high"))
    assert text.startswith("no finding of severity high: 1 check examined ")
    assert text.endswith("; 1 is of a lower severity")


def test_low_rows_without_an_innocent_reason_come_before_those_with_one() -> None:
    """Of equal checks the first one found comes first, if nothing else decides."""
    host = Host64("win10-x64")
    compiled = host.program("first.exe", functions="main Work", folder="C:\\Program Files\\Vendor")
    *_, base = (compiled.jitted() for _ in range(4))
    compiled.interrupted("main", "Work", at=base + JITTED.rva)
    guessed = host.program("second.exe", functions="main")
    guessed.process.region(MAPPED, b"\x90" * 0x100, size=0x1000, file="\\Windows\\code.bin")
    guessed.interrupted("main", Private(guessed.jitted()), "kernelbase!SleepEx", at=MAPPED + 0x20)
    low = [row for row in found(host.kernel.image(), "unbacked") if row["Severity"] == "low"]
    reasons = [str(row["Innocent"]).startswith(NONE_KNOWN) for row in low]
    assert (reasons[0], reasons[-1]) == (True, False)
    assert reasons == sorted(reasons, reverse=True)
