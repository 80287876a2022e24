# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The layouts of the kernel's resources, from the image's own symbol table."""

from __future__ import annotations

from typing import NamedTuple, Optional

from volatility3.framework import interfaces

from ..base import members
from ..base.decode.field import Field
from .decode.eresource import OwnerLayout, ResourceLayout

_RESOURCE = "_ERESOURCE"
_OWNER = "_OWNER_ENTRY"
_FAST = "_FAST_ERESOURCE_INTERNAL"
_FAST_OWNER = "_FAST_OWNER_ENTRY_INTERNAL"


class FastOwnerLayout(NamedTuple):
    """`_FAST_OWNER_ENTRY_INTERNAL`."""

    size: int
    links: int
    thread: Field
    exclusive: Field
    waiting: Field


class FastLayout(NamedTuple):
    """What `_FAST_ERESOURCE_INTERNAL` (17763 and later) has instead of `_ERESOURCE`'s owners.

    `entry` is None where the symbols do not describe an owner's entry.
    """

    owner_list: int
    entry: Optional[FastOwnerLayout]


def resource(context: interfaces.context.ContextInterface, table: str, pointer_size: int) -> ResourceLayout:
    """Returns the layout of `_ERESOURCE`.

    Args:
        context: the context whose symbol space holds the table
        table: the kernel's symbol table
        pointer_size: 4 or 8
    """

    def need(type_name: str, *paths: str) -> Field:
        return members.need(context, table, type_name, *paths)

    active = need(_RESOURCE, "ActiveEntries", "ActiveCount")
    # Up to 2003 two entries, the first the exclusive owner's; since Vista one.
    owners = need(_RESOURCE, "OwnerEntry", "OwnerThreads")
    owner = OwnerLayout(
        size=members.size_of(context, table, _OWNER),
        owner_thread=need(_OWNER, "OwnerThread"),
        owner_count=need(_OWNER, "OwnerCount"),
        table_size=need(_OWNER, "TableSize"),
    )
    return ResourceLayout(
        size=members.size_of(context, table, _RESOURCE),
        pointer_size=pointer_size,
        links=need(_RESOURCE, "SystemResourcesList").offset,
        owner_table=need(_RESOURCE, "OwnerTable"),
        # ActiveCount is a SHORT, ActiveEntries a ULONG.
        active=active._replace(signed=active.size == 2),
        flag=need(_RESOURCE, "Flag"),
        owner_entries=owners.offset,
        owner_entry_count=owners.size // owner.size,
        contention_count=need(_RESOURCE, "ContentionCount"),
        shared_waiters=need(_RESOURCE, "NumberOfSharedWaiters"),
        exclusive_waiters=need(_RESOURCE, "NumberOfExclusiveWaiters"),
        creator_back_trace_index=need(_RESOURCE, "CreatorBackTraceIndex"),
        owner=owner,
    )


def fast_resource(context: interfaces.context.ContextInterface, table: str) -> Optional[FastLayout]:
    """Returns what differs in a fast resource, None where the kernel has none."""
    owner_list = members.find(context, table, _FAST, "OwnerEntryListHead")
    if owner_list is None:
        return None
    links = members.find(context, table, _FAST_OWNER, "ListEntry")
    thread = members.find(context, table, _FAST_OWNER, "ThreadAddress")
    exclusive = members.find(context, table, _FAST_OWNER, "CallerExclusive")
    waiting = members.find(context, table, _FAST_OWNER, "IsWaiting")
    if links is None or thread is None or exclusive is None or waiting is None:
        return FastLayout(owner_list.offset, None)
    size = members.size_of(context, table, _FAST_OWNER)
    return FastLayout(owner_list.offset, FastOwnerLayout(size, links.offset, thread, exclusive, waiting))
