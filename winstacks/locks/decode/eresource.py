# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decodes `_ERESOURCE`, the kernel's reader-writer lock, and its owners."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from ...memory.decode.machine import Machine
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Buffer, Field, Structure, Structures

OWNED_EXCLUSIVE = 0x80
"""ResourceOwnedExclusive, a bit of Flag (public header wdm.h)."""

OWNER_THREAD_BITS = 3
"""Low bits of OwnerThread that are flags (ExSetResourceOwnerPointer); they are 0 in the address of an
_ETHREAD."""

MAX_OWNERS = 4096
"""The most entries of an owner table that are read. Real tables are smaller: so many threads never share a
lock, and the kernel copies the table whenever it grows."""

_ALWAYS = (
    "OwnerTable", "Flag", "ContentionCount", "NumberOfSharedWaiters", "NumberOfExclusiveWaiters",
    "CreatorBackTraceIndex",
)  # fmt: skip
_OWNER = ("OwnerThread", "OwnerCount", "TableSize")
_FAST_OWNER = ("ListEntry", "ThreadAddress", "CallerExclusive", "IsWaiting")


class OwnerLayout:
    """Layout of `_OWNER_ENTRY`. OwnerCount: a LONG up to Vista, since 7 a bit field in TableSize's word."""

    def __init__(self, owner: Structure) -> None:
        self.size = owner.size
        self.thread = owner.field("OwnerThread")
        self.count = owner.field("OwnerCount")
        self.table_size = owner.field("TableSize")


class FastOwnerLayout:
    """Layout of `_FAST_OWNER_ENTRY_INTERNAL`."""

    def __init__(self, owner: Structure) -> None:
        self.size = owner.size
        self.links = owner.offset("ListEntry")
        self.thread = owner.field("ThreadAddress")
        self.exclusive = owner.field("CallerExclusive")
        self.waiting = owner.field("IsWaiting")


class ResourceLayout:
    """Layout of `_ERESOURCE`, and of the owner list in fast resources (17763 and later).

    Attributes:
        active: ActiveCount (a SHORT) up to 2003, ActiveEntries (a ULONG) since Vista
        owners: offset of the first owner's entry
        owner_count: number of owner entries in the structure: two up to 2003 (`OwnerThreads`, the first is
            the exclusive owner's), one since Vista (`OwnerEntry`)
        owner: the layout of an owner's entry, None if the symbols do not describe it
        fast_owners: offset of the list of a fast resource's owners, None if the kernel has no fast resources
        fast_owner: the layout of an entry of that list, None if the symbols do not describe it
        lacking: members that every kernel has and these symbols lack, in words; their values are then None

    Raises:
        MissingMemberError: if the kernel's table lacks a member that is needed to recognise a resource
    """

    def __init__(self, types: Structures, pointer_size: int) -> None:
        resource = types["_ERESOURCE"]
        self.pointer_size = pointer_size
        self.size = resource.size
        self.links = resource.offset("SystemResourcesList")
        self.owner_table = resource.first_member("OwnerTable")
        self.active = resource.field("ActiveEntries", "ActiveCount")
        self.flag = resource.first_member("Flag")
        self.lacking = tuple(
            f"{resource.name} has no member {name}" for name in _ALWAYS if not resource.has(name)
        )
        owners, entry = resource.first_member("OwnerEntry", "OwnerThreads"), types.find("_OWNER_ENTRY")
        self.owner = OwnerLayout(entry) if owners is not None and _has(entry, _OWNER) else None
        self.owners = self.owner_count = 0
        if owners is not None and self.owner is not None:
            self.owners, self.owner_count = owners.offset, owners.size // self.owner.size
        else:
            what = [f"_OWNER_ENTRY.{name}" for name in _OWNER if not entry.has(name)]
            self.lacking += (", ".join(what) or f"{resource.name} has no member OwnerEntry or OwnerThreads",)
        self.contention_count = resource.first_member("ContentionCount")
        self.shared_waiters = resource.first_member("NumberOfSharedWaiters")
        self.exclusive_waiters = resource.first_member("NumberOfExclusiveWaiters")
        self.creator_back_trace_index = resource.first_member("CreatorBackTraceIndex")
        head = types.find("_FAST_ERESOURCE_INTERNAL").first_member("OwnerEntryListHead")
        self.fast_owners = None if head is None else head.offset
        entry = types.find("_FAST_OWNER_ENTRY_INTERNAL")
        self.fast_owner = FastOwnerLayout(entry) if _has(entry, _FAST_OWNER) else None


