# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process of which nothing but its memory is known: no kernel, no _EPROCESS, no page tables."""

from __future__ import annotations

import pathlib
import struct

import pytest
from volatility3.framework import contexts
from volatility3.framework.layers import physical

from tests.forge.code import RBX, RDI, RSI, Routine, module_options
from tests.forge.module import Spec
from tests.forge.stacks64 import Stack64
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import has_status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import AddressSpace, Image
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces
from winstacks.stacks.cpu_x64 import Cpu64
from winstacks.stacks.cpus import WalkStart
from winstacks.stacks.decode.registers import Registers
from winstacks.stacks.walkers import StackWalkers

PEB, LDR, ENTRIES, NAMES = 0x10000, 0x11000, 0x12000, 0x13000
STACK, STACK_LIMIT = 0x60000, 0x50000
MODULES = {"app.exe": 0x100000, "worker.dll": 0x200000}

MAIN = Routine(0x1100, pushes=(RBX, RDI), alloc=0x38)
WORK = Routine(0x1100, pushes=(RSI,), alloc=0x60)
LEAF = Routine(0x1200, unwind=False, alloc=0)


class Bytes:
    """Memory that begins at address 0, as the forge writes it."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def write(self, address: int, data: bytes) -> None:
        self.data[address : address + len(data)] = data

    def write_int(self, address: int, value: int, size: int = 8) -> None:
        self.write(address, value.to_bytes(size, "little"))


def loaded(memory: Bytes, name: str, base: int, **options: object) -> int:
    """Puts a module into memory; returns its size."""
    spec = Spec(**options)  # type: ignore[arg-type]
    forged_pe = spec.pe(name, 64, base)
    for rva, data in [*forged_pe.pieces().items(), *spec.contents.items()]:
        memory.write(base + rva, data)
    return forged_pe.size


def listed(memory: Bytes, sizes: dict[str, int]) -> None:
    """Writes the PEB and the loader's lists as public symbols have them on x64."""
    memory.write_int(PEB + 0x18, LDR)
    for order in range(3):
        places = [LDR + 0x10 + 0x10 * order]
        places += [ENTRIES + 0x100 * number + 0x10 * order for number in range(len(sizes))]
        for place, following in zip(places, [*places[1:], places[0]]):
            memory.write_int(place, following)
            memory.write_int(following + 8, place)
    for number, (name, size) in enumerate(sizes.items()):
        entry, text = ENTRIES + 0x100 * number, name.encode("utf-16-le")
        memory.write_int(entry + 0x30, MODULES[name])
        memory.write_int(entry + 0x40, size, 4)
        memory.write(NAMES + 0x100 * number, text)
        for string in (0x48, 0x58):
            memory.write(entry + string, struct.pack("<HH4xQ", len(text), len(text), NAMES + 0x100 * number))


@pytest.fixture()
def memory() -> Bytes:
    memory = Bytes(0x300000)
    app = module_options([MAIN], 0x5800, 64)
    worker = module_options([WORK, LEAF], 0x5800, 64)
    worker["exports"] = {"Work": WORK.rva, "Leaf": LEAF.rva}
    sizes = {
        "app.exe": loaded(memory, "app.exe", MODULES["app.exe"], dll=False, **app),
        "worker.dll": loaded(memory, "worker.dll", MODULES["worker.dll"], **worker),
    }
    listed(memory, sizes)
    return memory


def opened(memory: Bytes) -> Image:
    context = contexts.Context()
    layer = physical.BufferDataLayer(context, "bytes", "bytes", bytes(memory.data))
    context.layers.add_layer(layer)
    return Image.of_layer(context, "bytes", Machine.AMD64)


def test_frames_are_named_and_stacks_walked(memory: Bytes) -> None:
    stack = Stack64(memory, STACK).start()  # type: ignore[arg-type]
    app, worker = MODULES["app.exe"], MODULES["worker.dll"]
    stack.enter(app, MAIN)
    stack.call(app, MAIN, 1)
    stack.enter(worker, WORK)
    stack.call(worker, WORK, 2)
    image = opened(memory)
    space = AddressSpace(pid=7, process="app.exe", machine=Machine.AMD64, layer_name="bytes", peb=PEB)
    symbolizer = Symbolizer(image)
    walkers = StackWalkers(image, symbolizer)
    registers = Registers.from_known(worker + LEAF.rva, stack.sp, {"Rbx": 1, "Rsi": 2, "Rdi": 3})
    start = WalkStart(Cpu64(image), registers, True)
    walk = walkers.walk(space, start, [(STACK_LIMIT, STACK)])
    assert [frame.address for frame in walk.frames] == [
        worker + LEAF.rva,
        worker + WORK.returns(2),
        app + MAIN.returns(1),
    ]
    assert all(frame.sure for frame in walk.frames)
    names = symbolizer.for_space(space)
    shown = [names.name(frame.address, frame.returns) for frame in walk.frames]
    assert [name.symbol for name in shown] == ["worker!Leaf", "worker!Work+0x40", "app+0x1130"]
    assert [name.backing for name in shown] == ["image"] * 3


def test_what_is_not_known_is_said(memory: Bytes, tmp_path: pathlib.Path) -> None:
    image = opened(memory)
    space = AddressSpace(pid=7, process="app.exe", machine=Machine.AMD64, layer_name="bytes", peb=PEB)
    name = Symbolizer(image).for_space(space).name(0x280000)
    assert (name.symbol, name.backing) == ("<no-module>", "none")
    assert has_status(name.status, StatusCode.VADS_INCOMPLETE)
    assert list(AddressSpaces.list_spaces(image)) == []
    assert image.symbol("NtGlobalFlag") is None
