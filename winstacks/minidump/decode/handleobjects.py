# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Facts of a minidump about the objects of handles, beside their names: the owner of a mutex.

Source: "minidumpapiset.h" (MINIDUMP_HANDLE_DESCRIPTOR_2.ObjectInfoRva, MINIDUMP_HANDLE_OBJECT_INFORMATION,
MiniMutantInformation2). That MiniMutantInformation2 is the ID of the owner's process and of its thread is
described (Microsoft, "minidumpapiset.h"; MUTANT_OWNER_INFORMATION); forged only.
"""

from __future__ import annotations

from typing import Dict, Optional, Set, Tuple

from .dumpfile import FixedStruct, Minidump, read_headed_list
from .handles import HANDLE, HANDLE_HEADER, MAX_HANDLES

_HANDLE_DATA = 12
_OBJECT_INFO_RVA = 7
"""Number of the member in MINIDUMP_HANDLE_DESCRIPTOR_2; 0 in an older descriptor."""
_INFORMATION = FixedStruct("III")
_OWNER = FixedStruct("II")
_MUTANT_OWNER = 3
"""MiniMutantInformation2."""

_MOST_INFORMATION = 16
"""The most pieces of information about one object that are followed."""


def mutant_owners(dump: Minidump) -> Dict[int, Tuple[int, int]]:
    """Returns PID and TID of the owner of each handle's mutex; of handles without that information none."""
    found, _ = read_headed_list(dump, _HANDLE_DATA, HANDLE_HEADER, HANDLE, MAX_HANDLES, "NumberOfDescriptors")
    owners = ((row[0], _owner(dump, row[_OBJECT_INFO_RVA])) for row in found)
    return {handle: owner for handle, owner in owners if owner is not None}


def _owner(dump: Minidump, rva: int) -> Optional[Tuple[int, int]]:
    seen: Set[int] = set()
    while rva and rva not in seen and len(seen) < _MOST_INFORMATION:
        seen.add(rva)
        head = dump.read(rva, _INFORMATION.size)
        if head is None:
            return None
        following, kind, size = _INFORMATION.decode(head)
        data = dump.read(rva + _INFORMATION.size, _OWNER.size)
        if kind == _MUTANT_OWNER and size >= _OWNER.size and data is not None:
            pid, tid = _OWNER.decode(data)
            return pid, tid
        rva = following
    return None
