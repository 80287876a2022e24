# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory of one process, or of a small kernel dump, as a layer over the file; and its stackers.

Only this project's plugins use the layer: Volatility's plugins for Windows, Linux or macOS never see it. No
other stacker can build on it: it has no operating system that a stacker knows, and searches of the whole
layer find nothing (the searches for Linux and macOS would read the whole file).
"""

import logging
from typing import Any, Iterable, List, Optional, Tuple

from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.layers import segmented
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)
vollog = logging.getLogger(__name__)


class MinidumpLayer(segmented.SegmentedLayer):
    """The memory of a process in a minidump. Addresses are virtual, in the form that Windows stores.

    Attributes:
        dump: the decoded file
        status: faults of its lists of memory
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

        return opened.machine_of(self.dump)

    def open_image(self, config_path: str, kernel_symbols: Optional[str] = None) -> Any:
        """Returns the image of the process, without a kernel; see `image_of` of the library."""
        from winstacks.minidump import opened

        return opened.image_of(self.context, self.name, config_path, kernel_symbols)

    def faults(self) -> Any:
        """Returns the faults of the dump as a whole; see `faults` of the library."""
        from winstacks.minidump import opened

        return opened.faults(self.dump, self.status)

    @property
    def minimum_address(self) -> int:
        """The lowest possible address."""
        return 0

    @property
    def maximum_address(self) -> int:
        """The highest possible address, whatever the dump has."""
        return options.DUMP_MAXIMUM

    def scan(
        self,
        context: interfaces.context.ContextInterface,
        scanner: interfaces.layers.ScannerInterface,
        progress_callback: constants.ProgressCallback = None,
        sections: Optional[Iterable[Tuple[int, int]]] = None,
    ) -> Iterable[Any]:
        """Searches the given sections; finds nothing without any."""
        return () if sections is None else super().scan(context, scanner, progress_callback, sections)


class SmallDumpLayer(MinidumpLayer):
    """The memory in a small kernel dump. Addresses are virtual, in the form that Windows stores.

    Attributes:
        dump: the decoded file
        status: faults of its memory
    """

    def _load_segments(self) -> None:
        from winstacks.minidump import smalldump

        if not hasattr(self, "dump"):
            self.dump: Any = smalldump.small_dump(self.context.layers[self._base_layer])
            ranges, self.status = smalldump.memory(self.dump)
            self._segments = [(start, offset, size, size) for start, offset, size in ranges]

    def machine(self) -> Any:
        """Returns the machine that crashed; see `TriageDump.machine` of the library."""
        return self.dump.machine

    def open_image(self, config_path: str, kernel_symbols: Optional[str] = None) -> Any:
        """Returns the image of the dump; see `image_of` of the library."""
        from winstacks.minidump import smalldump

        return smalldump.image_of(self.context, self.name, config_path, kernel_symbols)

    def faults(self) -> Any:
        """Returns the faults of the dump as a whole; see `faults` of the library."""
        from winstacks.minidump import smalldump

        return smalldump.faults(self.dump, self.status)


class MinidumpStacker(interfaces.automagic.StackerLayerInterface):
    """Stacks the layer on a file with the signature of a minidump, before any other stacker reads the
    file."""

    stack_order = 5
    exclusion_list: List[str] = ["windows", "linux", "mac"]

    @classmethod
    def stack(
        cls,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        progress_callback: constants.ProgressCallback = None,
    ) -> Optional[interfaces.layers.DataLayerInterface]:
        """Returns the layer, None unless the file is a minidump."""
        try:
            if context.layers[layer_name].read(0, len(options.DUMP_SIGNATURE)) != options.DUMP_SIGNATURE:
                return None
        except exceptions.InvalidAddressException:
            return None
        name = context.layers.free_layer_name("MinidumpLayer")
        context.config[interfaces.configuration.path_join(name, "base_layer")] = layer_name
        return MinidumpLayer(context, name, name)


class SmallDumpStacker(interfaces.automagic.StackerLayerInterface):
    """Stacks the layer on a small kernel dump, which Volatility's own crash dump layer refuses."""

    stack_order = 5
    exclusion_list: List[str] = ["windows", "linux", "mac"]

    @classmethod
    def stack(
        cls,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        progress_callback: constants.ProgressCallback = None,
    ) -> Optional[interfaces.layers.DataLayerInterface]:
        """Returns the layer, None unless the file is a small kernel dump."""
        base = context.layers[layer_name]
        try:
            if not options.is_small_dump(base.read, int(base.maximum_address) + 1):
                return None
        except exceptions.InvalidAddressException:
            return None
        from winstacks.minidump import smalldump

        try:
            smalldump.small_dump(base)
        except smalldump.NotAKernelDumpError as error:
            vollog.warning(str(error))
            return None
        name = context.layers.free_layer_name("SmallDumpLayer")
        context.config[interfaces.configuration.path_join(name, "base_layer")] = layer_name
        return SmallDumpLayer(context, name, name)
