# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A memory image: facts about the whole image, each found once, and the record of an address space.

    image = Image(context, "kernel", config_path)
    for space in AddressSpaces.list_spaces(image):
        memory = image.memory(space)

All other modules take an image instead of a context and the name of a kernel's module. If no kernel is known,
as in bytes that hold one process, `Image.of_layer` makes an image without a kernel: `symbol` returns None
there, and `types` has no structure.
"""

from __future__ import annotations

import functools
import logging
from typing import Callable, Dict, Iterable, Iterator, Optional, Tuple, TypeVar

from volatility3.framework import constants, interfaces
from volatility3.framework.layers import intel

from . import bulk, pagetables, tables
from .decode import text
from .decode.machine import Machine
from .decode.memo import Kept
from .decode.memory import WINDOW, Memory, Range, Reader, ReadWindows
from .decode.pagetable import PAGE_SIZE
from .decode.records import NamedTuple
from .decode.status import NOTHING, Status, has_status
from .decode.statuscodes import words_that
from .decode.statusmeanings import Means
from .decode.structure import Field, MissingMemberError, Structure, Structures
from .decode.view import View

vollog = logging.getLogger(__name__)

KERNEL_PID = 0
KERNEL_PROCESS = "nt"


_NAMELESS = words_that(Means.NAMELESS_PROCESS)
"""Status words of a process whose name, if it has none, is unknown."""


class AddressSpace(NamedTuple):
    """One bitness of one address space. Addresses are canonical.

    A WoW64 process is two of them over the same layer: the 64-bit one and the 32-bit one (`wow64`).

    Attributes:
        pid: 0 for the kernel, None if unknown
        process: image name of the process, empty if unknown
        layer_name: name of the layer through which the space is read; empty if its page tables cannot be read
        wow64: whether this is the 32-bit half of a 64-bit process
        eprocess: canonical address of the process's _EPROCESS, 0 if none is known
        peb: canonical address of the PEB of this half, 0 if it has none
        status: reason why the space cannot be read; empty if it can
        remark: contradictions about the process, though the space may be readable
    """

    pid: Optional[int]
    process: str
    machine: Machine
    layer_name: str
    wow64: bool = False
    kernel: bool = False
    eprocess: int = 0
    peb: int = 0
    status: Status = NOTHING
    remark: Status = NOTHING

    @property
    def arch(self) -> str:
        """`x64` or `x86`, as in the column Arch."""
        return self.machine.arch

    @property
    def known_name(self) -> Optional[str]:
        """The name of the process, None if it is unknown; only an _EPROCESS can have an empty name."""
        unknown = not self.eprocess or has_status(self.remark, *_NAMELESS)
        return None if unknown and not self.process else self.process

    @property
    def pid_text(self) -> str:
        """The process in a message: its ID, or the address of its _EPROCESS if the ID is unknown."""
        if self.pid is not None:
            return str(self.pid)
        return f"at {self.eprocess:#x}" if self.eprocess else "with unknown ID"

    @property
    def file_part(self) -> str:
        """The process in a file's name: its ID, or the address of its _EPROCESS if the ID is unknown."""
        if self.pid is not None:
            return str(self.pid)
        return f"{self.eprocess:#x}" if self.eprocess else "unknown"

    @property
    def label(self) -> str:
        """The process in words: `updater.exe (4312)`."""
        return text.process_label(self.known_name, self.pid)

    @property
    def pointer_size(self) -> int:
        """Bytes of a pointer: 4 or 8."""
        return self.machine.pointer_size


Service = TypeVar("Service")
Item = TypeVar("Item")
Made = TypeVar("Made")

MAX_LAYERS = 4
"""Layers whose memory an image keeps besides the kernel's, the most recently used: an image may have
thousands."""


