# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Copies of a file's page in other processes: equal bytes, other bytes, or nothing to compare."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.support.only import only, rows_of
from winstacks.findings.code import copies
from winstacks.findings.code.copies import Comparison, Mapping, SectionCopies
from winstacks.findings.facts import CheckFacts
from winstacks.names.imagereader import ImageReader
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces

BASE = 0x60000000
ELSEWHERE = 0x63450000
CODE = 0x1000
PIDS = (1000, 2000, 3000, 4000)
FULL = ["win7-x64", "win10-x64", "win11-x64", "win7-x86", "win10-x86"]
RELOCATIONS = 0x6000
SLOTS = (0x10, 0x80)
CONTENTS = {CODE: bytes(range(256)) * 16}
HOOK = b"\xe9\x10\x20\x30\x40"


def build(name: str, bases: Sequence[int] = (BASE,) * 4, **options: Any) -> Kernel:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    contents = options.pop("contents", {})
    for pid, base in zip(PIDS, bases):
        process = kernel.process(f"{pid}.exe", pid=pid)
        process.module(f"{pid}.exe", dll=False)
        process.module("shared.dll", base, contents={**CONTENTS, **contents}, **options)
    return kernel


def compared(kernel: Kernel, folder: pathlib.Path, *places: Tuple[int, int, int]) -> List[Comparison]:
    """The comparisons of (PID, start, end), of all in one image."""
    opened = context.open_image(kernel.image(), folder)
    spaces = {space.pid: space for space in AddressSpaces.list_spaces(opened.image)}
    known = CheckFacts(Symbolizer(opened.image)).copies
    return [known.compare(spaces[pid], start, end) for pid, start, end in places]


def change(kernel: Kernel, pid: int, address: int, data: bytes) -> None:
    next(process for process in kernel.processes if process.pid == pid).space.write(address, data)


@pytest.mark.parametrize("name", FULL)
def test_pages_of_the_section_are_equal(name: str, tmp_path: pathlib.Path) -> None:
    found = only(compared(build(name), tmp_path, (1000, BASE + CODE, BASE + CODE + 0x100)))
    assert found == Comparison()
    assert found.equal


@pytest.mark.parametrize("name", FULL)
def test_bytes_that_one_process_changed(name: str, tmp_path: pathlib.Path) -> None:
    """The range that is asked for decides: another function of the page was not changed."""
    kernel, at = build(name), BASE + CODE + 0x40
    change(kernel, 2000, at, HOOK)
    changed, beside, whole, other = rows_of(
        4,
        compared(
            kernel,
            tmp_path,
            (2000, at - 0x10, at + 0x10),
            (2000, at + 0x10, at + 0x80),
            (2000, BASE + CODE - 0x10, BASE + CODE + PAGE + 0x10),
            (1000, at - 0x10, at + 0x10),
        ),
    )
    assert changed == Comparison(((at, at + len(HOOK)),), 3)
    assert beside == Comparison((), 3)
    assert whole.ranges == changed.ranges
    assert other == Comparison()


@pytest.mark.parametrize("name", FULL)
def test_a_copy_with_equal_bytes_is_equal(name: str, tmp_path: pathlib.Path) -> None:
    kernel = build(name)
    change(kernel, 2000, BASE + CODE, b"\0")
    assert compared(kernel, tmp_path, (2000, BASE + CODE, BASE + CODE + 8)) == [Comparison((), 3)]


@pytest.mark.parametrize(("count", "changed"), [(1, True), (2, True), (3, False), (4, False)])
def test_what_most_have_is_equal(count: int, changed: bool, tmp_path: pathlib.Path) -> None:
    """Half of them are not most. What most have is compared with the section, which outvotes them."""
    kernel, at = build("win10-x64"), BASE + CODE + 0x40
    for pid in PIDS[:count]:
        change(kernel, pid, at, HOOK)
    found = only(compared(kernel, tmp_path, (1000, at, at + 5)))
    assert found.ranges
    assert (found.others, found.alike) == (3, 0 if changed else 3)


def test_bytes_of_which_each_process_has_its_own(tmp_path: pathlib.Path) -> None:
    """Most others have to agree on another value."""
    kernel, at = build("win10-x64"), BASE + CODE + 0x40
    for number, pid in enumerate(PIDS):
        change(kernel, pid, at, b"\xe9" + bytes([0x11 * (number + 1)]))
    found = only(compared(kernel, tmp_path, (1000, at, at + 5)))
    assert (found.ranges, found.split, found.equal) == ((), ((at + 1, at + 2),), True)


