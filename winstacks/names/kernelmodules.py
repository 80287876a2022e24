# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel's modules, and the address space through which each of them can be read."""

from __future__ import annotations

import functools
import logging
from typing import Collection, Dict, Iterable, List, Optional, Tuple

from volatility3.framework import exceptions

from ..memory import bulk
from ..memory.decode import text
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import KERNEL_PROCESS, Image
from ..process.kernelobjects import PROCESS
from ..process.spaces import AddressSpaces
from .decode.pe import MAX_IMAGE, HeaderError, read_headers
from .imagereader import ImageReader
from .loaderlists import LoaderEntry, module_lists

vollog = logging.getLogger(__name__)

_LIST = "PsLoadedModuleList"

MAX_PROBES = 1 << 16
"""The most pages of an image, and no more than its files have, in which headers are looked for below entry
points that contradict the list. A module that is not found keeps the status `headers contradict the list`."""


class Module(NamedTuple):
    """A module in memory.

    Attributes:
        name: name before the `!` of symbols, such as `nt`
        status: faults of its entry in that list; empty for none
    """

    base: int
    size: int
    name: str
    file: str
    status: Status

    @property
    def end(self) -> int:
        """Canonical address behind the module."""
        return self.base + self.size

    @property
    def stem(self) -> str:
        """The file's name without extension, in lower case: `mono-2.0-bdwgc`."""
        return self.file.rpartition(".")[0].lower()


def mark_overlaps(modules: Iterable[Module], shared: Iterable[int] = ()) -> List[Module]:
    """Returns modules by address. Modules that overlap get a status, because real modules do not overlap.
    `shared` are bases that the lists give to two modules; `modules` has one of the two."""
    ordered = sorted(modules, key=lambda module: module[:4])
    marked = set(shared)
    furthest = None
    for module in ordered:
        if furthest is not None and module.base < furthest.end:
            marked |= {module.base, furthest.base}
        if furthest is None or module.end > furthest.end:
            furthest = module
    return [_mark_overlap(module) if module.base in marked else module for module in ordered]


def _mark_overlap(module: Module) -> Module:
    return module._replace(status=status(module.status, StatusCode.OVERLAPS_ANOTHER_MODULE))


