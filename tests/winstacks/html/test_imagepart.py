# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The examiner's head and the facts in words, for each kind of input and for what is unknown."""

from __future__ import annotations

import datetime
import json
from typing import Any, Dict

import pytest

from winstacks.columns import words
from winstacks.columns.tables import IMAGE
from winstacks.html.imagepart import LABELS, image_part

_TIME = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.timezone.utc)
_FILE = {"path": "/images/a.dmp", "size": 4096, "sha256": None}
ROW: Dict[str, Any] = {
    "Files": json.dumps([_FILE]),
    "VolatilityVersion": "2.28.2",
    "PluginVersion": "4.0.0",
    "InputKind": words.MEMORY_IMAGE,
    "Status": "",
    "Warnings": 0,
    "Processes": 3,
    "StacksKnown": '{"kernel": 1200, "user": 3}',
    "StacksRead": '{"kernel": 1200, "user": 1}',
}


def part(**changes: Any) -> Dict[str, Any]:
    row = {**ROW, **changes}
    return image_part([row.get(column.name) for column in IMAGE])


def head(**changes: Any) -> Dict[str, str]:
    return dict(part(**changes)["head"])


def test_every_column_has_words() -> None:
    """Schema and warnings have places of their own."""
    assert set(LABELS) == {column.name for column in IMAGE} - {"Schema", "Warnings", "WarningText"}
    assert len(set(LABELS.values())) == len(LABELS)


def test_a_digest_is_there_or_is_said_to_be_absent() -> None:
    assert head()["SHA-256"] == "not asked for; --sha256 computes it"
    given = json.dumps([{**_FILE, "sha256": "ab" * 32}])
    assert head(Files=given)["SHA-256"] == "ab" * 32
    assert head(Status="1 files not hashed")["SHA-256"] == "asked for, but the file could not be read"


def test_all_files_are_in_the_head() -> None:
    files = [{**_FILE, "path": f"/images/{number}"} for number in range(3)]
    assert [value for name, value in part(Files=json.dumps(files))["head"] if name == "File"] == [
        "/images/0",
        "/images/1",
        "/images/2",
    ]


def test_the_time_of_capture_has_its_source() -> None:
    expected = {
        words.MEMORY_IMAGE: "the kernel's clock, KUSER_SHARED_DATA.SystemTime",
        words.PROCESS_DUMP: "the header of the dump, TimeDateStamp",
        words.SMALL_DUMP: "the header of the dump, SystemTime",
    }
    assert set(expected) == set(words.INPUT_KINDS)
    for kind, source in expected.items():
        assert head(InputKind=kind, CaptureTime=_TIME)["Captured"] == f"2026-01-31 12:00:00 UTC ({source})"


def test_what_is_unknown_is_said() -> None:
    found = head()
    assert (found["Captured"], found["Computer"], found["Windows"]) == ("unknown", "unknown", "build unknown")
    assert "Bug check" not in found and "Crash" not in found


def test_a_crash_has_its_name() -> None:
    stopped = head(
        BugCheckCode=0xD1,
        BugCheck="DRIVER_IRQL_NOT_LESS_OR_EQUAL",
        BugCheckParameters="0x1 0x2 0x3 0x4",
        CrashCode=0xD1,
        CrashSymbol="bad!Read+0x5",
        CrashProcess="System",
        CrashPID=4,
        CrashTID=88,
    )
    assert stopped["Bug check"] == "DRIVER_IRQL_NOT_LESS_OR_EQUAL (0xd1), parameters 0x1 0x2 0x3 0x4"
    assert stopped["Crashed at"] == "bad!Read+0x5, in System (4), thread 88"
    assert head(BugCheckCode=0x99999)["Bug check"] == "a code without a known name (0x99999)"
    assert head(CrashCode=0xC0000005, CrashName="STATUS_ACCESS_VIOLATION")["Crash"] == (
        "STATUS_ACCESS_VIOLATION (0xc0000005)"
    )


def test_facts_are_in_words() -> None:
    facts = {label: value for _, value, _, label in part(Truncated=True, TimeZoneBias=-60)["rows"]}
    assert facts["Stacks that exist, by kind"] == "kernel: 1,200, user: 3"
    assert facts["The file is cut"] == "yes"
    assert facts["Local time is behind UTC by"] == "-60 minutes"
    assert facts["Kind of the input"] == "image: the memory of a machine"
    assert part()["complete"] == [["stacks of kind user are not in the image", 2, 3]]


def test_warnings_without_a_text_are_counted() -> None:
    assert part(Warnings=300, WarningText="one")["warned"] == 300


@pytest.mark.parametrize("column", ["Files", "StacksKnown", "StacksRead", "StructuresAbsent"])
@pytest.mark.parametrize("text", ["1", "[[]]", '{"user": "many"}', "{", "[" * 100_000])
def test_a_cell_of_another_form_is_said_to_have_none(column: str, text: str) -> None:
    shown = {row[0]: row[1] for row in part(**{column: text})["rows"]}
    assert shown[column] == "the value does not have the form of this column"
