# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The loader's lists of modules: PEB_LDR_DATA of a process (either bitness), nt!PsLoadedModuleList."""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

from ..base.decode.memo import Memo
from ..base.decode.memory import Memory
from ..base.decode.record import Record
from ..base.decode.structure import Structures
from ..base.image import Image
from ..base.space import AddressSpace

MAX_MODULES = 0x4000
MAX_NAME = 0x208

_ORDERS = ("Load", "Memory")
"""A third list, in the order of initialisation, is not read: it never has the program itself, nor modules
that are still being loaded, so that a module which it lacks need not be hidden."""


class LoaderEntry(Record):
    """A module in the loader lists. `orders` has a bit for each list that it is in (bit 0: load order)."""

    base: int
    size: int
    name: str
    orders: int


LoaderList = Tuple[List[LoaderEntry], bool]
"""The entries, and whether every link of the lists could be followed both ways."""


class LoaderLists:
    """Reads loader lists. Made as `image.part(LoaderLists)`.

    Raises, when a list is read:
        tables.MissingTableError: our symbol table of user mode is missing
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._forms: Memo[int, _Form] = Memo(lambda size: _Form(image.process_types(size)))
        self._last: Dict[int, Tuple[Tuple[str, int], LoaderList]] = {}

    def of_process(self, space: AddressSpace) -> LoaderList:
        """Reads the lists of a process or of its 32-bit half through its PEB; no PEB, no lists."""
        if not (space.peb and space.layer_name):
            return [], False
        # Names, ntdll and databases of one process are looked for one after the other.
        key = space.layer_name, space.peb
        known = self._last.get(space.pointer_size)
        if known is None or known[0] != key:
            known = self._last[space.pointer_size] = key, self._read(space)
        return known[1]

    def _read(self, space: AddressSpace) -> LoaderList:
        form, memory = self._forms[space.pointer_size], self._image.memory(space)
        ldr = memory.pointer(space.peb + form.ldr)
        if not ldr:
            return [], False
        return _read(memory, form, [(ldr + head, links) for head, links in form.orders])

    def of_kernel(self) -> LoaderList:
        """Reads the kernel's list, whose entries begin like those of a process (_KLDR_DATA_TABLE_ENTRY)."""
        head = self._image.symbol("PsLoadedModuleList")
        if head is None:
            return [], False
        form = self._forms[self._image.pointer_size]
        _, links = form.orders[0]
        return _read(self._image.memory(self._image.kernel), form, [(head, links)])


class _Form:
    """Where the members of loader lists lie.

    Attributes:
        ldr: offset of Ldr in a PEB
        orders: for each list the offsets of its head in _PEB_LDR_DATA and of its links in an entry
        base, size, name: members of an entry
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
        self.size = entry.field("SizeOfImage")
        self.name = entry.field("BaseDllName")
        self.length = max(field.offset + field.size for field in (self.base, self.size, self.name))


def _read(memory: Memory, form: _Form, lists: List[Tuple[int, int]]) -> LoaderList:
    found: Dict[int, LoaderEntry] = {}
    complete = True
    for order, (head, links) in enumerate(lists):
        links_seen, whole = _walk(memory, head)
        complete = complete and whole
        for link in links_seen:
            address = link - links
            known = found.get(address) or _entry(memory, form, address)
            if known is None:
                complete = False
            else:
                found[address] = known._replace(orders=known.orders | 1 << order)
    return list(found.values()), complete


def _walk(memory: Memory, head: int) -> Tuple[List[int], bool]:
    """Follows a ring of LIST_ENTRYs forward, and also backward if the way forward does not reach the head."""
    links: List[int] = []
    seen: Set[int] = {head}
    for direction in (0, memory.pointer_size):
        link: Optional[int] = head
        while len(links) < MAX_MODULES:
            link = memory.pointer(link + direction) if link is not None else None
            if link is None or link in seen:
                break
            seen.add(link)
            links.append(link)
        if link == head:
            return links, direction == 0
    return links, False


def _entry(memory: Memory, form: _Form, address: int) -> Optional[LoaderEntry]:
    data = memory.read(address, form.length)
    if data is None:
        return None
    base, size = form.base.of(data), form.size.of(data)
    name = memory.unicode_string(data[form.name.offset :], MAX_NAME)
    return LoaderEntry(base, size, name or "", 0) if base and size else None
