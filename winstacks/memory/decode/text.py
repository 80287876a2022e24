# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names and times of an image as columns show them.

Adversaries choose names that go to terminals and files: this module makes all names safe to print. Module
names follow WinDbg. Times are FILETIMEs: 64-bit counts of 100 ns since 1601-01-01, UTC.
"""

from __future__ import annotations

import datetime
import functools
import re
from typing import List, Optional, Tuple

from ...columns.words import NAMELESS

MAX_LENGTH = 255
"""Characters that Windows' file systems allow in one part of a path."""
_FOREIGN = re.compile(r"\W")
_NAMES_KEPT = 1 << 9
"""Names that are kept: every process has the same few hundred modules."""


def last_part(path: str) -> str:
    """Returns what stands behind the last separator of a path: that is `\\` or `/`."""
    return path.replace("/", "\\").rsplit("\\", 1)[-1]


@functools.lru_cache(maxsize=_NAMES_KEPT)
def file_name(path: str) -> str:
    """Returns the last part of a Windows path, printable: `\\Windows\\System32\\ntdll.dll` -> `ntdll.dll`."""
    return printable(last_part(path.rstrip("\\/"))).replace(";", "\\x3b")


@functools.lru_cache(maxsize=_NAMES_KEPT)
def module_name(path: str) -> str:
    """Returns the module name of a file: no folder, no extension, `_` for characters that no module name has.

    `C:\\Windows\\mscorlib.ni.dll` -> `mscorlib_ni`. The case stays as in the loader's entry. The kernel's own
    name, `nt`, is not derived from its file and not made here. An empty name becomes `unknown`.
    """
    name = last_part(path.rstrip("\\/"))
    stem, dot, _ = name.rpartition(".")
    return _FOREIGN.sub("_", (stem if dot and stem else name))[:MAX_LENGTH] or "unknown"


MAX_NAME = 260
FORMULA = ("=", "+", "@", "-")
"""Characters that make a spreadsheet take a cell for a formula."""


def printable(name: str, limit: int = MAX_NAME) -> str:
    """Returns a name, cut to a limit (in characters), with all unprintable characters escaped.

    Control characters, line breaks, terminal escapes, bidirectional overrides and lone surrogates
    become `\\xNN` or `\\uNNNN`, so that two different names stay different.
    """
    cut = name if len(name) <= limit else name[: limit - 1] + "…"
    return cut if cut.isprintable() else "".join(map(_visible, cut))


def cell(name: str, limit: int = MAX_NAME) -> str:
    """Returns a printable name that a cell of a spreadsheet may begin with.

    A spreadsheet takes a cell that begins with `=`, `+`, `@` or `-` for a formula: this first character
    becomes `\\x3d` and the like.
    """
    shown = printable(name, limit)
    return f"\\x{ord(shown[0]):02x}{shown[1:]}" if shown[:1] in FORMULA else shown


def narrow(data: bytes) -> str:
    """Returns the text of an array of CHAR, such as ImageFileName, up to its first 0; not yet safe to print.

    Its code page is unknown. Volatility takes it for UTF-8, and so does this function; bytes that are not
    UTF-8 become `\\xNN`, so that two different names stay different.
    """
    return data.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def counted(count: int, one: str, many: str = "") -> str:
    """Returns a number with what it counts: `1 thread`, `2 threads`, `1,024 entries are`.

    Args:
        one: the noun, with its verb if it has one
        many: its plural; empty for one with an s
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def process_label(name: Optional[str], pid: Optional[int]) -> str:
    """Returns a process as text, `updater.exe (4312)`; None stands for a value that is not in the image."""
    return f"{process_name(name)} ({'unreadable' if pid is None else pid})"


def process_name(name: Optional[str]) -> str:
    """Returns the name of a process as text; None stands for a name that is not in the image."""
    return "unreadable" if name is None else name


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class ShortText(str):
    """A text with a short form, which --brief and pages show. `short` is the same in few words; never empty
    unless the text is."""

    short: str

    def __new__(cls, text: str, short: str = "") -> ShortText:
        text_form = super().__new__(cls, text)
        text_form.short = short or text
        return text_form


def short_of(text: str) -> str:
    """Returns the short form of a text, or the text if it has none."""
    return text.short if isinstance(text, ShortText) else text


def with_address(symbol: str, address: Optional[int]) -> str:
    """Returns a Symbol; one of NAMELESS gets a short form with the address, as `<private> 0x1d2b00002c4`.
    `address` is the address in the form that is shown; None if it is unknown."""
    if address is None or symbol not in NAMELESS:
        return symbol
    return ShortText(symbol, f"{symbol} {address:#x}")


_EPOCH = datetime.datetime(1601, 1, 1, tzinfo=datetime.timezone.utc)
_PER_MICROSECOND = 10

SECOND = 10_000_000
"""A second as a FILETIME."""

UNIX_EPOCH = 11644473600
"""Seconds from 1601 to 1970."""

MAX_FILETIME = 2650467743999999999
"""The last moment of the year 9999: Python and SQL have no later times."""


def is_time(filetime: int) -> bool:
    """Returns whether a FILETIME is set and can be shown."""
    return 0 < filetime <= MAX_FILETIME


def moment(filetime: Optional[int]) -> Optional[datetime.datetime]:
    """Returns a FILETIME as a datetime in microseconds; None for 0 (no time) and beyond the year 9999, and if
    the FILETIME is unknown."""
    if filetime is None or not is_time(filetime):
        return None
    return _EPOCH + datetime.timedelta(microseconds=filetime // _PER_MICROSECOND)


def symbol_globs(find: str) -> Tuple[List[str], List[str]]:
    """Returns the globs that `--find` compares with a Symbol: as typed; and in any module if it names none.

    A text with neither `*` nor `+` is a name, which matches at any offset.
    """
    offsets = [""] if set("*+") & set(find) else ["", "+0x*"]
    typed = [find + offset for offset in offsets]
    return typed, [] if "!" in find else [f"*!{glob}" for glob in typed]
