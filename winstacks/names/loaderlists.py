# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The loader's lists of modules: PEB_LDR_DATA of a process (either bitness), nt!PsLoadedModuleList."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Protocol, Tuple

from ..memory.decode import links
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.structure import MissingMemberError, Structures
from ..memory.image import AddressSpace, Image
from ..process.usertypes import user_types
from .decode.pe import CodeView

MAX_MODULES = 0x4000
MAX_NAME = 0x208

_ORDERS = ("Load", "Memory")
"""The third list, InInitializationOrder, is not read: it omits the program itself and modules that are still
being loaded, so absence from it proves nothing."""


class LoaderEntry(NamedTuple):
    """A module in the loader lists. `orders` has a bit for each list that has the module (bit 0: load order).
    `entry_point` is an address, 0 if there is none. `address` is the address of the entry itself."""

    base: int
    size: int
    name: str
    orders: int
    entry_point: int = 0
    address: int = 0


class LoaderDetails(NamedTuple):
    """Members of a loader list's entry that few callers need; None if not in the image.

    `stamp` is TimeDateStamp. The kernel's entries have it since Windows 10 (public symbols of
    _KLDR_DATA_TABLE_ENTRY), entries of processes always. `path` is FullDllName. `code_view` is the RSDS
    record, if the list has one, as the list of a dump does.
    """

    stamp: Optional[int]
    path: Optional[str]
    code_view: Optional[CodeView] = None


LoaderList = Tuple[List[LoaderEntry], bool]
"""The entries, and whether every list could be followed to its head, forward and backward."""


class ModuleLists(Protocol):
    """Lists the modules of the kernel and of processes, as their loader recorded them."""

    def of_kernel(self) -> LoaderList:
        """Returns the kernel's modules."""

    def of_process(self, space: AddressSpace) -> LoaderList:
        """Returns the modules of one half of a process."""

    def details(self, space: AddressSpace, entry: LoaderEntry) -> LoaderDetails:
        """Returns stamp, path and RSDS record of an entry."""


def module_lists(image: Image) -> ModuleLists:
    """Returns the lister of modules, for `image.service(module_lists)`: here it reads the loader's lists."""
    return LoaderLists(image)


