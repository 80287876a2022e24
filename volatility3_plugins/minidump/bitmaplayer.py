# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Crash dumps that Volatility's own layer cannot read, as the layer of physical memory on which it builds.

These are bitmap dumps (types 5, 6 and 7) and live dumps (types 8, 9 and 10): Volatility refuses all of them
but type 5. And complete dumps (type 1) whose header contradicts itself: Volatility reads the rest of the file
as further runs, which takes days, or fewer runs than there are. Everything above is Volatility's: its plugins
open such a dump like any other image.
"""

import logging
from typing import ClassVar, List, Optional, Tuple

from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.layers import crash
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)
vollog = logging.getLogger(__name__)

_COMPLETE, _BITMAPS, _LIVE = 1, (5, 6, 7), (8, 9, 10)
"""DumpType of the crash dumps that a layer of this module can read."""
_NOTHING = [(0, 0, 0, 0)]
"""The memory of a file whose pages cannot be found. Volatility's own layer would read its bits nevertheless,
for a length of time that the file chooses: a layer without memory keeps it from that."""


class PagesDump32Layer(crash.WindowsCrashDump32Layer):
    """A crash dump of an x86 kernel, of a kind that Volatility does not read. Addresses are physical.

    Attributes:
        signature: the first bytes of the header
        bytes_behind_the_end: bytes of its pages that lie behind the end of the file
    """

    supported_dumptypes = [_COMPLETE, *_BITMAPS]
    signature = b"PAGEDUMP"
    _told: ClassVar[List[str]] = []
    """The warnings that the stacker's layer gave."""

    @classmethod
    def check_header(
        cls, base_layer: interfaces.layers.DataLayerInterface, offset: int = 0
    ) -> Tuple[int, int]:
        """Raises WindowsCrashDumpFormatException unless the header is one of these kinds. Warns of a kind
        that nothing reads."""
        found = super().check_header(base_layer, offset)
        kind = base_layer.read(options.SMALL_DUMPS[cls.signature][0], len(options.SMALL_DUMP_TYPE))
        number = int.from_bytes(kind, "little")
        if number not in cls.supported_dumptypes:
            if kind != options.SMALL_DUMP_TYPE:
                vollog.warning(
                    f"The crash dump is of type {number}, which neither Volatility nor this pack reads"
                )
            raise crash.WindowsCrashDumpFormatException(base_layer.name, f"DumpType is {number}")
        if number == _COMPLETE:
            from winstacks.minidump import kernelpages

            if kernelpages.block(base_layer, cls.headerpages > 1).consistent:
                raise crash.WindowsCrashDumpFormatException(base_layer.name, "The runs are consistent")
        return found

    def _load_segments(self) -> None:
        from winstacks.minidump import kernelpages

        base, pages = self.context.layers[self._base_layer], self.headerpages
        found, faults = kernelpages.pages(base, self.dump_type, pages, pages > 1)
        runs = [(run.address, run.offset, run.length, run.length) for run in found.runs]
        self._segments: List[Tuple[int, int, int, int]] = runs or _NOTHING
        self.bytes_behind_the_end = found.lost * self._page_size
        # Volatility makes a layer with another path once the stacker's, whose path is its name, fits.
        fits = self.config_path != self.name
        for fault in () if fits and faults == PagesDump32Layer._told else faults:
            vollog.warning(fault)
        PagesDump32Layer._told = [] if fits else faults


class PagesDump64Layer(PagesDump32Layer, crash.WindowsCrashDump64Layer):
    """A crash dump of an x64 kernel, of a kind that Volatility does not read. Addresses are physical."""

    supported_dumptypes = [*PagesDump32Layer.supported_dumptypes, *_LIVE]
    signature = b"PAGEDU64"


class BitmapDumpStacker(interfaces.automagic.StackerLayerInterface):
    """Stacks the layer before Volatility's own layer."""

    stack_order = 10

    @classmethod
    def stack(
        cls,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        progress_callback: constants.ProgressCallback = None,
    ) -> Optional[interfaces.layers.DataLayerInterface]:
        """Returns the layer, None unless the layer below holds a dump of these kinds."""
        for kind in (PagesDump32Layer, PagesDump64Layer):
            try:
                kind.check_header(context.layers[layer_name])
                name = context.layers.free_layer_name(kind.__name__)
                context.config[interfaces.configuration.path_join(name, "base_layer")] = layer_name
                return kind(context, name, name)
            except (crash.WindowsCrashDumpFormatException, exceptions.InvalidAddressException):
                continue
        return None
