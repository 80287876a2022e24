# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Makes text from an image safe to print: adversaries choose names that go to terminals and files."""

from __future__ import annotations

MAX_NAME = 260
FORMULA = ("=", "+", "@", "-")
"""What a spreadsheet takes for the beginning of a formula."""


def printable(name: str, limit: int = MAX_NAME) -> str:
    """Returns a name, cut to a limit (in characters), with all unprintable characters escaped.

    Control characters, line breaks, terminal escapes, bidirectional overrides and lone surrogates
    become `\\xNN` or `\\uNNNN`, so that two different names stay different.
    """
    cut = name if len(name) <= limit else name[: limit - 1] + "…"
    return cut if cut.isprintable() else "".join(map(_visible, cut))


def cell(name: str, limit: int = MAX_NAME) -> str:
    """Returns a printable name that a cell may begin with.

    A spreadsheet takes a cell that begins with `=`, `+`, `@` or `-` for a formula: such a sign becomes
    `\\x3d` and the like.
    """
    shown = printable(name, limit)
    return f"\\x{ord(shown[0]):02x}{shown[1:]}" if shown[:1] in FORMULA else shown


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
