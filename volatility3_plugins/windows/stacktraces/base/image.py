# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A memory image: everything that is true of the whole of it, found once.

    image = Image(context, "kernel", config_path)
    for space in AddressSpaces.list_spaces(image):
        memory = image.memory(space)

Everything below takes an image instead of a context and the name of a kernel's module. Where no kernel is
known, as in bytes that hold one process, `Image.of_layer` makes an image without one. It has neither symbols
nor structures of a kernel: whoever asks for them finds nothing.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, Optional, Tuple, TypeVar

from volatility3.framework import constants, interfaces

from . import bulk, structures, tables
from .decode.memory import WINDOW, Memory, Range, Reader, Windows
from .decode.pagetable import PAGE_SIZE
from .decode.structure import Structures
from .space import ARCHES, KERNEL_PID, KERNEL_PROCESS, AddressSpace

Part = TypeVar("Part")

MAX_SPACES = 16
"""Address spaces whose memory is kept: an image may have thousands."""


class Image:
    """An image.

    Args:
        context: the context that holds it
        kernel_module_name: the name of the kernel's module in the context
        config_path: where the configuration of our symbol tables goes

    Attributes:
        context: the context
        config_path: as given
        layer: the kernel's layer
        pointer_size: bytes of a pointer of the kernel: 4 or 8
        arch: the kernel's bitness as the column Arch has it
        table_name: the kernel's symbol table, empty without a kernel
        base: canonical address of the kernel, 0 without one
        types: the structures of the kernel's symbol table
        kernel: the kernel's address space
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        config_path: str = "plugins",
    ) -> None:
        module = context.modules[kernel_module_name]
        layer = context.layers[module.layer_name]
        self._kernel_module_name = kernel_module_name
        self._module: Optional[interfaces.context.ModuleInterface] = module
        self._init(context, config_path, layer, 8 if layer.bits_per_register == 64 else 4)
        self.table_name = str(module.symbol_table_name)
        self.types = structures.of_table(context, self.table_name)
        self.base = bulk.canonical(layer, module.offset)

    @classmethod
    def of_layer(
        cls,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        pointer_size: int,
        config_path: str = "plugins",
    ) -> Image:
        """Returns an image of which no kernel is known.

        Args:
            context: the context that holds the layer
            layer_name: a layer whose addresses are those of a process
            pointer_size: of the processor's native mode: 4 or 8
            config_path: where the configuration of our symbol tables goes
        """
        image = cls.__new__(cls)
        image._kernel_module_name = ""
        image._module = None
        image._init(context, config_path, context.layers[layer_name], pointer_size)
        return image

    def _init(
        self,
        context: interfaces.context.ContextInterface,
        config_path: str,
        layer: interfaces.layers.DataLayerInterface,
        pointer_size: int,
    ) -> None:
        self.context = context
        self.config_path = config_path
        self.layer = layer
        self.pointer_size = pointer_size
        self.arch = ARCHES[pointer_size]
        self.table_name = ""
        self.base = 0
        self.types = structures.of_table(context, "")
        self.kernel = AddressSpace(
            pid=KERNEL_PID,
            process=KERNEL_PROCESS,
            arch=self.arch,
            layer_name=str(layer.name),
            pointer_size=pointer_size,
            kernel=True,
        )
        self._windows: Dict[str, Windows] = {}
        self._memories: Dict[Tuple[str, int], Memory] = {}
        self._parts: Dict[object, object] = {}

    @property
    def kernel_module_name(self) -> str:
        """The name of the kernel's module, for Volatility's own plugins; empty without a kernel."""
        return self._kernel_module_name

    def symbol(self, *names: str) -> Optional[int]:
        """Returns the canonical address of the first of several symbols that the kernel has, or None."""
        for name in names:
            if self._module is not None and self._module.has_symbol(name):
                return self.base + int(self._module.get_symbol(name).address)
        return None

    def symbol_table(self) -> Optional[interfaces.symbols.SymbolTableInterface]:
        """Returns the kernel's symbol table, None without a kernel."""
        return self.context.symbol_space[self.table_name] if self.table_name else None

    def object_at(self, type_name: str, address: int) -> interfaces.objects.ObjectInterface:
        """Returns Volatility's object of a kernel structure, for what only Volatility knows to do with it.

        Args:
            type_name: the structure, such as `_EPROCESS`
            address: canonical or masked
        """
        full_name = self.table_name + constants.BANG + type_name
        return self.context.object(full_name, self.layer.name, bulk.masked(self.layer, address))

    def our_types(self, name: str) -> Structures:
        """Returns the structures of `symbols/windows/stacktraces/<name>.json`.

        Raises:
            tables.MissingTableError: when the file is nowhere
        """
        return structures.of_table(self.context, tables.load(self.context, self.config_path, name))

    def process_types(self, pointer_size: int) -> Structures:
        """Returns the structures of user mode: the kernel's symbols where they have this bitness, then ours.

        Raises:
            tables.MissingTableError: when our table is missing
        """
        key = functools.partial(_process_types, pointer_size=pointer_size)
        return self._once(("process", pointer_size), key)

    def layer_of(self, space: AddressSpace) -> interfaces.layers.DataLayerInterface:
        """Returns the layer of an address space; the kernel's for one that has no page tables."""
        return self.context.layers[space.layer_name] if space.layer_name else self.layer

    def reader(self, layer_name: str) -> Reader:
        """Returns what reads ranges of a layer."""
        return functools.partial(bulk.read_extents, self.context, layer_name)

    def memory(self, space: AddressSpace) -> Memory:
        """Returns the memory of an address space (the kernel's half, of a process without page tables).

        That of the last few spaces is kept, so that whoever asks reads nothing twice.
        """
        return self.memory_of(space.layer_name or str(self.layer.name), space.pointer_size)

    def memory_of(self, layer_name: str, pointer_size: int) -> Memory:
        """Returns the memory of a layer, for structures with pointers of a size."""
        key = (layer_name, pointer_size)
        if key not in self._memories:
            if len(self._memories) >= 2 * MAX_SPACES:
                self._windows.clear()
                self._memories.clear()
            if layer_name not in self._windows:
                self._windows[layer_name] = Windows(self.reader(layer_name), PAGE_SIZE)
            self._memories[key] = Memory(self._windows[layer_name], pointer_size)
        return self._memories[key]

    def memory_within(self, space: AddressSpace, ranges: Tuple[Range, ...]) -> Memory:
        """Returns memory of an address space that is limited to ranges, read in large pieces and not kept."""
        return Memory(Windows(self.reader(space.layer_name), WINDOW), space.pointer_size, ranges)

    def part(self, make: Callable[[Image], Part]) -> Part:
        """Returns what is made of an image once, whoever asks for it: `image.part(Vads)`.

        Args:
            make: a class or function that takes the image
        """
        return self._once(make, make)

    def _once(self, key: object, make: Callable[[Image], Part]) -> Part:
        if key not in self._parts:
            self._parts[key] = make(self)
        found: Part = self._parts[key]  # type: ignore[assignment]
        return found


def _process_types(image: Image, pointer_size: int) -> Structures:
    ours = f"process-{ARCHES[pointer_size]}"
    if pointer_size != image.pointer_size:
        return image.our_types(ours)
    # A kernel's symbols have nearly all of them: our table is read when one is missing.
    return Structures(lambda name: image.types.find(name) or image.our_types(ours).find(name))
