# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Inputs that fuzzing begins with, beside the undamaged ones: an archive for each format in `corpus`.

    python3 -m tests.fuzz.corpus minidump FOLDER     chooses from the inputs that fuzzing kept in a folder

Those are kept that reach a pair of lines of a decoder that no smaller one reaches, up to MOST_BYTES a format.
"""

from __future__ import annotations

import hashlib
import pathlib
import sys
import time
import zipfile
import zlib
from types import FrameType
from typing import Any, Dict, List, Set, Tuple

from tests.conftest import ROOT
from tests.hostile import decoders
from tests.hostile.decoders import Target

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus"
MOST_BYTES = 24 << 10
SECONDS = 60

Step = Tuple[str, int, int]


def kept(name: str) -> Dict[str, bytes]:
    """Returns the kept inputs of a decoder by name; none if it has no archive."""
    path = FOLDER / f"{name}.zip"
    if not path.exists():
        return {}
    with zipfile.ZipFile(path) as archive:
        return {item: archive.read(item) for item in archive.namelist()}


class _Steps:
    """The pairs of lines of decoders that a call goes through."""

    def __init__(self) -> None:
        self.taken: Set[Step] = set()

    def of(self, target: Target, data: bytes) -> Set[Step]:
        self.taken = set()
        sys.settrace(self._called)
        try:
            target.decode(data, b"")
        finally:
            sys.settrace(None)
        return self.taken

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(str(ROOT)) or "/tests/" in name[len(str(ROOT)) :]:
            return None
        last = frame.f_lineno

        def line(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last
            self.taken.add((name, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line


def chosen(target: Target, inputs: List[bytes]) -> List[bytes]:
    """Returns the inputs that are worth keeping, the smallest first."""
    steps, begun = _Steps(), time.process_time()
    known = set().union(*(steps.of(target, data) for data in target.seeds()))
    found, size = [], 0
    for data in sorted(inputs, key=lambda data: (len(zlib.compress(data)), data)):
        size_of_one = len(zlib.compress(data)) + 128
        if size + size_of_one > MOST_BYTES or time.process_time() - begun > SECONDS:
            break
        new = steps.of(target, data) - known
        if new:
            known |= new
            found.append(data)
            size += size_of_one
    return found


def main(arguments: List[str]) -> None:
    if len(arguments) != 2 or arguments[0] not in decoders.targets():
        raise SystemExit(__doc__)
    name, folder = arguments
    inputs = [path.read_bytes() for path in pathlib.Path(folder).iterdir()]
    found = chosen(decoders.targets()[name], [*inputs, *kept(name).values()])
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for data in found:
            # The time of an archive's member is part of its bytes.
            archive.writestr(
                zipfile.ZipInfo(hashlib.sha256(data).hexdigest()[:16]), data, zipfile.ZIP_DEFLATED
            )
    print(f"{name}: {len(found)} of {len(inputs)} inputs")


if __name__ == "__main__":
    main(sys.argv[1:])
