# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Bitmap dumps of a kernel (types 5, 6 and 7) as the layer of physical memory on which Volatility builds.

Volatility's own layer refuses types 6 and 7, which Windows writes by default. Everything above is
Volatility's: its plugins open such a dump like any other image.
"""

import logging
from typing import List, Optional, Tuple

from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.layers import crash
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)
vollog = logging.getLogger(__name__)

_TYPES = [5, 6, 7]


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
        """Returns the layer, None unless the layer below holds a bitmap dump."""
        for kind in (BitmapDump32Layer, BitmapDump64Layer):
            try:
                kind.check_header(context.layers[layer_name])
                name = context.layers.free_layer_name(kind.__name__)
                context.config[interfaces.configuration.path_join(name, "base_layer")] = layer_name
                return kind(context, name, name)
            except (crash.WindowsCrashDumpFormatException, exceptions.InvalidAddressException):
                continue
        return None
