# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Crash dumps that Volatility's own layer cannot read, as the layer of physical memory on which it builds.

These are bitmap dumps (types 5, 6 and 7): Volatility refuses types 6 and 7, which Windows writes by default.
And complete dumps (type 1) whose header claims more runs of pages than it has room for: Volatility reads the
rest of the file as further runs, which takes days. Everything above is Volatility's: its plugins open such a
dump like any other image.
"""

import logging
import struct
from typing import List, Optional, Tuple

from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.layers import crash
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)
vollog = logging.getLogger(__name__)

_TYPES = [5, 6, 7]
_RUNS_SIZE = 700
"""Size of PhysicalMemoryBlockBuffer in bytes (Volatility's `crash.json` and `crash64.json`)."""


class _BitmapLayer(crash.WindowsCrashDump32Layer):
    """The common part of both bitnesses."""

    supported_dumptypes = _TYPES

    def _load_segments(self) -> None:
        from winstacks.minidump.decode import bitmap

        base = self.context.layers[self._base_layer]

        def read(offset: int, length: int) -> bytes:
            try:
                return bytes(base.read(offset, length))
            except exceptions.InvalidAddressException:
                return b""

        try:
            found = bitmap.read_bitmap(
                read, int(base.maximum_address) + 1, self._page_size * self.headerpages
            )
        except bitmap.BitmapError as error:
            vollog.warning(str(error))
            raise crash.WindowsCrashDumpFormatException(self.name, str(error)) from error
        self._segments: List[Tuple[int, int, int, int]] = [
            (run.address, run.offset, run.length, run.length) for run in found.runs
        ]
        if not self._segments:
            vollog.warning("The bitmap of the dump names no page of the file")
            raise crash.WindowsCrashDumpFormatException(self.name, "The bitmap names no page of the file")
        self.bytes_behind_the_end = found.lost * self._page_size
        if found.lost:
            vollog.warning(f"The file ends before {found.lost} pages that its bitmap names: they are absent")
        if found.left_out or found.cut:
            vollog.warning(
                f"The bitmap is larger than those of Windows: {found.left_out} pages of the file and "
                f"{found.cut} bytes of the bitmap are left out"
            )
        if self.dump_type in options.PARTIAL_DUMPS:
            vollog.warning(f"Dump of type {self.dump_type}: {options.PARTIAL_DUMPS[self.dump_type]}")


class BitmapDump32Layer(_BitmapLayer):
    """A bitmap dump of an x86 kernel. Addresses are physical."""


class BitmapDump64Layer(_BitmapLayer, crash.WindowsCrashDump64Layer):
    """A bitmap dump of an x64 kernel. Addresses are physical."""

    supported_dumptypes = _TYPES


class RunsDump32Layer(crash.WindowsCrashDump32Layer):
    """A complete dump of an x86 kernel whose NumberOfRuns is impossible. Addresses are physical.

    Attributes:
        place: offset of PhysicalMemoryBlockBuffer
        head, run: forms of NumberOfRuns with NumberOfPages, and of a run
    """

    supported_dumptypes = [1]
    place = 0x64
    head, run = struct.Struct("<II"), struct.Struct("<II")

    @classmethod
    def check_header(
        cls, base_layer: interfaces.layers.DataLayerInterface, offset: int = 0
    ) -> Tuple[int, int]:
        """Raises WindowsCrashDumpFormatException unless the header is one whose runs exceed its room."""
        found = super().check_header(base_layer, offset)
        if cls._claimed(base_layer) <= cls._room():
            raise crash.WindowsCrashDumpFormatException(base_layer.name, "NumberOfRuns is possible")
        return found

    @classmethod
    def _claimed(cls, base_layer: interfaces.layers.DataLayerInterface) -> int:
        return int(cls.head.unpack(base_layer.read(cls.place, cls.head.size))[0])

    @classmethod
    def _room(cls) -> int:
        """Returns the number of runs that the header has room for."""
        return (_RUNS_SIZE - cls.head.size) // cls.run.size

    def _load_segments(self) -> None:
        base = self.context.layers[self._base_layer]
        size, offset = int(base.maximum_address) + 1, self._page_size * self.headerpages
        data = base.read(self.place + self.head.size, self._room() * self.run.size)
        self._segments: List[Tuple[int, int, int, int]] = []
        for first, pages in self.run.iter_unpack(data):
            length = min(pages * self._page_size, size - offset)
            if length <= 0:
                break
            self._segments.append((first * self._page_size, offset, length, length))
            offset += length
        vollog.warning(
            f"NumberOfRuns of the header is {self._claimed(base)}, and it has room for {self._room()}: the "
            f"{len(self._segments)} that the file has are read, memory may be missing or misplaced"
        )
        if not self._segments:
            raise crash.WindowsCrashDumpFormatException(self.name, "The header names no run of pages")


class RunsDump64Layer(RunsDump32Layer, crash.WindowsCrashDump64Layer):
    """A complete dump of an x64 kernel whose NumberOfRuns is impossible. Addresses are physical."""

    supported_dumptypes = [1]
    place = 0x88
    head, run = struct.Struct("<I4xQ"), struct.Struct("<QQ")


class BitmapDumpStacker(interfaces.automagic.StackerLayerInterface):
    """Stacks the layer before Volatility's own layer, which refuses types 6 and 7."""

    stack_order = 10

    @classmethod
    def stack(
        cls,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        progress_callback: constants.ProgressCallback = None,
    ) -> Optional[interfaces.layers.DataLayerInterface]:
        """Returns the layer, None unless the layer below holds a dump of these kinds."""
        for kind in (BitmapDump32Layer, BitmapDump64Layer, RunsDump32Layer, RunsDump64Layer):
            try:
                kind.check_header(context.layers[layer_name])
                name = context.layers.free_layer_name(kind.__name__)
                context.config[interfaces.configuration.path_join(name, "base_layer")] = layer_name
                return kind(context, name, name)
            except (crash.WindowsCrashDumpFormatException, exceptions.InvalidAddressException):
                continue
        return None
