# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.heaptraces`."""

from __future__ import annotations

import logging
from typing import Iterator, Optional, Tuple

from volatility3.framework import exceptions, interfaces

from ..heaps.decode import umdh
from ..heaps.decode.contents import Contents
from ..heaps.decode.umdh import Growth
from ..heaps.lister import Heaps
from ..heaps.umdh_log import loaded_modules, log_of
from ..memory.image import AddressSpace, Image
from ..process.spaces import AddressSpaces
from ..rows import plugin, requested
from ..rows.command import Command
from ..rows.frames import Selection, SpaceStacks
from ..rows.grid import Row
from ..rows.heaps import GRID, HeapRows
from ..tracedb.finder import Databases

vollog = logging.getLogger(__name__)

_NOTHING = (
    "No heap that can be read remembers who allocated its blocks: a process's heaps do when its "
    "NtGlobalFlag has +ust 0x1000 (XP and 2003: +hpc 0x40 as well), or page heap (+hpa 0x2000000) is on "
    "(windows.gflags shows the flags)"
)


class HeapTraces(Command):
    """What `windows.heaptraces` does."""

    def _generator(self, baseline: Optional[umdh.UmdhLog]) -> Iterator[Row]:
        with plugin.Listing(self, _NOTHING, "traces", kernel=False) as listing:
            image = self.image
            names = requested.symbolizer(self.plugin, image)
            stacks = SpaceStacks(names)
            reader = Heaps(image, Databases(image, names.indexes))
            keep = bool(self.config.get("blocks", False) or self.config.get("dump", False))
            listed = list(AddressSpaces.list_spaces(image, self.config.get("pid")))
            for space in listing.each(listed, _work, len(listed)):
                listing.nothing = plugin.advice(image, listing.nothing)
                contents = reader.read(space, keep)
                if contents is not None:
                    rows = HeapRows(image, space, stacks.of(space), self.config.get("fold", False))
                    if contents.status:
                        listing.unread = True
                        yield 0, rows.unread(contents.status)
                    if contents.owners or contents.groups:
                        listing.found = True
                        found = self._space(image, space, contents, rows, baseline, listing.selection)
                        yield from listing.noting(found)

    def _space(
        self,
        image: Image,
        space: AddressSpace,
        contents: Contents,
        rows: HeapRows,
        baseline: Optional[umdh.UmdhLog],
        selection: Selection,
    ) -> Iterator[Row]:
        modules: Tuple[umdh.UmdhModule, ...] = ()
        if baseline is not None or self.config.get("dump", False):
            modules = loaded_modules(image, space)
        file_output = self._dump(space, contents, modules)
        for owner in contents.owners:
            frames = rows.frames(owner.trace)
            if selection.takes(frames):
                yield 0, rows.owner(owner, frames, file_output)
                yield from rows.owner_frames(owner, frames)
        growth = Growth(baseline, modules, contents.groups) if baseline is not None else None
        grown = growth.compared() if growth is not None else [(group, None) for group in contents.groups]
        for group, change in grown:
            frames = rows.frames(group.trace)
            if selection.takes(frames):
                yield 0, rows.group(group, frames, change)
                yield from rows.group_frames(group, frames)
                if self.config.get("blocks", False):
                    for block in group.blocks:
                        yield 1, rows.block(block)
        for stack, total in growth.left() if growth is not None else ():
            frames = rows.stack(stack)
            if selection.takes(frames):
                yield 0, rows.gone(total, frames)
                yield from rows.gone_frames(frames)

    def _baseline(self) -> Optional[umdh.UmdhLog]:
        """Reads the log to compare with, if one is given.

        Raises:
            RenderException: when it cannot be used: no growth can be shown, so no row is
        """
        path = self.config.get("baseline")
        if not path:
            return None
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return umdh.parse(file)
        except (OSError, umdh.UmdhError) as error:
            raise exceptions.RenderException(f"The baseline cannot be used: {error}") from error

    def _dump(self, space: AddressSpace, contents: Contents, modules: Tuple[umdh.UmdhModule, ...]) -> str:
        """Writes a UMDH log if that is wanted; returns the name of the file."""
        if not self.config.get("dump", False):
            return plugin.DISABLED
        log, left_out = log_of(contents.groups, modules)
        if left_out:
            vollog.warning(
                f"Process {space.pid} ({space.arch}): {left_out} blocks in use name no trace or their size "
                "is not known: they are not in the UMDH log"
            )
        name = f"umdh.{space.pid}.{space.arch}.log"
        return plugin.write_file(self.plugin, name, (piece.encode("utf-8") for piece in umdh.write(log)))

    def run(self) -> interfaces.renderers.TreeGrid:
        return plugin.tree(self.plugin, GRID, self._generator(self._baseline()))


def _work(space: AddressSpace) -> str:
    return f"Reading the heaps of process {space.pid}"
