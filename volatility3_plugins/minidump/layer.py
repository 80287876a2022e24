# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory of one process, or of a small kernel dump, as a layer over the file, and what stacks this layer.

It is for plugins of ours only: those of Volatility that read Windows, Linux or macOS never meet it. No other
stacker has anything to do above it: the layer is of no system that one of them knows, and searches of all of
it find nothing (those for Linux and macOS would read the whole file).
"""

import logging
from typing import Any, Iterable, List, Optional, Tuple

from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.layers import segmented
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)
vollog = logging.getLogger(__name__)


class MinidumpLayer(segmented.SegmentedLayer):
    """The memory that a minidump has of its process. Addresses are those of the process, as Windows has them.

    Attributes:
        dump: the decoded file
        status: what is wrong with its lists of memory
    """

    _direct_metadata = {"os": options.DUMP_OS, "architecture": options.DUMP_OS}

    def _load_segments(self) -> None:
        from winstacks.minidump import opened

        if not hasattr(self, "dump"):
            base = self.context.layers[self._base_layer]
            self.dump: Any = opened.minidump(base)
            ranges, self.status = opened.memory(self.dump)
            self._segments: List[Tuple[int, int, int, int]] = [
                (start, offset, size, size) for start, offset, size in ranges
            ]

    def machine(self) -> Any:
        """Returns the machine of the process; see `machine_of` of the library."""
        from winstacks.minidump import opened

        return opened.machine_of(self.context, self.name)

    def open_image(self, config_path: str, kernel_symbols: Optional[str] = None) -> Any:
        """Returns the image of the process, in which no kernel is; see `image_of` of the library."""
        from winstacks.minidump import opened

        return opened.image_of(self.context, self.name, config_path)

    @property
    def minimum_address(self) -> int:
        """The lowest address that it may have."""
        return 0

    @property
    def maximum_address(self) -> int:
        """The highest address that it may have, whatever the dump has."""
        return options.DUMP_MAXIMUM

    def scan(
        self,
        context: interfaces.context.ContextInterface,
        scanner: interfaces.layers.ScannerInterface,
        progress_callback: constants.ProgressCallback = None,
        sections: Optional[Iterable[Tuple[int, int]]] = None,
    ) -> Iterable[Any]:
        """Searches sections; nothing is found without any."""
        return () if sections is None else super().scan(context, scanner, progress_callback, sections)


class SmallDumpLayer(MinidumpLayer):
    """The memory that a small kernel dump has. Addresses are those of the kernel, as Windows has them.

    Attributes:
        dump: the decoded file
        status: what is wrong with its memory
    """

    def _load_segments(self) -> None:
        from winstacks.minidump import smalldump

        if not hasattr(self, "dump"):
            self.dump: Any = smalldump.small_dump(self.context.layers[self._base_layer])
            ranges, self.status = smalldump.memory(self.dump)
            self._segments = [(start, offset, size, size) for start, offset, size in ranges]

    def machine(self) -> Any:
        """Returns the machine that crashed; see `machine_of` of the library."""
        from winstacks.minidump import smalldump

        return smalldump.machine_of(self.context, self.name)

    def open_image(self, config_path: str, kernel_symbols: Optional[str] = None) -> Any:
        """Returns the image of the dump; see `image_of` of the library."""
        from winstacks.minidump import smalldump

        return smalldump.image_of(self.context, self.name, config_path, kernel_symbols)


class MinidumpStacker(interfaces.automagic.StackerLayerInterface):
    """Stacks the layer on a file that begins as a minidump does, before any other stacker looks at it."""

    stack_order = 5
    exclusion_list: List[str] = ["windows", "linux", "mac"]

    @classmethod
    def stack(
        cls,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        progress_callback: constants.ProgressCallback = None,
    ) -> Optional[interfaces.layers.DataLayerInterface]:
        """Returns the layer, None over anything else than a minidump."""
        try:
            if context.layers[layer_name].read(0, len(options.DUMP_SIGNATURE)) != options.DUMP_SIGNATURE:
                return None
        except exceptions.InvalidAddressException:
            return None
        name = context.layers.free_layer_name("MinidumpLayer")
        context.config[interfaces.configuration.path_join(name, "base_layer")] = layer_name
        return MinidumpLayer(context, name, name)


class SmallDumpStacker(interfaces.automagic.StackerLayerInterface):
    """Stacks the layer on a small kernel dump, which Volatility's own layer of crash dumps refuses."""

    stack_order = 5
    exclusion_list: List[str] = ["windows", "linux", "mac"]

    @classmethod
    def stack(
        cls,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        progress_callback: constants.ProgressCallback = None,
    ) -> Optional[interfaces.layers.DataLayerInterface]:
        """Returns the layer, None over anything else than a small kernel dump."""
        from winstacks.minidump import smalldump

        base = context.layers[layer_name]
        try:
            place = options.SMALL_DUMPS.get(bytes(base.read(0, 8)))
            if place is None or base.read(place, 4) != options.SMALL_DUMP_TYPE:
                return None
        except exceptions.InvalidAddressException:
            return None
        try:
            smalldump.small_dump(base)
        except smalldump.NotAKernelDumpError as error:
            vollog.warning(str(error))
            return None
        name = context.layers.free_layer_name("SmallDumpLayer")
        context.config[interfaces.configuration.path_join(name, "base_layer")] = layer_name
        return SmallDumpLayer(context, name, name)
