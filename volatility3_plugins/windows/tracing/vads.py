# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The VADs of a process, read as bytes: naming a frame needs their ranges, not an object for each."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Set, Tuple

from volatility3.framework import interfaces

from . import fields, memory
from .fields import Field
from .peek import Peek

MAX_VADS = 1 << 18
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


class Vads:
    """Reads VAD trees with the kernel's symbol table.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module

    Raises:
        SymbolError: when the kernel's table lacks what a VAD consists of
    """

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        kernel = context.modules[kernel_module_name]
        self._layer = context.layers[kernel.layer_name]
        pointer_size = 8 if self._layer.bits_per_register == 64 else 4
        self._peek = Peek(context, kernel.layer_name, pointer_size)
        self._context = context
        self._table = kernel.symbol_table_name
        self._node = self._node_layout()
        self._root = fields.need(
            context,
            self._table,
            "_EPROCESS",
            "VadRoot.Root",
            "VadRoot.BalancedRoot.RightChild",
            "VadRoot.BalancedRoot",
            "VadRoot",
        )
        # XP and 2003 lead from the VAD to the control area, later kernels through a subsection.
        self._subsection = fields.find(context, self._table, _FULL, "Subsection")
        self._control_area = fields.need(
            context, self._table, "_SUBSECTION" if self._subsection else _FULL, "ControlArea"
        )
        self._file = fields.need(
            context, self._table, "_CONTROL_AREA", "FilePointer.Value", "FilePointer.Object", "FilePointer"
        )
        self._name = fields.need(context, self._table, "_FILE_OBJECT", "FileName.Length")

    def list_vads(self, eprocess: interfaces.objects.ObjectInterface) -> Tuple[List[Vad], bool]:
        """Returns the VADs of a process, and whether the whole tree could be read."""
        root = self._peek.read(
            memory.canonical(self._layer, eprocess.vol.offset) + self._root.offset, self._root.size
        )
        if root is None:
            return [], False
        waiting = [int.from_bytes(root, "little")]
        seen: Set[int] = {0}
        found: List[Vad] = []
        complete = True
        while waiting and len(seen) < MAX_VADS:
            address = waiting.pop()
            if address in seen:
                continue
            seen.add(address)
            header = 2 * self._peek.pointer_size
            data = self._peek.read(address - header, header + self._node.size)
            if data is None:
                complete = False
                continue
            # As in Volatility's own walk a node with a wrong pool tag is not followed; the root may lack it.
            tag, node = data[4:8], data[header:]
            if not tag.startswith(POOL_TAG) and len(seen) > 2:
                complete = False
                continue
            found.append(self._vad(address, node, tag in SHORT_TAGS))
            waiting += (self._node.right.of(node), self._node.left.of(node))
        return found, complete and not waiting

    def file_name(self, control_area: int) -> Optional[str]:
        """Returns the path of the file that backs a mapping; "" if none does, None if it cannot be read."""
        value = self._peek.pointer(control_area + self._file.offset)
        if not value:
            return None if value is None else ""
        # The low bits of an EX_FAST_REF count references.
        file_object = value & ~(2 * self._peek.pointer_size - 1)
        name = self._peek.read(file_object + self._name.offset, 2 * self._peek.pointer_size)
        return None if name is None else self._peek.unicode_string(name)

    def _vad(self, address: int, node: bytes, short: bool) -> Vad:
        layout = self._node
        start, end = layout.start.of(node), layout.end.of(node)
        start |= layout.start_high.of(node) << 32 if layout.start_high else 0
        end |= layout.end_high.of(node) << 32 if layout.end_high else 0
        control_area = 0 if short else self._control_area_of(address)
        kind = layout.kind.of(node) if layout.kind else 0
        image = kind == (IMAGE_MAP if layout.kind and layout.kind.mask > 1 else 1)
        return Vad(start << PAGE_SHIFT, (end + 1) << PAGE_SHIFT, control_area, image and bool(control_area))

    def _control_area_of(self, address: int) -> int:
        if self._subsection is not None:
            address = self._peek.pointer(address + self._subsection.offset) or 0
        return (self._peek.pointer(address + self._control_area.offset) or 0) if address else 0

    def _node_layout(self) -> _Node:
        def member(*names: str) -> Optional[Field]:
            paths = [path for name in names for path in ("Core." + name, name)]
            return fields.find(self._context, self._table, _SHORT, *paths)

        def need(*names: str) -> Field:
            return fields.need(self._context, self._table, _SHORT, *names)

        return _Node(
            fields.size_of(self._context, self._table, _SHORT),
            need("VadNode.Left", "VadNode.LeftChild", "LeftChild"),
            need("VadNode.Right", "VadNode.RightChild", "RightChild"),
            need("StartingVpn"),
            need("EndingVpn"),
            member("StartingVpnHigh"),
            member("EndingVpnHigh"),
            member("u.VadFlags.VadType", "u.VadFlags.ImageMap"),
        )
