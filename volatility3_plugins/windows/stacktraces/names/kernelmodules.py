# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel's modules, and from which address space each of them can be read."""

from __future__ import annotations

from typing import Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from volatility3.framework import exceptions, interfaces

from ..base import bulk
from ..base.decode import modulename
from ..base.peek import Peek
from ..base.spaces import AddressSpaces
from . import loaderlists
from .decode.pe import MAX_IMAGE, HeaderError, read_headers
from .imagereader import ImageReader

KERNEL = "nt"
OVERLAPPING = "overlaps another module"


class Module(NamedTuple):
    """A module in memory.

    `name` is the one that symbols are written with, `file` the file's name as the loader has it; addresses
    are canonical; `status` is empty or says what is odd about its listing.
    """

    base: int
    size: int
    name: str
    file: str
    status: str

    @property
    def end(self) -> int:
        return self.base + self.size


def mark_overlaps(modules: Iterable[Module]) -> List[Module]:
    """Returns modules by address; those that share addresses with another, as no two can, say so."""
    ordered = sorted(modules)
    marked: Set[int] = set()
    reaching = None
    for module in ordered:
        if reaching is not None and module.base < reaching.end:
            marked |= {module.base, reaching.base}
        if reaching is None or module.end > reaching.end:
            reaching = module
    return [_marked(module) if module.base in marked else module for module in ordered]


def _marked(module: Module) -> Module:
    return module._replace(status=", ".join(filter(None, (module.status, OVERLAPPING))))


class KernelModules:
    """Lists the kernel's modules.

    Session space (win32k and what is loaded with it) is mapped by the processes of a session only; so a
    module that the kernel's own layer does not map is read through one process of each session in turn.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module
    """

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        self._context = context
        self._kernel_module_name = kernel_module_name
        kernel = context.modules[kernel_module_name]
        self._layer = context.layers[kernel.layer_name]
        self.base = bulk.canonical(self._layer, kernel.offset)
        self._session_layers: Optional[List[str]] = None

    def list_modules(self, kernel_start: int) -> Tuple[List[Module], bool]:
        """Returns the modules by address, and whether the list could be read to its end and believed.

        Args:
            kernel_start: the first kernel address; modules below it are not believed
        """
        kernel = self._context.modules[self._kernel_module_name]
        pointer_size = 8 if self._layer.bits_per_register == 64 else 4
        peek = Peek(self._context, kernel.layer_name, pointer_size)
        head = self.base + kernel.get_symbol("PsLoadedModuleList").address
        listed = loaderlists.kernel_modules(peek, head)
        modules = []
        whole = listed.complete
        for entry in listed.entries:
            if entry.base < kernel_start or entry.size > MAX_IMAGE:
                whole = False
                continue
            name = KERNEL if entry.base == self.base else modulename.module_name(entry.name)
            modules.append(Module(entry.base, entry.size, name, modulename.file_name(entry.name), ""))
        if all(module.base != self.base for module in modules):
            modules.insert(
                0, Module(self.base, self._kernel_size(), KERNEL, KERNEL, "not in the module list")
            )
        return mark_overlaps(modules), whole

    def layer_of(self, module: Module) -> str:
        """Returns the layer through which a module's headers can be read (the kernel's if none can)."""
        if self._layer.is_valid(bulk.masked(self._layer, module.base)):
            return str(self._layer.name)
        if self._session_layers is None:
            self._session_layers = list(self._sessions())
        for layer_name in self._session_layers:
            layer = self._context.layers[layer_name]
            if layer.is_valid(bulk.masked(layer, module.base)):
                return layer_name
        return str(self._layer.name)

    def _sessions(self) -> Iterator[str]:
        """Yields the layer of one process of each session."""
        seen = set()
        for space in AddressSpaces.list_spaces(self._context, self._kernel_module_name):
            if space.eprocess is None or space.wow64 or not space.layer_name:
                continue
            try:
                session = space.eprocess.get_session_id()
            except exceptions.InvalidAddressException:
                continue
            if isinstance(session, int) and session not in seen:
                seen.add(int(session))
                yield space.layer_name

    def _kernel_size(self) -> int:
        """Returns the size of a kernel that its own list does not have, from its headers."""
        reader = ImageReader(self._context, self._layer.name, self.base, MAX_IMAGE)
        try:
            return read_headers(reader.read).size
        except HeaderError:
            return 0x1000
