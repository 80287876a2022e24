# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple

from volatility3.framework import exceptions, interfaces
from volatility3.framework.configuration import requirements

from .stacktraces.base.image import AddressSpace, Image
from .stacktraces.base.spaces import AddressSpaces
from .stacktraces.heaps.lister import Heaps
from .stacktraces.names.symbolizer import Symbolizer
from .stacktraces.rows import options, plugin
from .stacktraces.rows.frames import Selection, SpaceStacks
from .stacktraces.rows.grid import Row
from .stacktraces.tracedb.finder import Databases

if TYPE_CHECKING:
    from .stacktraces.heaps.decode import umdh
    from .stacktraces.heaps.decode.contents import Contents
    from .stacktraces.rows.heaps import HeapRows

vollog = logging.getLogger(__name__)

_NOTHING = (
    "No heap that can be read remembers who allocated its blocks: a process's heaps do when its "
    "NtGlobalFlag has +ust 0x1000 (XP and 2003: +hpc 0x40 as well), or page heap (+hpa 0x2000000) is on "
    "(windows.gflags shows the flags)"
)


class HeapTraces(interfaces.plugins.PluginInterface):
    """Lists who allocated the heap blocks of processes: each trace with its blocks' count and bytes.

    Needs heaps that record stacks (gflags +ust, on XP and 2003 +hpc as well; or page heap with traces). The
    heaps, their segments and the low-fragmentation heap's containers come first, with who made them, then
    the traces, sorted by bytes, largest first. Below a trace stand its frames, innermost first, and with
    --blocks its blocks, which have no frames of their own.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(databases=Databases, heaps=Heaps, symbolizer=Symbolizer),
            options.pid(),
            options.switch("blocks", "Also show each block"),
            *options.selecting("traces"),
            requirements.StringRequirement(
                name="baseline",
                description="An earlier UMDH log (a file): show what each trace grew by, that of most first",
                optional=True,
            ),
            options.switch("dump", "Write the blocks of each process as a UMDH log"),
            options.fold(),
            options.brief(),
            options.fetch_symbols(),
        ]

    def _generator(self, baseline: Optional[umdh.UmdhLog]) -> Iterator[Row]:
        from .stacktraces.rows.heaps import HeapRows

        with plugin.Listing(self, _NOTHING, "traces", kernel=False) as listing:
            image = options.image(self)
            names = options.symbolizer(self, image)
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
        from .stacktraces.heaps.decode.umdh import Growth
        from .stacktraces.heaps.umdh_log import loaded_modules

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
        from .stacktraces.heaps.decode import umdh

        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return umdh.parse(file)
        except (OSError, umdh.UmdhError) as error:
            raise exceptions.RenderException(f"The baseline cannot be used: {error}") from error

    def _dump(self, space: AddressSpace, contents: Contents, modules: Tuple[umdh.UmdhModule, ...]) -> str:
        """Writes a UMDH log if that is wanted; returns the name of the file."""
        if not self.config.get("dump", False):
            return plugin.DISABLED
        from .stacktraces.heaps.decode import umdh
        from .stacktraces.heaps.umdh_log import log_of

        log, left_out = log_of(contents.groups, modules)
        if left_out:
            vollog.warning(
                f"Process {space.pid} ({space.arch}): {left_out} blocks in use name no trace or their size "
                "is not known: they are not in the UMDH log"
            )
        name = f"umdh.{space.pid}.{space.arch}.log"
        return plugin.write_file(self, name, (piece.encode("utf-8") for piece in umdh.write(log)))

    def run(self) -> interfaces.renderers.TreeGrid:
        from .stacktraces.rows.heaps import GRID

        return plugin.tree(self, GRID, self._generator(self._baseline()))


def _work(space: AddressSpace) -> str:
    return f"Reading the heaps of process {space.pid}"
