# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The loader's lists of modules: PEB_LDR_DATA of a process (either bitness), nt!PsLoadedModuleList."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from ..base.peek import Peek

MAX_MODULES = 0x4000
MAX_NAME = 0x208


class LoaderLayout(NamedTuple):
    """Offsets, which no Windows from XP to 11 has changed (public symbols; Volatility's wow64 table).

    `heads` and `links` are those of the load, memory and initialisation order; the kernel has the first only,
    and its entries begin alike (_KLDR_DATA_TABLE_ENTRY).
    """

    ldr: int
    heads: Tuple[int, ...]
    links: Tuple[int, ...]
    dll_base: int
    size_of_image: int
    base_dll_name: int
    size: int


LAYOUTS = {
    8: LoaderLayout(0x18, (0x10, 0x20, 0x30), (0, 0x10, 0x20), 0x30, 0x40, 0x58, 0x68),
    4: LoaderLayout(0x0C, (0x0C, 0x14, 0x1C), (0, 8, 0x10), 0x18, 0x20, 0x2C, 0x34),
}


class LoaderEntry(NamedTuple):
    """A module as a loader list has it. `orders` says in which of the lists it is (bit 0: load order)."""

    base: int
    size: int
    name: str
    orders: int


class LoaderList(NamedTuple):
    """The entries, and whether every link of the lists could be followed both ways."""

    entries: List[LoaderEntry]
    complete: bool


def user_modules(peek: Peek, peb: int) -> LoaderList:
    """Reads the three lists of a PEB.

    Args:
        peek: the process' memory, with the pointer size of this PEB
        peb: the PEB's address; 0 where there is none
    """
    layout = LAYOUTS[peek.pointer_size]
    ldr = peek.pointer(peb + layout.ldr) if peb else None
    if not ldr:
        return LoaderList([], False)
    # The third list lacks the program and what is still being loaded: its silence says nothing.
    return _read(peek, layout, [(ldr + layout.heads[order], layout.links[order]) for order in (0, 1)])


def kernel_modules(peek: Peek, head: int) -> LoaderList:
    """Reads the kernel's list, `head` being the address of PsLoadedModuleList."""
    layout = LAYOUTS[peek.pointer_size]
    return _read(peek, layout, [(head, layout.links[0])])


def _read(peek: Peek, layout: LoaderLayout, lists: List[Tuple[int, int]]) -> LoaderList:
    found: Dict[int, LoaderEntry] = {}
    complete = True
    for order, (head, links) in enumerate(lists):
        links_seen, whole = _walk(peek, head)
        complete = complete and whole
        for link in links_seen:
            address = link - links
            known = found.get(address) or _entry(peek, layout, address)
            if known is None:
                complete = False
            else:
                found[address] = known._replace(orders=known.orders | 1 << order)
    return LoaderList(list(found.values()), complete)


def _walk(peek: Peek, head: int) -> Tuple[List[int], bool]:
    """Follows a ring of LIST_ENTRYs forward, and backward from the head if the way ends before it."""
    links: List[int] = []
    seen: Set[int] = {head}
    for direction in (0, peek.pointer_size):
        link: Optional[int] = head
        while len(links) < MAX_MODULES:
            link = peek.pointer(link + direction) if link is not None else None
            if link is None or link in seen:
                break
            seen.add(link)
            links.append(link)
        if link == head:
            return links, direction == 0
    return links, False


def _entry(peek: Peek, layout: LoaderLayout, address: int) -> Optional[LoaderEntry]:
    data = peek.read(address, layout.size)
    if data is None:
        return None
    width = peek.pointer_size
    base = int.from_bytes(data[layout.dll_base : layout.dll_base + width], "little")
    size = int.from_bytes(data[layout.size_of_image : layout.size_of_image + 4], "little")
    name = peek.unicode_string(data[layout.base_dll_name : layout.base_dll_name + 2 * width], MAX_NAME)
    return LoaderEntry(base, size, name or "", 0) if base and size else None
