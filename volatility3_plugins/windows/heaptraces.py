# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import logging
from typing import Iterable, Iterator, List, Optional, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.configuration import requirements

from .stacktraces.base import spaces, tables
from .stacktraces.heaps import lister
from .stacktraces.heaps.decode import umdh
from .stacktraces.heaps.decode.contents import Contents
from .stacktraces.heaps.decode.groups import Group
from .stacktraces.heaps.decode.umdhgrowth import Change, Growth
from .stacktraces.heaps.umdh_log import loaded_modules, log_of
from .stacktraces.names import symbolizer
from .stacktraces.rows import options
from .stacktraces.rows.frames import FrameCells, names_of
from .stacktraces.rows.heaps import COLUMNS, HeapRows
from .stacktraces.rows.selection import Selection
from .stacktraces.tracedb import finder as databases

vollog = logging.getLogger(__name__)

Row = Tuple[int, Tuple[object, ...]]


class HeapTraces(interfaces.plugins.PluginInterface):
    """Lists who allocated the heap blocks of processes: each trace with its blocks' count and bytes.

    Needs heaps that remember (gflags +ust, or page heap with traces). The heaps and their segments come
    first, with who made them, then the traces, that of most bytes first. Frames stand below, innermost
    first, and then with --blocks the blocks.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            options.kernel(),
            *options.helpers(
                spaces=spaces.AddressSpaces,
                databases=databases.Databases,
                heaps=lister.Heaps,
                symbolizer=symbolizer.Symbolizer,
            ),
            options.pid(),
            options.switch("blocks", "Also show each block"),
            *options.selecting("traces"),
            requirements.StringRequirement(
                name="baseline",
                description="An earlier UMDH log (a file): show what each trace grew by, that of most first",
                optional=True,
            ),
            options.switch("dump", "Write the blocks of each process as a UMDH log"),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        try:
            baseline = self._baseline()
        except (OSError, umdh.UmdhError) as error:
            vollog.error(f"The baseline cannot be used: {error}")
            return
        kernel_name = self.config["kernel"]
        names = options.symbolizer(self)
        finder = databases.Databases(self.context, kernel_name, self.config_path, names.indexes)
        reader = lister.Heaps(self.context, kernel_name, self.config_path, finder)
        keep = bool(self.config.get("blocks", False) or self.config.get("dump", False))
        found = False
        try:
            for space in spaces.AddressSpaces.list_spaces(self.context, kernel_name, self.config.get("pid")):
                self._progress_callback(0, f"Reading the heaps of process {space.pid}")
                contents = reader.read(space, keep)
                if contents is not None:
                    # Without page tables of its own a process has but a row that says so.
                    layer_name = space.layer_name or self.context.modules[kernel_name].layer_name
                    rows = HeapRows(self.context.layers[layer_name], space, names.names(space))
                    if contents.status:
                        yield 0, rows.unread(contents.status)
                    if contents.owners or contents.groups:
                        found = True
                        yield from self._space(space, contents, rows, baseline)
        except tables.MissingTableError as error:
            vollog.error(error)
            return
        if not found:
            vollog.warning(
                "No heap that can be read remembers who allocated its blocks: a process's heaps do when its "
                "NtGlobalFlag has +ust 0x1000, or page heap (+hpa 0x2000000) is on (windows.gflags shows the "
                "flags)"
            )

    def _space(
        self, space: spaces.AddressSpace, contents: Contents, rows: HeapRows, baseline: Optional[umdh.Log]
    ) -> Iterator[Row]:
        modules: Tuple[umdh.Module, ...] = ()
        if baseline is not None or self.config.get("dump", False):
            modules = loaded_modules(self.context, self.config["kernel"], space)
        file_output = self._dump(space, contents, modules)
        selection = options.selection(self)
        for owner in contents.owners:
            frames = rows.frames(owner.trace)
            if _takes(selection, frames):
                yield 0, rows.owner(owner, file_output)
                for number, frame in enumerate(frames):
                    yield 1, rows.owner_frame(owner, number, frame)
        growth = Growth(baseline, modules, contents.groups) if baseline is not None else None
        for group, change in _compared(contents.groups, growth):
            frames = rows.frames(group.trace)
            if _takes(selection, frames):
                yield 0, rows.group(group, change)
                for number, frame in enumerate(frames):
                    yield 1, rows.frame(group, number, frame)
                if self.config.get("blocks", False):
                    for block in group.blocks:
                        yield 1, rows.block(block)
        for stack, total in growth.left() if growth is not None else ():
            frames = rows.stack(stack)
            if _takes(selection, frames):
                yield 0, rows.gone(total)
                for number, frame in enumerate(frames):
                    yield 1, rows.gone_frame(number, frame)

    def _baseline(self) -> Optional[umdh.Log]:
        """Reads the log to compare with, if one is given."""
        path = self.config.get("baseline")
        if not path:
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            return umdh.parse(file)

    def _dump(self, space: spaces.AddressSpace, contents: Contents, modules: Tuple[umdh.Module, ...]) -> str:
        """Writes a UMDH log if that is wanted; returns the name of the file."""
        if not self.config.get("dump", False):
            return options.DISABLED
        log, left_out = log_of(contents.groups, modules)
        if left_out:
            vollog.warning(
                f"Process {space.pid} ({space.arch}): {left_out} blocks in use name no trace or their size "
                "is not known: they are not in the UMDH log"
            )
        name = f"umdh.{space.pid}.{space.arch}.log"
        return options.write_file(self, name, (piece.encode("utf-8") for piece in umdh.write(log)))

    def run(self) -> renderers.TreeGrid:
        return renderers.TreeGrid(COLUMNS, self._generator())


def _takes(selection: Selection, frames: List[FrameCells]) -> bool:
    return selection.everything or selection.takes(names_of(frames))


def _compared(groups: Iterable[Group], growth: Optional[Growth]) -> List[Tuple[Group, Optional[Change]]]:
    """Returns groups with the growth of their stacks, if there is something to compare them with."""
    return [(group, None) for group in groups] if growth is None else growth.compared()
