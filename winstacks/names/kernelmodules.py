# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel's modules, and the address space through which each of them can be read."""

from __future__ import annotations

from typing import Collection, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from volatility3.framework import exceptions

from ..memory import bulk
from ..memory.decode import text
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.status import NOTHING, Status, StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import KERNEL_PROCESS, Image
from ..process.spaces import AddressSpaces
from .decode.pe import MAX_IMAGE, HeaderError, read_headers
from .imagereader import ImageReader
from .loaderlists import LoaderEntry, module_lists


class Module(NamedTuple):
    """A module in memory. Addresses are canonical.

    `name` is the name in symbols, `file` the file's name in the loader's list; `status` has the faults of the
    module's entry in that list.
    """

    base: int
    size: int
    name: str
    file: str
    status: Status

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def stem(self) -> str:
        """The file's name without extension, in lower case: `mono-2.0-bdwgc`."""
        return self.file.rpartition(".")[0].lower()


def mark_overlaps(modules: Iterable[Module]) -> List[Module]:
    """Returns modules by address. Overlapping modules get a status: real modules do not overlap."""
    ordered = sorted(modules, key=lambda module: module[:4])
    marked: Set[int] = set()
    reaching = None
    for module in ordered:
        if reaching is not None and module.base < reaching.end:
            marked |= {module.base, reaching.base}
        if reaching is None or module.end > reaching.end:
            reaching = module
    return [_marked(module) if module.base in marked else module for module in ordered]


def _marked(module: Module) -> Module:
    return module._replace(status=status(module.status, StatusCode.OVERLAPS_ANOTHER_MODULE))


class KernelModules:
    """Lists the kernel's modules. Made as `image.service(KernelModules)`.

    Only the processes of a session map its session space (win32k and drivers loaded with it). A module that
    the kernel's own layer does not map is therefore read through one process of each session.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._session_layers: Optional[List[str]] = None

    def list_modules(self, kernel_start: int) -> Tuple[List[Module], bool]:
        """Returns the modules by address, and whether the list is complete and has no impossible entry.

        An image without a kernel has no modules.

        Args:
            kernel_start: the first kernel address; modules below it are rejected
        """
        kernel = self._image.base
        if not kernel:
            return [], True
        entries, whole = self._image.service(module_lists).of_kernel()
        modules = []
        bases = {entry.base for entry in entries}
        for entry in entries:
            if entry.base < kernel_start or entry.size > MAX_IMAGE:
                whole = False
                continue
            name = KERNEL_PROCESS if entry.base == kernel else text.module_name(entry.name)
            file = text.file_name(entry.name)
            base, size, faults = self._checked(entry, bases)
            unlinked = None if entry.orders else StatusCode.PARTLY_UNLINKED
            modules.append(Module(base, size, name, file, status(unlinked, faults)))
        if all(module.base != kernel for module in modules):
            faults = status(StatusCode.NOT_IN_THE_MODULE_LIST)
            modules.insert(0, Module(kernel, self._kernel_size(), KERNEL_PROCESS, KERNEL_PROCESS, faults))
        return mark_overlaps(modules), whole

    def _checked(self, entry: LoaderEntry, taken: Collection[int]) -> Tuple[int, int, Status]:
        """Compares an entry of the list with itself and with the headers at its address.

        Args:
            entry: the entry
            taken: addresses of all entries

        Returns:
            Base and size of the module, corrected by its headers and its entry point where they contradict
            the entry; and the faults of the entry.
        """
        base, size, point = entry.base, entry.size, entry.entry_point
        header_size = self._size_at(base)
        strays = bool(point) and not base <= point < base + size
        if not strays and (header_size is None or _pages(header_size) == _pages(size)):
            return base, size, NOTHING
        if header_size and base <= (point or base) < base + header_size:
            return base, header_size, status(StatusItem(StatusCode.CONTRADICTED, members=("SizeOfImage",)))
        if strays:
            last = point // PAGE_SIZE * PAGE_SIZE
            for candidate in range(last, last - size, -PAGE_SIZE):
                if candidate not in taken and _pages(self._size_at(candidate) or 0) == _pages(size):
                    return candidate, size, status(StatusItem(StatusCode.CONTRADICTED, members=("DllBase",)))
        return base, size, status(StatusCode.HEADERS_CONTRADICT_THE_LIST)

    def _size_at(self, base: int) -> Optional[int]:
        """Returns SizeOfImage of the image at an address: 0 if no image is there, None if unreadable."""
        if not self._image.machine.is_canonical(base):
            return 0
        memory = self._image.memory(self._image.kernel)
        try:
            # This reads mostly one page: an `ImageReader` would read four of each module.
            return read_headers(lambda rva, length: memory.read(base + rva, length)).size
        except HeaderError as error:
            return None if error.code is StatusCode.HEADERS_UNREADABLE else 0

    def layer_of(self, module: Module) -> str:
        """Returns the layer through which a module's headers can be read (the kernel's if none can)."""
        kernel_layer = self._image.layer
        if kernel_layer.is_valid(bulk.masked(kernel_layer, module.base)):
            return str(kernel_layer.name)
        if self._session_layers is None:
            self._session_layers = list(self._sessions())
        for layer_name in self._session_layers:
            layer = self._image.context.layers[layer_name]
            if layer.is_valid(bulk.masked(layer, module.base)):
                return layer_name
        return str(kernel_layer.name)

    def _sessions(self) -> Iterator[str]:
        """Yields the layer of one process of each session; the choice does not depend on the order of
        processes."""
        sessions: Dict[int, Tuple[int, str]] = {}
        if not self._image.table_name:
            return
        for space in AddressSpaces.list_spaces(self._image):
            if not space.eprocess or space.wow64 or not space.layer_name:
                continue
            try:
                session = self._image.object_at("_EPROCESS", space.eprocess).get_session_id()
            except exceptions.InvalidAddressException:
                continue
            if isinstance(session, int):
                candidate = space.eprocess, space.layer_name
                sessions[int(session)] = min(sessions.get(int(session), candidate), candidate)
        for _, (_, layer_name) in sorted(sessions.items()):
            yield layer_name

    def _kernel_size(self) -> int:
        """Returns the size of the kernel from its headers, for a kernel that is missing in its own list."""
        reader = ImageReader(self._image, str(self._image.layer.name), self._image.base, MAX_IMAGE)
        try:
            return read_headers(reader.read).size
        except HeaderError:
            return PAGE_SIZE


def _pages(size: int) -> int:
    return -(-size // PAGE_SIZE)
