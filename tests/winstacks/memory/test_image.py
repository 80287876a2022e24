# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An image: what is true of the whole of it, with a kernel and without one."""

from __future__ import annotations

import pathlib
from typing import Iterator, List

import pytest

from tests.forge import context, kernels
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.support import bare
from tests.support.lacking import MEMBERS, LackingTable, Lost
from winstacks.locks.lister import LockLister
from winstacks.memory import image as images
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.structure import MissingMemberError
from winstacks.memory.image import Image
from winstacks.memory.tables import MissingTableError
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces
from winstacks.process.vads import Vads
from winstacks.tracedb.finder import Databases

PID = 1000
PRIVATE = 0x10000000


class Sample:
    """A kernel with one process, opened."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        known = kernels.load(name)
        self.kernel = Kernel(known.table, **known.options())
        process = self.kernel.process("app.exe", pid=PID)
        process.module("app.exe", dll=False)
        process.region(PRIVATE, b"private")
        if self.kernel.bits == 64:
            process.wow64()
        self.process = process
        self.opened: Opened = context.open_image(self.kernel.image(), folder)
        self.image = Image(self.opened.context, self.opened.kernel)


@pytest.fixture(scope="module", params=["win10-x64", "xp-x86"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(request.param, tmp_path_factory.mktemp("image"))


def test_what_an_image_knows_of_its_kernel(sample: Sample) -> None:
    image, kernel = sample.image, sample.kernel
    wide = kernel.bits == 64
    assert (image.pointer_size, image.arch) == ((8, "x64") if wide else (4, "x86"))
    assert image.base == kernel.base
    assert image.symbol("PsLoadedModuleList") == kernel.symbol("PsLoadedModuleList")
    assert image.symbol("NoSuchSymbol", "PsLoadedModuleList") == kernel.symbol("PsLoadedModuleList")
    assert image.symbol("NoSuchSymbol") is None
    assert (image.kernel.kernel, image.kernel.pid, image.kernel.process) == (True, 0, "nt")
    assert image.kernel_module_name == sample.opened.kernel


def test_structures_are_those_of_the_kernels_symbols(sample: Sample) -> None:
    types, isf = sample.image.types, sample.kernel.isf
    assert types["_EPROCESS"].size == isf.size("_EPROCESS")
    assert types["_EPROCESS"].offset("NoSuchMember", "ActiveProcessLinks") == isf.offset(
        "_EPROCESS", "ActiveProcessLinks"
    )
    nested = types["_ETHREAD"].field("Tcb.Header.Type")
    assert (nested.offset, nested.size) == (isf.offset("_ETHREAD", "Tcb.Header.Type"), 1)
    assert types.first_structure("_NO_SUCH_STRUCTURE") is None
    assert set(types["_LIST_ENTRY"].names) == {"Flink", "Blink"}
    with pytest.raises(MissingMemberError):
        types["_EPROCESS"].field("NoSuchMember")


def test_a_bit_field_has_its_shift_and_mask(sample: Sample) -> None:
    node = sample.image.types["_MMVAD_SHORT"]
    kind = node.field("Core.u.VadFlags.VadType", "u.VadFlags.VadType", "u.VadFlags.ImageMap")
    assert kind.mask in (1, 7)
    assert kind.value_in((0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"), -kind.offset) == kind.mask


def test_a_member_is_signed_where_the_symbols_say_so(sample: Sample) -> None:
    types = sample.image.types
    section = types["_RTL_CRITICAL_SECTION"]
    assert section.field("LockCount").signed
    assert not section.field("DebugInfo").signed
    assert types["_ERESOURCE"].field("ActiveCount").signed
    assert not types["_ERESOURCE"].field("ContentionCount").signed
    assert sample.image.our_types("process-5.2-x64")["_RTL_RESOURCE"].field("NumberOfActive").signed
    assert section.reader("RecursionCount")(b"\xff" * section.size, 0) == (-1,)
    # A CHAR is a byte, and a bit field has no sign.
    assert not types["_KTHREAD"].field("PreviousMode").signed
    assert (
        not types["_MMVAD_SHORT"]
        .field("Core.u.VadFlags.VadType", "u.VadFlags.VadType", "u.VadFlags.ImageMap")
        .signed
    )


def test_a_part_is_made_once(sample: Sample) -> None:
    forged_images: List[Image] = []

    def make(image: Image) -> str:
        forged_images.append(image)
        return "part"

    assert sample.image.service(make) == sample.image.service(make) == "part"
    assert forged_images == [sample.image]
    assert sample.image.service(Vads) is sample.image.service(Vads)


def test_memory_is_shared_and_bounded(sample: Sample) -> None:
    image = Image(sample.opened.context, sample.opened.kernel)
    process = next(space for space in AddressSpaces.list_spaces(image, [PID]) if not space.wow64)
    memory = image.memory(process)
    assert memory is image.memory(process)
    assert memory.read(PRIVATE, 7) == b"private"
    assert (
        memory.read(sample.kernel.base, 2) == image.memory(image.kernel).read(sample.kernel.base, 2) == b"MZ"
    )
    assert image.memory(process._replace(machine=Machine.I386)).pointer(PRIVATE) == int.from_bytes(
        b"priv", "little"
    )
    blind = process._replace(layer_name="")
    assert image.memory(blind) is image.memory(image.kernel)
    assert image.layer_of(blind) is image.layer
    within = image.memory_within(process, ((PRIVATE, PRIVATE + 4),))
    assert (within.read(PRIVATE, 4), within.read(PRIVATE + 1, 4)) == (b"priv", None)
    layer_names = [space.layer_name for space in AddressSpaces.list_spaces(image) if space.layer_name]
    for layer_name in [*layer_names, *layer_names]:
        image.memory_of(layer_name, 4)
        image.memory_of(layer_name, 8)
    assert len(image._memories) <= 2 * images.MAX_LAYERS
    assert image.memory_of(layer_names[-1], 8) is image.memory_of(layer_names[-1], 8)


def test_spaces_know_where_their_process_is(sample: Sample) -> None:
    native, *narrow = AddressSpaces.list_spaces(sample.image, [PID])
    assert native.eprocess == sample.process.eprocess.address
    assert sample.process.peb is not None
    assert native.peb == sample.process.peb.address
    assert (native.kernel, native.wow64, native.pointer_size) == (False, False, sample.image.pointer_size)
    assert [(process.wow64, process.pointer_size, process.arch, process.eprocess) for process in narrow] == (
        [(True, 4, "x86", native.eprocess)] if sample.image.pointer_size == 8 else []
    )
    found = list(AddressSpaces.list_spaces(sample.image, offset=native.eprocess))
    assert found == [native, *narrow]
    assert sample.image.object_at("_EPROCESS", native.eprocess).UniqueProcessId == PID


def test_structures_of_user_mode_are_the_kernels_then_ours(sample: Sample) -> None:
    image, isf = sample.image, sample.kernel.isf
    native = image.process_types(image.machine)
    assert native["_PEB"].size == isf.size("_PEB")
    assert native is image.process_types(image.machine)
    assert image.our_types("context-5.2-x64") is image.our_types("context-5.2-x64")
    assert native.has("_RTL_RESOURCE")
    narrow = image.process_types(Machine.I386)
    assert narrow["_PEB"].offset("Ldr") == 0xC
    assert narrow["_LDR_DATA_TABLE_ENTRY"].offset("DllBase") == 0x18


def test_one_of_our_tables_that_is_missing(sample: Sample) -> None:
    with pytest.raises(MissingTableError, match="no-such-table"):
        sample.image.our_types("no-such-table")


@pytest.mark.parametrize("pointer_size", [4, 8])
def test_an_image_without_a_kernel(pointer_size: int) -> None:
    image = bare.image(pointer_size, bytes(range(256)))
    assert (image.pointer_size, image.arch) == (pointer_size, "x64" if pointer_size == 8 else "x86")
    assert (image.base, image.table_name, image.kernel_module_name) == (0, "", "")
    assert image.symbol("PsLoadedModuleList") is None
    assert image.symbol_table() is None
    assert image.types.first_structure("_EPROCESS") is None
    assert image.memory(image.kernel).pointer(8) == int.from_bytes(range(8, 8 + pointer_size), "little")
    assert image.memory_of("bare", 4).read(250, 10) is None
    assert list(AddressSpaces.list_spaces(image)) == []
    assert image.process_types(image.machine)["_PEB"].offset("Ldr") == 3 * pointer_size
    assert image.service(Vads).list_regions(image.kernel) == ([], False)


def test_an_end_of_rows_is_said_without_a_kernel(sample: Sample, caplog: pytest.LogCaptureFixture) -> None:
    """A dump of a process has no symbols of a kernel: what needs them ends, and a warning says so, once."""
    image = Image.of_layer(sample.opened.context, str(sample.image.layer.name), Machine.AMD64)

    def rows() -> Iterator[int]:
        yield 1
        raise MissingMemberError("_KTRAP_FRAME has no member Rip")

    for _ in range(2):
        assert list(image.possible(rows())) == [1]
    assert [record.message for record in caplog.records] == [
        "Rows are missing: this input has no symbols of a kernel, and _KTRAP_FRAME has no member Rip"
    ]
    assert list(image.lacking) == ["_KTRAP_FRAME has no member Rip"]


@pytest.mark.parametrize("lost", ["_MMVAD_SHORT.StartingVpn", "_ERESOURCE.SystemResourcesList"])
def test_what_regions_and_locks_need_and_is_lacking_is_noted(lost: str, tmp_path: pathlib.Path) -> None:
    """Then no command says that there is nothing."""
    opened = Sample("win10-x64", tmp_path).opened
    with LackingTable(opened).without(Lost(MEMBERS, lost)):
        Vads(opened.image)
        LockLister(opened.image, Databases(opened.image, Symbolizer(opened.image).indexes))
    assert [text for text in opened.image.lacking if lost.partition(".")[2] in text]
