# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel's ERESOURCEs: everything on ExpSystemResourcesList."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces

from ..base import bulk
from ..base.decode import links
from ..base.decode.claims import Claims
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from ..threads.ids import ThreadIds
from . import layouts, lock
from .decode import eresource
from .decode.eresource import Owner, Resource
from .lock import Lock, LockOwner

LIST_SYMBOL = "ExpSystemResourcesList"

NO_THREAD = "no thread"
TABLE_UNREADABLE = "owner table unreadable"
TABLE_TOO_BIG = "owner table too big"
TABLE_SHARED = "owner table shared"
"""The memory, or a part of it, is the table of another resource, which has its owners."""
OWNERS_LIMIT = "owner limit"
"""The image has more owners than are read."""
OWNERS_BROKEN = "owner list broken"
OWNERS_UNKNOWN = "owners unknown"

MAX_ENTRIES = 1 << 16
"""Entries of owner tables and lists that are read of one image: some thousand are in use at a time."""


class _Owners(NamedTuple):
    owners: Tuple[LockOwner, ...]
    status: str


class Resources:
    """Lists the resources of an image.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module
    """

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        self._context = context
        self._kernel = context.modules[kernel_module_name]
        self._layer = context.layers[self._kernel.layer_name]
        self._threads = ThreadIds(context, kernel_module_name)
        table = self._kernel.symbol_table_name
        pointer_size = 8 if self._layer.bits_per_register == 64 else 4
        self._peek = Peek(context, self._kernel.layer_name, pointer_size)
        self._layout = layouts.resource(context, table, pointer_size)
        self._fast = layouts.fast_resource(context, table)
        self._claims = Claims()
        self._entries_left = MAX_ENTRIES

    def list_resources(self, space: AddressSpace) -> Iterator[Lock]:
        """Yields the resources in the list's order, and what stands for those that cannot be read.

        Args:
            space: the kernel's
        """
        if not self._kernel.has_symbol(LIST_SYMBOL):
            yield Lock(space, None, "", status=lock.NO_LIST)
            return
        base = bulk.canonical(self._layer, self._kernel.offset)
        head = base + self._kernel.get_symbol(LIST_SYMBOL).address
        walk = links.walk(head, self._peek.links)
        altered = walk.altered.link if walk.altered else None
        if altered == head:
            yield Lock(space, None, "", status=lock.LIST_DAMAGED)
        for link in walk.before:
            yield self._node(space, link, altered)
        yield from self._gap(space, walk.gap)
        for link in walk.after:
            yield self._node(space, link, altered)

    def _gap(self, space: AddressSpace, gap: Optional[links.Gap]) -> Iterator[Lock]:
        if gap is None:
            return
        if gap.forward.reason == links.HEAD:
            yield Lock(space, None, "", status=lock.NO_HEAD)
            return
        canonical = [bulk.is_canonical(self._layer, link) for link in gap.lost]
        for link, sound in zip(gap.lost, canonical):
            status = lock.UNREADABLE if sound else f"{lock.UNREADABLE}, {lock.NOT_CANONICAL}"
            yield Lock(space, link - self._layout.links, lock.RESOURCE, status=status)
        if not (gap.exact and all(canonical)):
            yield Lock(space, None, "", status=lock.GAP)

    def _node(self, space: AddressSpace, link: int, altered: Optional[int]) -> Lock:
        found = self._resource(space, link - self._layout.links)
        return lock.damaged(found) if link == altered else found

    def _resource(self, space: AddressSpace, address: int) -> Lock:
        data = self._peek.read(address, self._layout.size)
        if data is None:
            return Lock(space, address, lock.RESOURCE, status=lock.UNREADABLE)
        resource = eresource.decode_resource(data, self._layout)
        fast = self._is_fast(address)
        found = self._fast_owners(address) if fast else self._owners(resource)
        is_address = eresource.is_address(resource.creator_back_trace_index, self._layout.pointer_size)
        first = found.owners[0] if found.owners else None
        exclusive = first if first and first.kind == lock.EXCLUSIVE else None
        return Lock(
            space,
            address,
            lock.FAST_RESOURCE if fast else lock.RESOURCE,
            back_trace_index=None if is_address else resource.creator_back_trace_index,
            creator_address=resource.creator_back_trace_index if is_address else 0,
            owning_thread=exclusive.thread if exclusive else 0,
            owner_tid=exclusive.tid if exclusive else None,
            lock_count=resource.active,
            contention_count=resource.contention_count,
            waiting_shared=resource.shared_waiters,
            waiting_exclusive=resource.exclusive_waiters,
            held=resource.active != 0,
            contended=bool(
                resource.contention_count or resource.shared_waiters or resource.exclusive_waiters
            ),
            owners=found.owners,
            status=found.status,
        )

    def _owners(self, resource: Resource) -> _Owners:
        """Returns the owners of an ordinary resource: those in itself, and those in its table.

        Entries of owners that released the resource stay; without ActiveCount they mean nothing.
        """
        if not resource.active:
            return _Owners((), "")
        owners = list(resource.embedded)
        status = ""
        if resource.owner_table:
            in_table, status = self._owner_table(resource.owner_table)
            owners += in_table
        return _Owners(tuple(self._owner(owner) for owner in owners if owner.owner_count), status)

    def _owner_table(self, address: int) -> Tuple[List[Owner], str]:
        layout = self._layout.owner
        head = self._peek.read(address, layout.size)
        if head is None:
            return [], TABLE_UNREADABLE
        entries = eresource.table_size(head, layout)
        words = [TABLE_TOO_BIG if entries > eresource.MAX_OWNERS else ""]
        entries = min(entries, eresource.MAX_OWNERS)
        if entries > self._entries_left:
            words.append(OWNERS_LIMIT)
            entries = self._entries_left
        wanted = address + entries * layout.size
        end = self._claims.claim(address, wanted)
        if end < wanted:
            words.append(TABLE_SHARED)
        self._entries_left -= (end - address) // layout.size
        extents = bulk.read_extents(self._context, self._kernel.layer_name, address, end - address)
        run = extents.run_at(address)
        data = run[1] if run else b""
        if len(data) < end - address:
            words = [TABLE_UNREADABLE]
        return eresource.decode_owner_table(data, layout), ", ".join(filter(None, words))

    def _owner(self, owner: Owner) -> LockOwner:
        thread = owner.thread & ~eresource.OWNER_THREAD_BITS
        tid = self._threads.tid(thread)
        kind = lock.EXCLUSIVE if owner.exclusive else lock.SHARED
        return LockOwner(thread, tid, kind, owner.owner_count, "" if tid is not None else NO_THREAD)

    def _is_fast(self, address: int) -> bool:
        """Tells a fast resource from an ordinary one: it has the head of a list where that has its owner."""
        if self._fast is None:
            return False
        head = address + self._fast.owner_list
        ends = self._peek.links(head)
        neighbour = self._peek.links(ends[0]) if ends else None
        return neighbour is not None and neighbour[1] == head

    def _fast_owners(self, address: int) -> _Owners:
        if self._fast is None or self._fast.entry is None:
            return _Owners((), OWNERS_UNKNOWN)
        entry = self._fast.entry
        limit = min(eresource.MAX_OWNERS, self._entries_left)
        walk = links.walk(address + self._fast.owner_list, self._peek.links, limit)
        self._entries_left -= len(walk.nodes)
        owners = []
        for link in walk.nodes:
            data = self._peek.read(link - entry.links, entry.size)
            if data is not None:
                thread = entry.thread.of(data)
                tid = self._threads.tid(thread)
                kind = lock.EXCLUSIVE if entry.exclusive.of(data) else lock.SHARED
                kind = lock.WAITING if entry.waiting.of(data) else kind
                owners.append(LockOwner(thread, tid, kind, None, "" if tid is not None else NO_THREAD))
        owners.sort(key=lambda owner: owner.kind != lock.EXCLUSIVE)
        broken = OWNERS_BROKEN if self._entries_left else OWNERS_LIMIT
        return _Owners(tuple(owners), broken if walk.gap or walk.altered else "")
