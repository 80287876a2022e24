# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The handles of a process of an image as records of a dump.

Source of the members: the kernel's public symbols; HandleAttributes of ntdef.h. GrantedAccess of an entry is
the access that the handle grants.
"""

from __future__ import annotations

from typing import List, NamedTuple

from ..memory.image import AddressSpace, Image
from ..process.handletables import HandleTables
from ..process.objectheaders import Objects
from .decode.handles import MAX_HANDLES, HandleDescriptor


class HandleRecords(NamedTuple):
    """The handles of a dump.

    Attributes:
        handles: entries of HandleDataStream
        whole: whether the whole table could be read
        unnamed: number of handles whose object is not in the image
    """

    handles: List[HandleDescriptor]
    whole: bool
    unnamed: int


def handle_records(image: Image, space: AddressSpace) -> HandleRecords:
    """Returns the handles of a process.

    Raises:
        MissingMemberError: the kernel's symbols do not describe handle tables
    """
    tables, objects = image.service(HandleTables), image.service(Objects)
    table = tables.of(space.eprocess)
    if table is None:
        return HandleRecords([], False, 0)
    whole, unnamed = True, 0
    found: List[HandleDescriptor] = []
    for entry in tables.entries(table) if table.address else ():
        if entry is None or len(found) >= MAX_HANDLES:
            whole = False
            continue
        known = objects.describe(entry.object_header)
        unnamed += bool(known.status)
        references = objects.references(entry.object_header)
        found.append(
            HandleDescriptor(
                entry.handle,
                known.type,
                known.name,
                0,
                (entry.access or 0) & 0xFFFFFFFF,
                *(count & 0xFFFFFFFF for count in references),
            )
        )
    return HandleRecords(found, whole, unnamed)
