# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks that need the pages of an image section, where one write loses the section."""

from __future__ import annotations

from typing import Iterator, List

import pytest

from tests.forge.dump import Image
from tests.forge.obj import Obj
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.sections import ImageSection
from tests.support.callstackimages import STUB
from tests.support.clean.host64 import Host64
from tests.support.findingimages import FindingImage, Row, answered
from tests.support.only import only
from winstacks.findings.code import lostsections
from winstacks.findings.code.lostsections import NO_SECTION
from winstacks.findings.finding import FramePlace, frame_places
from winstacks.stacklist.stack import StackRecord

KERNEL = "win10-x64"
POOL = ("ntdll!TppWorkerThread", "ntdll!TppTimerpExecuteCallback", "ntdll!RtlpTpTimerCallback")
CHECKS = ["gadget", "no_call", "wait_in_dispatcher"]
NOWHERE = 0xFFFFC00012345678
_CODE = 1 << 29
"""IMAGE_SCN_MEM_EXECUTE."""


class SharedNtdll:
    """A process in which the thread pool called a wait, and which has no pages of ntdll but its code."""

    def __init__(self) -> None:
        self.host = Host64(KERNEL)
        program = self.host.program("sleeps.exe", functions="main")
        program.waits(*POOL, "kernelbase!WaitForSingleObjectEx")
        self.image: Image = self.host.kernel.image()
        process = program.process
        ntdll = next(module for module in process.all() if module.path.endswith("ntdll.dll"))
        code = [
            (part.rva, part.rva + part.size) for part in ntdll.pe.sections if part.characteristics & _CODE
        ]
        for rva in range(0, ntdll.pe.size, PAGE):
            shared = process.space.shares(ntdll.base + rva)
            if shared and not any(low <= rva < high for low, high in code):
                process.space.set_state(ntdll.base + rva, PAGE, State.PROTOTYPE)
        assert ntdll.section is not None
        self.section: ImageSection = ntdll.section

    def write(self, structure: str, member: str, value: int) -> None:
        """Writes a member of the structures that lead to the pages."""
        kernel = self.host.kernel
        if structure == "_SEGMENT":
            place = self.section.control_area["Segment"] + kernel.isf.offset("_SEGMENT", member)
            kernel.paged.write_int(place, value, 4 if member == "TotalNumberOfPtes" else 8)
        elif structure == "_SUBSECTION":
            self.section.subsection[member] = value
        else:
            self.section.control_area[member] = value

    def rows(self) -> List[Row]:
        """The rows of windows.tracefindings."""
        return answered(self.image)


def test_with_its_section() -> None:
    rows = [row for row in SharedNtdll().rows() if row["Finding"] in CHECKS]
    assert [(row["Finding"], row["Severity"]) for row in rows] == [("wait_in_dispatcher", "medium")]


@pytest.mark.parametrize(
    ("structure", "member", "value"),
    [
        ("_SEGMENT", "TotalNumberOfPtes", 0),
        ("_SEGMENT", "TotalNumberOfPtes", 3),
        ("_SEGMENT", "PrototypePte", NOWHERE),
        ("_SEGMENT", "ControlArea", 0),
        ("_CONTROL_AREA", "Segment", 0),
        ("_CONTROL_AREA", "Segment", NOWHERE),
        ("_SUBSECTION", "ControlArea", 0),
        ("_SUBSECTION", "ControlArea", NOWHERE),
    ],
)
def test_one_write_loses_the_section(structure: str, member: str, value: int) -> None:
    """Nothing is found, and the checks that found nothing for that reason name the module."""
    forged = SharedNtdll()
    forged.write(structure, member, value)
    rows = forged.rows()
    assert [row for row in rows if row["Severity"] is not None] == []
    told = {row["Finding"]: row["Evidence"] for row in rows if NO_SECTION in row["Evidence"]}
    assert f"{NO_SECTION}: ntdll" in told.pop("modified_code")
    assert told == dict.fromkeys(CHECKS, f"{NO_SECTION}: ntdll")


