# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names that an adversary chose, made fit for a grid."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode import text


@given(st.text(max_size=600))
def test_nothing_unprintable_and_never_long(name: str) -> None:
    shown = text.printable(name)
    assert shown.isprintable()
    assert len(shown) <= text.MAX_NAME * len(r"\U00000000")
    shown.encode("utf-8")


def test_an_ordinary_name_stays_itself() -> None:
    assert text.printable("ntdll.dll") == "ntdll.dll"


def test_what_would_move_the_cursor_is_shown() -> None:
    assert text.printable("a\x1b[2J\n\u202eb") == r"a\x1b[2J\x0a\u202eb"
    assert text.printable("\U000e0001") == r"\U000e0001"


def test_no_cell_begins_like_a_formula() -> None:
    assert [text.cell(f"{sign}a=b") for sign in "=+@-"] == [r"\x3da=b", r"\x2ba=b", r"\x40a=b", r"\x2da=b"]
    assert [text.cell(name) for name in ("", "a=+@-", "\n=")] == ["", "a=+@-", r"\x0a="]


def test_names_of_processes_that_are_not_utf_8_stay_different() -> None:
    names = [b"app.exe\0rest", "χ.exe".encode(), b"caf\xe9.exe", b"caf\xe8.exe", b""]
    assert [text.narrow(name) for name in names] == [
        *("app.exe", "χ.exe"),
        *(r"caf\xe9.exe", r"caf\xe8.exe"),
        "",
    ]


def test_a_long_name_says_that_it_was_cut() -> None:
    assert text.printable("x" * 300, limit=10) == "x" * 9 + "…"