def _has(structure: Structure, members: Sequence[str]) -> bool:
    """Returns whether a structure has all of several members."""
    return all(map(structure.has, members))


class Owner(NamedTuple):
    """One owner: the value of OwnerThread as stored, and the number of times that it owns the lock."""

    thread: int
    owner_count: int
    exclusive: bool


class Resource(NamedTuple):
    """The members of an `_ERESOURCE`. `embedded` holds the owners in the structure itself.

    `creator_back_trace_index` is the union's value: an index, or an address (see `is_address`). It is None if
    the symbols lack the member. Without the symbol of Flag no owner is known to be exclusive.
    `owned_exclusive` is what Flag says, whatever the owners are.
    """

    active: int
    embedded: Optional[Tuple[Owner, ...]]
    owner_table: Optional[int]
    contention_count: Optional[int]
    shared_waiters: Optional[int]
    exclusive_waiters: Optional[int]
    creator_back_trace_index: Optional[int]
    owned_exclusive: bool = False


def decode_resource(data: Buffer, layout: ResourceLayout) -> Resource:
    """Decodes an `_ERESOURCE`. Raises ValueError if data is too short."""

    def value(field: Optional[Field]) -> Optional[int]:
        return None if field is None else field.value_in(data)

    exclusive = None if layout.flag is None else bool(layout.flag.value_in(data) & OWNED_EXCLUSIVE)
    owners: Optional[List[Optional[Owner]]] = None
    if layout.owner is not None:
        size = layout.owner.size
        entries = range(layout.owners, layout.owners + layout.owner_count * size, size)
        owners = [
            decode_owner(data, base, layout.owner, bool(exclusive and not n))
            for n, base in enumerate(entries)
        ]
    return Resource(
        active=layout.active.value_in(data),
        embedded=None if owners is None else tuple(owner for owner in owners if owner),
        owner_table=value(layout.owner_table),
        contention_count=value(layout.contention_count),
        shared_waiters=value(layout.shared_waiters),
        exclusive_waiters=value(layout.exclusive_waiters),
        creator_back_trace_index=value(layout.creator_back_trace_index),
        owned_exclusive=bool(exclusive),
    )


def decode_owner(data: Buffer, base: int, layout: OwnerLayout, exclusive: bool = False) -> Optional[Owner]:
    """Decodes the `_OWNER_ENTRY` at an offset of data; None if it names no owner."""
    thread = layout.thread.value_in(data, base)
    return Owner(thread, layout.count.value_in(data, base), exclusive) if thread else None


def table_size(data: Buffer, layout: OwnerLayout) -> int:
    """Returns the number of entries of an OwnerTable, including the first, which holds only this number."""
    return layout.table_size.value_in(data)


def decode_owner_table(data: Buffer, layout: OwnerLayout) -> List[Owner]:
    """Decodes an OwnerTable or its beginning. All owners in it share the lock."""
    bases = range(layout.size, len(data) - layout.size + 1, layout.size)
    owners = (decode_owner(data, base, layout) for base in bases)
    return [owner for owner in owners if owner]


MOST_TRACES = 1 << 24
"""A database has fewer traces: no index is so large."""


def is_address(value: int, machine: Machine) -> bool:
    """Returns whether the union of Address and CreatorBackTraceIndex holds an address of the kernel."""
    return value >= machine.kernel_start
