# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process of a forged image as the dump that a debugger would have written of it.

data = dump_of(opened, pid)                  # a full dump
data = dump_of(opened, pid, full=False)      # stacks, modules and registers only
"""

from __future__ import annotations

import importlib
import pathlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest
from volatility3 import framework
from volatility3.framework import automagic, contexts, interfaces, plugins

from tests.forge.context import Opened, printed, symbol_directory
from tests.forge.minidump import Module, Writer, WrittenThread
from tests.support.only import only
from tests.support.processbytes import FLAGS, PlainProcess
from winstacks.memory import bulk
from winstacks.memory.decode.machine import Machine
from winstacks.memory.image import Image
from winstacks.names.loaderlists import LoaderLists
from winstacks.process.regions import Region
from winstacks.process.vads import Vads
from winstacks.stacks.decode.registers import GENERAL, Registers
from winstacks.stacks.lister import CallStack
from winstacks.traps.decode.context import ContextLayout
from winstacks.traps.state import register_types

ARCHITECTURES = {Machine.AMD64: 9, Machine.I386: 0}
COMMIT, FREE = 0x1000, 0x10000
PRIVATE, MAPPED, IMAGE = 0x20000, 0x40000, 0x1000000
NOACCESS, READWRITE = 1, 4
Info = Tuple[int, int, int, int, int, int, int]
"""A region; see `Writer.memory_infos`."""
PAGES = (1, 2, 0x10, 0x20, 4, 8, 0x40, 0x80)


def _all_regions(used: Sequence[Info]) -> List[Info]:
    """Returns regions and what is free between them, as VirtualQuery tells of both."""
    infos: List[Info] = []
    for region in sorted(used):
        end = infos[-1][0] + infos[-1][3] if infos else 0
        if end < region[0]:
            infos.append((end, 0, 0, region[0] - end, FREE, NOACCESS, 0))
        infos.append(region)
    return infos


class Dumped:
    """What a dump is made of.

    Args:
        opened: the image
        pid: the process
        full: whether with all memory
        raised: the thread that met an exception
        narrow: the dump that a 32-bit debugger writes of a WoW64 process: its lower half alone
        unwritten: private memory more, as (start, size), whose zeros come last and are not written: who
            writes the file makes it so much longer
        more: memory that the process of the image has not

    Attributes:
        writer: has all streams
    """

    def __init__(
        self,
        opened: Opened,
        pid: int,
        full: bool = True,
        raised: Optional[int] = None,
        narrow: bool = False,
        unwritten: Sequence[Tuple[int, int]] = (),
        more: Sequence[Tuple[int, bytes]] = (),
    ) -> None:
        self._image: Image = opened.image
        self._plain = PlainProcess(opened, pid)
        halves = self._plain._halves
        self._machine = Machine.I386 if narrow else self._plain.native.machine
        self._halves = [halves[Machine.I386]] if narrow else list(halves.values())
        known = halves[self._plain.native.machine]
        self._layer = known.layer_name
        end = 1 << 32 if narrow else 1 << 64
        self._regions = [piece for piece in Vads(self._image).list_regions(known)[0] if piece.end <= end]
        self.writer = Writer()
        self.writer.system_info(ARCHITECTURES[self._machine])
        self.writer.misc_info(pid)
        self.writer.modules(list(self._modules()))
        self._threads(raised)
        if full:
            private = [*unwritten, *((at, len(data)) for at, data in more)]
            infos = [(at, at, READWRITE, size, COMMIT, READWRITE, PRIVATE) for at, size in private]
            self.writer.memory_infos(_all_regions([*map(self._info, self._regions), *infos]))
            runs = [run for region in self._regions for run in self._runs(region)]
            self.writer.memory64([*runs, *more], unwritten)

    def _runs(self, region: Region) -> Iterator[Tuple[int, bytes]]:
        size = region.end - region.start
        yield from bulk.read_extents(self._image.context, self._layer, region.start, size).runs

    def _info(self, region: Region) -> Info:
        assert region.protection is not None
        protect = PAGES[region.protection & 7]
        kind = IMAGE if region.image else MAPPED if region.control_area else PRIVATE
        return region.start, region.start, protect, region.end - region.start, COMMIT, protect, kind

    def _modules(self) -> Iterator[Module]:
        lists = LoaderLists(self._image)
        for half in self._halves:
            for entry in lists.process_modules(half)[0]:
                found = lists.details(half, entry)
                yield Module(entry.base, entry.size, found.stamp or 0, found.path or entry.name)

    def _threads(self, raised: Optional[int]) -> None:
        threads: Dict[int, List[CallStack]] = {}
        for stack in self._plain.stacks:
            if stack.space.machine is self._machine or self._machine is Machine.AMD64:
                threads.setdefault(stack.thread.ethread, []).append(stack)
        written = []
        for stacks in threads.values():
            thread, context = stacks[0].thread, self._context(stacks[0])
            narrow = self._machine is not self._plain.native.machine
            teb = self._teb32(thread.teb or 0) if narrow else thread.teb
            written.append(WrittenThread(thread.tid or 0, teb or 0, self._stack(stacks[0]), context))
        self.writer.threads(written)
        if raised is not None:
            context = only(thread.context for thread in written if thread.tid == raised)
            self.writer.exception(raised, 0xC0000005, 0x1234, (1, 0), context)

    def _teb32(self, teb: int) -> Optional[int]:
        """Returns the TEB32 of a thread: TEB.NtTib.ExceptionList of a WoW64 thread, its first member."""
        return self._image.memory_of(self._layer, 8).pointer(teb)

    def _stack(self, stack: CallStack) -> Tuple[int, bytes]:
        """Returns the stack in use, from the stack pointer to the end of its region, if it is in one."""
        assert stack.entry is not None
        sp = stack.entry.registers["Rsp"]
        for region in self._regions:
            if region.start <= sp < region.end:
                runs = bulk.read_extents(self._image.context, self._layer, sp, region.end - sp).runs
                return runs[0] if runs else (sp, b"")
        return sp, b""

    def _context(self, stack: CallStack) -> bytes:
        """Returns the CONTEXT of the dump's machine, also where the thread was in 32-bit code."""
        assert stack.entry is not None
        machine = self._machine
        structure = register_types(self._image, machine)["_CONTEXT"]
        form, data = ContextLayout(structure, machine), bytearray(structure.size)
        registers = stack.frames[0].registers
        values: Dict[str, Any] = {**stack.entry.registers, "ContextFlags": FLAGS[machine]}
        if isinstance(registers, Registers):
            known = {name: value for name, value in zip(GENERAL, registers.general) if value is not None}
            values.update(known, Rip=registers.ip)
        values["SegCs"] = 0x33 if stack.part == "user" and machine is Machine.AMD64 else 0x23
        for name, value in values.items():
            field = form.fields.get(name)
            if field is not None and value is not None:
                data[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
        return bytes(data)


def dump_of(opened: Opened, pid: int, **options: Any) -> bytes:
    """Returns the dump of a process; the options are those of `Dumped`."""
    return Dumped(opened, pid, **options).writer.bytes()


SAMPLE: Dict[str, Dict[str, Any]] = {
    "updater.dmp": {"pid": 4312, "raised": 4316},
    "spooler.dmp": {"pid": 6200},
}
"""The dumps of processes of the sample that the documentation reads."""


def write_of_sample(opened: Opened, path: pathlib.Path) -> None:
    """Writes the dump of a process of the sample, one of SAMPLE by its name."""
    path.write_bytes(dump_of(opened, **SAMPLE[path.name]))


def whole_faults(caplog: pytest.LogCaptureFixture) -> List[str]:
    """Returns the warnings of the faults of a dump as a whole."""
    texts = (record.getMessage() for record in caplog.records)
    return [text for text in texts if text.startswith("Rows may be missing or wrong: ")]


class OpenedDump:
    """A dump that Volatility opens by its stacker."""

    def __init__(self, path: pathlib.Path) -> None:
        # Volatility knows the stacker when its module is imported; who only writes dumps needs none.
        importlib.import_module("volatility3.plugins.minidump.layer")
        symbol_directory()
        framework.require_interface_version(2, 0, 0)
        self.context = contexts.Context()
        self.context.config["automagic.LayerStacker.single_location"] = path.resolve().as_uri()

    def construct(self, plugin: Any, **options: Any) -> Any:
        """Returns a plugin on the dump."""
        base = interfaces.configuration.path_join("plugins", plugin.__name__)
        for name, value in options.items():
            self.context.config[interfaces.configuration.path_join(base, name)] = value
        magics = automagic.choose_automagic(automagic.available(self.context), plugin)
        return plugins.construct_plugin(self.context, magics, plugin, "plugins", None, None)

    def rows(self, plugin: Any, **options: Any) -> List[Tuple[int, Dict[str, Any]]]:
        """Returns what a plugin prints: (depth from 0, column name to value) of every row in order."""
        return printed(self.construct(plugin, **options))
