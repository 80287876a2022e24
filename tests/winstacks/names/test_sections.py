# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where the page of an image comes from: the process itself, its section, or nowhere; no other process."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Optional

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.process import Process
from tests.support.lacking import MEMBERS, TYPES, LackingTable, Lost
from tests.support.only import only
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING, Status, status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import Image
from winstacks.names import moduleindex, symbolizer
from winstacks.names.imagereader import ImageReader
from winstacks.names.places import Name
from winstacks.names.symbolizer import Symbolizer
from winstacks.process import sections
from winstacks.process.sections import ImageSections, SectionView
from winstacks.process.spaces import AddressSpaces
from winstacks.process.vads import Vads

BASE = 0x60000000
EXPORTS_RVA = 0x6000
EXPORTS = {f"Function{number:03}": 0x1000 + 0x10 * number for number in range(100)}
FULL = ["win10-x64", "win11-x64", "win7-x64", "xp-x86", "win7-x86", "win10-x86"]


def build(name: str, *pids: int) -> Kernel:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    for pid in pids or (1000, 2000):
        process = kernel.process(f"{pid}.exe", pid=pid)
        process.module(f"{pid}.exe", dll=False)
        ntdll(process)
    return kernel


def ntdll(process: Process, **options: Any) -> Module:
    options = {"exports": EXPORTS, "rdata": 0x4000, "exports_rva": EXPORTS_RVA, **options}
    return process.module("ntdll.dll", BASE, **options)


def names(kernel: Kernel, folder: pathlib.Path) -> Dict[Optional[int], Name]:
    """How each process names the same address."""
    opened = context.open_image(kernel.image(), folder)
    symbolizer = Symbolizer(opened.image)
    spaces = [space for space in AddressSpaces.list_spaces(opened.image) if (space.pid or 0) > 4]
    return {space.pid: symbolizer.for_space(space).name(BASE + 0x1024) for space in spaces}


def found(row_status: Status = NOTHING) -> Name:
    return Name("ntdll!Function002+0x4", "nearest", row_status, "image")


NOT_NAMED = Name("ntdll+0x1024", "module", status(StatusCode.EXPORTS_UNREADABLE), "image")


