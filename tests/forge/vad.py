# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Virtual address descriptors: which ranges a process has, and what file backs them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Optional, Sequence

from .obj import Obj
from .phys import PAGE
from .sections import ImageSection

if TYPE_CHECKING:
    from .kernel import Kernel

# MM_ protection codes, indices into nt!MmProtectToValue.
READONLY, EXECUTE_READ, READWRITE, WRITECOPY, EXECUTE_READWRITE, EXECUTE_WRITECOPY = 1, 3, 4, 5, 6, 7
_IMAGE_MAP = 2


@dataclasses.dataclass
class Vad:
    """A range of a process' addresses.

    Args:
        start, size: bytes; whole pages are covered.
        file: path of the mapped file; None for private memory.
        protection: an MM_ code (READWRITE, ...).
        image: the file is mapped as an image.
        section: of that image; None: the VAD leads to no prototype PTEs.
    """

    start: int
    size: int
    file: Optional[str] = None
    protection: int = READWRITE
    image: bool = False
    node: Optional[Obj] = None
    section: Optional[ImageSection] = None

    @property
    def first_page(self) -> int:
        return self.start // PAGE

    @property
    def last_page(self) -> int:
        return (self.start + self.size - 1) // PAGE

    def covers(self, address: int) -> bool:
        return self.first_page <= address // PAGE <= self.last_page


def write_tree(kernel: Kernel, eprocess: Obj, vads: Sequence[Vad]) -> None:
    """Writes the nodes that are new and joins all to a balanced tree below VadRoot."""
    ordered = sorted(vads, key=lambda vad: vad.start)
    for vad in ordered:
        if vad.node is None:
            vad.node = _node(kernel, vad)
        _write_range(vad.node, vad)
    root = eprocess.isf.first("_EPROCESS", "VadRoot.Root", "VadRoot.BalancedRoot.RightChild", "VadRoot")
    if root is None:
        raise KeyError("_EPROCESS.VadRoot")
    balanced = root.startswith("VadRoot.BalancedRoot")
    parent = eprocess.at("VadRoot.BalancedRoot") if balanced else 0
    eprocess[root] = _join(ordered, 0, len(ordered), parent)
    eprocess.maybe("VadRoot.NumberGenericTableElements", len(ordered))
    eprocess.maybe("VadCount", len(ordered))
    eprocess.maybe("NumberOfVads", len(ordered))


def _join(vads: Sequence[Vad], start: int, stop: int, parent: int) -> int:
    if start >= stop:
        return 0
    middle = (start + stop) // 2
    node = vads[middle].node
    assert node is not None
    node.first(_members("VadNode.Left", "LeftChild"), _join(vads, start, middle, node.address))
    node.first(_members("VadNode.Right", "RightChild"), _join(vads, middle + 1, stop, node.address))
    node.first(_members("VadNode.ParentValue", "u1.Parent", "Parent"), parent)
    return node.address


def _members(*names: str) -> list[str]:
    """`_MMVAD` embeds the short form as Core from 8.1 on, repeats its members before."""
    return [prefix + name for prefix in ("Core.", "") for name in names]


def _write_range(node: Obj, vad: Vad) -> None:
    charge = node.isf.first(node.type_name, *_members("u1.VadFlags1.CommitCharge", "u.VadFlags.CommitCharge"))
    if charge is not None and vad.file is None:
        node[charge] = vad.last_page - vad.first_page + 1
    for member, page in (("StartingVpn", vad.first_page), ("EndingVpn", vad.last_page)):
        node.first(_members(member), page)
        high = node.isf.first(node.type_name, *_members(member + "High"))
        if high is not None:
            node[high] = page >> 32


def _node(kernel: Kernel, vad: Vad) -> Obj:
    mapped = vad.file is not None
    node = kernel.obj("_MMVAD" if mapped else "_MMVAD_SHORT", tag=b"Vad " if mapped else b"VadS")
    node.first(_members("u.VadFlags.Protection"), vad.protection)
    node.first(_members("u.VadFlags.PrivateMemory"), 0 if mapped else 1)
    flag = node.isf.first(node.type_name, *_members("u.VadFlags.VadType"))
    if flag is not None and vad.image:
        node[flag] = _IMAGE_MAP
    elif vad.image:
        node.first(["u.VadFlags.ImageMap"], 1)
    if vad.section is not None:
        node["FirstPrototypePte"] = vad.section.entries
        node["LastContiguousPte"] = vad.section.last_entry
        if node.has("ControlArea"):
            node["ControlArea"] = vad.section.control_area
        else:
            node["Subsection"] = vad.section.subsection
    elif vad.file is not None:
        control = kernel.obj("_CONTROL_AREA", tag=b"MmCa")
        # The low bits of a fast reference count references; readers must mask them.
        busy = 1 if control.has("FilePointer.Object") else 0
        control["FilePointer"] = kernel.file(vad.file).address | busy
        if node.has("ControlArea"):
            node["ControlArea"] = control
        else:
            subsection = kernel.obj("_SUBSECTION", tag=b"MmSb")
            subsection["ControlArea"] = control
            node["Subsection"] = subsection
    return node
