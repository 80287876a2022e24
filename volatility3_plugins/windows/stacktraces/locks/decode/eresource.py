# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`_ERESOURCE`, the kernel's reader-writer lock, and who owns it."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from ...base.decode.field import Buffer, Field

OWNED_EXCLUSIVE = 0x80
"""ResourceOwnedExclusive, a bit of Flag (public header wdm.h)."""

OWNER_THREAD_BITS = 3
"""Low bits of OwnerThread that say what it is (ExSetResourceOwnerPointer); an _ETHREAD is aligned to more."""

MAX_OWNERS = 4096
"""Owner entries that a table may have: so many threads sharing one lock are not seen, and the table is copied
whenever it grows."""


class OwnerLayout(NamedTuple):
    """`_OWNER_ENTRY`. OwnerCount is a LONG up to Vista, a bit field of TableSize's word since 7."""

    size: int
    owner_thread: Field
    owner_count: Field
    table_size: Field


class ResourceLayout(NamedTuple):
    """`_ERESOURCE`: `OwnerThreads` of two entries up to 2003, `OwnerEntry` since Vista.

    `active` is ActiveCount up to 2003 and ActiveEntries since Vista.
    """

    size: int
    pointer_size: int
    links: int
    owner_table: Field
    active: Field
    flag: Field
    owner_entries: int
    owner_entry_count: int
    contention_count: Field
    shared_waiters: Field
    exclusive_waiters: Field
    creator_back_trace_index: Field
    owner: OwnerLayout


class Owner(NamedTuple):
    """One owner: the value of OwnerThread as stored, and how often it owns the lock."""

    thread: int
    owner_count: int
    exclusive: bool


class Resource(NamedTuple):
    """What an `_ERESOURCE` holds. `embedded` are the owners that it holds itself.

    `creator_back_trace_index` is the union's value: an index, or an address (see `is_address`).
    """

    active: int
    owned_exclusive: bool
    embedded: Tuple[Owner, ...]
    owner_table: int
    contention_count: int
    shared_waiters: int
    exclusive_waiters: int
    creator_back_trace_index: int


def decode_resource(data: Buffer, layout: ResourceLayout) -> Resource:
    """Decodes an `_ERESOURCE`.

    Args:
        data: `layout.size` bytes
        layout: where the members lie

    Raises:
        ValueError: when data is too short
    """
    exclusive = bool(layout.flag.of(data) & OWNED_EXCLUSIVE)
    entries = range(
        layout.owner_entries,
        layout.owner_entries + layout.owner_entry_count * layout.owner.size,
        layout.owner.size,
    )
    owners = [decode_owner(data, base, layout.owner, exclusive and not n) for n, base in enumerate(entries)]
    return Resource(
        active=layout.active.of(data),
        owned_exclusive=exclusive,
        embedded=tuple(owner for owner in owners if owner),
        owner_table=layout.owner_table.of(data),
        contention_count=layout.contention_count.of(data),
        shared_waiters=layout.shared_waiters.of(data),
        exclusive_waiters=layout.exclusive_waiters.of(data),
        creator_back_trace_index=layout.creator_back_trace_index.of(data),
    )


def decode_owner(data: Buffer, base: int, layout: OwnerLayout, exclusive: bool = False) -> Optional[Owner]:
    """Decodes the `_OWNER_ENTRY` at an offset of data; None when nobody owns through it."""
    thread = layout.owner_thread.of(data, base)
    return Owner(thread, layout.owner_count.of(data, base), exclusive) if thread else None


def table_size(data: Buffer, layout: OwnerLayout) -> int:
    """Returns how many entries an OwnerTable has, the first included, which holds that number only."""
    return layout.table_size.of(data)


def decode_owner_table(data: Buffer, layout: OwnerLayout) -> List[Owner]:
    """Decodes what is given of an OwnerTable, from its first entry on: all its owners share the lock."""
    bases = range(layout.size, len(data) - layout.size + 1, layout.size)
    found = (decode_owner(data, base, layout) for base in bases)
    return [owner for owner in found if owner]


def is_address(value: int, pointer_size: int) -> bool:
    """Tells whether the union of Address and CreatorBackTraceIndex holds an address of the kernel.

    No index comes near: a database has less than 2^24 of them.
    """
    return value >= (0xFFFF800000000000 if pointer_size == 8 else 0x80000000)
