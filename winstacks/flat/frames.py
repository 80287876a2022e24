# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is known of the address of a frame: its name, its module's build, its memory, its part of the keys.

    frames = NamedFrames(symbolizer)
    frame = frames.of(space).frame(return_address)

This is the only place that keeps what addresses are called. Stacks share most of their frames: each address
of an address space is named once, for the grids of single plugins and for the flat tables alike.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, NamedTuple, Optional

from ..columns.words import IMAGE, UNBACKED
from ..memory.decode.memo import Memo
from ..memory.decode.status import Said, Status, Word, status
from ..memory.image import AddressSpace
from ..names.places import FUZZY
from ..names.symbolizer import Name, SpaceNames, Symbolizer
from ..names.usermodules import vad_at
from ..tracedb.decode.recorded import RecordedStack
from .decode import keys
from .decode.keys import KeyPart
from .modules import ModuleIdentities, SpaceModules

MAX_FRAMES = 1 << 17
"""Frames that are kept, of all address spaces together: each takes some 200 bytes, in a flat table 800."""

_DOUBTS = (Said(Word.VAD_OF_ANOTHER_FILE), Said(Word.CONTRADICTED, members=("DllBase",)))
"""Status words of modules whose loader entry has a wrong base address or a wrong file."""


UNCERTAIN = frozenset(
    (
        *map(Said, (Word.MODULE_LIST_INCOMPLETE, Word.VADS_INCOMPLETE, Word.PAGE_TABLES_UNREADABLE)),
        *map(Said, (Word.FILE_NAME_UNREADABLE, Word.IN_NO_MODULE_LIST)),
        Said(Word.CONTRADICTED, members=("MmUnloadedDrivers",)),
    )
)
"""Status words of an address that a list which is not whole gave its name: it may have another."""


class FrameDetails(NamedTuple):
    """What is known of the address of a frame besides its name.

    Attributes:
        part: what it adds to the keys
        status: what is wrong with the address or its module
        protection: that of the memory, as the VAD has it
        module: name of its module as it stands in Symbol, None where it is in none
        path: path of the module's file
        stamp: TimeDateStamp of the module
        size: SizeOfImage of the module
        rva: the address relative to the module's base
        function: the function in Symbol
        displacement: bytes from the function's start
    """

    part: KeyPart
    status: Status
    protection: Optional[str] = None
    module: Optional[str] = None
    path: Optional[str] = None
    stamp: Optional[int] = None
    size: Optional[int] = None
    rva: Optional[int] = None
    function: Optional[str] = None
    displacement: Optional[int] = None


class NamedFrame:
    """What is known of the address of a frame. Addresses are canonical.

    Attributes:
        address: None where it is not in the image
        name: how it is written; None where it is not in the image
        shown: what stands for it in the column Stack
        unbacked: whether Unbacked counts it
    """

    __slots__ = ("_details", "_find", "address", "name", "shown", "unbacked")

    def __init__(
        self,
        address: Optional[int],
        name: Optional[Name],
        shown: str,
        find: Callable[[NamedFrame], FrameDetails],
    ) -> None:
        self.address = address
        self.name = name
        self.shown = shown
        self.unbacked = name is not None and name.backing in UNBACKED
        self._find = find
        self._details: Optional[FrameDetails] = None

    @property
    def details(self) -> FrameDetails:
        """What takes a look at the module's headers and at its entry in the loader's lists; found once."""
        if self._details is None:
            self._details = self._find(self)
        return self._details


def _missing(word: Word) -> NamedFrame:
    details = FrameDetails(keys.UNREADABLE, status(word))
    return NamedFrame(None, None, f"<{word.value}>", lambda _: details)


NOT_THERE = _missing(Word.UNREADABLE)
LINKED_OVER = _missing(Word.OVERWRITTEN)


class NamedFrames:
    """Looks up the frames of any address space.

    What is known of a space is kept as long as the symbolizer keeps its names. Of the frames at most
    MAX_FRAMES are, those of the space that was asked for last the longest.

    Args:
        symbolizer: names addresses

    Attributes:
        image: the image
    """

    def __init__(self, symbolizer: Symbolizer) -> None:
        self.image = symbolizer.image
        self._symbolizer = symbolizer
        self._identities = ModuleIdentities(symbolizer.image)
        self._kept: Dict[SpaceNames, SpaceFrames] = {}
        self._count = 0

    def __len__(self) -> int:
        """Returns how many frames are kept."""
        return self._count

    def of(self, space: AddressSpace) -> SpaceFrames:
        """Returns what looks up the frames of a space; both halves of a WoW64 process have the same."""
        names = self._symbolizer.names(space)
        found = self._kept.pop(names, None)
        if found is None:
            for gone in self._kept.keys() - self._symbolizer.kept():
                self._count -= self._kept.pop(gone).forget()
            found = SpaceFrames(names, self._identities.of(names), self._grow)
        self._kept[names] = found
        return found

    def _grow(self) -> None:
        """Counts a frame that is about to be kept; forgets older ones if there are too many."""
        self._count += 1
        if self._count > MAX_FRAMES:
            for each in self._kept.values():
                self._count -= each.forget()
                if self._count <= MAX_FRAMES // 2:
                    break


