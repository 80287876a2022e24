# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The page of results: the command replaces what it measured, and nothing else."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

from benchmarks import __main__ as command
from benchmarks import results

NAMES = ["threads", "fleet", "startup"]


def test_a_section_is_replaced_and_the_others_stay(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "RESULTS.md"
    results.write({"startup": "of May", "threads": "| a | table |\n|---|---|"}, NAMES, page)
    results.write({"fleet": "of June", "startup": "of July"}, NAMES, page)
    text = page.read_text(encoding="utf-8")
    assert results.sections(text, NAMES) == {
        "threads": "| a | table |\n|---|---|",
        "fleet": "of June",
        "startup": "of July",
    }
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[:3] == NAMES
    assert text.endswith(results.NOTES.read_text(encoding="utf-8"))


def test_the_page_is_what_the_command_writes(tmp_path: pathlib.Path) -> None:
    """A page that was changed by hand, or notes that were changed without the page."""
    known = results.FILE.read_text(encoding="utf-8")
    page = tmp_path / "RESULTS.md"
    page.write_text(known, encoding="utf-8")
    results.write({}, list(command.BENCHMARKS), page)
    assert page.read_text(encoding="utf-8") == known


def test_each_section_says_when_and_where() -> None:
    found = results.sections(results.FILE.read_text(encoding="utf-8"), list(command.BENCHMARKS))
    assert found
    for name, text in found.items():
        assert re.match(r"(In the page since )?20\d\d-\d\d-\d\d", text), name
        assert "processors" in text.partition("\n|")[0], name


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="other work is read from /proc/stat")
def test_other_work_is_counted_without_ones_own() -> None:
    with results.Circumstances() as circumstances:
        sum(range(1 << 22))
    found = re.search(r"processors, (\d+\.\d) of them busy with other work\.$", circumstances.text)
    assert found is not None
    assert 0 <= float(found.group(1)) <= (os.cpu_count() or 1) + 1
