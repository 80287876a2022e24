# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A trace database of an address space, and how it was found."""

from __future__ import annotations

from typing import List, Optional

from ..base.decode.record import Record
from ..base.decode.status import Status
from ..base.space import AddressSpace
from .decode.header import Header

STD = "std"
HEAPLOG = "heaplog"
BY_SYMBOL = "symbol"
BY_SEARCH = "search"


class Database(Record):
    """A database and how it was found.

    Attributes:
        space: the address space in which it is
        kind: `std`, or `heaplog` for the heap's trace log
        address: canonical
        located_by: `symbol` or `search`
        layout: the name of its layout; empty if the header fits no layout
        header: the header of an `std`; None if it is too damaged, and for a `heaplog`
        status: what is wrong with the header; empty if nothing is
    """

    space: AddressSpace
    kind: str
    address: int
    located_by: str
    layout: str
    header: Optional[Header]
    status: Status


class Found(Record):
    """The databases of an address space; `status` says why others may not have been found."""

    databases: List[Database]
    status: Status
