# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Cells that hold JSON: read again as they were written, and refused in every other form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.columns.jsoncells import FileCell, counts, counts_text, files, files_text

NUMBERS = st.integers(0, (1 << 63) - 1)
FILES = st.builds(FileCell, st.text(), st.none() | NUMBERS, st.none() | st.text())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["path", "size", "sha256"]), inner),
)
NO_FORM = ("", "1", "null", "true", '"x"', "{", "[" * 100_000, "NaN", None, 7)
NO_COUNTS = ("[]", *(f'{{"a": {number}}}' for number in ("-1", "1.0", "true", 1 << 63)))
NO_FILES = ("{}", "[1]", "[{}]", '[{"path": "x", "size": "1", "sha256": null}]')


@given(st.dictionaries(st.text(), NUMBERS))
def test_counts_are_read_as_they_were_written(known: "dict[str, int]") -> None:
    assert counts(counts_text(known)) == known


@given(st.lists(FILES))
def test_files_are_read_as_they_were_written(known: "list[FileCell]") -> None:
    assert files(files_text(known)) == known


@pytest.mark.parametrize("text", [*NO_FORM, *NO_COUNTS])
def test_what_are_no_counts_is_refused(text: object) -> None:
    assert counts(text) is None


@pytest.mark.parametrize("text", [*NO_FORM, *NO_FILES])
def test_what_are_no_files_is_refused(text: object) -> None:
    assert files(text) is None


@given(VALUES)
def test_every_json_is_read_or_refused(value: object) -> None:
    text = json.dumps(value)
    assert counts(text) in (None, value)
    found = files(text)
    assert found is None or files(files_text(found)) == found
