# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The VADs of processes, decoded from bytes: the kernel's provider of memory regions.

Naming frames needs the ranges of VADs only, not an object of Volatility for each.
"""

from __future__ import annotations

import functools
import logging
from typing import Dict, List, Optional, Set, Tuple

from ..memory.decode.memo import Kept, Memo
from ..memory.decode.pagetable import PAGE_SHIFT
from ..memory.image import AddressSpace, Image
from .kernelobjects import VAD_ROOT, process_type
from .processlist import process_list
from .regions import Region, Regions

vollog = logging.getLogger(__name__)

MAX_VADS = 1 << 18
MOST_PER_PAGE = 16
"""VADs of all processes together, for each page of the image: Windows has one for ten pages. Each process
gets the same share, however many the others have."""
FEW = 0x200
"""The smallest share of a process."""
MAX_KEPT = 1 << 16
"""VADs that are kept, some 200 bytes each: enough for 400 processes."""
MAX_NAMES = 1 << 15
"""File names that are kept: many processes map the same files."""

IMAGE_MAP = 2
"""VadImageMap of _MI_VAD_TYPE. Before Vista a flag of one bit, ImageMap, is in its place."""

SHORT_TAGS = (b"VadS", b"VadF")
POOL_TAG = b"Vad"

_FULL, _SHORT = "_MMVAD", "_MMVAD_SHORT"


class Vads:
    """Reads VAD trees with the kernel's symbol table: the kernel's provider of `regions`.

    If the table lacks a needed member of VADs, a warning names it, and the list of every process is empty.
    """

    def __init__(self, image: Image) -> None:
        self._memory = image.memory(image.kernel)
        self._tree = image.attempt(lambda: _Tree(image))
        share = MOST_PER_PAGE * image.page_count // max(len(image.service(process_list).processes()), 1)
        self._most = max(min(MAX_VADS, share), FEW)
        self._kept: Kept[Tuple[int, int], Tuple[List[Region], bool]] = Kept(MAX_KEPT)
        self.file_name = functools.lru_cache(MAX_NAMES)(self._file_name)
        """Control area -> path of the file that backs a mapping; "" if none does, None if unreadable."""
        self._control_areas: Memo[int, int] = Memo(self._read_control_area, MAX_NAMES)
        """The target of a VAD's pointer -> control area. Processes that map a file share one _SUBSECTION."""

    def list_regions(self, space: AddressSpace) -> Tuple[List[Region], bool]:
        """Returns the VADs of a process, ascending, and whether the whole tree could be read.

        Trees are kept: each kind of stack is listed in all processes before the next kind is.
        """
        tree = self._tree
        if tree is None or not space.eprocess:
            return [], False
        top = self._memory.number(space.eprocess + tree.root.offset, tree.root.size)
        # A process with a user half has at least its PEB.
        if top is None or (not top and space.peb):
            return [], False
        if not top:
            return [], True
        key = space.eprocess, top
        return self._kept.at_first_use(
            key, lambda: self._read(tree, space, top), lambda read: len(read[0]) + 1
        )

    def _read(self, tree: _Tree, space: AddressSpace, top: int) -> Tuple[List[Region], bool]:
        vads, whole = self._walk(tree, top)
        return sorted(vads), whole and len(vads) >= (self._memory.member(space.eprocess, tree.count) or 0)

    def _walk(self, tree: _Tree, root: int) -> Tuple[List[Region], bool]:
        pending = [root]
        seen: Set[int] = {0}
        vads: List[Region] = []
        limits: Dict[int, Tuple[int, int]] = {}
        complete = True
        header = 2 * self._memory.pointer_size
        while pending and len(seen) < self._most:
            address = pending.pop()
            if address in seen:
                # A node is the child of one other: what this link led to before is lost.
                complete = complete and not address
                continue
            seen.add(address)
            data = self._memory.read(address - header, header + tree.size)
            if data is None:
                complete = False
                continue
            # Like Volatility, do not follow a node with a wrong pool tag. The root need not have a tag.
            tag, node = data[4:8], data[header:]
            if not tag.startswith(POOL_TAG) and len(seen) > 2:
                complete = False
                continue
            vad = self._vad(tree, address, node, tag in SHORT_TAGS)
            vads.append(vad)
            low, high = limits.pop(address, (0, 1 << 64))
            # A left child begins below its parent, a right child above it.
            complete = complete and low <= vad.start <= high and vad.start < vad.end
            right, left = tree.right.value_in(node), tree.left.value_in(node)
            limits.update({right: (vad.start, high), left: (low, vad.start)})
            pending += (right, left)
        if pending:
            vollog.warning(f"The VADs below {root:#x} were read up to the limit: {len(vads)} of them")
        return vads, complete and not pending

    def _file_name(self, control_area: int) -> Optional[str]:
        tree = self._tree
        value = None if tree is None else self._memory.pointer(control_area + tree.file)
        if tree is None or not value:
            return None if value is None else ""
        # The low bits of an EX_FAST_REF count references.
        file_object = value & ~(2 * self._memory.pointer_size - 1)
        return self._memory.unicode_string_at(file_object + tree.name)

    def _vad(self, tree: _Tree, address: int, node: bytes, short: bool) -> Region:
        start, end = tree.start.value_in(node), tree.end.value_in(node)
        start |= tree.start_high.value_in(node) << 32 if tree.start_high else 0
        end |= tree.end_high.value_in(node) << 32 if tree.end_high else 0
        control_area = 0 if short else self._control_area_of(tree, address)
        kind = tree.kind.value_in(node) if tree.kind else 0
        image = kind == (IMAGE_MAP if tree.kind and tree.kind.mask > 1 else 1)
        image = image and not short
        if image and not control_area:
            # Each image has a control area: the pointer to it is lost.
            control_area = -address
        protection = tree.protection.value_in(node) if tree.protection else 0
        pages = tree.charge.value_in(node) if tree.charge else 0
        # All bits set are no number of pages: no address space has so many.
        charge = pages << PAGE_SHIFT if tree.charge and pages != tree.charge.mask else None
        limits = start << PAGE_SHIFT, (end + 1) << PAGE_SHIFT
        return Region(*limits, control_area, image, address, protection, charge=charge)

    def _control_area_of(self, tree: _Tree, address: int) -> int:
        """Returns the control area of a VAD: 0 for none, a negative number if it is not in the image."""
        if tree.subsection is not None:
            subsection = self._memory.pointer(address + tree.subsection.offset)
            if subsection is None:
                return -address
            return self._control_areas[subsection] if subsection else 0
        return self._read_control_area(address)

    def _read_control_area(self, holder: int) -> int:
        if self._tree is None:
            return 0
        control_area = self._memory.pointer(holder + self._tree.control_area)
        return -holder if control_area is None else control_area


