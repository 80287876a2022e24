# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `minidump.info`.

Small kernel dumps need none of the modules for dumps of processes, and the reverse: what does imports these
where it runs.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

from volatility3.framework import interfaces

from ..columns.words import THREAD_KINDS
from ..memory.decode.machine import UnsupportedMachineError
from ..memory.image import AddressSpace
from ..minidump.decode.dumpfile import Minidump, OtherSystemError, Stream
from ..options import DUMP, DUMP_LISTS
from ..process.spaces import AddressSpaces
from ..process.threads import Threads
from ..rows import dumprows, requested
from ..rows import plugin as plugins
from ..rows.command import Command
from ..rows.dumprows import GRID, DumpEntry
from ..rows.grid import Row
from ..rows.whathappened import NO_CRASH, WhatHappened
from ..stacklist.crash import Crash, crash_of
from ..stacklist.frames import NamedFrame
from ..stacklist.machine import machine_facts
from ..stacklist.stack import StackFilter
from ..stacklist.traces import StackCollector
from ..stacks.lister import StackLister


class Info(Command[Stream, Stream]):
    """The work of `minidump.info`."""

    grid = GRID
    things = "streams"
    kernel = False
    where_faults = ""

    @cached_property
    def _dump(self) -> Minidump:
        dump: Minidump = self._layer.dump
        return dump

    @property
    def _layer(self) -> Any:
        return self.plugin.context.layers[self.config[DUMP]]

    @cached_property
    def _native(self) -> AddressSpace:
        return next(iter(AddressSpaces.list_spaces(self.image)))

    @cached_property
    def _readable(self) -> bool:
        """Whether stacks can be walked: the input is of Windows and of a machine that is supported."""
        try:
            requested.machine(self.plugin)
        except (UnsupportedMachineError, OtherSystemError):
            return False
        return True

    @cached_property
    def _entries(self) -> Any:
        """The entries of a dump of a process, `DumpEntries`."""
        from ..rows.dumps import DumpEntries

        return DumpEntries(self._dump, {name for name in DUMP_LISTS if self.option(name)})

    def _printed(self, entries: Iterable[DumpEntry]) -> Iterator[Row]:
        """Returns the rows of entries, which belong to the process of the dump."""
        if self._readable:
            return dumprows.rows(self._native.pid, self._native.known_name, entries)
        from ..minidump.process import process_name

        return dumprows.rows(*process_name(self._dump), entries)

    def run(self) -> interfaces.renderers.TreeGrid:
        if self._readable or not isinstance(self._layer.dump, Minidump):
            return super().run()
        # The streams of any system can be listed, without this project's symbol tables.
        return plugins.tree(self.plugin, self.grid, self._listed(), tables=False)

    def _listed(self) -> Iterator[Row]:
        """Yields the rows of a dump whose stacks cannot be walked."""
        try:
            requested.machine(self.plugin)
        except (UnsupportedMachineError, OtherSystemError) as error:
            self.log.warning(str(error))
        yield from self._printed(self._entries.header(self._layer.status))
        for stream in self._dump.streams:
            yield from self._printed(self._entries.stream(stream))

    def steps(self) -> List[Stream]:
        return list(self._dump.streams)

    def space(self, step: Stream) -> AddressSpace:
        return self._native

    def describe(self, step: Stream) -> str:
        return f"Reading {step.name}"

    def items(self, step: Stream) -> Sequence[Stream]:
        return (step,)

    def rows(self, item: Stream, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        yield from self._printed(self._entries.stream(item))
        if item is self._dump.stream(item.StreamType) and item.name == "ExceptionStream":
            yield from self._printed(self._exception())

    def _exception(self) -> Iterator[DumpEntry]:
        """Yields the stack of the exception, walked from the registers at which it occurred."""
        from ..minidump.decode.threads import exception_stream
        from ..minidump.exceptioncontext import ExceptionContext
        from ..rows.dumps import no_stack_of_exception, stack_of_exception

        found = exception_stream(self._dump)
        met = ExceptionContext(self.image, self._dump).saved()
        if found is None:
            return
        if met is None:
            yield from no_stack_of_exception(self._dump, found)
            return
        lister = StackLister(self.image, self.symbolizer)
        for thread in Threads.list_threads(self.image, tids=[found.ThreadId]):
            for stack in lister.thread_stacks(thread._replace(contexts=(met,))):
                named = self.frames_of(stack.space).name_walked(stack.frames)
                yield from stack_of_exception(found.ThreadId, stack, named, self.printer)

    @cached_property
    def _crash(self) -> Optional[Crash]:
        """The crash of the dump, with the stack that begins there; None if the dump is of none."""
        stacks = StackCollector(self.symbolizer).list_stacks(StackFilter(kinds=THREAD_KINDS))
        stack = next((stack for stack in stacks if stack.crashed and stack.frames), None)
        return crash_of(self.image.service(machine_facts).input(), stack)

    def generate(self) -> Iterator[Row]:
        small = self.image.threads_only
        if self.option("brief"):
            lacks, blamed = self._small_facts() if small else (self._lacks(), "")
            known = small or self._crash is not None
            without = NO_CRASH if known else self._no_crash()
            what = WhatHappened(self.image, self._native, self._crash, lacks, blamed, without)
            return self._printed(what.entries())
        if small:
            return self._printed(self._small_entries())
        header = self._entries.header(self._layer.status)
        return itertools.chain(self._printed(header), super().generate())

    def _small_facts(self) -> Tuple[List[str], str]:
        """Returns what a small kernel dump lacks, in words, and the driver to blame, empty without one."""
        from ..minidump import smalldump
        from ..minidump.decode.drivers import broken_driver

        dump = self._layer.dump
        return smalldump.lacks(dump), broken_driver(dump) or ""

    def _small_entries(self) -> Iterator[DumpEntry]:
        from ..rows.smalldumps import SmallDumpEntries

        return SmallDumpEntries(self.image, self._layer.dump, self._crash).entries()

    def _no_crash(self) -> str:
        from ..rows.dumps import no_crash

        return no_crash(self._dump)

    def _lacks(self) -> List[str]:
        from ..minidump import opened

        return opened.lacks(self._dump)
