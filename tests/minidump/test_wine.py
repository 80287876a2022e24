# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps that Wine makes on the spot: no frame that is sure is wrong.

Threads block in eleven situations. Truth is what StackWalk64 of Wine told of each blocked thread, and what
RtlCaptureStackBackTrace told before.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from volatility3.plugins.minidump import callstacks

from tests.conftest import SHARED
from tests.support.processdumps import OpenedDump

MAKE = SHARED / "wine" / "make.sh"
COMPILERS = ("x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-gcc-win32")
SITUATIONS = 11
MOVED = 0x400
"""Bytes between two calls of the function of Wine that waits for a critical section: it waits 5 seconds at
one, then at the other, and the dump may come after the truth."""

Truth = Dict[str, Any]

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(
        not MAKE.exists() or not shutil.which("wine") or not any(map(shutil.which, COMPILERS)),
        reason="the programs beside the checkout, wine or mingw are missing",
    ),
]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> List[Tuple[Truth, List[Dict[str, Any]]]]:
    """The truth of each dump, and the rows of its call stacks."""
    folder = tmp_path_factory.mktemp("wine")
    subprocess.run(["bash", str(MAKE), str(folder)], check=True, capture_output=True, timeout=900)
    found = []
    for truth in sorted(folder.glob("*.json")):
        rows = OpenedDump(truth.with_suffix(".dmp")).rows(callstacks.CallStacks)
        found.append((json.loads(truth.read_text()), [row for depth, row in rows if depth]))
    return found


def threads(dumps: List[Tuple[Truth, List[Dict[str, Any]]]]) -> Iterator[Tuple[Truth, List[Dict[str, Any]]]]:
    for truth, rows in dumps:
        for thread in truth["threads"]:
            yield thread, [row for row in rows if row["TID"] == thread["tid"]]


def test_no_frame_is_sure_and_wrong(dumps: List[Tuple[Truth, List[Dict[str, Any]]]]) -> None:
    compared = 0
    for thread, rows in threads(dumps):
        walked = [(frame[0], frame[1]) for frame in thread["walked"]]
        for (address, sp), row in zip(walked, rows):
            if "unsure" in row["Status"]:
                continue
            compared += 1
            near = thread["name"] in ("criticalsection", "spin") and abs(row["Address"] - address) < MOVED
            assert row["Address"] == address or near, (thread["name"], row)
            assert row["Sp"] == sp, (thread["name"], row)
        surplus = [row for row in rows[len(walked) :] if "unsure" not in row["Status"]]
        assert not surplus, thread["name"]
    assert compared > 50 * len(dumps)


def test_every_situation_is_walked_to_its_end(dumps: List[Tuple[Truth, List[Dict[str, Any]]]]) -> None:
    for truth, _ in dumps:
        assert len(truth["threads"]) == SITUATIONS
    for thread, rows in threads(dumps):
        assert len(rows) == len(thread["walked"]), thread["name"]
        assert rows[-1]["Symbol"].startswith("ntdll!"), thread["name"]