class KernelModules:
    """Lists the kernel's modules. Obtained by `image.service(KernelModules)`.

    Session space (win32k and the drivers loaded with it) is mapped only in the processes of a session. So a
    module that the kernel's own layer does not map is read through a process of a session that maps it.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._probes = min(MAX_PROBES, image.page_count)

    def check_kernel(self) -> None:
        """Warns if the kernel is not at the address that Volatility found.

        Volatility takes the next image below for the kernel if the kernel's first page is absent.
        """
        base, place = self._image.base, self._image.symbol(_LIST)
        if base and place is not None and place - base >= (self._size_at(base) or MAX_IMAGE):
            vollog.warning(
                f"The image at {base:#x} ends before the kernel's {_LIST}: it is not the kernel, whose first "
                "page may be missing. Rows are wrong"
            )

    def list_modules(self, kernel_start: int) -> Tuple[List[Module], bool]:
        """Returns the modules by address, and whether the list is complete and has no impossible entry.

        An image without a kernel has no modules. A small kernel dump whose kernel is unknown has them, and
        does not list them.
        """
        kernel = self._image.base
        if not kernel:
            return [], not self._image.threads_only
        lists = self._image.service(module_lists)
        entries, whole = lists.kernel_modules()
        modules = []
        bases = {entry.base for entry in entries}
        for entry in entries:
            if entry.base < kernel_start or entry.size > MAX_IMAGE:
                whole = False
                continue
            name = KERNEL_PROCESS if entry.base == kernel else text.module_name(entry.name)
            file = text.file_name(entry.name)
            base, size, faults = self._check_entry(entry, bases)
            unlinked = None if entry.orders else StatusCode.PARTLY_UNLINKED
            modules.append(Module(base, size, name, file, status(unlinked, faults, entry.name_status)))
        if all(module.base != kernel for module in modules):
            listed = lists.has_list(self._image.kernel)
            faults = status(
                StatusCode.NOT_IN_THE_MODULE_LIST if listed else StatusCode.MODULE_LIST_NOT_IN_THE_FILE
            )
            modules.insert(0, Module(kernel, self._kernel_size(), KERNEL_PROCESS, KERNEL_PROCESS, faults))
        return mark_overlaps(modules), whole

    def _check_entry(self, entry: LoaderEntry, taken: Collection[int]) -> Tuple[int, int, Status]:
        """Compares an entry of the list with itself and with the headers at its address. Returns base and
        size of the module, and the faults of the entry. If the entry point contradicts base or size, or the
        headers contradict the size, a value that two of the three support is returned if there is one.
        `taken` are base addresses of all entries, at which no other module can be."""
        base, size, entry_point = entry.base, entry.size, entry.entry_point
        header_size = self._size_at(base)
        outside = bool(entry_point) and not base <= entry_point < base + size
        if not outside and (header_size is None or _pages(header_size) == _pages(size)):
            return base, size, NOTHING
        if header_size and base <= (entry_point or base) < base + header_size:
            return base, header_size, contradicted("SizeOfImage")
        if outside:
            # The base may be wrong: look below the entry point for headers with the entry's size.
            last = entry_point // PAGE_SIZE * PAGE_SIZE
            pages = min(_pages(size), self._probes)
            for candidate in range(last, last - pages * PAGE_SIZE, -PAGE_SIZE):
                self._probes -= 1
                if candidate not in taken and _pages(self._size_at(candidate) or 0) == _pages(size):
                    return candidate, size, contradicted("DllBase")
        return base, size, status(StatusCode.HEADERS_CONTRADICT_THE_LIST)

    def _size_at(self, base: int) -> Optional[int]:
        """Returns SizeOfImage of the image at an address: 0 if no image is there, None if unreadable."""
        if not self._image.machine.is_canonical(base):
            return 0
        memory = self._image.memory(self._image.kernel)
        try:
            # This mostly reads one page: an `ImageReader` would read four pages of each module.
            return read_headers(lambda rva, length: memory.read(base + rva, length)).size
        except HeaderError as error:
            return None if error.code is StatusCode.HEADERS_UNREADABLE else 0

    def layer_of(self, module: Module) -> str:
        """Returns the name of a layer that maps a module's headers; the kernel's layer if none does."""
        kernel_layer = self._image.layer
        if kernel_layer.is_valid(bulk.masked(kernel_layer, module.base)):
            return str(kernel_layer.name)
        for layer_name in self._session_layers:
            layer = self._image.context.layers[layer_name]
            if layer.is_valid(bulk.masked(layer, module.base)):
                return layer_name
        return str(kernel_layer.name)

    @functools.cached_property
    def _session_layers(self) -> List[str]:
        """The layer name of one process of each session, the process with the lowest _EPROCESS."""
        sessions: Dict[int, Tuple[int, str]] = {}
        for space in AddressSpaces.list_spaces(self._image) if self._image.table_name else ():
            if not space.eprocess or space.wow64 or not space.layer_name:
                continue
            try:
                session = self._image.object_at(PROCESS, space.eprocess).get_session_id()
            except exceptions.InvalidAddressException:
                continue
            if isinstance(session, int):
                candidate = space.eprocess, space.layer_name
                sessions[int(session)] = min(sessions.get(int(session), candidate), candidate)
        return [layer_name for _, (_, layer_name) in sorted(sessions.items())]

    def _kernel_size(self) -> int:
        """Returns the size of the kernel from its headers, for a list that lacks the kernel. One page if the
        headers are unusable."""
        reader = ImageReader(self._image, str(self._image.layer.name), self._image.base, MAX_IMAGE)
        try:
            return read_headers(reader.read).size
        except HeaderError:
            return PAGE_SIZE


def _pages(size: int) -> int:
    """Returns a number of bytes as a number of pages, rounded up."""
    return -(-size // PAGE_SIZE)
