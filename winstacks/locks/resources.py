# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the kernel's ERESOURCEs, which are on ExpSystemResourcesList.

Windows never leaves that list empty. If its head shows an empty list, all of physical memory is searched for
nodes that still point to the head.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from volatility3.framework import exceptions

from ..columns import words
from ..memory import bulk
from ..memory.decode import links
from ..memory.decode.memory import Memory
from ..memory.decode.status import NOTHING, Status, StatusItem, contradicted, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import integers
from ..memory.image import AddressSpace, Image
from ..process.cidtable import MAX_IDS, CidTable
from ..process.kernelobjects import thread_at
from ..process.thread import WAITING
from ..process.threadids import ThreadIds, ThreadOwner
from ..tracedb.gap import Gap, gap
from . import lock
from .decode import eresource
from .decode.eresource import Owner, OwnerLayout, Resource, ResourceLayout
from .lock import Listed, Lock, LockOwner

_CHUNK = 1 << 22
MAX_HITS = 1 << 12
"""The most occurrences of the head's address that are examined."""


def orphans(image: Image, head: int, limit: int) -> List[int]:
    """Returns the nodes of a list, found without its head, in the order of the list: the addresses of their
    links; empty if no two nodes in the image lead to the head and to each other."""
    memory = image.memory(image.kernel)
    for node, forward in _ends(image, head):
        nodes = list(links.steps(head, memory.links, forward, limit, node))
        if len(nodes) > 1:
            return nodes if not forward else nodes[::-1]
    return []


def _ends(image: Image, head: int) -> Iterator[Tuple[int, int]]:
    """Yields (address, direction away from the head) of nodes with a link to the head."""
    size, head_place = image.pointer_size, _place(image, head)
    below = image.layer.config["memory_layer"]
    pattern = head.to_bytes(size, "little")
    hits = 0
    for start in range(0, image.context.layers[below].maximum_address + 1, _CHUNK):
        for low, data in bulk.read_extents(image.context, below, start, _CHUNK).runs:
            at = data.find(pattern)
            while at >= 0 and hits < MAX_HITS:
                if not (low + at) % size and low + at - head_place not in (0, size):
                    hits += 1
                    yield from _nodes(image, data, at, low)
                at = data.find(pattern, at + 1)


def _nodes(image: Image, data: bytes, at: int, low: int) -> Iterator[Tuple[int, int]]:
    """Yields the node with a link to the head: the Blink of the first node, or the Flink of the last.

    The node's own virtual address is read from its neighbour.
    """
    memory, size = image.memory(image.kernel), image.pointer_size
    for direction, start, other in ((0, at - size, at - size), (1, at, at + size)):
        neighbour = int.from_bytes(data[other : other + size], "little") if other >= 0 else 0
        ends = memory.links(neighbour) if image.machine.is_canonical(neighbour) else None
        node = ends[1 - direction] if ends is not None else None
        if node is not None and _place(image, node) == low + start:
            yield node, direction


def _place(image: Image, address: int) -> int:
    """Returns the physical address of an address; -1 if it has none."""
    try:
        return int(image.layer.translate(bulk.masked(image.layer, address))[0])
    except exceptions.InvalidAddressException:
        return -1


LIST_SYMBOL = "ExpSystemResourcesList"

MAX_ENTRIES = 1 << 16
"""The most entries of owner tables and lists that are read of one image; a few thousand are in use."""


MAX_OVERLAPS = 1024
"""The most resources that are shown although they overlap others: Windows' own never overlap."""

WAIT_REASON = 27
"""WrResource of KWAIT_REASON (public enumeration)."""

_STACK = 0x400
"""Bytes of a kernel stack, from KernelStack on, that have the address of the resource a thread waits for."""

_WAITERS = "NumberOfSharedWaiters", "NumberOfExclusiveWaiters"

_Owners = Tuple[Tuple[LockOwner, ...], Status]


