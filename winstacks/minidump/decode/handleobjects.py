# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Facts of a minidump about the objects of handles, beside their names: the owner of a mutex.

Source: "minidumpapiset.h" (MINIDUMP_HANDLE_DESCRIPTOR_2.ObjectInfoRva, MINIDUMP_HANDLE_OBJECT_INFORMATION,
MiniMutantInformation2). That MiniMutantInformation2 is the ID of the owner's process and of its thread is
described (Microsoft, "minidumpapiset.h"; MUTANT_OWNER_INFORMATION); forged only.
"""

from __future__ import annotations

from typing import Dict, Iterable, Optional, Set

from ...memory.decode.declared import ULONG, Declared
from ...memory.decode.records import NamedTuple
from .dumpfile import Minidump
from .handles import HandleDescriptor


class ObjectInformation(NamedTuple):
    """MINIDUMP_HANDLE_OBJECT_INFORMATION."""

    NextInfoRva: ULONG
    InfoType: ULONG
    SizeOfInfo: ULONG


class MutantOwner(NamedTuple):
    """MiniMutantInformation2: the IDs of the owner's process and thread."""

    pid: ULONG
    tid: ULONG


_INFORMATION, _OWNER = Declared(ObjectInformation), Declared(MutantOwner)
_MUTANT_OWNER = 3
"""MiniMutantInformation2."""

_MOST_INFORMATION = 16
"""The most pieces of information about one object that are followed."""


def mutant_owners(dump: Minidump, handles: Iterable[HandleDescriptor]) -> Dict[int, MutantOwner]:
    """Returns the owner of each handle's mutex; of handles without that information none."""
    owners = ((handle.Handle, _owner(dump, handle.ObjectInfoRva)) for handle in handles)
    return {handle: owner for handle, owner in owners if owner is not None}


def _owner(dump: Minidump, rva: int) -> Optional[MutantOwner]:
    seen: Set[int] = set()
    while rva and rva not in seen and len(seen) < _MOST_INFORMATION:
        seen.add(rva)
        head = dump.read(rva, _INFORMATION.size)
        if head is None:
            return None
        following, kind, size = _INFORMATION.decode(head)
        data = dump.read(rva + _INFORMATION.size, _OWNER.size)
        if kind == _MUTANT_OWNER and size >= _OWNER.size and data is not None:
            return _OWNER.decode(data)
        rva = following
    return None
