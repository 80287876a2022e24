# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The keys of one process on different machines: other bases, boots and builds, pages that are gone."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Dict, List, Tuple

import pytest

from tests.forge import context, heap_layouts, heaplist, sample
from tests.forge.context import Opened
from tests.forge.heaplog import HeapLog
from tests.forge.heaps import NtHeap
from tests.forge.module import Module
from tests.forge.pe import TIMESTAMP
from tests.forge.std import Std
from tests.support import flattables
from tests.support.callstackimages import PID, WAIT_EX, StackImage
from tests.support.only import only

THREAD = 1004
KERNEL = 0xFFFFF80312200000
KEYS = ("StackKey", "ShapeKey", "KeyQuality")
HEAP, LIST, LOG = 0x1D290000000, 0x1D28F000000, 0x1D28D000070


class Machine(StackImage):
    """A kernel and a process whose thread waits; its database and its heap's log know the same stack.

    Args:
        arena: where the process's modules lie
        base: where the kernel does
        skip: bytes by which the innermost recorded address differs
        headers: whether the headers of the process's modules are in the image
        timestamp: TimeDateStamp of these, if it is another one than that of the plain process
    """

    def __init__(
        self, arena: int = 0, base: int = 0, skip: int = 0, headers: bool = True, timestamp: int = TIMESTAMP
    ) -> None:
        self._arena, self._options = arena, {"headers": headers, "timestamp": timestamp}
        super().__init__(base=base or KERNEL)
        self.app.peb["NtGlobalFlag"] = 0x1000  # type: ignore[index]
        self.waiting(THREAD)
        frames = [address for address, _, how in self.expected[THREAD, "user"].frames if how != "trap"]
        frames[0] += skip
        self.frames = frames

    def _user_modules(self, process: Any) -> Dict[str, Module]:
        if self._arena:
            process.loader._arena = self._arena
        process.module = functools.partial(process.module, **self._options)
        return super()._user_modules(process)

    def remember(self) -> None:
        """Puts the stack into the database and into the log of the heap, in which a block names it."""
        database, log = (
            Std("6.1", "x64"),
            HeapLog("x64", address=LOG, zone=0x1D28D100040, lookaside=0x1D28D090000),
        )
        database.log(self.frames)
        heap = NtHeap(HEAP, heap_layouts.LAYOUTS["6.2-x64"], pages=64, segment_creator=0)
        heap.extended(0x40, log.log(self.frames))
        for address, data in [*database.regions().items(), *heap.regions(), *log.regions().items()]:
            self.app.region(address, data)
        ntdll = self.modules["ntdll"].base
        self.app.space.write_int(ntdll + sample.POINTER_RVA, database.base)
        self.app.space.write_int(ntdll + sample.POINTER_RVA + 0x10, log.address)
        heaplist.put(self.app, self.app, 8, [HEAP], LIST)


def opened_image(machine: Machine, folder: pathlib.Path) -> Opened:
    folder.mkdir()
    return context.open_image(machine.kernel.image(), folder)


def of_kind(opened: Opened, kind: str) -> Tuple[Any, List[Any]]:
    """The only stack of a kind, and its frames."""
    row = only(flattables.stacks(opened, kinds=[kind], pid=[PID]))
    return row, flattables.frames(opened, kinds=[kind], pid=[PID])


def keys(machine: Machine, folder: pathlib.Path) -> Dict[str, Any]:
    """(StackKey, ShapeKey, KeyQuality) by kind."""
    opened = opened_image(machine, folder)
    rows = flattables.stacks(opened, kinds=["user", "std", "heaplog", "heap", "kernel"], pid=[PID])
    found: Dict[str, Any] = {}
    for row in rows:
        if row["StackKey"] is not None:
            assert row["Kind"] not in found
            found[row["Kind"]] = tuple(row[name] for name in KEYS)
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Any]:
    machine = Machine()
    machine.remember()
    return keys(machine, tmp_path_factory.mktemp("keys") / "plain")


def test_one_stack_has_one_key_whoever_remembers_it(plain: Dict[str, Any]) -> None:
    assert set(plain) == {"user", "std", "heaplog", "heap", "kernel"}
    assert plain["user"] == plain["std"] == plain["heaplog"] == plain["heap"]
    assert plain["user"][2] == "exact"
    assert plain["kernel"] != plain["user"]