@pytest.mark.parametrize(
    ("opcode", "length"),
    [(b"\xe9", 4), (b"\xe8", 4), (b"\x68", 4), (b"\x48\xb8", 8), (b"\x49\xba", 8), (b"\xff\x25\0\0\0\0", 8)],
)
@pytest.mark.parametrize(("alike", "changed"), [(1, False), (2, True)])
def test_operands_are_compared_as_a_whole(
    opcode: bytes, length: int, alike: int, changed: bool, tmp_path: pathlib.Path
) -> None:
    """Relays at other distances have some bytes alike: most others must have the whole operand in common."""
    kernel, at = build("win10-x64"), BASE + CODE + 0x3E
    change(kernel, PIDS[0], at, opcode + bytes(length))
    for number, pid in enumerate(PIDS[1:]):
        own = bytes([0x11 * (1 if number < alike else number + 2)])
        change(kernel, pid, at, opcode + own * (length - 1) + b"\x7f")
    found = only(compared(kernel, tmp_path, (1000, at, at + len(opcode) + length)))
    whole = ((at + len(opcode), at + len(opcode) + length),)
    assert (found.ranges, found.split) == ((whole, ()) if changed else ((), whole))


def test_of_many_processes_of_one_program_few_are_asked(tmp_path: pathlib.Path) -> None:
    """The children of a program have its thunk, and are more than all others."""
    kernel, at = build("win10-x64"), BASE + CODE + 0x40
    for number in range(12):
        child = kernel.process("child.exe", pid=5000 + 4 * number)
        child.module("child.exe", dll=False)
        child.module("shared.dll", BASE, contents=CONTENTS)
        child.space.write(at, HOOK)
    first, other = rows_of(2, compared(kernel, tmp_path, (5000, at, at + 5), (5004, at, at + 5)))
    assert first == Comparison(((at, at + 5),), 4)
    assert other == Comparison(((at, at + 5),), 5)


def relocations() -> Dict[int, bytes]:
    """A file of x64 with two numbers of 8 bytes that are relocated, and one on the border of the page."""
    slots = [slot | 10 << 12 for slot in (*SLOTS, PAGE - 4)]
    block = struct.pack(f"<II{len(slots)}H2x", CODE, 8 + 2 * len(slots) + 2, *slots)
    return {RELOCATIONS: block, 0x80 + 24 + 0x70 + 5 * 8: struct.pack("<II", RELOCATIONS, len(block))}


def loaded_elsewhere(**options: Any) -> Kernel:
    """One process has the file at another address, with its numbers as its loader made them."""
    kernel = build("win10-x64", (BASE, BASE, ELSEWHERE), contents=relocations(), **options)
    for process in kernel.processes[1:]:
        if process.pid in PIDS:
            base = process.modules[1].base
            for slot in (*SLOTS, PAGE - 4):
                process.space.write(base + CODE + slot, struct.pack("<Q", base + 0x1234))
    return kernel


def test_relocations_are_undone(tmp_path: pathlib.Path) -> None:
    kernel, at = loaded_elsewhere(), BASE + CODE + 0x40
    change(kernel, 2000, at, HOOK)
    far, changed = rows_of(
        2, compared(kernel, tmp_path, (3000, ELSEWHERE + CODE, ELSEWHERE + CODE + PAGE), (2000, at, at + 8))
    )
    assert far == Comparison((), 2)
    assert changed == Comparison(((at, at + 5),), 2)


def test_a_number_that_was_changed_is_found(tmp_path: pathlib.Path) -> None:
    kernel = loaded_elsewhere()
    at = ELSEWHERE + CODE + SLOTS[0]
    change(kernel, 3000, at, struct.pack("<Q", ELSEWHERE + 0x1235))
    assert compared(kernel, tmp_path, (3000, at, at + 8)) == [Comparison(((at, at + 1),), 2)]


@pytest.mark.parametrize("lacking", [RELOCATIONS, 0])
def test_without_relocations_only_the_same_address_is_compared(lacking: int, tmp_path: pathlib.Path) -> None:
    kernel = loaded_elsewhere()
    for process in kernel.processes[1:]:
        process.space.set_state(process.modules[1].base + lacking, PAGE, State.PROTOTYPE)
    section = kernel.processes[1].modules[1].section
    assert section is not None
    section.set_state(lacking, PAGE, State.PAGEFILE)
    near, far = rows_of(
        2,
        compared(
            kernel,
            tmp_path,
            (1000, BASE + CODE, BASE + CODE + 4),
            (3000, ELSEWHERE + CODE, ELSEWHERE + CODE + 4),
        ),
    )
    assert near == Comparison((), 1)
    # Without another process at that address the section's own page has to do.
    assert far == Comparison()


