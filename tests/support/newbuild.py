# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A build of Windows that was never made: lines that are added to the texts of our symbol tables.

    folder = newbuild.add(tmp_path, monkeypatch, "heaplog", _RTLP_HEAP_STACK_TRACE_RECORD=8)

From then on the plugins and the library see the tables that the command has made in the folder.
"""

from __future__ import annotations

import pathlib
import re
import shutil
from typing import List, Sequence, Union

import pytest

from symbols import isf
from winstacks.memory import tables

VERSION = "10.0.30000"


def add(
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    after: str = "",
    **shifts: Union[int, Sequence[str]],
) -> pathlib.Path:
    """Makes a copy of texts and tables in a folder, adds the build, and has the plugins take the copy.

    Args:
        folder: where the copy goes, in a folder of its own
        monkeypatch: undoes it
        kind: of the tables
        after: the last member that stays where it is; all of them move if it is empty
        shifts: by structure, how many bytes its members and its end move; or the lines that are added to it
    """
    copy = folder / "new_build"
    shutil.copytree(isf.FOLDER, copy)
    path = copy / f"{kind}.h"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines += [f'build {VERSION} {arch} = "invented";' for arch in isf.ARCHES]
    for name, shift in shifts.items():
        start = next(number for number, line in enumerate(lines) if re.match(rf"\w+ {name}\b", line))
        end = lines.index("};", start)
        lines[end:end] = _moved(lines[start + 1 : end], shift, after) if isinstance(shift, int) else shift
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    names = [f"{kind}-{VERSION}-{arch}.json" for arch in reversed(isf.ARCHES)]
    assert isf.update(copy) == names
    monkeypatch.setattr(tables, "_BESIDE", [copy])
    assert tables.generations(kind, "x64")[0] == VERSION
    return copy


def _moved(lines: List[str], shift: int, after: str) -> List[str]:
    """The lines once more, of those that are not outdated, with other places."""

    def move(found: re.Match[str]) -> str:
        parts = found[1].split("/")
        return "@" + "/".join(part if part == "-" else hex(int(part, 0) + shift) for part in parts)

    valid = [line for line in lines if " until " not in line]
    named = [number for number, line in enumerate(valid) if after and re.search(rf" {after}\b", line)]
    first = named[0] + 1 if named else 0
    kept = [line for line in valid[:first] if "sizeof" in line] + valid[first:]
    bare = [re.sub(r" +(since|from) .*;", ";", line) for line in kept]
    return [re.sub(r"@(\S+?);", lambda found: f"{move(found)} since {VERSION};", line) for line in bare]