class Image:
    """A memory image.

    Attributes:
        machine: the machine; the space of a process of another bitness has its own
        table_name: name of the kernel's symbol table, empty if no kernel can be walked
        base: canonical address of the kernel, 0 without a kernel
        threads_only: whether the input has stacks of threads only, without the records of Windows: databases,
            locks, heaps and handles
        lacking: symbols and members that were needed and that the kernel's symbols lack, in the order of the
            requests
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
        self._init(context, config_path, layer, bulk.machine_of(layer))
        self.table_name = str(module.symbol_table_name)
        self.types = tables.of_table(context, self.table_name, self.lacks)
        self.base = self.machine.canonical(module.offset)

    @classmethod
    def of_layer(
        cls,
        context: interfaces.context.ContextInterface,
        layer_name: str,
        machine: Machine,
        config_path: str = "plugins",
    ) -> Image:
        """Returns an image without a kernel that can be walked. `machine` is the machine of the process; for
        a WoW64 process the machine of its 64-bit half."""
        image = cls.__new__(cls)
        image._kernel_module_name = ""
        image._module = None
        image._init(context, config_path, context.layers[layer_name], machine)
        return image

    def take_symbols(self, table_name: str) -> None:
        """Takes a kernel's symbol table for names and structures when no kernel can be walked. `table_name`
        is the name of the table in the context; `base` is the address of its kernel."""
        self._symbols_name = table_name
        self._module = self.context.module(table_name, str(self.layer.name), self.base)
        self.types = tables.of_table(self.context, table_name)

    def _init(
        self,
        context: interfaces.context.ContextInterface,
        config_path: str,
        layer: interfaces.layers.DataLayerInterface,
        machine: Machine,
    ) -> None:
        self.context = context
        self.config_path = config_path
        self.layer = layer
        self.machine = machine
        self.pointer_size = machine.pointer_size
        self.arch = machine.arch
        self.table_name = self._symbols_name = ""
        self.base = 0
        self.threads_only = False
        self.types = tables.of_table(context, "")
        self.kernel = AddressSpace(
            pid=KERNEL_PID,
            process=KERNEL_PROCESS,
            machine=machine,
            layer_name=str(layer.name),
            kernel=True,
        )
        self._windows: Dict[str, ReadWindows] = {}
        self._page_tables: Kept[Tuple[str, int, int], bytes] = Kept(pagetables.MAX_TABLES)
        self._memories: Dict[Tuple[str, int], Memory] = {}
        self._services: Dict[object, object] = {}
        self.lacking: Dict[str, None] = {}

    @property
    def kernel_module_name(self) -> str:
        """The name of the kernel's module, for Volatility's own plugins; empty without a kernel."""
        return self._kernel_module_name

    @property
    def kernel_stacks(self) -> bool:
        """Whether threads may have stacks of the kernel: not in the dump of a process."""
        return bool(self.table_name) or self.threads_only

    @functools.cached_property
    def page_count(self) -> int:
        """The number of pages of the image's files: limits on reading and keeping are proportional to it."""
        layers, sizes = [self.layer], {}
        while layers:
            layer = layers.pop()
            if layer.name not in sizes:
                below = [self.context.layers[name] for name in layer.dependencies]
                sizes[layer.name] = 0 if below else layer.maximum_address + 1
                layers += below
        return max(sum(sizes.values()) // PAGE_SIZE, 1)

    def symbol(self, *names: str) -> Optional[int]:
        """Returns the canonical address of the first of several symbols that the kernel has, or None."""
        for name in names:
            if self._module is not None and self._module.has_symbol(name):
                return self.base + int(self._module.get_symbol(name).address)
        return None

    def require_symbol(self, *names: str) -> Optional[int]:
        """Returns the result of `symbol`, and warns if it is None: every kernel has one of these symbols."""
        address = self.symbol(*names)
        if address is None:
            self.lacks(" or ".join(names))
        return address

    def require_member(self, name: str, *paths: str) -> Optional[Field]:
        """Returns the field of the first of several members that a structure of the kernel's table has.

        Returns None, with a warning, if the structure has none of them. Every kernel's structure has one of
        `paths`.
        """
        structure = self.types.find(name)
        if structure.lack(*paths):
            self.lacks(structure.lack(*paths))
        return structure.first_member(*paths)

    def at(self, name: str, address: Optional[int]) -> View:
        """Returns a structure of the kernel at an address: None or 0 if there is none."""
        return View(self.memory(self.kernel), self.types.find(name), address, self.lacks)

    def lacks(self, what: object) -> None:
        """Warns, once, that the kernel's symbols lack something that is needed. `what` is the name of a
        symbol, or a MissingMemberError, whose text names the missing member."""
        if str(what) not in self.lacking and self.table_name:
            self.lacking[str(what)] = None
            vollog.warning(f"Missing from the kernel's symbols, so rows are missing or incomplete: {what}")

    def attempt(self, make: Callable[[], Made]) -> Optional[Made]:
        """Returns what a function makes, None if the symbols lack a needed member: a warning names it."""
        try:
            return make()
        except MissingMemberError as error:
            self.lacks(error)
            return None

    def possible(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields items until the symbols lack a needed member: a warning names the member.

        An input without a kernel has no symbols of one; its rows end there just as well, so it warns too.
        """
        try:
            yield from items
        except MissingMemberError as error:
            self.rows_end(error)

    def rows_end(self, error: MissingMemberError) -> None:
        """Warns, once, that rows are missing because the symbols lack a member; see `possible`."""
        self.lacks(error)
        if str(error) not in self.lacking:
            self.lacking[str(error)] = None
            vollog.warning(f"Rows are missing: this input has no symbols of a kernel, and {error}")

    def symbol_table(self) -> Optional[interfaces.symbols.SymbolTableInterface]:
        """Returns the kernel's symbol table, None if there is none."""
        name = self.table_name or self._symbols_name
        return self.context.symbol_space[name] if name else None

    def object_at(self, type_name: str, address: int) -> interfaces.objects.ObjectInterface:
        """Returns a kernel structure as an object of Volatility, for uses that need such an object. `address`
        is canonical or masked."""
        full_name = self.table_name + constants.BANG + type_name
        return self.context.object(full_name, self.layer.name, bulk.masked(self.layer, address))

    def our_types(self, name: str) -> Structures:
        """Returns the structures of `symbols/windows/stacktraces/<name>.json`, the same object each time."""
        return self._once(("ours", name), functools.partial(_our_types, name=name))

    def our_generations(self, kind: str, machine: Machine) -> Tuple[Structures, ...]:
        """Returns the structures of all our tables of a kind and bitness, the newest Windows first.

        The content of the image decides which of them it has. If the content fits two tables equally, the
        first is taken: so tables of a newer build than the kernel's own come last.
        """
        arch = machine.arch
        names = self._once(("generations", kind, arch), lambda _: tables.generations(kind, arch))
        builds = {name: tables.version(name)[2:3] for name in names}
        if len(names) > 1 and any(builds.values()) and self._build is not None:
            names = sorted(names, key=lambda name: builds[name] > (self._build,))
        return tuple(self.our_types(f"{kind}-{name}-{arch}") for name in names)

    @functools.cached_property
    def _build(self) -> Optional[int]:
        """NtBuildNumber of the kernel without its highest bits; None if unknown."""
        number = self.memory(self.kernel).number(self.symbol("NtBuildNumber"), 4)
        return None if number is None else number & 0xFFFF

    def process_types(self, machine: Machine) -> Structures:
        """Returns the structures of user mode of a machine.

        In the kernel's own bitness each structure comes from the kernel's symbols, and from our table
        `process-<arch>` if these lack it. In the other bitness all come from our table.
        """
        return self.process_generations(machine)[0]

    def process_generations(self, machine: Machine) -> Tuple[Structures, ...]:
        """Returns the candidates for `process_types`, one for each of our tables; the content of a process
        decides between them (`process/usertypes.py`)."""
        return self._once(("process", machine), functools.partial(_process_types, machine=machine))

    def layer_of(self, space: AddressSpace) -> interfaces.layers.DataLayerInterface:
        """Returns the layer of an address space: the kernel's if a process has no readable page tables."""
        return self.context.layers[space.layer_name] if space.layer_name else self.layer

    def reader(self, layer_name: str) -> Reader:
        """Returns a function that reads ranges of a layer."""
        return functools.partial(bulk.read_extents, self.context, layer_name)

    def memory(self, space: AddressSpace) -> Memory:
        """Returns the memory of an address space, the same object each time while it is kept.

        A process whose page tables cannot be read gets the kernel's memory: kernel addresses, such as the
        addresses of its VADs, can be read there; its own addresses cannot.
        """
        return self.memory_of(space.layer_name or str(self.layer.name), space.pointer_size)

    def memory_of(self, layer_name: str, pointer_size: int) -> Memory:
        """Returns the memory of a layer, the same object each time while it is kept."""
        windows = self._windows.pop(layer_name, None)
        if windows is None:
            others = [name for name in self._windows if name != self.kernel.layer_name]
            if len(others) >= MAX_LAYERS:
                oldest = others[0]
                del self._windows[oldest]
                self._memories = {key: memory for key, memory in self._memories.items() if key[0] != oldest}
            layer = self.context.layers[layer_name]
            page_tables = self.page_tables(layer) if isinstance(layer, intel.Intel) else None
            read = functools.partial(bulk.read_extents, self.context, layer_name, tables=page_tables)
            windows = ReadWindows(read, PAGE_SIZE)
        self._windows[layer_name] = windows
        key = (layer_name, pointer_size)
        if key not in self._memories:
            self._memories[key] = Memory(windows, pointer_size)
        return self._memories[key]

    def page_tables(self, layer: intel.Intel) -> pagetables.PageTables:
        """Returns the page tables of a layer; those that were read for any layer are not read again."""
        return pagetables.PageTables(self.context, layer, self._page_tables)

    def memory_within(self, space: AddressSpace, ranges: Tuple[Range, ...]) -> Memory:
        """Returns the memory of an address space limited to some ranges, read in large pieces.

        The image does not keep it. Unlike `memory` it does not fall back to the kernel's memory. `space` is
        an address space that has page tables (its `layer_name` is not empty).
        """
        return Memory(ReadWindows(self.reader(space.layer_name), WINDOW), space.pointer_size, ranges)

    def service(self, make: Callable[[Image], Service]) -> Service:
        """Returns `make(image)`, such as `image.service(regions)`: made at the first call and kept. `make` is
        a class or function that takes the image; it is also the key under which the service is kept."""
        return self._once(make, make)

    def provide(self, make: Callable[[Image], object], service: object) -> None:
        """Provides a service in place of the result of `make(image)`.

        Inputs other than a kernel's image provide their services so, before anything is read.
        """
        self._services[make] = service

    def providing(self, make: Callable[[Image], Service]) -> Callable[[Service], None]:
        """Returns `provide` for one service: the two calls of `image.providing(spaces)(process)` let a type
        checker compare the service with what `make` returns."""
        return functools.partial(self.provide, make)

    def _once(self, key: object, make: Callable[[Image], Service]) -> Service:
        if key not in self._services:
            self._services[key] = make(self)
        service: Service = self._services[key]  # type: ignore[assignment]
        return service


def _our_types(image: Image, name: str) -> Structures:
    return tables.of_table(image.context, tables.load(image.context, image.config_path, name))


def _process_types(image: Image, machine: Machine) -> Tuple[Structures, ...]:
    ours = functools.partial(image.our_generations, "process", machine)
    if machine is not image.machine:
        return ours()
    count = len(tables.generations("process", machine.arch))
    return tuple(Structures(functools.partial(_process_type, image, number)) for number in range(count))


def _process_type(image: Image, number: int, name: str) -> Optional[Structure]:
    """Returns a structure of user mode from the kernel's table, or from ours if the kernel's lacks it."""
    generation = image.our_generations("process", image.machine)[number]
    return image.types.first_structure(name) or generation.first_structure(name)
