# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The waits of the threads of one half of a process in ntdll: all rules together, the surest first.

waits = UserWaits(view, types, layouts, table)
for answer in waits.find(thread): ...
"""

from __future__ import annotations

from functools import cached_property
from typing import Callable, Iterable, List, Sequence, Set

from ...columns import words
from ...memory.decode.status import NOTHING, Status, contradicted, status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import Structures
from .addresswaits import AddressBlock, AddressTable, AddressWaits, led_to
from .answer import Answer
from .processview import ProcessView, ThreadView
from .sections import SectionReader, SectionWaits, WaitedSection
from .slimlocks import SlimLocks

NO_TABLE = AddressTable({}, False, 0, False)


class UserWaits:
    """Finds what threads wait for.

    Args:
        layouts: structures of wait blocks of each generation, the newest first
        peb: address of the PEB, 0 if unknown
        offset: offset of WaitOnAddressHashTable in the PEB
        data: returns the words of ntdll's writable data
        listed: addresses of the sections that ntdll lists
    """

    def __init__(
        self,
        view: ProcessView,
        types: Structures,
        layouts: Sequence[Structures],
        peb: int = 0,
        offset: int = 0,
        data: Callable[[], Iterable[int]] = lambda: (),
        listed: Iterable[int] = (),
    ) -> None:
        self._view = view
        self._reader = SectionReader(view, types)
        self._slim = SlimLocks(view, layouts)
        self._sections = SectionWaits(view, self._reader, listed)
        self._addresses = AddressWaits(view, layouts[0]["_RTLP_ADDRESS_WAIT_BLOCK"])
        self._peb = peb
        self._offset = offset
        self._data = data

    @cached_property
    def table(self) -> AddressTable:
        """Waiters to which PEB.WaitOnAddressHashTable leads."""
        if not self._peb:
            return NO_TABLE
        table = self._addresses.table(self._peb + self._offset)
        if not table.in_use and self._on_stacks:
            moved = self._addresses.find_table(self._peb, self._on_stacks)
            table = self._addresses.table(moved) if moved else table
        return table

    @property
    def status(self) -> Status:
        """The contradiction of a table whose blocks or buckets are wrong."""
        return contradicted("WaitOnAddressHashTable") if self.table.wrong else NOTHING

    @property
    def missing(self) -> Status:
        """Why the answer for a thread may be missing: the contradiction of the table, and chains left out."""
        return status(self.status, StatusCode.LIMIT if self._slim.limited else None)

    @cached_property
    def _on_stacks(self) -> List[AddressBlock]:
        """Data on all stacks that looks like a block of a waiting thread."""
        return [block for thread in self._view.threads for block in self._addresses.on_stack(thread)]

    @cached_property
    def _in_ntdll(self) -> Set[int]:
        """Addresses of the blocks to which ntdll's own data leads: the table of 8.1."""
        return led_to(self._data(), self._on_stacks) if self._on_stacks else set()

    def find(self, thread: ThreadView) -> List[Answer]:
        """Returns what a thread waits for: none or one answer, or several that contradict each other."""
        call = self._view.call(thread)
        block = self.table.blocks.get(thread.tid)
        found = [] if block is None else [self._on_address(thread, block, words.BY_TABLE)]
        if self._view.ntdll is None or self._view.in_ntdll(thread.ip):
            found += self._slim.find(thread, call.in_ntdll)
        if found or not call.in_ntdll:
            return found
        blocks = self._addresses.on_stack(thread)
        arguments = (call.argument(0), *call.hints[:1])
        for each in blocks:
            if each.at in self._in_ntdll:
                return [self._on_address(thread, each, words.BY_TABLE)]
        if blocks and not self.table.readable:
            named = [each for each in blocks if {each.at, each.address} & {*arguments}]
            known = words.BY_ARGUMENT if named else words.ON_STACK
            return [self._on_address(thread, each, known) for each in named or blocks[:1]]
        return self._sections.find(thread, call)

    def held_on_stack(self, thread: ThreadView) -> List[WaitedSection]:
        """Returns the sections on a thread's stack that another thread holds and for which threads wait."""
        return self._sections.held(thread)

    def _on_address(self, thread: ThreadView, block: AddressBlock, known: str) -> Answer:
        address = block.address
        section = self._reader.named(address - self._reader.lock_count)
        evidence = f"wait block {block.at:#x} has address {address:#x} and the thread"
        if section is not None and section.members.lock_semaphore == self._reader.none:
            return section.answer(thread.tid, known, f"{evidence}; {section.state}", block.at)
        return Answer(thread.tid, words.ON_ADDRESS, address, "", known, evidence, block.at)