def test_the_checks_look_at_the_frames_of_a_stack_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: List[StackRecord] = []

    def counted(stack: StackRecord, *backings: str) -> Iterator[FramePlace]:
        looked.append(stack)
        return frame_places(stack, *backings)

    monkeypatch.setattr(lostsections, "frame_places", counted)
    SharedNtdll().rows()
    assert len(looked) == len({id(stack) for stack in looked}) > 0


def with_ntdll(everywhere: bool) -> FindingImage:
    """A thread waits in ntdll, whose function all processes have overwritten, or none."""
    forged = FindingImage(KERNEL)
    ntdll = forged.stacks.modules["ntdll"]
    for number in range(2):
        forged.beside(f"other{number}.exe", 2000 + 4 * number)
    for process in forged.kernel.processes if everywhere else ():
        if process is forged.app or process.pid >= 2000:
            process.space.write(ntdll.base + STUB.rva, b"\xcd\x2e" * 0x20)
    return forged


def write_member(forged: FindingImage, structure: str, member: str, value: int) -> None:
    """Writes a member of the structures between the VAD of ntdll and its pages; a small value is added."""
    section = forged.stacks.modules["ntdll"].section
    assert section is not None
    if structure == "_SEGMENT":
        place = section.control_area["Segment"] + forged.kernel.isf.offset("_SEGMENT", member)
        size = 4 if member == "TotalNumberOfPtes" else 8
        before = 0 if size == 4 or not value else section.entries
        forged.kernel.paged.write_int(place, before + value, size)
        return
    _vad_of(forged)[member] = section.entries + value if value else 0


def name_another(forged: FindingImage) -> None:
    """Has the VAD of ntdll name the file of kernelbase."""
    other = forged.stacks.modules["kernelbase"].section
    assert other is not None
    _vad_of(forged)["Subsection"] = other.subsection


def _vad_of(forged: FindingImage) -> Obj:
    section = forged.stacks.modules["ntdll"].section
    node = only([vad for vad in forged.app.vads if vad.section is section]).node
    assert node is not None
    return node


LOSING = [
    ("_MMVAD", "FirstPrototypePte", 0),
    ("_MMVAD", "FirstPrototypePte", 8),
    ("_MMVAD", "FirstPrototypePte", -8),
    ("_SEGMENT", "PrototypePte", 0),
    ("_SEGMENT", "PrototypePte", 8),
    ("_SEGMENT", "PrototypePte", -8),
    ("_SEGMENT", "ControlArea", 8),
    ("_SEGMENT", "TotalNumberOfPtes", 0),
    ("_SEGMENT", "TotalNumberOfPtes", 1),
]
"""One write each that makes the section say nothing of a page."""


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize(("structure", "member", "value"), LOSING)
def test_code_that_can_no_longer_be_compared_with_its_section(
    structure: str, member: str, value: int, everywhere: bool
) -> None:
    """All processes may be overwritten alike, which only the section shows; and honest code is no finding."""
    forged = with_ntdll(everywhere)
    image = forged.image()
    assert [row["Severity"] for row in answered(image, check=["modified_code"]) if row["Severity"]] == (
        ["medium"] if everywhere else []
    )
    write_member(forged, structure, member, value)
    row = only(answered(image, check=["modified_code"]))
    assert row["Severity"] is None
    assert f"{NO_SECTION}: ntdll" in row["Evidence"]


def test_code_that_is_compared_with_another_file() -> None:
    """One write to a VAD makes it name another file, whose pages differ from honest code."""
    forged = with_ntdll(everywhere=False)
    image = forged.image()
    name_another(forged)
    rows = [row for row in answered(image, check=["modified_code"]) if row["Severity"]]
    assert {(row["Severity"], row["Confidence"], row["Status"]) for row in rows} == {
        ("medium", "possible", "VAD of another file")
    }
    assert all(row["Innocent"].startswith("the VAD and the loader name different files") for row in rows)
