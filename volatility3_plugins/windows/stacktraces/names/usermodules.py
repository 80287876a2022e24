# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a process: what its loader lists know, what its VADs know, and where they disagree."""

from __future__ import annotations

import bisect
from typing import Dict, List, NamedTuple, Optional, Sequence

from volatility3.framework import interfaces

from ..base.decode import modulename
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from ..base.vads import Vad, Vads
from . import loaderlists
from .decode.pe import MAX_IMAGE
from .kernelmodules import Module, mark_overlaps
from .loaderlists import LoaderEntry, LoaderList

PARTLY_UNLINKED = "partly unlinked"
NO_VAD = "no VAD"
NO_FILE = "VAD without file"
OTHER_FILE = "VAD of another file"
NO_LIST = "no loader list"

_BOTH_ORDERS = 3


class ProcessModules(NamedTuple):
    """The modules of a process and its VADs, by address. `ntdlls` are those of that name by pointer size."""

    modules: List[Module]
    vads: List[Vad]
    vads_whole: bool
    ntdlls: Dict[int, Module]


class UserModules:
    """Lists the modules of processes.

    Args:
        context: the context that holds the processes' layers
        vads: reads VAD trees
    """

    def __init__(self, context: interfaces.context.ContextInterface, vads: Vads) -> None:
        self._context = context
        self._vads = vads

    def list_modules(self, halves: Sequence[AddressSpace], user_end: int) -> ProcessModules:
        """Returns the modules of a process.

        A module is what a loader list has, as far as the VAD at its base reaches: a process may write any
        size into its lists, and what is behind an image is not of it. Where a list could not be read to its
        end, or has an entry that no module can have, an image that only the VADs know may have been on it:
        it counts as a module, and says so.

        Args:
            halves: the process' native space and, in a WoW64 process, its 32-bit one
            user_end: the first address above the user's half
        """
        vads, vads_whole = self._vads.list_vads(halves[0].eprocess) if halves[0].eprocess else ([], False)
        vads = sorted(vad for vad in vads if vad.start < vad.end <= user_end)
        found: Dict[int, Module] = {}
        ntdlls: Dict[int, Module] = {}
        lists_whole = True
        for half in halves:
            listed = self._listed(half)
            lists_whole = lists_whole and listed.complete
            for entry in listed.entries:
                if entry.base + entry.size > user_end or entry.size > MAX_IMAGE:
                    lists_whole = False
                    continue
                status = _status(entry, listed.complete, vads if vads_whole else None)
                size = _size(entry, vads)
                module = found.setdefault(entry.base, _module(entry.base, size, entry.name, status))
                if module.name.lower() == "ntdll":
                    ntdlls.setdefault(half.pointer_size, module)
        if not lists_whole:
            for module in self._unlisted(vads):
                found.setdefault(module.base, module)
        return ProcessModules(mark_overlaps(found.values()), vads, vads_whole, ntdlls)

    def _listed(self, half: AddressSpace) -> LoaderList:
        if not half.layer_name:
            return LoaderList([], False)
        return loaderlists.user_modules(Peek(self._context, half.layer_name, half.pointer_size), half.peb)

    def file_status(self, module: Module, vads: Sequence[Vad]) -> str:
        """Returns whether the file that the VADs map at a module is the one that the loader lists name."""
        vad = vad_at(vads, module.base)
        path = self._vads.file_name(vad.control_area) if vad is not None and vad.control_area else None
        if path is None:
            return ""
        if not path:
            return NO_FILE
        return "" if modulename.file_name(path).lower() == module.file.lower() else OTHER_FILE

    def file_name(self, vad: Vad) -> Optional[str]:
        """Returns the name of the file behind a mapping; "" if none is, None if it cannot be read."""
        path = self._vads.file_name(vad.control_area)
        return modulename.file_name(path) if path else path

    def _unlisted(self, vads: Sequence[Vad]) -> List[Module]:
        images = [vad for vad in vads if vad.image]
        named = ((vad, self._vads.file_name(vad.control_area)) for vad in images)
        return [_module(vad.start, vad.end - vad.start, path, NO_LIST) for vad, path in named if path]


def vad_at(vads: Sequence[Vad], address: int) -> Optional[Vad]:
    """Returns the VAD (of VADs by address) that holds an address."""
    index = bisect.bisect_right(vads, (address, 1 << 64)) - 1
    return vads[index] if index >= 0 and address < vads[index].end else None


def _module(base: int, size: int, path: str, status: str) -> Module:
    return Module(base, size, modulename.module_name(path), modulename.file_name(path), status)


def _size(entry: LoaderEntry, vads: Sequence[Vad]) -> int:
    vad = vad_at(vads, entry.base)
    return entry.size if vad is None else min(entry.size, vad.end - entry.base)


def _status(entry: LoaderEntry, lists_whole: bool, vads: Optional[Sequence[Vad]]) -> str:
    words = [PARTLY_UNLINKED] if lists_whole and entry.orders != _BOTH_ORDERS else []
    if vads is not None:
        vad = vad_at(vads, entry.base)
        if vad is None:
            words.append(NO_VAD)
        elif not vad.control_area:
            words.append(NO_FILE)
    return ", ".join(words)
