# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A trace database of an address space, and how it was found."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from ..base.decode.status import Status
from ..base.space import AddressSpace
from .decode.header import Header

STD = "std"
HEAPLOG = "heaplog"
BY_SYMBOL = "symbol"
BY_SEARCH = "search"


class Database(NamedTuple):
    """A database and how it was found.

    Attributes:
        space: the address space that it is in
        kind: `std`, or `heaplog` for the heap's trace log
        address: canonical
        located_by: `symbol` or `search`
        layout: the name of its layout; empty when the header tells none
        header: of an `std`, None when nothing can be made of it
        status: empty, or what is wrong with the header
    """

    space: AddressSpace
    kind: str
    address: int
    located_by: str
    layout: str
    header: Optional[Header]
    status: Status


class Found(NamedTuple):
    """The databases of an address space; `status` says what kept others from being found."""

    databases: List[Database]
    status: Status