def test_another_base_and_another_boot_change_no_key(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine(arena=0x7FF123450000, base=0xFFFFF80655400000)
    machine.remember()
    assert keys(machine, tmp_path / "other") == plain


def test_another_address_is_another_key(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine(skip=1)
    machine.remember()
    found = keys(machine, tmp_path / "other")
    assert found["user"] == plain["user"]
    for kind in ("std", "heaplog", "heap"):
        assert found[kind][0] != plain[kind][0]
        assert found[kind][1:] == plain[kind][1:]


def test_another_build_is_another_key_of_the_same_shape(
    plain: Dict[str, Any], tmp_path: pathlib.Path
) -> None:
    machine = Machine(timestamp=0x12345678)
    machine.remember()
    found = keys(machine, tmp_path / "other")
    for kind in ("user", "std", "heap"):
        assert found[kind][0] != plain[kind][0]
        assert found[kind][1:] == plain[kind][1:]
    assert found["kernel"] == plain["kernel"]


def set_build(module: Module, stamp: int, member: str = "TimeDateStamp") -> None:
    """Has the loader's entry of a module say something of its build."""
    assert module.entry is not None
    module.entry[member] = stamp


def forget_stamp(module: Module) -> None:
    """Has the loader's entry of a module say nothing of its build."""
    set_build(module, 0)


def test_headers_that_are_gone_change_no_key(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine(headers=False)
    machine.remember()
    found = keys(machine, tmp_path / "other")
    for kind in ("std", "heaplog", "heap"):
        assert found[kind] == plain[kind]


def test_loader_entries_without_stamps_change_no_key(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine()
    machine.remember()
    for module in machine.modules.values():
        forget_stamp(module)
    assert keys(machine, tmp_path / "other") == plain


def other_process(machine: Machine, number: int = 1, headers: bool = False, **options: Any) -> Module:
    """The module kernelbase in one more process, which maps the same file."""
    process = machine.kernel.process(f"other{number}.exe", pid=PID + 4 * number, **options)
    return process.module(
        "kernelbase.dll", base=0x7FF600000000, headers=headers, **machine.options_of(WAIT_EX)
    )


def test_another_process_knows_the_build(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine(headers=False)
    machine.remember()
    forget_stamp(machine.modules["kernelbase"])
    other_process(machine)
    opened = opened_image(machine, tmp_path / "other")
    row, frames = of_kind(opened, "std")
    assert tuple(row[name] for name in KEYS) == plain["std"]
    statuses = {frame["Module"]: frame["Status"] for frame in frames}
    assert "known from another process" in statuses["kernelbase"]
    assert "known from another process" not in statuses["stacks"]


def test_without_any_witness_keys_are_partial(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine(headers=False)
    machine.remember()
    forget_stamp(machine.modules["kernelbase"])
    row, frames = of_kind(opened_image(machine, tmp_path / "other"), "std")
    assert row["KeyQuality"] == "partial"
    assert row["StackKey"] == flattables.stack_key(frames) != plain["std"][0]
    assert row["ShapeKey"] == plain["std"][1]
    unknown = only(frame for frame in frames if frame["Module"] == "kernelbase")
    assert (unknown["ModuleStamp"], unknown["Rva"]) != (None, None)
    assert unknown["ModuleStamp"] is None


@pytest.mark.parametrize("first", [True, False], ids=["liar first", "liar last"])
def test_a_process_that_lies_changes_no_other_key(
    first: bool, plain: Dict[str, Any], tmp_path: pathlib.Path
) -> None:
    machine = Machine(headers=False)
    machine.remember()
    forget_stamp(machine.modules["kernelbase"])
    liar, _ = other_process(machine, 1 if first else 2), other_process(machine, 2 if first else 1)
    set_build(liar, 0xDEADBEEF)
    row, frames = of_kind(opened_image(machine, tmp_path / "other"), "std")
    assert (row["KeyQuality"], row["ShapeKey"]) == ("partial", plain["std"][1])
    unknown = only(frame for frame in frames if frame["Module"] == "kernelbase")
    assert unknown["ModuleStamp"] is None
    assert "known from another process" not in unknown["Status"]


def test_headers_in_the_image_section_are_believed_before_other_processes(
    plain: Dict[str, Any], tmp_path: pathlib.Path
) -> None:
    machine = Machine(headers=False)
    machine.remember()
    forget_stamp(machine.modules["kernelbase"])
    set_build(other_process(machine, 1), 0xDEADBEEF)
    # The first use of the header's page by any process brings it into the section of all.
    set_build(other_process(machine, 2, headers=True), 0xDEADBEEF)
    row, frames = of_kind(opened_image(machine, tmp_path / "other"), "std")
    assert tuple(row[name] for name in KEYS) == plain["std"]
    assert not any(frame["Status"] for frame in frames if frame["Module"] == "kernelbase")


def test_a_process_that_only_a_scan_finds_changes_no_key(tmp_path: pathlib.Path) -> None:
    machine = Machine(headers=False)
    machine.remember()
    forget_stamp(machine.modules["kernelbase"])
    other_process(machine)
    set_build(other_process(machine, 2, listed=False), 0xDEADBEEF)
    opened = opened_image(machine, tmp_path / "other")
    plain, scanned = (flattables.frames(opened, scan_processes=scan, pid=[PID]) for scan in (False, True))
    assert any("known from another process" in frame["Status"] for frame in plain)
    assert scanned == plain
    hidden = only(row for row in flattables.stacks(opened, kinds=["std"], scan_processes=True, pid=[PID + 8]))
    assert "not in the process list" in hidden["Status"]


LIES = [("TimeDateStamp", 0x12345678), ("SizeOfImage", 0x3000), ("SizeOfImage", 0x300000)]


@pytest.mark.parametrize(("member", "value"), LIES)
def test_a_lie_of_a_process_of_its_own_module(
    member: str, value: int, plain: Dict[str, Any], tmp_path: pathlib.Path
) -> None:
    machine = Machine()
    machine.remember()
    set_build(machine.modules["kernelbase"], value, member)
    opened = opened_image(machine, tmp_path / "lie")
    for kind in ("user", "std"):
        row, frames = of_kind(opened, kind)
        # The headers are right, and what they say is in the key.
        assert tuple(row[name] for name in KEYS) == (*plain[kind][:2], "partial")
        statuses = {frame["Module"]: frame["Status"] for frame in frames}
        assert statuses.pop("kernelbase") == f"contradicted: {member}"
        assert set(statuses.values()) == {""}


def test_a_lie_that_no_header_contradicts(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine(headers=False)
    machine.remember()
    set_build(machine.modules["kernelbase"], 0x100000, "SizeOfImage")
    row, frames = of_kind(opened_image(machine, tmp_path / "lie"), "std")
    # The kernel's VAD of the image knows its size.
    assert tuple(row[name] for name in KEYS) == (*plain["std"][:2], "partial")
    frame = only(frame for frame in frames if frame["Module"] == "kernelbase")
    assert "contradicted: SizeOfImage" in frame["Status"]


def test_an_entry_with_the_name_of_another_file(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine()
    machine.remember()
    entry = machine.modules["kernelbase"].entry
    assert entry is not None
    entry.text("BaseDllName", "apphelp.dll")
    row, frames = of_kind(opened_image(machine, tmp_path / "lie"), "std")
    frame = only(frame for frame in frames if frame["Module"] == "apphelp")
    assert frame["Status"] == "VAD of another file"
    assert row["KeyQuality"] == "partial"


def test_a_module_that_is_larger_than_what_is_mapped(plain: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    machine = Machine()
    machine.remember()
    base = machine.modules["kernelbase"].base
    vad = only(vad for vad in machine.app.vads if vad.start == base)
    # The file is mapped as data.
    vad.image, vad.section, vad.size = False, None, 0x2000
    row, frames = of_kind(opened_image(machine, tmp_path / "lie"), "std")
    frame = only(frame for frame in frames if frame["Module"] == "kernelbase")
    assert "contradicted: SizeOfImage" in frame["Status"]
    assert (frame["Backing"], frame["ModuleSize"], row["KeyQuality"]) == ("image", 0x2000, "partial")
    assert row["StackKey"] == flattables.stack_key(frames)
