# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The handles of a process of an image as records of a dump.

Source of the members: the kernel's public symbols; HandleAttributes of ntdef.h. GrantedAccess of an entry is
the access that the handle grants.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from ..memory.decode.records import NamedTuple
from ..memory.image import AddressSpace, Image
from ..process.handletables import HandleTables
from ..process.objectheaders import Objects
from .decode.handles import MAX_HANDLES, HandleDescriptor


class HandleRecords(NamedTuple):
    """The handles of a dump. `lost` names the unknown members, once for each entry: they are 0 or empty
    there."""

    handles: List[HandleDescriptor]
    whole: bool
    lost: Tuple[str, ...]


def handle_records(image: Image, space: AddressSpace) -> HandleRecords:
    """Returns the handles of a process. Raises MissingMemberError if the kernel's symbols do not describe
    handle tables."""
    tables, objects = image.service(HandleTables), image.service(Objects)
    table = tables.table_of(space.eprocess)
    if table is None:
        return HandleRecords([], False, ())
    whole = True
    lost: List[str] = []
    found: List[HandleDescriptor] = []
    for entry in tables.entries(table) if table.address else ():
        if entry is None or len(found) >= MAX_HANDLES:
            whole = False
            continue
        known = objects.describe(entry.object_header)
        handles, pointers = objects.references(entry.object_header)
        values: Dict[str, object] = {
            "TypeName": None if known.status else known.type,
            # The attributes are bits that mean something else in each version.
            "Attributes": None,
            "GrantedAccess": entry.access,
            "HandleCount": handles,
            "PointerCount": pointers,
        }
        lost += (name for name, value in values.items() if value is None)
        found.append(
            HandleDescriptor(
                entry.handle,
                known.type,
                known.name,
                0,
                (entry.access or 0) & 0xFFFFFFFF,
                (handles or 0) & 0xFFFFFFFF,
                (pointers or 0) & 0xFFFFFFFF,
            )
        )
    return HandleRecords(found, whole, tuple(lost))