def words_on_stack(memory: Memory, top: int) -> Sequence[int]:
    """Returns the words on a kernel stack, from KernelStack on, that may have the address of the resource a
    thread waits for; fewer where the stack or the image ends, and none if `top` is 0."""
    run = memory.load(top, _STACK).run_at(top) if top else None
    return integers(run[1] if run else b"", memory.pointer_size)


class Resources:
    """Lists the resources of an image. Raises MissingMemberError if the kernel's symbols do not describe its
    resources."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._threads = image.service(ThreadIds)
        self._memory = image.memory(image.kernel)
        self._layout = ResourceLayout(image.types, image.pointer_size)
        for name in self._layout.lacking:
            image.lacks(name)
        self._forget()

    def _forget(self) -> None:
        """Forgets what an earlier list claimed."""
        self._claims = bulk.PhysicalClaims(self._image.layer)
        self._places = bulk.PhysicalClaims(self._image.layer)
        self._overlaps = 0
        self._listed: Set[int] = set()
        self._entries_left = MAX_ENTRIES

    def list_resources(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the resources in the list's order, and a Gap for those that cannot be read."""
        self._forget()
        head = self._image.require_symbol(LIST_SYMBOL)
        if head is None:
            yield gap(space, StatusCode.LIST_NOT_FOUND)
            return
        walk = links.walk(head, self._memory.links)
        if walk == links.ListWalk((), (), None):
            yield from self._orphans(space, head)
            yield from self._left_out(space)
            return
        altered = walk.altered.link if walk.altered else None
        if altered == head:
            yield gap(space, StatusCode.LIST_DAMAGED)
        yield from self._nodes(space, walk.before, altered)
        yield from self._gap(space, walk.gap)
        yield from self._nodes(space, walk.after, altered)
        yield from self._unlisted(space, head)
        yield from self._left_out(space)

    def _unlisted(self, space: AddressSpace, head: int) -> Iterator[Lock]:
        """Yields the resources for which threads wait, and that lie between two neighbours of the list which
        pass them over. A deleted one keeps its links, too, but has no owners or waiters."""
        memory, offset = self._memory, self._layout.links
        self._listed.add(head)
        for ethread in self._image.service(CidTable).threads:
            thread = thread_at(self._image, ethread)
            if (thread["Tcb.State"], thread["Tcb.WaitReason"]) != (WAITING, WAIT_REASON):
                continue
            named = set(words_on_stack(memory, thread["Tcb.KernelStack"] or 0))
            for link in sorted(word + offset for word in named):
                forward, back = (None, None) if link in self._listed else memory.links(link) or (None, None)
                if back not in self._listed or links.neighbour(back, memory.links, 0) != forward:
                    continue
                found = self._resource(space, link - offset)
                if found.lock_count and found.waiters:
                    self._listed.add(link)
                    yield found._replace(status=status(contradicted("SystemResourcesList"), found.status))

    def _left_out(self, space: AddressSpace) -> Iterator[Gap]:
        """Yields the row for the resources that overlap others and have no row."""
        more = self._overlaps - MAX_OVERLAPS
        if more > 0:
            yield gap(space, StatusItem(StatusCode.RESOURCES_OVERLAP, more))

    def _orphans(self, space: AddressSpace, head: int) -> Iterator[Listed]:
        """Yields the resources that still point to the head of an empty list: Windows always has some."""
        nodes = orphans(self._image, head, links.MAX_NODES)
        if nodes:
            yield gap(space, StatusCode.LIST_BROKEN)
        yield from self._nodes(space, nodes, None)

    def _gap(self, space: AddressSpace, hole: Optional[links.ListGap]) -> Iterator[Listed]:
        if hole is None:
            return
        if hole.forward.reason == links.HEAD:
            yield gap(space, StatusCode.LIST_HEAD_UNREADABLE)
            return
        canonical = [self._image.machine.is_canonical(link) for link in hole.lost]
        for link, sound in zip(hole.lost, canonical):
            lock_status = status(StatusCode.UNREADABLE, None if sound else StatusCode.NOT_CANONICAL)
            yield Lock(space, link - self._layout.links, words.RESOURCE, status=lock_status)
        if not (hole.exact and all(canonical)):
            yield gap(space, StatusCode.LIST_BROKEN)

    def _nodes(self, space: AddressSpace, nodes: Iterable[int], altered: Optional[int]) -> Iterator[Listed]:
        """Yields the resources of a part of the list, at most MAX_OVERLAPS that overlap others."""
        for link in nodes:
            self._listed.add(link)
            address = link - self._layout.links
            end = address + self._layout.size
            overlaps = self._places.claim(address, end) < end
            self._overlaps += overlaps
            if overlaps and self._overlaps > MAX_OVERLAPS:
                continue
            resource = self._resource(space, address)
            if overlaps:
                resource = resource._replace(status=status(StatusCode.OVERLAP, resource.status))
            yield lock.damaged(resource) if link == altered else resource

    def _resource(self, space: AddressSpace, address: int) -> Lock:
        data = self._memory.read(address, self._layout.size)
        if data is None:
            return Lock(space, address, words.RESOURCE, status=status(StatusCode.UNREADABLE))
        resource = eresource.decode_resource(data, self._layout)
        fast = self._is_fast(address)
        owners, owner_status = self._fast_owners(address) if fast else self._owners(resource)
        held: Optional[bool] = resource.active != 0
        if not fast and not owner_status:
            owner_status = status(_count_differs(resource, owners), _flag_differs(resource, owners))
            held = None if has_status(owner_status, StatusCode.CONTRADICTED) else held
        shared, exclusive_waiters, doubt = self._waiters(resource)
        contended = bool(resource.contention_count or shared or exclusive_waiters)
        index = resource.creator_back_trace_index
        is_address = index is not None and eresource.is_address(index, self._image.machine)
        if index is not None and not is_address and index >= eresource.MOST_TRACES:
            owner_status, index = status(owner_status, contradicted("CreatorBackTraceIndex")), None
        first = owners[0] if owners else None
        exclusive = first if first and first.kind == words.EXCLUSIVE else None
        return Lock(
            space,
            address,
            words.FAST_RESOURCE if fast else words.RESOURCE,
            back_trace_index=None if is_address else index,
            creator_address=index or 0 if is_address else 0,
            owning_thread=exclusive.thread if exclusive else 0,
            owner=exclusive.owner if exclusive else None,
            lock_count=resource.active,
            contention_count=resource.contention_count,
            waiting_shared=shared,
            waiting_exclusive=exclusive_waiters,
            held=held,
            contended=None if doubt and not contended else contended,
            owners=owners,
            status=status(owner_status, doubt, exclusive.status if exclusive else NOTHING),
        )

    def _waiters(self, resource: Resource) -> Tuple[Optional[int], Optional[int], Status]:
        """Returns the numbers of shared and exclusive waiters, None for more than there are threads, and what
        contradicts them."""
        ids = self._image.service(CidTable)
        most = len(ids.addresses) if ids.whole else MAX_IDS
        counts = resource.shared_waiters, resource.exclusive_waiters
        shared, exclusive = (None if (count or 0) > most else count for count in counts)
        known = zip(_WAITERS, counts, (shared, exclusive))
        wrong = [name for name, count, believed in known if count != believed]
        return shared, exclusive, contradicted(*wrong)

    def _owners(self, resource: Resource) -> _Owners:
        """Returns the owners of an ordinary resource, from the resource itself and from its owner table.

        A thread that released the resource may leave its entry behind, with an OwnerCount of 0.
        """
        owners = list(resource.embedded or ())
        unknown = resource.embedded is None or resource.owner_table is None
        owner_status = status(StatusCode.OWNERS_UNKNOWN if unknown else None)
        if resource.owner_table and self._layout.owner is not None:
            in_table, owner_status = self._owner_table(resource.owner_table, self._layout.owner)
            owners += in_table
        return tuple(self._owner(owner) for owner in owners if owner.owner_count), owner_status

    def _owner_table(self, address: int, layout: OwnerLayout) -> Tuple[List[Owner], Status]:
        head = self._memory.read(address, layout.size)
        if head is None:
            return [], status(StatusCode.OWNER_TABLE_UNREADABLE)
        entries = eresource.table_size(head, layout)
        table_status = status(StatusCode.OWNER_TABLE_TOO_BIG if entries > eresource.MAX_OWNERS else None)
        entries = min(entries, eresource.MAX_OWNERS)
        if entries > self._entries_left:
            table_status = status(table_status, StatusCode.OWNER_LIMIT)
            entries = self._entries_left
        table_end = address + entries * layout.size
        end = self._claims.claim(address, table_end)
        if end < table_end:
            # Some of the memory was already read as the owner table of another resource.
            table_status = status(table_status, StatusCode.OWNER_TABLE_SHARED)
        self._entries_left -= (end - address) // layout.size
        run = self._memory.load(address, end - address).run_at(address)
        data = run[1] if run else b""
        if len(data) < end - address:
            table_status = status(StatusCode.OWNER_TABLE_UNREADABLE)
        return eresource.decode_owner_table(data, layout), table_status

    def _owner(self, owner: Owner) -> LockOwner:
        thread = owner.thread & ~eresource.OWNER_THREAD_BITS
        owner_thread = self._threads.owner(thread)
        kind = words.EXCLUSIVE if owner.exclusive else words.SHARED
        return LockOwner(thread, owner_thread, kind, owner.owner_count, self._doubt(thread, owner_thread))

    def _doubt(self, thread: int, owner: Optional[ThreadOwner]) -> Status:
        """Returns the status of an owner at an address: of the thread that is there, if any."""
        if owner is not None:
            return owner.status
        absent = self._threads.is_absent(thread)
        return status(StatusCode.OWNER_UNREADABLE if absent else StatusCode.NO_THREAD)

    def _is_fast(self, address: int) -> bool:
        """Returns whether a resource is fast: a fast one has a list head in place of its owner's entry."""
        if self._layout.fast_owners is None:
            return False
        head = address + self._layout.fast_owners
        return links.neighbour(head, self._memory.links, 0) is not None

    def _fast_owners(self, address: int) -> _Owners:
        entry, first = self._layout.fast_owner, self._layout.fast_owners
        if entry is None or first is None:
            return (), status(StatusCode.OWNERS_UNKNOWN)
        limit = min(eresource.MAX_OWNERS, self._entries_left)
        walk = links.walk(address + first, self._memory.links, limit)
        self._entries_left -= len(walk.nodes)
        owners = []
        for link in walk.nodes:
            data = self._memory.read(link - entry.links, entry.size)
            if data is not None:
                thread = entry.thread.value_in(data)
                owner_thread = self._threads.owner(thread)
                kind = words.EXCLUSIVE if entry.exclusive.value_in(data) else words.SHARED
                kind = words.WAITING if entry.waiting.value_in(data) else kind
                owners.append(LockOwner(thread, owner_thread, kind, None, self._doubt(thread, owner_thread)))
        owners.sort(key=lambda owner: owner.kind != words.EXCLUSIVE)
        broken = StatusCode.OWNER_LIST_BROKEN if self._entries_left else StatusCode.OWNER_LIMIT
        return tuple(owners), status(broken if walk.gap or walk.altered else None)


def _count_differs(resource: Resource, owners: Tuple[LockOwner, ...]) -> Status:
    """Returns the status of a resource whose owners are not as many as ActiveEntries counts."""
    missing = resource.active - len(owners)
    if missing < 0:
        return contradicted("ActiveEntries")
    if not missing:
        return NOTHING
    return status(StatusItem(StatusCode.OWNERS_MISSING, missing) if owners else StatusCode.OWNERS_UNKNOWN)


def _flag_differs(resource: Resource, owners: Tuple[LockOwner, ...]) -> Status:
    """Returns the status of a resource that Flag calls owned exclusively, and that has no such owner."""
    owned = any(owner.kind == words.EXCLUSIVE for owner in owners)
    return contradicted("Flag") if resource.owned_exclusive and not owned else NOTHING
