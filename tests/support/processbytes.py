# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process of a forged image as bytes alone: no kernel, no _EPROCESS, no page tables, and who tells of it.

plain = PlainProcess(opened, pid)
plain.image                          # its services are what `plain` provides
cells(commands.locks.Locks, plain.image)
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Tuple, Type

from volatility3.framework import contexts, interfaces
from volatility3.framework.layers import physical, segmented

from tests.forge.context import Opened
from winstacks.memory import bulk
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import NOTHING, Status
from winstacks.memory.image import AddressSpace, Image
from winstacks.names.imagereader import ImageReader
from winstacks.names.loaderlists import (
    LoaderDetails,
    LoaderEntry,
    LoaderList,
    LoaderLists,
    module_lists,
)
from winstacks.names.moduleindex import ModuleIndex
from winstacks.names.symbolizer import Symbolizer
from winstacks.names.unloaded import Unloaded, unloaded_modules
from winstacks.process.regions import Region
from winstacks.process.spaces import AddressSpaces, spaces
from winstacks.process.thread import Choice, SavedContext, Thread, user_thread
from winstacks.process.threads import threads
from winstacks.process.vads import Vads, regions
from winstacks.rows.command import Command
from winstacks.stacks.decode.registers import GENERAL, Registers, Registers32
from winstacks.stacks.lister import CallStack, StackLister
from winstacks.traps.decode.context import ContextLayout
from winstacks.traps.state import register_types

LAYER = "process"
FLAGS = {Machine.AMD64: 0x100003, Machine.I386: 0x10003}
"""CONTEXT_CONTROL and CONTEXT_INTEGER of winnt.h."""

_HIGHEST = (1 << 47) - 1


class PagesLayer(segmented.SegmentedLayer):
    """Pieces of memory by their addresses, one behind the other in the layer below."""

    pieces: List[Tuple[int, int, int]] = []

    def _load_segments(self) -> None:
        self._segments = [(start, offset, size, size) for start, offset, size in self.pieces]


class PlainProcess:
    """A process without a kernel.

    Attributes:
        image: its memory, with the services that this class provides
        native, wow64: its halves, as the image knows them
        stacks: the stacks of user mode that a kernel knows
    """

    def __init__(self, opened: Opened, pid: int) -> None:
        known: Image = opened.image
        self._known = known
        halves = list(AddressSpaces.list_spaces(known, [pid]))
        self._vads = Vads(known)
        self._regions = self._vads.list_regions(halves[0])[0]
        self._lists = LoaderLists(known)
        self._entries = {half.machine: self._lists.process_modules(half) for half in halves}
        self._halves = {half.machine: half for half in halves}
        listed = StackLister.list_stacks(known, Symbolizer(known), [pid])
        self.stacks = [stack for stack in listed if stack.part in ("user", "wow64") and stack.frames]
        self.image = self._copied(halves[0])
        plain = [half._replace(layer_name=LAYER, eprocess=0) for half in halves]
        self.native, self.wow64 = plain[0], plain[1] if len(plain) > 1 else None
        self.image.providing(spaces)(self)
        self.image.providing(regions)(self)
        self.image.providing(module_lists)(self)
        self.image.providing(unloaded_modules)(self)
        self.image.providing(threads)(self)

    def _copied(self, space: AddressSpace) -> Image:
        """Returns an image over the pages of a process that are present."""
        context, data, pieces = contexts.Context(), bytearray(), []
        for region in self._regions:
            size = region.end - region.start
            found = bulk.read_extents(self._known.context, space.layer_name, region.start, size)
            for start, run in found.runs:
                pieces.append((start, len(data), len(run)))
                data += run
        context.add_layer(physical.BufferDataLayer(context, "file", "file", bytes(data)))
        context.config[interfaces.configuration.path_join("layer", "base_layer")] = "file"
        layer_class = type("ProcessLayer", (PagesLayer,), {"pieces": sorted(pieces)})
        context.add_layer(layer_class(context, "layer", LAYER))
        return Image.of_layer(context, LAYER, space.machine, "tests")

    # What `spaces` gives.

    @property
    def status(self) -> Status:
        return NOTHING

    def list_spaces(self, choice: Choice) -> Iterator[AddressSpace]:
        if choice.offset is None and choice.takes_process(self.native.pid):
            yield self.native
            if self.wow64 is not None:
                yield self.wow64

    # What `regions` gives.

    def list_regions(self, space: AddressSpace) -> Tuple[List[Region], bool]:
        return [region._replace(address=0) for region in self._regions], True

    def file_name(self, control_area: int) -> Optional[str]:
        return self._vads.file_name(control_area)

    # What `module_lists` gives.

    def kernel_modules(self) -> LoaderList:
        return [], True

    def process_modules(self, space: AddressSpace) -> LoaderList:
        return self._entries[space.machine]

    def has_list(self, space: AddressSpace) -> bool:
        return True

    def details(self, space: AddressSpace, entry: LoaderEntry) -> LoaderDetails:
        return self._lists.details(self._halves[space.machine], entry)

    # What `unloaded_modules` gives.

    def drivers(self, kernel_start: int) -> Tuple[List[Unloaded], Status]:
        return [], NOTHING

    def dlls(
        self, reader: ImageReader, machine: Machine, index: ModuleIndex, user_end: int
    ) -> List[Unloaded]:
        return []

    # What `threads` gives.

    def list_threads(self, choice: Choice, scan: bool = False) -> Iterator[Thread]:
        by_thread: Dict[int, List[CallStack]] = {}
        for stack in self.stacks:
            by_thread.setdefault(stack.thread.ethread, []).append(stack)
        for listed in by_thread.values():
            thread = listed[0].thread
            if choice.takes_thread(thread.tid):
                contexts_ = tuple(map(self._context, listed))
                yield user_thread(self.native, thread.tid, thread.teb, contexts_, self.wow64)

    def list_idle(self) -> Iterator[Thread]:
        return iter(())

    def _context(self, stack: CallStack) -> SavedContext:
        """Returns the CONTEXT that a debugger would have written of a thread: its innermost registers."""
        machine = stack.space.machine
        structure = register_types(self.image, machine)["_CONTEXT"]
        form, data = ContextLayout(structure, machine), bytearray(structure.size)
        values = {"ContextFlags": FLAGS[machine], **_registers(stack)}
        for name, value in values.items():
            field = form.fields[name]
            data[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
        return SavedContext(machine, bytes(data))


def _registers(stack: CallStack) -> Dict[str, int]:
    registers = stack.frames[0].registers
    if isinstance(registers, Registers):
        known = {name: value for name, value in zip(GENERAL, registers.general) if value is not None}
        return {**known, "Rip": registers.ip, "SegCs": 0x33}
    assert stack.entry is not None
    assert registers is None or isinstance(registers, Registers32)
    names = ("Rip", "Rsp", "Rbp")
    return {**{name: stack.entry.registers[name] for name in names}, "SegCs": 0x23}


class StandIn:
    """What stands for a plugin that has no kernel."""

    def __init__(self, config: Dict[str, Any]) -> None:
        self.config = config

    def _progress_callback(self, percent: float, text: str) -> None:
        pass


def cells(command: Type[Command], image: Image, **config: Any) -> List[Tuple[int, Tuple]]:
    """Returns the rows that a command makes of an image, by the cells of each."""
    stand_in: Any = command(StandIn(config))
    stand_in.image = image
    return [(depth, tuple(row)) for depth, row in stand_in.generate()]
