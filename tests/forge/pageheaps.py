# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forges page heaps (7 and later): roots, nodes and what stands before the callers' bytes.

    page = pageheaps.PageHeap(0x300000, "x64", normal_heap=0x10000)
    user = page.block(0x500000, 100, trace=entry, freed=False)    # a block with pages of its own
    contents = pageheaps.light("x64", heap, 100, entry)           # goes into a block of an ordinary heap

The offsets are from the public symbols of ntdll.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

PAGE = 0x1000
ROOT_SIGNATURE = 0xFFEEDDCC
STAMPS = {  # (full, freed): first and last word
    (True, False): (0xABCDBBBB, 0xDCBABBBB),
    (True, True): (0xABCDBBBA, 0xDCBABBBA),
    (False, False): (0xABCDAAAA, 0xDCBAAAAA),
    (False, True): (0xABCDAAA9, 0xDCBAAAA9),
}


class _Form(NamedTuple):
    pointer: int
    root: Dict[str, int]
    node_size: int
    node: Dict[str, int]
    info_size: int
    info: Dict[str, int]


_ROOT = ("tree", "elements", "busy", "freed", "freed_count", "next", "normal", "made")
_NODE = ("left", "right", "user", "block", "size", "access", "requested", "actual", "trace")
_INFO = ("heap", "requested", "actual", "trace", "end")

_FORMS = {
    "x64": _Form(
        8,
        dict(zip(_ROOT, (0x38, 0x64, 0xA8, 0xB8, 0xC8, 0x138, 0x150, 0x158))),
        0x80,
        dict(zip(_NODE, (8, 0x10, 0x20, 0x28, 0x30, 0x38, 0x40, 0x48, 0x60))),
        0x40,
        dict(zip(_INFO, (8, 0x10, 0x18, 0x30, 0x3C))),
    ),
    "x86": _Form(
        4,
        dict(zip(_ROOT, (0x20, 0x38, 0x5C, 0x64, 0x6C, 0xA4, 0xB4, 0xB8))),
        0x40,
        dict(zip(_NODE, (4, 8, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24, 0x30))),
        0x20,
        dict(zip(_INFO, (4, 8, 0xC, 0x18, 0x1C))),
    ),
}


def light(arch: str, heap: int, size: int, trace: int, freed: bool = False, full: bool = False) -> bytes:
    """A _DPH_BLOCK_INFORMATION and the caller's bytes behind it."""
    form = _FORMS[arch]
    first, last = STAMPS[full, freed]
    data = bytearray(form.info_size)
    _put(data, 0, 4, first)
    _put(data, form.info["heap"], form.pointer, heap)
    _put(data, form.info["requested"], form.pointer, size)
    _put(data, form.info["actual"], form.pointer, size + form.info_size)
    _put(data, form.info["trace"], form.pointer, trace)
    _put(data, form.info["end"], 4, last)
    return bytes(data) + b"\xc0" * size


class PageHeap:
    """A page heap; `handle` is what the program calls it by, the root lies a page above.

    Args:
        handle: where it lies
        arch: `x64` or `x86`
        normal_heap: the heap behind it
        creator: address of the database entry of who made it
        next_heaps: addresses of other page heaps' handles, on one list with this one
    """

    def __init__(
        self,
        handle: int,
        arch: str,
        normal_heap: int,
        creator: int = 0,
        next_heaps: Optional[List[int]] = None,
    ) -> None:
        self.handle, self.arch, self.form = handle, arch, _FORMS[arch]
        self.root = handle + PAGE
        self.data = bytearray(b"\xee" * PAGE) + bytearray(16 * PAGE)
        self._node = self.root + PAGE
        self._busy: List[int] = []
        self._freed: List[int] = []
        self.blocks: List[Tuple[int, bytes]] = []
        self.put(self.root, 4, ROOT_SIGNATURE)
        self.member("normal", normal_heap)
        self.member("made", creator)
        links = [heap + PAGE + self.form.root["next"] for heap in (next_heaps or [handle])]
        position = links.index(self.root + self.form.root["next"])
        self.member("next", links[(position + 1) % len(links)])
        self.put(links[position] + self.form.pointer, self.form.pointer, links[position - 1])

    def member(self, name: str, value: int) -> None:
        self.put(self.root + self.form.root[name], self.form.pointer, value)

    def block(self, base: int, size: int, trace: int, freed: bool = False, mapped: bool = True) -> int:
        """Adds a block whose pages are at base; returns the address of the caller's bytes."""
        form, node = self.form, self._node
        user = base + PAGE - (-(-size // (2 * form.pointer)) * 2 * form.pointer) % PAGE
        values = (user, base, 2 * PAGE, PAGE, size, size, trace)
        for name, value in zip(_NODE[2:], values):
            self.put(node + form.node[name], form.pointer, value)
        (self._freed if freed else self._busy).append(node)
        self._node += form.node_size
        if mapped:
            contents = light(self.arch, self.root, size, trace, freed, full=True)
            data = bytearray(2 * PAGE)
            data[user - base - form.info_size : user - base + size] = contents
            self.blocks.append((base, bytes(data)))
        return user

    def put(self, address: int, size: int, value: int) -> None:
        _put(self.data, address - self.handle, size, value)

    def regions(self) -> List[Tuple[int, bytes]]:
        """Links tree and list; returns what is in memory (address, bytes)."""
        form = self.form
        anchor = self.root + form.root["tree"]
        self.put(anchor, form.pointer, anchor)
        self.put(anchor + form.node["right"], form.pointer, self._subtree(self._busy, anchor))
        self.put(self.root + form.root["elements"], 4, len(self._busy))
        self.put(self.root + form.root["busy"], 4, len(self._busy))
        self.put(self.root + form.root["freed_count"], 4, len(self._freed))
        self.member("freed", self._freed[0] if self._freed else 0)
        for node, following in zip(self._freed, [*self._freed[1:], 0]):
            self.put(node, form.pointer, following)
        return [(self.handle, bytes(self.data)), *self.blocks]

    def _subtree(self, nodes: List[int], parent: int) -> int:
        if not nodes:
            return 0
        middle = len(nodes) // 2
        node, pointer = nodes[middle], self.form.pointer
        self.put(node, pointer, parent)
        self.put(node + self.form.node["left"], pointer, self._subtree(nodes[:middle], node))
        self.put(node + self.form.node["right"], pointer, self._subtree(nodes[middle + 1 :], node))
        return node


def _put(data: bytearray, offset: int, size: int, value: int) -> None:
    data[offset : offset + size] = value.to_bytes(size, "little")
