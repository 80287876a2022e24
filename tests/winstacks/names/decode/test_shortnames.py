# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Short names of files, and names that only look like them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.names.decode.shortnames import is_short_name_of


@pytest.mark.parametrize(
    ("short", "long", "expected"),
    [
        ("FOOBAR~1.EXE", "foobarbaz.exe", True),
        ("foobar~2.exe", "Foo Bar Baz.exe", True),
        ("PYTHON~1.DLL", "python3.11.dll", True),
        ("A~1.HTM", "a.html", True),
        ("FOOBA~10.EXE", "foobarbaz.exe", True),
        ("FO1A2B~1.EXE", "foobarbaz.exe", True),
        ("VENDOR~1", "vendortools", True),
        ("A_B~1.EXE", "a+b.exe", True),
        ("FOOBAR~1.DLL", "foobarbaz.exe", False),
        ("FOO~1.EXE", "foobarbaz.exe", False),
        ("SVCHOS~1.EXE", "foobarbaz.exe", False),
        ("SV1A2B~1.EXE", "foobarbaz.exe", False),
        ("FOOBAR~0.EXE", "foobarbaz.exe", False),
        ("foobarbaz.exe", "foobarbaz.exe", False),
        ("", "foobarbaz.exe", False),
        ("FOOBAR~1.EXE", "", False),
    ],
)
def test_short_names(short: str, long: str, expected: bool) -> None:
    assert is_short_name_of(short, long) is expected


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_names_have_a_verdict(short: str, long: str) -> None:
    assert not is_short_name_of(short, long) or "~" in short