def regions(image: Image) -> Regions:
    """Returns the lister of memory regions, for `image.service(regions)`: here it reads VADs."""
    return Vads(image)


class _Tree:
    """The members that lead from a process to its VADs and their files.

    `_MMVAD` begins with the members of `_MMVAD_SHORT` (since 8.1 its member Core). In XP and 2003 the VAD
    points to the control area; since Vista it points to a Subsection, which points to the control area.
    Raises MissingMemberError if the kernel's table lacks one of them.
    """

    def __init__(self, image: Image) -> None:
        node = image.types[_SHORT]
        self.size = node.size
        self.left = node.field("VadNode.Left", "VadNode.LeftChild", "LeftChild")
        self.right = node.field("VadNode.Right", "VadNode.RightChild", "RightChild")
        self.start = node.field("StartingVpn")
        self.end = node.field("EndingVpn")
        self.start_high = node.first_member("Core.StartingVpnHigh", "StartingVpnHigh")
        self.end_high = node.first_member("Core.EndingVpnHigh", "EndingVpnHigh")
        self.kind = node.first_member(
            "Core.u.VadFlags.VadType", "u.VadFlags.VadType",
            "Core.u.VadFlags.ImageMap", "u.VadFlags.ImageMap",
        )  # fmt: skip
        flags = ("Core.u.VadFlags.Protection", "u.VadFlags.Protection")
        self.protection = image.require_member(_SHORT, *flags)
        charged = ("Core.u1.VadFlags1", "u1.VadFlags1", "Core.u.VadFlags", "u.VadFlags")
        self.charge = node.first_member(*(f"{parent}.CommitCharge" for parent in charged))
        process = process_type(image)
        self.root = process.field(*VAD_ROOT)
        # The count is in the process since 8.1 and in XP, in the tree between them (public symbols). That XP
        # counts all nodes of the tree is inferred from the name, and from WinDbg's `!process` ("Vads").
        self.count = process.first_member("VadCount", "VadRoot.NumberGenericTableElements", "NumberOfVads")
        self.subsection = image.types[_FULL].first_member("Subsection")
        holder = image.types["_SUBSECTION" if self.subsection else _FULL]
        self.control_area = holder.offset("ControlArea")
        files = ("FilePointer.Value", "FilePointer.Object", "FilePointer")
        self.file = image.types["_CONTROL_AREA"].offset(*files)
        self.name = image.types["_FILE_OBJECT"].offset("FileName.Length")
