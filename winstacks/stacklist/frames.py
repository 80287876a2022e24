# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The facts about the address of a frame: name, build of the module, kind of memory, part of the keys.

    frames = NamedFrames(symbolizer)
    frame = frames.for_space(space).frame(return_address)

This is the only module that stores the names of addresses. Stacks share most of their frames: each address of
an address space is named once, for the tables of all plugins.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Callable, Collection, Dict, Iterable, List, Optional, Protocol, Sequence, Tuple

from ..columns.dictionary import STACK_SEPARATOR
from ..columns.words import IMAGE, UNBACKED, UNKNOWN
from ..memory.decode.memo import Memo
from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import Status, contradicted, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.decode.text import ShortText, short_of, with_address
from ..memory.image import AddressSpace
from ..names.places import FUZZY
from ..names.symbolizer import AddressNamer, Name, Symbolizer
from ..process.presentcode import CodeHere, PresentCode
from ..stacks.decode.frames import Frame
from ..tracedb.decode.recorded import RecordedStack
from .decode import keys
from .decode.keys import KeyPart
from .modules import ModuleIdentities, SpaceModules

MAX_FRAMES = 1 << 14
"""The most frames that are stored, of all address spaces together: each takes some 200 bytes, in a flat table
800."""

_shown, _unbacked, _kept_part = map(attrgetter, ("shown", "unbacked", "_part"))

_DOUBTS = status(StatusCode.VAD_OF_ANOTHER_FILE, contradicted("DllBase"))
"""Status words of modules whose loader entry has a wrong base address or a wrong file."""


UNCERTAIN = frozenset(status(*words_that(Means.LIST_INCOMPLETE), contradicted("MmUnloadedDrivers")))
"""Status words of an address whose name comes from an incomplete list: the name may be wrong."""


class FrameDetails(NamedTuple):
    """The facts about the address of a frame in addition to its name.

    Attributes:
        protection: protection of the memory, as its VAD states it
        module: name of its module, as in Symbol; None if it is in no module
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


class FrameFacts(Protocol):
    """Finds the facts about the address of a frame."""

    def details(self, frame: NamedFrame) -> FrameDetails:
        """Returns what module and memory the address is in."""

    def part(self, frame: NamedFrame) -> KeyPart:
        """Returns `part` of the details: the keys of a stack need no more."""

    def code(self, frame: NamedFrame) -> CodeHere:
        """Returns the facts that the pages there show."""


class NamedFrame:
    """An address of a frame, with its name. Addresses are canonical.

    Attributes:
        address: the address; None if it is not in the image
        name: the name; None if the address is not in the image
        shown: text for the column Stack
        backing: the column Backing; None if the address is not in the image
        unbacked: whether Unbacked counts the frame; None if the image does not show it
    """

    __slots__ = ("_code", "_details", "_facts", "_part", "address", "backing", "name", "shown", "unbacked")

    def __init__(
        self,
        address: Optional[int],
        name: Optional[Name],
        shown: str,
        facts: FrameFacts,
    ) -> None:
        self.address = address
        self.name = name
        self.shown = shown
        self.backing = None if name is None else name.backing
        self.unbacked: Optional[bool] = None if self.backing == UNKNOWN else self.backing in UNBACKED
        self._facts = facts
        self._details: Optional[FrameDetails] = None
        self._part: Optional[KeyPart] = None
        self._code: Optional[CodeHere] = None

    def symbol(self, mask: int = -1) -> str:
        """Returns the column Symbol of a frame with a name; see `with_address` for its short form."""
        return with_address(self.shown, None if self.address is None else self.address & mask)

    @property
    def details(self) -> FrameDetails:
        """The details, found at the first use: this reads the module's headers and its loader entry."""
        if self._details is None:
            self._details = self._facts.details(self)
        return self._details

    @property
    def part(self) -> KeyPart:
        """The part of the frame in the keys of its stack."""
        if self._part is None:
            self._part = self._facts.part(self)
        return self._part

    @property
    def code(self) -> CodeHere:
        """The facts that the pages at the address show, read at the first use: one table alone has them."""
        if self._code is None:
            self._code = self._facts.code(self)
        return self._code

    def settled(self) -> NamedFrame:
        """Returns the frame with its details found: it no longer keeps the modules of its process."""
        if isinstance(self._facts, _FoundFacts):
            return self
        return NamedFrame(self.address, self.name, self.shown, _FoundFacts(self.details, self._code))

    def __reduce__(self) -> Tuple[Callable[..., NamedFrame], Tuple[object, ...]]:
        """Returns what another process needs: it cannot find the details, so they are found here."""
        return NamedFrame, (self.address, self.name, self.shown, self.settled()._facts)


