# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the loader's lists of modules: PEB_LDR_DATA of a process (either bitness), nt!PsLoadedModuleList."""

from __future__ import annotations

import sys
from typing import Dict, List, Optional, Protocol, Tuple

from ..memory.decode import links
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Kept, Memo
from ..memory.decode.memory import Memory
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, contradicted
from ..memory.decode.structure import MissingMemberError, Structures
from ..memory.decode.text import last_part
from ..memory.image import AddressSpace, Image
from ..process.usertypes import user_types
from .decode.pe import CodeView

MAX_MODULES = 0x4000
MAX_NAME = 0x208
"""Maximum bytes of a module's name."""
MAX_KEPT = 1 << 16
"""Entries of processes that are kept, some 300 bytes each: enough for 500 processes."""

_ORDERS = ("Load", "Memory")
"""The lists that are read, as in `InLoadOrderModuleList`. InInitializationOrder is not read: it omits the
program itself and modules that are still being loaded, so absence from that list does not prove anything."""


class LoaderEntry(NamedTuple):
    """An entry of the loader lists. Addresses are canonical.

    Attributes:
        name: BaseDllName, empty if unreadable
        orders: bit for each list that holds the entry: 1 for load order, 2 for memory order
        entry_point: EntryPoint, 0 if there is none
        path_name: last component of FullDllName, empty if it was not read: of a process it is read only where
            BaseDllName has a Length that it cannot have
    """

    base: int
    size: int
    name: str
    orders: int
    entry_point: int = 0
    address: int = 0
    path_name: str = ""

    @property
    def name_status(self) -> Status:
        """The status of the name, which is also the last component of the path."""
        differs = self.path_name and self.path_name.lower() != self.name.lower()
        return contradicted("BaseDllName") if differs else NOTHING


class LoaderDetails(NamedTuple):
    """Members of a loader list's entry that few callers need; None if not in the image.

    Attributes:
        stamp: TimeDateStamp. Entries of processes always have it, entries of the kernel since Windows 10
            (public symbols of _KLDR_DATA_TABLE_ENTRY)
        code_view: RSDS record, which only the module list of a dump has
    """

    stamp: Optional[int]
    path: Optional[str]
    code_view: Optional[CodeView] = None


LoaderList = Tuple[List[LoaderEntry], bool]
"""The entries, and whether every list could be followed back to its head in both directions, and every entry
of it was readable."""


class ModuleLists(Protocol):
    """Lists the modules of the kernel and of processes, as their loader recorded them."""

    def kernel_modules(self) -> LoaderList:
        """Returns the kernel's modules."""

    def process_modules(self, space: AddressSpace) -> LoaderList:
        """Returns the modules of one half of a process."""

    def has_list(self, space: AddressSpace) -> bool:
        """Returns whether the input has lists of modules at all, damaged or not.

        A dump may have been written without one: then no module is known, and nothing is damaged.
        """

    def details(self, space: AddressSpace, entry: LoaderEntry) -> LoaderDetails:
        """Returns stamp, path and RSDS record of an entry."""


def module_lists(image: Image) -> ModuleLists:
    """Makes `image.service(module_lists)` of an image with a kernel: it reads the loader's lists."""
    return LoaderLists(image)