class LoaderLists:
    """Reads loader lists from memory: the kernel's provider of `module_lists`.

    Raises, when a list is read:
        tables.MissingTableError: our symbol table of user mode is missing
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._forms: Memo[Tuple[Structures, Machine], _LoaderLayout] = Memo(self._make_form)
        self._last: Dict[Machine, Tuple[Tuple[str, int], LoaderList]] = {}

    def of_process(self, space: AddressSpace) -> LoaderList:
        """Reads the lists of a process or of its 32-bit half through its PEB; without a PEB the list is
        empty."""
        if not (space.peb and space.layer_name):
            return [], False
        # Names, ntdll and databases of one process ask for its lists one after the other.
        key = space.layer_name, space.peb
        cached = self._last.get(space.machine)
        if cached is None or cached[0] != key:
            cached = self._last[space.machine] = key, self._read(space)
        return cached[1]

    def _read(self, space: AddressSpace) -> LoaderList:
        form, memory = self._form(space), self._image.memory(space)
        ldr = memory.pointer(space.peb + form.ldr)
        if not ldr:
            return [], False
        return _read(memory, form, [(ldr + head, offset) for head, offset in form.orders])

    def _form(self, space: AddressSpace) -> _LoaderLayout:
        return self._forms[user_types(self._image, space), space.machine]

    def _make_form(self, key: Tuple[Structures, Machine]) -> _LoaderLayout:
        types, machine = key
        try:
            return _LoaderLayout(types)
        except MissingMemberError as error:
            # Our own tables have all members.
            self._image.lacks(error)
            return _LoaderLayout(self._image.our_generations("process", machine)[0])

    def of_kernel(self) -> LoaderList:
        """Reads the kernel's list. Its entries begin like the entries of a process
        (_KLDR_DATA_TABLE_ENTRY)."""
        head = self._image.needed("PsLoadedModuleList")
        if head is None:
            return [], False
        form = self._form(self._image.kernel)
        _, offset = form.orders[0]
        return _read(self._image.memory(self._image.kernel), form, [(head, offset)])

    def details(self, space: AddressSpace, entry: LoaderEntry) -> LoaderDetails:
        """Returns stamp and path of an entry.

        Args:
            space: the kernel, or the half of a process that has the entry
            entry: an entry from `of_process` or `of_kernel`
        """
        form, memory = self._form(space), self._image.memory(space)
        stamp = form.stamp
        if space.kernel:
            kernel_entry = self._image.types.first_structure("_KLDR_DATA_TABLE_ENTRY")
            stamp = None if kernel_entry is None else kernel_entry.first_member("TimeDateStamp")
        name = memory.read(entry.address + form.path, 2 * memory.pointer_size)
        path = None if name is None else memory.unicode_string(name)
        return LoaderDetails(None if stamp is None else memory.member(entry.address, stamp), path)


class _LoaderLayout:
    """Offsets of the members of loader lists.

    Attributes:
        ldr: offset of Ldr in a PEB
        orders: for each list the offsets of its head in _PEB_LDR_DATA and of its links in an entry
        base, entry_point, size, name: members of an entry
        length: bytes of an entry up to the end of the last of these members
        path: offset of FullDllName in an entry
        stamp: TimeDateStamp of a process's entry, None if no symbols have it
    """

    def __init__(self, types: Structures) -> None:
        data, entry = types["_PEB_LDR_DATA"], types["_LDR_DATA_TABLE_ENTRY"]
        self.ldr = types["_PEB"].offset("Ldr")
        self.orders = [
            (data.offset(f"In{order}OrderModuleList"), entry.offset(f"In{order}OrderLinks"))
            for order in _ORDERS
        ]
        self.base = entry.field("DllBase")
        self.entry_point = entry.field("EntryPoint")
        self.size = entry.field("SizeOfImage")
        self.name = entry.field("BaseDllName")
        self.path = entry.offset("FullDllName")
        self.stamp = entry.first_member("TimeDateStamp")
        self.length = max(
            field.offset + field.size for field in (self.base, self.entry_point, self.size, self.name)
        )


def _read(memory: Memory, form: _LoaderLayout, lists: List[Tuple[int, int]]) -> LoaderList:
    orders: Dict[int, int] = {}
    complete = True
    for order, (head, offset) in enumerate(lists):
        walk = links.walk(head, memory.links, MAX_MODULES)
        nodes = dict.fromkeys(walk.nodes, True)
        if walk.gap is not None or walk.altered is not None:
            (forward, whole), (backward, back) = (_reached(memory, head, way) for way in (0, 1))
            complete = complete and whole and back
            # An entry that is reached from one side only is in memory, but not on an intact list.
            both = set(forward) & set(backward) if whole and back else {*forward, *backward}
            nodes = {link: link in both for link in (*forward, *backward)}
        for link, on_it in nodes.items():
            orders[link - offset] = orders.get(link - offset, 0) | on_it << order
    entries = [_entry(memory, form, address, held) for address, held in orders.items()]
    return [entry for entry in entries if entry is not None], complete and None not in entries


def _reached(memory: Memory, head: int, direction: int) -> Tuple[List[int], bool]:
    """Returns the nodes that links of one direction reach, right or wrong, and whether they close the
    list."""
    nodes, end = links.take_nodes(links.steps(head, memory.links, direction, MAX_MODULES, known=set()))
    if end.reason == links.UNREADABLE:
        nodes.append(end.link)
    return nodes, end.reason == links.CLOSED


def _entry(memory: Memory, form: _LoaderLayout, address: int, orders: int) -> Optional[LoaderEntry]:
    data = memory.read(address, form.length)
    if data is None:
        return None
    base, size = form.base.value_in(data), form.size.value_in(data)
    name = memory.unicode_string(data[form.name.offset :], MAX_NAME)
    if not (base and size):
        return None
    return LoaderEntry(base, size, name or "", orders, form.entry_point.value_in(data), address)