class _FoundFacts(NamedTuple):
    """The facts about a frame that another process has found, or of one that is not in the image."""

    found: FrameDetails
    found_code: Optional[CodeHere]

    def details(self, frame: NamedFrame) -> FrameDetails:
        return self.found

    def part(self, frame: NamedFrame) -> KeyPart:
        return self.found.part

    def code(self, frame: NamedFrame) -> CodeHere:
        """Only the table of frames has them, whose rows are made where the frames are found."""
        assert self.found_code is not None
        return self.found_code


def stack_text(frames: Collection[NamedFrame], mask: int = -1) -> str:
    """Returns the column Stack of frames, innermost first; its short form has the short forms of Symbols."""
    whole = STACK_SEPARATOR.join(map(_shown, frames))
    if "<" not in whole:
        return whole
    return ShortText(whole, STACK_SEPARATOR.join([short_of(frame.symbol(mask)) for frame in frames]))


def key_parts(frames: Sequence[NamedFrame]) -> List[KeyPart]:
    """Returns the parts of frames in the keys of their stack. Most were found for an earlier stack: these
    cost no call each."""
    parts = list(map(_kept_part, frames))
    return parts if all(parts) else [frame.part for frame in frames]


def count_unbacked(frames: Iterable[NamedFrame]) -> Optional[int]:
    """Returns how many frames Unbacked counts; None if that is unknown for one of them."""
    counted = list(map(_unbacked, frames))
    return None if None in counted else sum(counted)


def _missing(word: StatusCode) -> NamedFrame:
    details = FrameDetails(keys.UNREADABLE, status(word))
    return NamedFrame(None, None, f"<{word.value}>", _FoundFacts(details, CodeHere()))


NOT_THERE = _missing(StatusCode.UNREADABLE)
LINKED_OVER = _missing(StatusCode.OVERWRITTEN)


class NamedFrames:
    """Looks up the frames of any address space.

    The frames of an address space are stored while the symbolizer stores its names. At most MAX_FRAMES frames
    are stored; the frames of the space used last are dropped last.
    """

    def __init__(self, symbolizer: Symbolizer) -> None:
        self.image = symbolizer.image
        self._symbolizer = symbolizer
        self._identities = ModuleIdentities(symbolizer.image)
        self._pages = symbolizer.image.service(PresentCode)
        self._kept: Dict[AddressNamer, SpaceFrames] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def for_space(self, space: AddressSpace) -> SpaceFrames:
        """Returns the look-up for the frames of a space; both halves of a WoW64 process share one."""
        names = self._symbolizer.for_space(space)
        frames = self._kept.pop(names, None)
        if frames is None:
            for dropped in self._kept.keys() - self._symbolizer.kept_namers():
                self._count -= self._kept.pop(dropped).forget()
            modules = self._identities.for_space(names)
            facts = [_Facts(names, modules, self._pages, space, back) for back in (0, 1)]
            frames = SpaceFrames(names, facts, self._grow)
        self._kept[names] = frames
        return frames

    def _grow(self) -> None:
        """Counts a frame that is about to be stored; drops older ones if there are too many."""
        self._count += 1
        if self._count > MAX_FRAMES:
            for frames in self._kept.values():
                self._count -= frames.forget()
                if self._count <= MAX_FRAMES // 2:
                    break


