# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Facts about an address space beside its modules and its memory, for the walks in it."""

from __future__ import annotations

from functools import cached_property
from typing import List, Optional, Tuple

from volatility3.framework.layers import intel

from ..columns.words import PDB
from ..memory import bulk, pagetables
from ..memory.decode.machine import KERNEL_HALF
from ..memory.decode.memo import Memo
from ..memory.decode.memory import join
from ..memory.decode.ranges import span_at
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..names.decode.grounds import is_first
from ..names.loaderlists import module_lists
from ..names.symbolizer import AddressNamer
from ..process.threads import Threads
from ..process.userstacks import UserStacks
from .decode.surroundings import Surroundings

_MAX_KEPT = 1 << 14
_RESERVED = "MEM_RESERVE"


class SpaceFacts:
    """Answers about the addresses of an address space."""

    def __init__(self, image: Image, space: AddressSpace, names: AddressNamer) -> None:
        self._image = image
        self._space = space
        self._names = names
        self._layer = image.layer_of(space)
        self._firsts = Memo(self._is_first, _MAX_KEPT)

    @property
    def surroundings(self) -> Surroundings:
        """The answers in the form that walkers take."""
        listed = self._image.service(module_lists).has_list(self._space)
        return Surroundings(
            *(self.is_first, self.is_start, self.is_mapped, self.is_executable, self.find_stack),
            StatusCode.CODE_IN_NO_MODULE if listed else StatusCode.MODULE_LIST_NOT_IN_THE_FILE,
        )

    def is_first(self, address: int) -> bool:
        """Returns whether code is of a function in which threads begin."""
        return self._firsts[address]

    def _is_first(self, address: int) -> bool:
        known_module = self._names.module_at(address)
        label = None if known_module is None else known_module.label_at(address)
        if known_module is None or label is None:
            return False
        return is_first(known_module.module.name, label[1], bool(address & KERNEL_HALF))

    def is_start(self, address: int) -> bool:
        """Returns whether a function with a name begins exactly at an address.

        A symbol of a PDB may be within a function: the function table must have a function there, too.
        """
        known_module = self._names.module_at(address)
        label = None if known_module is None else known_module.begins_at(address)
        if known_module is None or label is None:
            return False
        piece = known_module.image.find_entry(label[0])
        return label[2] != PDB or (piece is not None and piece.begin == label[0])

    def is_mapped(self, address: int) -> Optional[bool]:
        """Returns whether a memory region holds an address outside all modules; None if that is unknown.

        Only the user's half has lists of regions. Reserved memory holds nothing.
        """
        if address & KERNEL_HALF:
            return None
        region = self._names.vad_at(address)
        if region is not None:
            return region.state != _RESERVED
        return False if self._names.process.vads_whole else None

    def is_executable(self, address: int) -> bool:
        """Returns whether a memory region outside all modules is known to hold code, by its protection."""
        region = self._names.vad_at(address)
        return region is not None and "EXECUTE" in region.protection_name

    def find_stack(self, sp: int) -> Optional[Tuple[int, int]]:
        """Returns the limits of the private memory that holds an address, as a stack of the program's own;
        None if the address is in no private region, or code runs in the region."""
        region = self._names.vad_at(sp)
        if region is None or region.control_area or region.image or "EXECUTE" in region.protection_name:
            return None
        return region.start, region.end

    def may_execute(self, address: int) -> bool:
        """Returns whether an address outside all modules may be code: by the page tables if there are any,
        and never in the stack of a thread.

        A small kernel dump has neither page tables nor regions, and its memory outside modules is almost
        always data: no guess goes there.
        """
        if not self._image.machine.is_canonical(address) or self._image.threads_only:
            return False
        if isinstance(self._layer, intel.Intel):
            layer = self._layer
            return pagetables.may_execute(self._image.context, layer, bulk.masked(layer, address))
        if self.is_mapped(address) is False:
            return False
        return span_at(self._stacks, address) is None

    @cached_property
    def _stacks(self) -> List[Tuple[int, int]]:
        """The stacks of all threads of the process, sorted and disjoint."""
        if self._space.kernel:
            return []
        user_stacks = self._image.service(UserStacks)
        pids = None if self._space.pid is None else [self._space.pid]
        threads = Threads.list_threads(self._image, pids)
        return join(limits for thread in threads for limits in user_stacks.all_limits(thread))
