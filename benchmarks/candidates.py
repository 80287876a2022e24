# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How many candidates on the stacks of real programs are callers, with and without the files of modules.

    python3 -m benchmarks.candidates FOLDER --binaries FOLDER... [--names NAME...]

A dump with all memory, FOLDER/NAME.dmp of an x64 process, is cut to the memory of its stacks and TEBs, as
MiniDumpNormal has it: neither code nor headers of modules nor a list of regions remain. Callers are the
sure frames of the dump with all memory, without the innermost, and the frames of StackWalk64 in
FOLDER/NAME.json where this file exists.

The build of Wine writes a mark into its files after they are linked, and `--binaries` refuses files whose
CheckSum is not that of their content. Copies of these files are given, whose CheckSum is 0: no claim.
"""

from __future__ import annotations

import argparse
import json
import mmap
import pathlib
import statistics
import struct
import tempfile
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from .images import Image
from .measure import vol
from .realprocesses import rows_of

_STACKS = "minidump.callstacks"

_THREADS, _FULL_MEMORY = 3, 9
_LEFT_OUT = (_FULL_MEMORY, 13, 16)
"""Full memory, FunctionTableStream and MemoryInfoListStream."""
_RSP = 0x98
_MOST_OF_A_STACK = 0x40000
_TEB_SIZE = 0x1000

_MARK = b"Wine builtin DLL"
_PE_OFFSET, _CHECK_SUM = 60, 24 + 64

Callers = Dict[int, Set[int]]
"""Return addresses by thread."""


class Counted(NamedTuple):
    """What minidump.callstacks shows of a dump without code.

    Attributes:
        frames: frames, without the innermost
        true_frames: frames that are callers
        sure, wrong: sure frames, and how many of these are no callers
        candidates, true_candidates: rows with the Status `candidate`, and how many are callers
        found: callers that are a frame or a candidate, each once
    """

    frames: int
    true_frames: int
    sure: int
    wrong: int
    candidates: int
    true_candidates: int
    found: int


class FullDump:
    """A dump with all memory."""

    def __init__(self, path: pathlib.Path) -> None:
        with path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        count, directory = struct.unpack_from("<II", self.data, 8)
        rows = (struct.unpack_from("<III", self.data, directory + 12 * place) for place in range(count))
        self.streams = {kind: (size, rva) for kind, size, rva in rows}
        rva = self.streams[_FULL_MEMORY][1]
        count, self.end = struct.unpack_from("<QQ", self.data, rva)
        self._runs: List[Tuple[int, int, int]] = []
        offset = self.end
        for place in range(count):
            start, size = struct.unpack_from("<QQ", self.data, rva + 16 + 16 * place)
            self._runs.append((start, size, offset))
            offset += size

    def read(self, address: int, size: int) -> bytes:
        """Returns the memory at an address, as far as one range has it."""
        for start, length, offset in self._runs:
            if start <= address < start + length:
                at = offset + address - start
                return self.data[at : at + min(size, start + length - address)]
        return b""

    def kept(self) -> List[Tuple[int, bytes]]:
        """Returns the memory of stacks, from Rsp on, and TEBs: sorted, with addresses."""
        found = {}
        rva = self.streams[_THREADS][1]
        (count,) = struct.unpack_from("<I", self.data, rva)
        for place in range(count):
            row = struct.unpack_from("<IIIIQQIIII", self.data, rva + 4 + 48 * place)
            block = self.read(row[4], _TEB_SIZE)
            (sp,) = struct.unpack_from("<Q", self.data, row[9] + _RSP)
            if len(block) < 24:
                continue
            (base,) = struct.unpack_from("<Q", block, 8)
            found[row[4]] = block
            found[sp] = self.read(sp, min(max(base - sp, 0), _MOST_OF_A_STACK))
        return sorted((start, data) for start, data in found.items() if data)

    def cut(self, path: pathlib.Path) -> None:
        """Writes the dump without code."""
        pieces = self.kept()
        out = bytearray(self.data[: self.end])
        places = len(out) + 16 + 16 * len(pieces)
        rows = b"".join(struct.pack("<QQ", start, len(data)) for start, data in pieces)
        streams = [(kind, size, rva) for kind, (size, rva) in self.streams.items() if kind not in _LEFT_OUT]
        streams.append((_FULL_MEMORY, 16 + len(rows), len(out)))
        directory = places
        directory_rows = b"".join(struct.pack("<III", *stream) for stream in streams)
        out += struct.pack("<QQ", len(pieces), places + len(directory_rows)) + rows + directory_rows
        out += b"".join(data for _, data in pieces)
        struct.pack_into("<II", out, 8, len(streams), directory)
        path.write_bytes(out)


def unmarked(folders: Iterable[pathlib.Path], into: pathlib.Path) -> List[pathlib.Path]:
    """Copies the files that Wine's build marked, with the CheckSum 0, and returns all folders to give."""
    given = []
    for folder in folders:
        given.append(folder)
        for path in folder.iterdir():
            data = path.read_bytes() if path.suffix.lower() in (".dll", ".exe") and path.is_file() else b""
            if _MARK in data[:0x80]:
                changed = bytearray(data)
                struct.pack_into("<I", changed, struct.unpack_from("<I", data, _PE_OFFSET)[0] + _CHECK_SUM, 0)
                (into / path.name).write_bytes(changed)
    return [into, *given]