class SpaceFrames:
    """Looks up the frames of one address space.

    Args:
        names: its names
        modules: its modules
        grow: called before a frame is kept

    Attributes:
        any_unbacked: whether Unbacked counts any of the frames that were looked up so far
    """

    def __init__(self, names: SpaceNames, modules: SpaceModules, grow: Callable[[], None]) -> None:
        self.any_unbacked = False
        self._names = names
        self._grow = grow
        # Frames hold this and not their SpaceFrames, which holds them: no circle is left behind.
        details = _Details(names, modules)
        self._of_return, self._of_instruction = details.of_return, details.of_instruction
        self._returns: Memo[Optional[int], NamedFrame] = Memo(self._return)
        self._exact: Memo[Optional[int], NamedFrame] = Memo(self._interrupted)

    def forget(self) -> int:
        """Forgets the frames; returns how many there were."""
        count = len(self._returns) + len(self._exact)
        self._returns.clear()
        self._exact.clear()
        return count

    def stack(self, addresses: Iterable[Optional[int]], freed: bool = False) -> List[NamedFrame]:
        """Returns the frames of a stack, innermost first.

        Args:
            addresses: return addresses; None: overwritten in a freed trace, else not in the image
            freed: whether the trace is freed
        """
        found = list(map(self._returns.__getitem__, addresses))
        return [LINKED_OVER if each is NOT_THERE else each for each in found] if freed else found

    def recorded(self, stack: RecordedStack) -> List[NamedFrame]:
        """Returns the frames of a recorded stack, innermost first."""
        return self.stack(stack.frames, stack.freed)

    def frame(self, address: Optional[int], returns: bool = True) -> NamedFrame:
        """Returns one frame.

        Args:
            address: canonical; None where it is not in the image
            returns: False for the address of an instruction that was interrupted
        """
        return (self._returns if returns else self._exact)[address]

    def _return(self, address: Optional[int]) -> NamedFrame:
        return self._named(address, True)

    def _interrupted(self, address: Optional[int]) -> NamedFrame:
        return self._named(address, False)

    def _named(self, address: Optional[int], returns: bool) -> NamedFrame:
        self._grow()
        if address is None:
            return NOT_THERE
        name = self._names.name(address, returns)
        frame = NamedFrame(address, name, name.symbol, self._of_return if returns else self._of_instruction)
        self.any_unbacked = self.any_unbacked or frame.unbacked
        return frame


class _Details:
    """Finds the details of frames.

    Args:
        names: the names of an address space
        modules: its modules
    """

    def __init__(self, names: SpaceNames, modules: SpaceModules) -> None:
        self._names = names
        self._modules = modules

    def of_return(self, frame: NamedFrame) -> FrameDetails:
        """Returns those of a return address, which belongs to the code one byte before it."""
        return self._find(frame, 1)

    def of_instruction(self, frame: NamedFrame) -> FrameDetails:
        """Returns those of the address of an instruction that was interrupted."""
        return self._find(frame, 0)

    def _find(self, frame: NamedFrame, back: int) -> FrameDetails:
        address, name = frame.address, frame.name
        assert address is not None
        assert name is not None
        lookup = address - back
        process = self._names.process
        vad = vad_at(process.vads, lookup) if name.backing and process is not None else None
        protection = None if vad is None else vad.protection_name
        known = self._names.module_at(lookup) if name.backing == IMAGE else None
        if known is None:
            said = name.backing or ("fuzzy" if name is FUZZY else "zero")
            part = keys.elsewhere(said, UNCERTAIN.isdisjoint(name.status))
            return FrameDetails(part, name.status, protection)
        identity, module = self._modules.module(known), known.module
        rva = address - module.base
        label = known.image.names.find(lookup - module.base)
        doubted = identity.doubted or any(said in _DOUBTS for said in name.status)
        return FrameDetails(
            keys.in_module(module.name, identity.stamp, identity.size, rva, doubted),
            status(name.status, identity.status) if identity.status else name.status,
            protection,
            module.name,
            identity.path,
            identity.stamp,
            identity.size,
            rva,
            None if label is None else label[1],
            None if label is None else rva - label[0],
        )