@pytest.mark.parametrize("lost", [Lost(TYPES, "_MMPTE"), Lost(MEMBERS, "_SEGMENT.PrototypePte")])
def test_what_leads_to_sections_and_is_lacking_is_named(
    lost: Lost, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = context.open_image(build("win10-x64").image(), tmp_path)
    with LackingTable(opened).without(lost):
        ImageSections(opened.image)
    name = lost.name.rpartition(".")[2]
    assert [text for text in opened.image.lacking if name in text]
    assert any(name in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize(
    ("lacks", "section"), [(State.PROTOTYPE, State.VALID), (State.ABSENT, State.TRANSITION)]
)
def test_a_page_that_the_process_lacks_is_the_sections(
    tmp_path: pathlib.Path, name: str, lacks: State, section: State
) -> None:
    kernel = build(name)
    process = kernel.processes[1]
    process.space.set_state(BASE + EXPORTS_RVA, 0x1000, lacks)
    new_section = process.modules[1].section
    assert new_section is not None
    new_section.set_state(EXPORTS_RVA, 0x1000, section)
    assert names(kernel, tmp_path) == {1000: found(), 2000: found()}


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("section", [State.PAGEFILE, State.PROTOTYPE, State.MISSING])
def test_a_page_that_the_section_lacks_is_missing(tmp_path: pathlib.Path, name: str, section: State) -> None:
    """The other process has a copy of its own with the same bytes: only its names come from there."""
    kernel = build(name)
    one, other = kernel.processes[1:]
    page = one.space.read(BASE + EXPORTS_RVA, 1)
    other.space.write(BASE + EXPORTS_RVA, page)
    one.space.set_state(BASE + EXPORTS_RVA, 0x1000, State.PROTOTYPE)
    new_section = one.modules[1].section
    assert new_section is not None
    new_section.set_state(EXPORTS_RVA, 0x1000, section)
    assert names(kernel, tmp_path) == {1000: NOT_NAMED, 2000: found()}


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("state", [State.PAGEFILE, State.MISSING, State.DEMAND_ZERO])
def test_a_page_of_its_own_that_is_out_is_missing(tmp_path: pathlib.Path, name: str, state: State) -> None:
    """What the section has there is not what the process had."""
    kernel = build(name)
    kernel.processes[1].space.set_state(BASE + EXPORTS_RVA, 0x1000, state)
    assert names(kernel, tmp_path) == {1000: NOT_NAMED, 2000: found()}


def test_a_page_that_was_combined_with_equal_ones_is_not_the_sections(tmp_path: pathlib.Path) -> None:
    kernel = build("win10-x64")
    space = kernel.processes[1].space
    space.set_state(BASE + EXPORTS_RVA, 0x1000, State.PROTOTYPE)
    space.tables._set(BASE + EXPORTS_RVA, 0xE10012345678 << 16 | 1 << 10 | 1 << 11 | 4 << 5)
    assert names(kernel, tmp_path) == {1000: NOT_NAMED, 2000: found()}


@pytest.mark.parametrize("name", FULL)
def test_an_own_page_goes_before_the_sections(tmp_path: pathlib.Path, name: str) -> None:
    kernel = build(name)
    space = kernel.processes[1].space
    at = BASE + EXPORTS_RVA + space.read(BASE + EXPORTS_RVA, 0x1000).index(b"Function002")
    space.write(at, b"Changed_002")
    other = status(StatusCode.EXPORTS_DIFFER_FROM_THE_SECTION)
    changed = found(other)._replace(symbol="ntdll!Changed_002+0x4")
    assert names(kernel, tmp_path) == {1000: changed, 2000: found()}


def test_a_copy_with_equal_bytes_shares_the_index(tmp_path: pathlib.Path) -> None:
    kernel = build("win10-x64")
    space = kernel.processes[1].space
    space.write(BASE + EXPORTS_RVA, space.read(BASE + EXPORTS_RVA, 1))
    opened = context.open_image(kernel.image(), tmp_path)
    symbolizer = Symbolizer(opened.image)
    spaces = [space for space in AddressSpaces.list_spaces(opened.image) if (space.pid or 0) > 4]
    known = [symbolizer.for_space(space).module_at(BASE) for space in spaces]
    assert known[0] is not None
    assert known[1] is not None
    assert known[0].image is known[1].image


def _reader(image: Image, pid: int) -> ImageReader:
    """A reader of the ntdll of a process."""
    space = only(AddressSpaces.list_spaces(image, [pid]))
    vads, _ = image.service(Vads).list_regions(space)
    vad = only(vad for vad in vads if vad.start == BASE)
    view = image.service(ImageSections).section_of(vad)
    assert view is not None
    return ImageReader(image, space.layer_name, BASE, vad.end - vad.start, view)


def _loads(monkeypatch: pytest.MonkeyPatch) -> List[int]:
    """The addresses from which the content of a section is loaded from now on."""
    starts: List[int] = []
    load = SectionView.load

    def counted(view: SectionView, start: int, length: int) -> Extents:
        starts.append(start)
        return load(view, start, length)

    monkeypatch.setattr(SectionView, "load", counted)
    return starts


@pytest.mark.parametrize("name", FULL)
def test_processes_share_what_page_tables_prove_to_be_the_sections(
    tmp_path: pathlib.Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process lacks the page, which the section has."""
    kernel = build(name)
    page = kernel.processes[1].space.read(BASE + EXPORTS_RVA, 0x1000)
    kernel.processes[2].space.set_state(BASE + EXPORTS_RVA, 0x1000, State.PROTOTYPE)
    image = context.open_image(kernel.image(), tmp_path).image
    starts = _loads(monkeypatch)
    for pid in (1000, 2000):
        assert _reader(image, pid).read(EXPORTS_RVA, 0x1000) == page
    assert len(starts) == 1


@pytest.mark.parametrize("name", FULL)
def test_a_process_that_wrote_or_lost_a_page_does_not_share_it(tmp_path: pathlib.Path, name: str) -> None:
    """A page of one process changes nothing for another, whichever is read first."""
    kernel = build(name, 1000, 2000, 3000)
    wrote, lost = kernel.processes[2:]
    page = wrote.space.read(BASE + EXPORTS_RVA, 0x1000)
    wrote.space.write(BASE + EXPORTS_RVA, b"own")
    lost.space.set_state(BASE + EXPORTS_RVA, 0x1000, State.PAGEFILE)
    opened = kernel.image()
    expected = {1000: page, 2000: b"own" + page[3:], 3000: None}
    for number, order in enumerate(((1000, 2000, 3000), (3000, 2000, 1000))):
        folder = tmp_path / str(number)
        folder.mkdir()
        image = context.open_image(opened, folder).image
        found = {pid: _reader(image, pid).read(EXPORTS_RVA, 0x1000) for pid in order}
        assert found == expected


def test_kept_windows_of_sections_have_a_limit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "MAX_WINDOW_BYTES", 0)
    image = context.open_image(build("win10-x64").image(), tmp_path).image
    starts, service = _loads(monkeypatch), image.service(ImageSections)
    space = only(AddressSpaces.list_spaces(image, [1000]))
    vads, _ = image.service(Vads).list_regions(space)
    view = service.section_of(only(vad for vad in vads if vad.start == BASE))
    assert view is not None
    offsets = (EXPORTS_RVA, 0, 0, EXPORTS_RVA)
    first, *_, last = [service.windows[view.key, offset, 0x1000] for offset in offsets]
    assert starts == [EXPORTS_RVA, 0, EXPORTS_RVA]
    assert first.runs == last.runs
    assert [(start, len(data)) for start, data in first.runs] == [(EXPORTS_RVA, 0x1000)]


def break_segment(kernel: Kernel, section: Any) -> None:
    segment = kernel.obj("_SEGMENT", section.control_area["Segment"])
    segment["ControlArea"] = section.control_area.address + 0x10


def break_pointer(kernel: Kernel, section: Any) -> None:
    section.control_area["Segment"] = 0


def break_entries(kernel: Kernel, section: Any) -> None:
    kernel.obj("_SEGMENT", section.control_area["Segment"])["PrototypePte"] = section.entries + 4


def break_count(kernel: Kernel, section: Any) -> None:
    kernel.obj("_SEGMENT", section.control_area["Segment"])["TotalNumberOfPtes"] = 0


@pytest.mark.parametrize("damage", [break_segment, break_pointer, break_entries, break_count])
def test_structures_that_disagree_lead_to_no_section(tmp_path: pathlib.Path, damage: Any) -> None:
    kernel = build("win10-x64")
    process = kernel.processes[1]
    process.space.set_state(BASE + EXPORTS_RVA, 0x1000, State.PROTOTYPE)
    image = kernel.image()
    damage(kernel, process.modules[1].section)
    opened = context.open_image(image, tmp_path)
    symbolizer = Symbolizer(opened.image)
    spaces = {space.pid: space for space in AddressSpaces.list_spaces(opened.image)}
    assert symbolizer.for_space(spaces[1000]).name(BASE + 0x1024) == NOT_NAMED
    assert symbolizer.for_space(spaces[2000]).name(BASE + 0x1024) == found()


def test_no_more_prototype_ptes_are_read_than_a_vad_covers(tmp_path: pathlib.Path) -> None:
    kernel = build("win10-x64")
    process = kernel.processes[1]
    image = kernel.image()
    section = process.modules[1].section
    assert section is not None
    kernel.obj("_SEGMENT", section.control_area["Segment"])["TotalNumberOfPtes"] = 0xFFFFFFFF
    opened = context.open_image(image, tmp_path).image
    space = next(space for space in AddressSpaces.list_spaces(opened) if space.pid == 1000)
    service = opened.service(ImageSections)
    vads, _ = opened.service(Vads).list_regions(space)
    vad = only(vad for vad in vads if vad.start == BASE)
    view = service.section_of(vad)
    assert view is not None
    assert len(service.page_addresses(view)) == (vad.end - vad.start) // 0x1000
    huge = service.section_of(vad._replace(end=1 << 47))
    assert huge is not None
    assert huge.count == sections.MAX_PAGES


def tables(kernel: Kernel, process: Process, count: int, own: bool) -> List[Module]:
    """Loads modules with long export tables; the process has its own copies of these, or not."""
    exports = {f"F{number:05}": 0x1000 + number % 0x1000 for number in range(TABLE)}
    modules = []
    for number in range(count):
        module = process.module(
            f"huge{number}.dll", exports=exports, rdata=0x100000, exports_rva=0x6000, text=0x2000
        )
        if own:
            process.space.write(module.base + 0x6000 + 40, b"\xff\xff\x7f\x7f")
        modules.append(module)
    return modules


TABLE = 200
PROCESSES = 200


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that few modules reach: those of the real ones take minutes to forge."""
    monkeypatch.setattr(moduleindex, "MAX_EXPORTS", 3 * TABLE)
    monkeypatch.setattr(moduleindex, "MAX_SHARED_EXPORTS", 100 * TABLE)


@pytest.mark.usefixtures("small_budget")
@pytest.mark.parametrize("own", [True, False])
def test_a_process_has_a_budget_of_its_own(tmp_path: pathlib.Path, own: bool) -> None:
    """What it has alone counts for it, what is proven to be as in the section for nobody."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    greedy = kernel.process("greedy.exe", pid=1000)
    greedy.module("greedy.exe", dll=False)
    modules = tables(kernel, greedy, 5, own)
    quiet = kernel.process("quiet.exe", pid=2000)
    quiet.module("quiet.exe", dll=False)
    ntdll(quiet)
    opened = context.open_image(kernel.image(), tmp_path)
    symbolizer = Symbolizer(opened.image)
    spaces = {space.pid: space for space in AddressSpaces.list_spaces(opened.image)}
    sources = [symbolizer.for_space(spaces[1000]).name(module.base + 0x1801) for module in modules]
    incomplete = [
        StatusCode.EXPORTS_INCOMPLETE in {status_item.code for status_item in source.status}
        for source in sources
    ]
    assert incomplete == [False, False, False, own, own]
    assert [source.source for source in sources[:3]] == ["nearest"] * 3
    assert [source.source for source in sources[4:]] == ["module" if own else "nearest"]
    assert symbolizer.for_space(spaces[2000]).name(BASE + 0x1024) == found()


@pytest.mark.usefixtures("small_budget")
def test_what_a_process_has_alone_goes_with_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many processes have changed long export tables: what is kept is that of the last few."""
    monkeypatch.setattr(symbolizer, "MAX_UNSHARED_EXPORTS", 6 * TABLE)
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    quiet = kernel.process("quiet.exe", pid=1000)
    quiet.module("quiet.exe", dll=False)
    ntdll(quiet)
    modules: List[Module] = []
    for number in range(PROCESSES):
        greedy = kernel.process("greedy.exe", pid=2000 + 4 * number)
        greedy.module("greedy.exe", dll=False)
        modules = tables(kernel, greedy, 4, own=True)
    opened = context.open_image(kernel.image(), tmp_path)
    new_symbolizer = Symbolizer(opened.image)
    spaces = {space.pid: space for space in AddressSpaces.list_spaces(opened.image)}
    before = new_symbolizer.for_space(spaces[1000]).name(BASE + 0x1024)
    most = 0
    for pid, space in spaces.items():
        if (pid or 0) >= 2000:
            for module in modules:
                new_symbolizer.for_space(space).name(module.base + 0x1801)
        most = max(
            most,
            sum(new_symbolizer.indexes.exports_held(layer_name) for layer_name, _ in new_symbolizer._names),
        )
        # The untouched process has none alone, each other 3 * TABLE; the last one is kept in any case.
        assert len(new_symbolizer._names) <= 1 + symbolizer.MAX_UNSHARED_EXPORTS // (3 * TABLE) + 1
    assert 3 * TABLE <= most <= 9 * TABLE
    assert (
        sum(index.weight for index in new_symbolizer.indexes._shared.values()) <= len(modules) * TABLE + 1000
    )
    assert new_symbolizer.for_space(spaces[1000]).name(BASE + 0x1024) == before == found()
