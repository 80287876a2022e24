# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The sets of ../shared/waits: processes whose threads wait in Microsoft's own ntdll, with the truth.

for snapshot in snapshots(path): ...
score(answers, snapshot)        # the same measure as score.py beside the sets
"""

from __future__ import annotations

import bisect
import collections
import json
import lzma
import pathlib
from typing import Any, Counter, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tests.support import bare
from winstacks.columns import words
from winstacks.memory.decode.structure import Structures, integers
from winstacks.waits.decode.answer import Answer
from winstacks.waits.decode.processview import ProcessView, ThreadView
from winstacks.waits.decode.userwaits import UserWaits

KINDS = {
    words.CRITICAL_SECTION: "cs",
    words.SRW_LOCK: "srw",
    words.CONDITION_VARIABLE: "cv",
    words.ON_ADDRESS: "address",
    words.RUN_ONCE: "once",
    words.USER_RESOURCE: "resource",
}
"""The sets' words by ours; other kinds are no answer about a lock."""

ORDER = ("rbx", "rsi", "rdi", "rbp", "r12", "r13", "r14", "r15")
CODE = (0x1000, 0x8000)
"""The code of the program's module, as RVAs."""
TEB_SIZE = {8: 0x1838, 4: 0x1000}


class Snapshot(NamedTuple):
    """A snapshot of a set.

    Attributes:
        label, build, pointer_size: of its set
        story, number: its place in the set
        header: the header of its set
        truth: the snapshot as the set has it
        regions: (address, bytes) of its memory, sorted; the module of the program among them
    """

    label: str
    build: int
    pointer_size: int
    story: int
    number: int
    header: Dict[str, Any]
    truth: Dict[str, Any]
    regions: List[Tuple[int, bytes]]


def region(described: List[Any]) -> Tuple[int, bytes]:
    """Returns address and bytes of a region of a set."""
    address, size, parts = described
    data = bytearray(size)
    for offset, text in parts:
        piece = bytes.fromhex(text)
        data[offset : offset + len(piece)] = piece
    return address, bytes(data)


def snapshots(path: pathlib.Path) -> Iterator[Snapshot]:
    """Yields the snapshots of a set."""
    modules: Dict[int, Dict[str, Any]] = {}
    header: Dict[str, Any] = {}
    with lzma.open(path, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row[0] == "H":
                header = row[1]
            elif row[0] == "A":
                modules[row[1]] = row[2]["app"]
            else:
                _, story, number, truth = row
                size = 8 if header["arch"] == "x64" else 4
                image = region(modules[story]["image"])
                parts = [region(part) for part in truth["regions"]]
                merged = _over(image, parts)
                yield Snapshot(
                    header["label"], header["build"], size, story, number, header, truth, sorted(merged)
                )


def _over(image: Tuple[int, bytes], parts: List[Tuple[int, bytes]]) -> List[Tuple[int, bytes]]:
    """Returns the regions of a snapshot; those inside the program's module replace its bytes."""
    base, whole = image[0], bytearray(image[1])
    others = []
    for address, data in parts:
        if base <= address < base + len(whole):
            whole[address - base : address - base + len(data)] = data
        else:
            others.append((address, data))
    return [(base, bytes(whole)), *others]


class Bytes:
    """Reads the memory of a snapshot."""

    def __init__(self, regions: Sequence[Tuple[int, bytes]]) -> None:
        self._regions: List[Tuple[int, bytes]] = []
        for address, data in sorted(regions):
            if self._regions and self._regions[-1][0] + len(self._regions[-1][1]) == address:
                self._regions[-1] = (self._regions[-1][0], self._regions[-1][1] + data)
            else:
                self._regions.append((address, data))
        self._starts = [start for start, _ in self._regions]

    def read(self, address: int, length: int) -> Optional[bytes]:
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        start, data = self._regions[place]
        piece = data[address - start : address - start + length]
        return piece if len(piece) == length else None


def view_of(snapshot: Snapshot, arguments: bool) -> ProcessView:
    """Returns a snapshot as the decoders see it, with or without the first arguments of system calls."""
    memory, truth, size = Bytes(snapshot.regions), snapshot.truth, snapshot.pointer_size
    ntdll, app = ((module["base"], module["base"] + module["size"]) for module in truth["modules"])
    code = app[0] + CODE[0], app[0] + CODE[1]
    threads = []
    for thread in truth["threads"]:
        regs = thread["regs"]
        prefix = "r" if size == 8 else "e"
        names = ORDER if size == 8 else ORDER[:4]
        known = {
            name.title(): regs[prefix + name[1:] if len(name) == 3 and name[1].isalpha() else name]
            for name in names
        }
        given = tuple(thread["args"] or ()) if arguments and thread["call"] else ()
        threads.append(
            ThreadView(
                thread["tid"],
                (tuple(thread["stack"]),),
                (thread["teb"], thread["teb"] + TEB_SIZE[size]),
                regs[prefix + "ip"],
                regs[prefix + "sp"],
                known,
                given[:1],
            )
        )
    return ProcessView(memory.read, size, threads, ntdll, lambda address: code[0] <= address < code[1])


def types_of(snapshot: Snapshot) -> Structures:
    """Returns the structures of user mode of a snapshot's bitness."""
    size = snapshot.pointer_size
    return bare.image(size).process_types(bare.MACHINES[size])


def layouts_of(snapshot: Snapshot) -> Tuple[Structures, ...]:
    """Returns the structures of wait blocks of each generation."""
    size = snapshot.pointer_size
    return bare.image(size).our_generations("waits", bare.MACHINES[size])


def waits_of(snapshot: Snapshot, arguments: bool) -> Tuple[ProcessView, UserWaits]:
    """Returns the decoders over a snapshot."""
    view, size = view_of(snapshot, arguments), snapshot.pointer_size
    types, layouts = types_of(snapshot), layouts_of(snapshot)
    offset = types["_PEB"].offset("WaitOnAddressHashTable")
    base, end = view.ntdll or (0, 0)

    def data() -> Iterator[int]:
        for address, content in snapshot.regions:
            if base <= address < end:
                yield from integers(content, size)

    return view, UserWaits(view, types, layouts, snapshot.truth["peb"], offset, data)


def score(snapshot: Snapshot, answers: Dict[int, List[Answer]]) -> Counter[Tuple[str, str]]:
    """Returns the measure of the decoders' answers."""
    return measure(
        snapshot,
        {
            tid: [(KINDS[each.kind], each.address) for each in found if each.kind in KINDS]
            for tid, found in answers.items()
        },
    )


def measure(
    snapshot: Snapshot, answers: Mapping[int, Sequence[Tuple[str, int]]], mask: int = -1
) -> Counter[Tuple[str, str]]:
    """Returns how many threads of a snapshot have a right answer, none, a wrong one and so on, by kind.

    Args:
        snapshot: the snapshot
        answers: kind, as the sets write it, and address by TID
        mask: bits of an address that the answers have
    """
    counts: Counter[Tuple[str, str]] = collections.Counter()
    for thread in snapshot.truth["threads"]:
        wait = thread["waits_for"] or {"kind": "running"}
        got = list(answers.get(thread["tid"], ()))
        state = "" if thread["state"] == "waiting" else thread["state"] + " "
        truth = (wait["kind"], (wait.get("address") or 0) & mask)
        if not wait.get("address"):
            result = "none" if not got else "FALSE"
        else:
            result = (
                "none" if not got else "right" if got == [truth] else "ambiguous" if truth in got else "WRONG"
            )
        counts[state + wait["kind"], result] += 1
    return counts
