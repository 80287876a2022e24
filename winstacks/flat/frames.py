# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is known of the address of a frame: its name, its module's build, its memory, its part of the keys.

    frames = FlatFrames(symbolizer)
    frame = frames.of(space).returns(address)

Each address of an address space is looked up once, for stacks share most of their frames.
"""

from __future__ import annotations

from typing import Callable, Dict, Generic, Iterable, List, NamedTuple, Optional, Tuple, TypeVar

from ..memory.decode.status import NOTHING, Said, Status, Word, status
from ..memory.image import AddressSpace
from ..names.places import FUZZY, IMAGE
from ..names.symbolizer import UNBACKED, Name, SpaceNames, Symbolizer
from ..names.usermodules import vad_at
from .decode import keys
from .decode.keys import KeyPart
from .modules import ModuleIdentities, SpaceModules

Made = TypeVar("Made")

MAX_FRAMES = 1 << 16
"""Frames that are kept, of all address spaces together: each takes some 800 bytes."""

_DOUBTS = (Said(Word.VAD_OF_ANOTHER_FILE), Said(Word.CONTRADICTED, members=("DllBase",)))
"""A module with one of these is not where, or not of that file, which its loader's entry says."""


class FlatFrame(NamedTuple):
    """What is known of an address. Addresses are canonical.

    Attributes:
        address: None where it is not in the image
        name: how it is written; None where it is not in the image
        shown: what stands for it in the column Stack
        unbacked: whether Unbacked counts it
        part: what it adds to the keys
        status: what is wrong with the address or its module
        module: name of its module as it stands in Symbol, None where it is in none
        path: path of the module's file
        stamp: TimeDateStamp of the module
        size: SizeOfImage of the module
        rva: the address relative to the module's base
        function: the function in Symbol
        displacement: bytes from the function's start
        protection: that of the memory, as the VAD has it
    """

    address: Optional[int]
    name: Optional[Name]
    shown: str
    unbacked: bool
    part: KeyPart
    status: Status = NOTHING
    module: Optional[str] = None
    path: Optional[str] = None
    stamp: Optional[int] = None
    size: Optional[int] = None
    rva: Optional[int] = None
    function: Optional[str] = None
    displacement: Optional[int] = None
    protection: Optional[str] = None


def _missing(word: Word) -> FlatFrame:
    return FlatFrame(None, None, f"<{word.value}>", False, keys.UNREADABLE, status(word))


NOT_THERE = _missing(Word.UNREADABLE)
LINKED_OVER = _missing(Word.OVERWRITTEN)


class OfFrames(Generic[Made]):
    """What is made of frames, of each once: stacks share most of theirs.

    Args:
        make: makes it of a frame
    """

    def __init__(self, make: Callable[[FlatFrame], Made]) -> None:
        self._make = make
        # The frame is kept beside it, so that no other frame gets its place in memory.
        self._made: Dict[int, Tuple[FlatFrame, Made]] = {}

    def __getitem__(self, frame: FlatFrame) -> Made:
        found = self._made.get(id(frame))
        if found is None:
            if len(self._made) >= MAX_FRAMES:
                self._made.clear()
            found = self._made[id(frame)] = frame, self._make(frame)
        return found[1]


class FlatFrames:
    """Looks up the frames of any address space.

    What is known of a space is kept as long as the symbolizer keeps its names. Of the frames at most
    MAX_FRAMES are, those of the space that was asked for last the longest.

    Args:
        symbolizer: names addresses
    """

    def __init__(self, symbolizer: Symbolizer) -> None:
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
    """

    def __init__(self, names: SpaceNames, modules: SpaceModules, grow: Callable[[], None]) -> None:
        self._names = names
        self._modules = modules
        self._grow = grow
        self._returns: Dict[Optional[int], FlatFrame] = {}
        self._exact: Dict[Optional[int], FlatFrame] = {}

    def forget(self) -> int:
        """Forgets the frames; returns how many there were."""
        count = len(self._returns) + len(self._exact)
        self._returns.clear()
        self._exact.clear()
        return count

    def stack(self, addresses: Iterable[Optional[int]], freed: bool = False) -> List[FlatFrame]:
        """Returns the frames of a stack, innermost first.

        Args:
            addresses: return addresses; None: overwritten in a freed trace, else not in the image
            freed: whether the trace is freed
        """
        if freed:
            return [LINKED_OVER if each is None else self.frame(each) for each in addresses]
        known = self._returns
        return [known.get(each) or self.frame(each) for each in addresses]

    def frame(self, address: Optional[int], returns: bool = True) -> FlatFrame:
        """Returns one frame.

        Args:
            address: canonical; None where it is not in the image
            returns: False for the address of an instruction that was interrupted
        """
        memo = self._returns if returns else self._exact
        found = memo.get(address)
        if found is None and address is not None:
            found = self._looked_up(address, returns)
            self._grow()
            memo[address] = found
        return found or NOT_THERE

    def _looked_up(self, address: int, returns: bool) -> FlatFrame:
        name = self._names.name(address, returns)
        lookup = address - 1 if returns else address
        process = self._names.process
        vad = vad_at(process.vads, lookup) if name.backing and process is not None else None
        protection = None if vad is None else vad.protection_name
        known = self._names.module_at(lookup) if name.backing == IMAGE else None
        unbacked = name.backing in UNBACKED
        if known is None:
            part = keys.elsewhere(name.backing or ("fuzzy" if name is FUZZY else "zero"))
            return FlatFrame(address, name, name.symbol, unbacked, part, name.status, protection=protection)
        identity, module = self._modules.module(known), known.module
        rva = address - module.base
        label = known.image.names.find(lookup - module.base)
        doubted = identity.doubted or any(said in _DOUBTS for said in name.status)
        return FlatFrame(
            address,
            name,
            name.symbol,
            unbacked,
            keys.in_module(module.name, identity.stamp, identity.size, rva, doubted),
            status(name.status, identity.status) if identity.status else name.status,
            module.name,
            identity.path,
            identity.stamp,
            identity.size,
            rva,
            None if label is None else label[1],
            None if label is None else rva - label[0],
            protection,
        )