def test_why_nothing_is_compared(tmp_path: pathlib.Path) -> None:
    kernel = build("win10-x64")
    own = kernel.processes[1].modules[0].base + CODE
    for pid in PIDS:
        process = next(process for process in kernel.processes if process.pid == pid)
        process.space.write(BASE + 2 * PAGE, b"\x90")
        if pid != 1000:
            process.space.set_state(BASE + 2 * PAGE, PAGE, State.PAGEFILE)
    change(kernel, 1000, own, HOOK)
    kernel.processes[1].space.set_state(BASE + CODE, PAGE, State.PAGEFILE)
    places = [
        (1000, own, own + 5),
        (1000, BASE + CODE, BASE + CODE + 5),
        (1000, BASE + 2 * PAGE, BASE + 2 * PAGE + 5),
        (1000, 0x123000, 0x123005),
        (0, kernel.base + 0x1000, kernel.base + 0x1005),
    ]
    found = compared(kernel, tmp_path, *places)
    assert [finding.reason for finding in found] == [
        copies.NO_SECOND,
        copies.NOT_IN_MEMORY,
        copies.NO_COPY,
        copies.NO_IMAGE,
        copies.OF_KERNEL,
    ]
    assert not any(finding.equal or finding.ranges for finding in found)


def test_a_process_that_no_list_has_is_not_asked(tmp_path: pathlib.Path) -> None:
    kernel, at = build("win10-x64", (BASE,)), BASE + CODE
    change(kernel, 1000, at, HOOK)
    hidden = kernel.process("hidden.exe", pid=6000, listed=False)
    hidden.module("hidden.exe", dll=False)
    hidden.module("shared.dll", BASE, contents=CONTENTS)
    hidden.thread(6004)
    found = only(compared(kernel, tmp_path, (1000, at, at + 5)))
    # It is compared with the section's own page, and with no process.
    assert (found.others, found.reason, bool(found.ranges)) == (0, "", True)


def test_each_page_of_a_file_is_read_once_of_a_few(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """However many processes ask, and however often."""
    kernel, at = build("win10-x64"), BASE + CODE
    for number in range(20):
        kernel.process(f"more{number}.exe", pid=5000 + 4 * number).module(
            "shared.dll", BASE, contents=CONTENTS
        )
    for process in kernel.processes[1:]:
        process.space.write(at, b"\0")
    opened = context.open_image(kernel.image(), tmp_path)
    known, read = CheckFacts(Symbolizer(opened.image)).copies, []
    load = ImageReader.load

    def counted(self: ImageReader, rva: int, length: int) -> Any:
        read.append((self.layer_name, rva))
        return load(self, rva, length)

    monkeypatch.setattr(ImageReader, "load", counted)
    spaces = [space for space in AddressSpaces.list_spaces(opened.image) if (space.pid or 0) >= 1000]
    for _ in range(3):
        for space in spaces:
            assert known.compare(space, at, at + 0x20) == Comparison((), 8)
    assert len(spaces) == 24
    # The page of each process, the pages of the others, the section's, two attempts at its relocations, and
    # the module's index, which shows whether a file is given.
    assert len(read) <= len(spaces) + copies.MAX_OTHERS + 5


def test_no_more_pages_are_compared_than_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(copies, "MAX_PAGES", 1)
    first, other = rows_of(
        2,
        compared(build("win10-x64"), tmp_path, (1000, BASE + CODE, BASE + CODE + 4), (1000, BASE, BASE + 4)),
    )
    assert (first.equal, other.reason) == (True, copies.TOO_MANY)


def test_pages_of_the_section_need_no_list_of_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """The VADs of all processes are walked only where a process has a page of its own."""
    kernel, walked = build("win10-x64"), []
    change(kernel, 2000, BASE + CODE, HOOK)
    listed = SectionCopies.others

    def counted(self: SectionCopies, mapping: Mapping) -> Any:
        walked.append(mapping.space.pid)
        return listed(self, mapping)

    monkeypatch.setattr(SectionCopies, "others", counted)
    range_ = BASE + CODE, BASE + CODE + 4
    compared(kernel, tmp_path, (1000, *range_), (2000, *range_), (3000, *range_))
    assert walked == [2000]


@pytest.mark.parametrize("state", [State.ABSENT, State.PROTOTYPE, State.PAGEFILE])
@pytest.mark.parametrize("name", FULL)
def test_a_page_that_no_one_has_in_memory(name: str, state: State, tmp_path: pathlib.Path) -> None:
    """A process has not changed it if its entry leads to the section; one in the page file is its own."""
    kernel = build(name)
    for process in kernel.processes:
        for module in process.modules:
            if module.base == BASE and module.section is not None:
                section = module.section
                process.space.set_state(BASE + CODE, PAGE, state if process.pid == 1000 else State.PROTOTYPE)
    section.set_state(CODE, PAGE, State.PROTOTYPE)
    found = only(compared(kernel, tmp_path, (1000, BASE + CODE, BASE + CODE + 0x100)))
    assert found == Comparison(reason=copies.NOT_IN_MEMORY if state is State.PAGEFILE else "")
