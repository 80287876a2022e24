# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory of one process as a layer over its dump, and what stacks this layer.

It is for plugins of ours only: those of Volatility that read Windows, Linux or macOS never meet it. No other
stacker has anything to do above it: the layer is of no system that one of them knows, and searches of all of
it find nothing (those for Linux and macOS would read the whole file).
"""

from typing import Any, Iterable, List, Optional, Tuple

from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.layers import segmented
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


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
            self.dump = opened.minidump(base)
            ranges, self.status = opened.memory(self.dump)
            self._segments: List[Tuple[int, int, int, int]] = [
                (start, offset, size, size) for start, offset, size in ranges
            ]

    def machine(self) -> Any:
        """Returns the machine of the process; see `machine_of` of the library."""
        from winstacks.minidump import opened

        return opened.machine_of(self.context, self.name)

    def open_image(self, config_path: str) -> Any:
        """Returns the image of the process; see `image_of` of the library."""
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
