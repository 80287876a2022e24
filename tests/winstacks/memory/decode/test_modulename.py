# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Module names as WinDbg writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode import text


@pytest.mark.parametrize(
    "path, file, module",
    [
        ("ntdll.dll", "ntdll.dll", "ntdll"),
        ("\\Windows\\System32\\KERNEL32.DLL", "KERNEL32.DLL", "KERNEL32"),
        ("C:/Windows/mscorlib.ni.dll", "mscorlib.ni.dll", "mscorlib_ni"),
        ("api-ms-win-core.dll", "api-ms-win-core.dll", "api_ms_win_core"),
        ("noextension", "noextension", "noextension"),
        (".hidden", ".hidden", "_hidden"),
        ("", "", "unknown"),
        # The longest that NTFS has.
        ("C:\\" + "m" * 251 + ".dll", "m" * 251 + ".dll", "m" * 251),
        ("m" * 255, "m" * 255, "m" * 255),
        ("a\x1b[31m!b;c.dll", "a\\x1b[31m!b\\x3bc.dll", "a__31m_b_c"),
    ],
)
def test_names(path: str, file: str, module: str) -> None:
    assert text.file_name(path) == file
    assert text.module_name(path) == module


@given(st.text())
def test_a_name_is_short_and_holds_nothing_that_ends_it(path: str) -> None:
    name = text.module_name(path)
    assert 0 < len(name) <= text.MAX_LENGTH
    assert name.isprintable()
    assert not set("!+; <>\\/") & set(name)
    assert text.file_name(path).isprintable()
