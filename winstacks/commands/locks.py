# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.locks`."""

from __future__ import annotations

from typing import Iterator, List, Union

from volatility3.framework import interfaces

from ..locks.lister import LockLister
from ..locks.lock import Lock, LockGap
from ..memory.image import AddressSpace
from ..process.spaces import AddressSpaces
from ..rows import plugin, requested
from ..rows.command import Command
from ..rows.frames import SpaceStacks
from ..rows.grid import Row
from ..rows.locks import GRID, LockRows
from ..tracedb.finder import Databases

_NOTHING = "No lock is known in the address spaces that are shown"
_NO_TRACES = (
    "No lock has a trace of its creator: the kernel keeps them when NtGlobalFlag has +kst 0x2000, a process "
    "when its own has +ust 0x1000 (windows.gflags shows the flags)"
)


class Locks(Command):
    """What `windows.locks` does."""

    def _generator(self) -> Iterator[Row]:
        with plugin.Listing(self, _NOTHING, "locks") as listing:
            image = self.image
            names = requested.symbolizer(self.plugin, image)
            stacks = SpaceStacks(names)
            lister = LockLister(image, Databases(image, names.indexes))
            if not listing.selection.everything:
                listing.nothing = _NO_TRACES
            listed = list(AddressSpaces.list_spaces(image, self.config.get("pid")))
            for space in listing.each(listed, _work, len(listed)):
                locks = list(lister.list_locks(space))
                if locks:
                    rows = LockRows(image, space, stacks.of(space), self.config.get("fold", False))
                    with plugin.collector_paused():
                        yield from self._locks(lister, space, locks, rows, listing)

    def _locks(
        self,
        lister: LockLister,
        space: AddressSpace,
        locks: List[Union[Lock, LockGap]],
        rows: LockRows,
        listing: plugin.Listing,
    ) -> Iterator[Row]:
        file_output = self._dump(lister, space, locks)
        creators = lister.creators(space, locks)
        selection = listing.selection
        for each in locks:
            if isinstance(each, LockGap):
                listing.unread = True
                if selection.everything:
                    yield 0, rows.gap(each)
                else:
                    selection.pass_over()
                continue
            creator = creators.get(each.back_trace_index or 0)
            frames = rows.frames(each, creator)
            if frames or selection.everything:
                listing.found = True
            if self._takes(each) and selection.takes(frames):
                listing.matched = True
                yield 0, rows.lock(each, creator, frames, file_output)
                for owner in each.owners:
                    yield 1, rows.owner(each, owner)
                yield from rows.frame_rows(each, frames)

    def _takes(self, each: Lock) -> bool:
        """Tells whether --held and --contended let a lock through; one that cannot be read passes both."""
        not_held = self.config.get("held", False) and each.held is False
        not_contended = self.config.get("contended", False) and each.contended is False
        return not (not_held or not_contended)

    def _dump(self, lister: LockLister, space: AddressSpace, locks: List[Union[Lock, LockGap]]) -> str:
        """Writes RTL_PROCESS_LOCKS if that is wanted; returns the name of the file."""
        if not self.config.get("dump", False):
            return plugin.DISABLED
        name = f"locks.{space.pid}.{space.arch}.bin"
        return plugin.write_file(self.plugin, name, [lister.buffer(space, locks)])

    def run(self) -> interfaces.renderers.TreeGrid:
        return plugin.tree(self.plugin, GRID, self._generator())


def _work(space: AddressSpace) -> str:
    return f"Reading the locks of process {space.pid}"