class LoaderLists:
    """Reads loader lists from memory: the kernel's provider of `module_lists`.

    Raises, when a list is read:
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._layouts: Memo[Tuple[Structures, Machine], _LoaderLayout] = Memo(self._make_layout)
        self._kept: Kept[Tuple[str, int, Machine], LoaderList] = Kept(MAX_KEPT)

    def process_modules(self, space: AddressSpace) -> LoaderList:
        """Reads the lists of a process or of its 32-bit half through its PEB. Without a PEB the result is
        empty and not complete."""
        if not (space.peb and space.layer_name):
            return [], False
        # Each kind of stack is listed in all processes before the next kind is.
        key = space.layer_name, space.peb, space.machine
        return self._kept.at_first_use(key, lambda: self._read(space), lambda read: len(read[0]) + 1)

    def _read(self, space: AddressSpace) -> LoaderList:
        """Reads the lists to which a PEB leads."""
        layout, memory = self._layout_for(space), self._image.memory(space)
        ldr = memory.pointer(space.peb + layout.ldr)
        if not ldr:
            return [], False
        return _read(memory, layout, [(ldr + head, offset) for head, offset in layout.orders])

    def _layout_for(self, space: AddressSpace) -> _LoaderLayout:
        return self._layouts[user_types(self._image, space), space.machine]

    def _make_layout(self, key: Tuple[Structures, Machine]) -> _LoaderLayout:
        types, machine = key
        try:
            return _LoaderLayout(types)
        except MissingMemberError as error:
            # The image's symbols lack a member. Our own tables have all members.
            self._image.lacks(error)
            return _LoaderLayout(self._image.our_generations("process", machine)[0])

    def kernel_modules(self) -> LoaderList:
        """Reads the kernel's list. Its entries begin like the entries of a process
        (_KLDR_DATA_TABLE_ENTRY)."""
        head = self._image.require_symbol("PsLoadedModuleList")
        if head is None:
            return [], False
        layout = self._layout_for(self._image.kernel)
        _, offset = layout.orders[0]
        memory = self._image.memory(self._image.kernel)
        entries, whole = _read(memory, layout, [(head, offset)])
        return [_with_path(memory, layout, entry) for entry in entries], whole

    def has_list(self, space: AddressSpace) -> bool:
        """Returns True: the memory of a machine has the lists, if it is complete."""
        return True

    def details(self, space: AddressSpace, entry: LoaderEntry) -> LoaderDetails:
        """Returns stamp and path of an entry."""
        layout, memory = self._layout_for(space), self._image.memory(space)
        kernel_entry = self._image.types.find("_KLDR_DATA_TABLE_ENTRY")
        stamp = kernel_entry.first_member("TimeDateStamp") if space.kernel else layout.stamp
        path = memory.unicode_string_at(entry.address + layout.path)
        return LoaderDetails(memory.member(entry.address, stamp), path)


class _LoaderLayout:
    """Offsets of the members of loader lists.

    Attributes:
        orders: for each list the offsets of its head in _PEB_LDR_DATA and of its links in an entry
        base, entry_point, size, name: the members DllBase, EntryPoint, SizeOfImage, BaseDllName of an entry
        length: bytes of an entry up to the end of the last of these members
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


def _read(memory: Memory, layout: _LoaderLayout, lists: List[Tuple[int, int]]) -> LoaderList:
    """Reads several lists of the same entries. `lists` has for each list the address of its head, and the
    offset of its links in an entry."""
    orders: Dict[int, int] = {}
    complete = True
    for order, (head, offset) in enumerate(lists):
        walk = links.walk(head, memory.links, MAX_MODULES)
        nodes = dict.fromkeys(walk.nodes, True)
        if walk.gap is not None or walk.altered is not None:
            (forward, forward_closed), (backward, backward_closed) = (
                _follow_links(memory, head, direction) for direction in (0, 1)
            )
            complete = complete and forward_closed and backward_closed
            # If both directions close the list, an entry that only one of them reaches is in memory, but not
            # on the list.
            both = (
                set(forward) & set(backward) if forward_closed and backward_closed else {*forward, *backward}
            )
            nodes = {link: link in both for link in (*forward, *backward)}
        for link, on_list in nodes.items():
            orders[link - offset] = orders.get(link - offset, 0) | on_list << order
    entries = [_read_entry(memory, layout, address, entry_orders) for address, entry_orders in orders.items()]
    return [entry for entry in entries if entry is not None], complete and None not in entries


def _follow_links(memory: Memory, head: int, direction: int) -> Tuple[List[int], bool]:
    """Returns the nodes to which the links of one direction lead, and whether they lead back to the head. The
    opposite links are not checked."""
    nodes, end = links.take_nodes(links.steps(head, memory.links, direction, MAX_MODULES, known=set()))
    if end.reason == links.UNREADABLE:
        nodes.append(end.link)
    return nodes, end.reason == links.CLOSED


def _read_entry(memory: Memory, layout: _LoaderLayout, address: int, orders: int) -> Optional[LoaderEntry]:
    """Returns the entry at an address; None if it is unreadable, or has no base or size."""
    data = memory.read(address, layout.length)
    if data is None:
        return None
    base, size = layout.base.value_in(data), layout.size.value_in(data)
    string = data[layout.name.offset :]
    name = memory.unicode_string(string, MAX_NAME)
    if not (base and size):
        return None
    sound = name != "" and memory.ends_text(string)
    path = None if sound else memory.unicode_string_at(address + layout.path)
    # Every process has entries of the same few hundred names.
    name, entry_point = sys.intern(name or ""), layout.entry_point.value_in(data)
    return LoaderEntry(base, size, name, orders, entry_point, address, last_part(path or ""))


def _with_path(memory: Memory, layout: _LoaderLayout, entry: LoaderEntry) -> LoaderEntry:
    """Returns an entry with the last component of its path, if the image has its name and its path."""
    name, path = (
        memory.unicode_string_at(entry.address + offset) for offset in (layout.name.offset, layout.path)
    )
    if name is None or path is None:
        return entry
    return entry._replace(path_name=last_part(path))
