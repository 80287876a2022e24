# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The VADs of a process, read as bytes: naming a frame needs their ranges, not an object for each."""

from __future__ import annotations

import functools
import logging
import weakref
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from volatility3.framework import exceptions, interfaces

from . import bulk
from . import members as fields
from .members import Field
from .peek import Peek

vollog = logging.getLogger(__name__)

MAX_VADS = 1 << 18
MAX_NAMES = 1 << 15
"""File names that are kept: processes map the same files."""

PAGE_SHIFT = 12
IMAGE_MAP = 2
"""VadImageMap of _MI_VAD_TYPE; before Vista the flag ImageMap, which is 1 bit."""

SHORT_TAGS = (b"VadS", b"VadF")
POOL_TAG = b"Vad"

_FULL, _SHORT = "_MMVAD", "_MMVAD_SHORT"


class Vad(NamedTuple):
    """A range of a process' addresses, `end` exclusive; `control_area` is 0 for private memory."""

    start: int
    end: int
    control_area: int
    image: bool


class _Node(NamedTuple):
    """Where the members of `_MMVAD_SHORT` are. `_MMVAD` begins like it (from 8.1 on as its member Core)."""

    size: int
    left: Field
    right: Field
    start: Field
    end: Field
    start_high: Optional[Field]
    end_high: Optional[Field]
    kind: Optional[Field]


class _Layout(NamedTuple):
    """Where the members are that lead from a process to its VADs and their files.

    XP and 2003 lead from the VAD to the control area, later kernels through `subsection`.
    """

    node: _Node
    root: Field
    subsection: Optional[Field]
    control_area: Field
    file: Field
    name: Field


_LAYOUTS: weakref.WeakKeyDictionary[interfaces.context.ContextInterface, Dict[str, Optional[_Layout]]] = (
    weakref.WeakKeyDictionary()
)
"""By context and kernel table: several parts of a plugin read VADs, what a table lacks is said once."""


class Vads:
    """Reads VAD trees with the kernel's symbol table.

    If that lacks what a VAD consists of, a warning says so, and no process has VADs that can be read.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module
    """

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        kernel = context.modules[kernel_module_name]
        self._layer = context.layers[kernel.layer_name]
        pointer_size = 8 if self._layer.bits_per_register == 64 else 4
        self._peek = Peek(context, kernel.layer_name, pointer_size)
        self._layout = _layout(context, kernel.symbol_table_name)
        self._last: Tuple[int, Tuple[List[Vad], bool]] = (0, ([], True))
        self.file_name = functools.lru_cache(MAX_NAMES)(self._file_name)
        """Control area -> the path of the file that backs a mapping; "" if none does, None if unreadable."""

    def list_vads(self, eprocess: interfaces.objects.ObjectInterface) -> Tuple[List[Vad], bool]:
        """Returns the VADs of a process, and whether the whole tree could be read.

        The last tree is kept: for the other half of a WoW64 process, and processes that claim the same one.
        """
        layout = self._layout
        if layout is None:
            return [], False
        root = self._peek.read(
            bulk.canonical(self._layer, eprocess.vol.offset) + layout.root.offset, layout.root.size
        )
        if root is None:
            return [], False
        top = int.from_bytes(root, "little")
        if top != self._last[0]:
            self._last = top, self._walk(layout, top)
        return self._last[1]

    def _walk(self, layout: _Layout, root: int) -> Tuple[List[Vad], bool]:
        waiting = [root]
        seen: Set[int] = {0}
        found: List[Vad] = []
        complete = True
        while waiting and len(seen) < MAX_VADS:
            address = waiting.pop()
            if address in seen:
                continue
            seen.add(address)
            header = 2 * self._peek.pointer_size
            data = self._peek.read(address - header, header + layout.node.size)
            if data is None:
                complete = False
                continue
            # As in Volatility's own walk a node with a wrong pool tag is not followed; the root may lack it.
            tag, node = data[4:8], data[header:]
            if not tag.startswith(POOL_TAG) and len(seen) > 2:
                complete = False
                continue
            found.append(self._vad(layout, address, node, tag in SHORT_TAGS))
            waiting += (layout.node.right.of(node), layout.node.left.of(node))
        return found, complete and not waiting

    def _file_name(self, control_area: int) -> Optional[str]:
        layout = self._layout
        value = None if layout is None else self._peek.pointer(control_area + layout.file.offset)
        if layout is None or not value:
            return None if value is None else ""
        # The low bits of an EX_FAST_REF count references.
        file_object = value & ~(2 * self._peek.pointer_size - 1)
        name = self._peek.read(file_object + layout.name.offset, 2 * self._peek.pointer_size)
        return None if name is None else self._peek.unicode_string(name)

    def _vad(self, layout: _Layout, address: int, node: bytes, short: bool) -> Vad:
        members = layout.node
        start, end = members.start.of(node), members.end.of(node)
        start |= members.start_high.of(node) << 32 if members.start_high else 0
        end |= members.end_high.of(node) << 32 if members.end_high else 0
        control_area = 0 if short else self._control_area_of(layout, address)
        kind = members.kind.of(node) if members.kind else 0
        image = kind == (IMAGE_MAP if members.kind and members.kind.mask > 1 else 1)
        return Vad(start << PAGE_SHIFT, (end + 1) << PAGE_SHIFT, control_area, image and bool(control_area))

    def _control_area_of(self, layout: _Layout, address: int) -> int:
        if layout.subsection is not None:
            address = self._peek.pointer(address + layout.subsection.offset) or 0
        return (self._peek.pointer(address + layout.control_area.offset) or 0) if address else 0


def _layout(context: interfaces.context.ContextInterface, table: str) -> Optional[_Layout]:
    """Returns the layout of a kernel's table, found once; None if it lacks what a VAD consists of."""
    known = _LAYOUTS.setdefault(context, {})
    if table not in known:
        try:
            known[table] = _find_layout(context, table)
        except exceptions.SymbolError as error:
            vollog.warning(f"The VADs of processes cannot be read: {error}")
            known[table] = None
    return known[table]


def _find_layout(context: interfaces.context.ContextInterface, table: str) -> _Layout:
    def need(type_name: str, *paths: str) -> Field:
        return fields.need(context, table, type_name, *paths)

    def member(*names: str) -> Optional[Field]:
        paths = [path for name in names for path in ("Core." + name, name)]
        return fields.find(context, table, _SHORT, *paths)

    left = need(_SHORT, "VadNode.Left", "VadNode.LeftChild", "LeftChild")
    node = _Node(
        fields.size_of(context, table, _SHORT),
        left,
        need(_SHORT, "VadNode.Right", "VadNode.RightChild", "RightChild"),
        need(_SHORT, "StartingVpn"),
        need(_SHORT, "EndingVpn"),
        member("StartingVpnHigh"),
        member("EndingVpnHigh"),
        member("u.VadFlags.VadType", "u.VadFlags.ImageMap"),
    )
    subsection = fields.find(context, table, _FULL, "Subsection")
    return _Layout(
        node,
        need(
            "_EPROCESS", "VadRoot.Root", "VadRoot.BalancedRoot.RightChild", "VadRoot.BalancedRoot", "VadRoot"
        ),
        subsection,
        need("_SUBSECTION" if subsection else _FULL, "ControlArea"),
        need("_CONTROL_AREA", "FilePointer.Value", "FilePointer.Object", "FilePointer"),
        need("_FILE_OBJECT", "FileName.Length"),
    )