class SpaceFrames:
    """Looks up the frames of one address space. `any_unbacked` says whether Unbacked counts, or may count,
    any frame that was looked up so far.

    Args:
        facts: finds the facts about interrupted instructions, and those about return addresses
        grow: function that is called before a frame is stored
    """

    def __init__(self, names: AddressNamer, facts: Sequence[_Facts], grow: Callable[[], None]) -> None:
        self.any_unbacked = False
        self._names = names
        self._grow = grow
        # Frames refer to these objects and not to their SpaceFrames, which refers to them: no reference cycle
        # arises.
        self._facts = facts
        self._returns: Memo[Optional[int], NamedFrame] = Memo(self._return)
        self._exact: Memo[Optional[int], NamedFrame] = Memo(self._interrupted)

    def forget(self) -> int:
        """Drops the frames and returns their number."""
        count = len(self._returns) + len(self._exact)
        self._returns.clear()
        self._exact.clear()
        return count

    def stack(self, addresses: Iterable[Optional[int]], freed: bool = False) -> List[NamedFrame]:
        """Returns the frames of a stack, innermost first. `addresses` are return addresses; None stands for
        an address overwritten in a freed trace, else for one not in the image."""
        frames = list(map(self._returns.__getitem__, addresses))
        return [LINKED_OVER if frame is NOT_THERE else frame for frame in frames] if freed else frames

    def name_recorded(self, stack: RecordedStack) -> List[NamedFrame]:
        """Returns the frames of a recorded stack, innermost first."""
        return self.stack(stack.frames, stack.freed)

    def name_walked(self, frames: Iterable[Frame]) -> List[NamedFrame]:
        """Returns the frames of a walked stack, innermost first."""
        return [self.frame(frame.address, frame.returns) for frame in frames]

    def frame(self, address: Optional[int], returns: bool = True) -> NamedFrame:
        """Returns one frame.

        Args:
            address: canonical address; None if it is not in the image
            returns: False for the address of an interrupted instruction
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
        frame = NamedFrame(address, name, name.symbol, self._facts[returns])
        self.any_unbacked = self.any_unbacked or frame.unbacked is not False
        return frame


class _Facts:
    """Finds the facts about addresses of one address space.

    Args:
        space: the address space, or a half of it
        back: 1 for return addresses, which belong to the code one byte before them; 0 for addresses of
            interrupted instructions
    """

    def __init__(
        self, names: AddressNamer, modules: SpaceModules, pages: PresentCode, space: AddressSpace, back: int
    ) -> None:
        self._names = names
        self._modules = modules
        self._pages = pages
        self._space = space
        self._back = back

    def code(self, frame: NamedFrame) -> CodeHere:
        """Returns what the pages of a frame show; the bytes only of code that no file has."""
        address, name = frame.address, frame.name
        assert address is not None
        if name is None or not name.backing:
            return CodeHere()
        process = self._names.process
        vad = None if process is None else span_at(process.vads, address - self._back)
        leading, trailing = self._pages.around(self._space, address) if frame.unbacked else (None, None)
        return CodeHere(
            self._pages.protection(self._space, vad, address - self._back),
            self._pages.private_bytes(self._space, vad),
            leading,
            trailing,
        )

    def details(self, frame: NamedFrame) -> FrameDetails:
        """Returns the module and the memory of an address."""
        address, name = frame.address, frame.name
        assert address is not None
        assert name is not None
        lookup = address - self._back
        process = self._names.process
        vad = span_at(process.vads, lookup) if name.backing and process is not None else None
        protection = None if vad is None else vad.protection_name
        known_module = self._names.module_at(lookup) if name.backing == IMAGE else None
        if known_module is None:
            return FrameDetails(frame.part, name.status, protection)
        identity, module = self._modules.module(known_module), known_module.module
        rva = address - module.base
        function = known_module.image.names.find_label(lookup - module.base)
        return FrameDetails(
            frame.part,
            status(name.status, identity.status) if identity.status else name.status,
            protection,
            module.name,
            identity.path,
            identity.stamp,
            identity.size,
            rva,
            None if function is None else function[1],
            None if function is None else rva - function[0],
        )

    def part(self, frame: NamedFrame) -> KeyPart:
        """Returns the part of an address in keys: its place in its module, or its Backing."""
        address, name = frame.address, frame.name
        assert address is not None
        assert name is not None
        known_module = self._names.module_at(address - self._back) if name.backing == IMAGE else None
        if known_module is None:
            place = name.backing or ("fuzzy" if name is FUZZY else "zero")
            return keys.elsewhere(place, UNCERTAIN.isdisjoint(name.status))
        identity, module = self._modules.module(known_module), known_module.module
        doubted = identity.doubted or any(item in _DOUBTS for item in name.status)
        return keys.in_module(module.name, identity.stamp, identity.size, address - module.base, doubted)