def callers(path: pathlib.Path, folder: pathlib.Path) -> Callers:
    """Returns the callers of a dump with all memory."""
    found: Callers = {}
    for row in rows_of(vol(Image(path, folder, folder), _STACKS, renderer="jsonl", keep=True).output):
        sure = "unsure" not in (row["Status"] or "")
        if row["Part"] == "user" and row["Frame"] and row["Address"] and sure:
            found.setdefault(row["TID"], set()).add(row["Address"])
    truth = path.with_suffix(".json")
    if truth.exists():
        for thread in json.loads(truth.read_text(encoding="utf-8"))["threads"]:
            walked = {address for address, _ in thread["walked"][1:] if address}
            found.setdefault(thread["tid"], set()).update(walked)
    return found


def count(
    path: pathlib.Path, true: Callers, folder: pathlib.Path, binaries: Sequence[pathlib.Path]
) -> Counted:
    """Counts what a dump without code shows, against the callers."""
    options = ["--candidates"]
    if binaries:
        options += ["--binaries", *map(str, binaries)]
    counts = dict.fromkeys(Counted._fields, 0)
    seen = set()
    image = Image(path, folder, folder)
    for row in rows_of(vol(image, _STACKS, *options, renderer="jsonl", keep=True).output):
        if row["Part"] != "user" or row["Address"] is None or row["Frame"] == 0:
            continue
        words = row["Status"] or ""
        right = row["Address"] in true.get(row["TID"], ())
        if right:
            seen.add((row["TID"], row["Address"]))
        if row["Frame"] is None:
            counts["candidates"] += 1
            counts["true_candidates"] += right
        else:
            counts["frames"] += 1
            counts["true_frames"] += right
            counts["sure"] += "unsure" not in words
            counts["wrong"] += not right and "unsure" not in words
    return Counted(**{**counts, "found": len(seen)})


HEADS = (
    *("Program", "callers", "withheld: candidates", "true", "callers found"),
    *("given: frames", "true", "sure", "sure and wrong", "candidates", "true", "callers found"),
)


def row_of(name: str, every: int, withheld: Counted, given: Counted) -> str:
    """Returns the row of a dump in the table of HEADS, as Markdown."""
    first = withheld.candidates, withheld.true_candidates, withheld.found
    shown = given.frames, given.true_frames, given.sure, given.wrong
    cells = name, every, *first, *shown, given.candidates, given.true_candidates, given.found
    return "| " + " | ".join(map(str, cells)) + " |"


def spread(shares: Sequence[float]) -> str:
    """Returns the least, the middle and the greatest of some shares."""
    if not shares:
        return "none"
    return f"{min(shares):.0%}, {statistics.median(shares):.0%}, {max(shares):.0%}"


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Prints a row for each dump, and the spread over all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="a folder with NAME.dmp")
    parser.add_argument("--binaries", type=pathlib.Path, nargs="+", required=True, help="folders of files")
    parser.add_argument("--names", nargs="*", help="dumps to count; all by default")
    given = parser.parse_args(arguments)
    print("| " + " | ".join(HEADS) + " |\n" + "| --- " * len(HEADS) + "|")
    true_shares, found_shares, given_shares, wrong = [], [], [], 0
    with tempfile.TemporaryDirectory() as temporary:
        home = pathlib.Path(temporary)
        copies, cache, part = home / "marked", home / "cache", home / "cut.dmp"
        copies.mkdir()
        cache.mkdir()
        binaries = unmarked(given.binaries, copies)
        for path in sorted(given.folder.glob("*.dmp")):
            if given.names and path.stem not in given.names:
                continue
            FullDump(path).cut(part)
            true = callers(path, cache)
            every = sum(map(len, true.values()))
            withheld, helped = count(part, true, cache, ()), count(part, true, cache, binaries)
            print(row_of(path.stem, every, withheld, helped), flush=True)
            wrong += withheld.wrong + helped.wrong
            if withheld.candidates and every:
                true_shares.append(withheld.true_candidates / withheld.candidates)
                found_shares.append(withheld.found / every)
                given_shares.append(helped.true_frames / helped.frames if helped.frames else 0.0)
    print("\nLeast, median, greatest share:")
    print(f"withheld, candidates that are callers: {spread(true_shares)}")
    print(f"withheld, callers that are candidates: {spread(found_shares)}")
    print(f"given, frames that are callers: {spread(given_shares)}")
    print(f"sure frames that are no callers: {wrong}")


if __name__ == "__main__":
    main()
