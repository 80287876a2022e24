# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""32-bit modules and stacks: those of an x86 Windows, and of the 32-bit half of a WoW64 process.

Code calls through memory (an import's slot), so that the same pages serve all processes.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from tests.forge.code import SITE, Routine
from tests.forge.module import Module
from tests.forge.process import Process
from tests.forge.stacks86 import Stack86
from tests.forge.wow64 import Wow64

from .libraries import DATA, FIRST, FOLDERS, FUNCTIONS, RDATA, STEP, STUB_STEP, STUBS, TEXT, path_of

SIZE = 0x80
BEHIND_STUB = 12
GROUND = ("ntdll!_RtlUserThreadStart", "kernel32!BaseThreadInitThunk")
WAIT = "ntdll!NtWaitForSingleObject"
WAIT_EX = "kernelbase!WaitForSingleObjectEx"
_NAMES = {
    "ntdll": FUNCTIONS["ntdll"].replace("RtlUserThreadStart ", "._RtlUserThreadStart ")
    + " KiFastSystemCallRet"
}
_MODULES, _ROOM = 0x70000000, 0x20000


class Private32(NamedTuple):
    """A frame in memory of no module."""

    base: int


class Library32(NamedTuple):
    """A module's functions and stubs by name, both as RVAs."""

    routines: Dict[str, Routine]
    stubs: Dict[str, int]
    options: Dict[str, Any]


def code_of(routine: Routine, ends: bool = False) -> bytes:
    """A function with a frame and calls: push ebp; mov ebp, esp; inc eax ...; call [address].

    With `ends` it has an end, too (leave; ret; int 3 ...): where the next one begins can be seen then.
    """
    code = bytearray(b"\x40" * SIZE)
    code[:3] = b"\x55\x8b\xec"
    for end in range(2 * SITE, SIZE, SITE):
        code[end - 6 : end] = b"\xff\x15\0\x50\0\x70"
    if ends:
        code[SIZE - SITE :] = b"\xc9\xc3".ljust(SITE, b"\xcc")
    return bytes(code)


def library32(file: str, functions: str = "", ends: bool = False) -> Library32:
    """A 32-bit module; `ends`: see `code_of`."""
    stem = file.rpartition(".")[0].lower()
    names = functions.split() or _NAMES.get(stem, FUNCTIONS.get(stem, "")).split()
    stubs = STUBS.get("win32u" if stem == "user32" else stem, "").split()
    routines = {name.lstrip("."): Routine(FIRST + STEP * place) for place, name in enumerate(names)}
    contents = {routine.rva: code_of(routine, ends) for routine in routines.values()}
    if "KiFastSystemCallRet" in routines:
        contents[routines["KiFastSystemCallRet"].rva] = b"\xc3" + b"\xcc" * (SIZE - 1)
    start = -(-(FIRST + STEP * len(names)) // 0x100) * 0x100
    places = {name: start + STUB_STEP * place for place, name in enumerate(stubs)}
    for number, rva in enumerate(places.values()):
        # mov eax, number; mov edx, 7FFE0300h; call [edx]; ret 0Ch
        contents[rva] = b"\xb8" + struct.pack("<I", number) + bytes.fromhex("ba0003fe7f ff12 c20c00")
    exports = {name: routines[name].rva for name in names if name[0] != "."}
    exports.update(places)
    options = {"contents": contents, "exports": exports, "text": TEXT, "rdata": RDATA, "data": DATA}
    if len(exports) < len(names) + len(stubs):
        options["symbols"] = {**{name: routine.rva for name, routine in routines.items()}, **places}
    return Library32(routines, places, options)


class Bases:
    """Where the 32-bit modules of one Windows lie: in all its processes at the same address."""

    def __init__(self) -> None:
        self._known: Dict[str, int] = {}

    def base_of(self, file: str) -> int:
        """The base of a module."""
        return self._known.setdefault(file.lower(), _MODULES + _ROOM * len(self._known))


class Narrow:
    """The 32-bit modules of a process (or of its 32-bit half), and stacks of their calls.

    Args:
        owner: the process, or its half
        bases: where modules lie
        name: of the program
        functions: of the program
        files: of other modules
        ends: see `code_of`
    """

    def __init__(
        self,
        owner: Union[Process, Wow64],
        bases: Bases,
        name: str,
        functions: str,
        files: Sequence[str],
        ends: bool = False,
    ) -> None:
        self.owner = owner
        self.space = owner.space
        self.name = name.rpartition(".")[0].lower()
        self.modules: Dict[str, Tuple[Module, Library32]] = {}
        self._bases, self._ends = bases, ends
        self.load(name, functions, key="", dll=False)
        for file in ("ntdll.dll", "kernel32.dll", "kernelbase.dll", *files):
            self.load(file)

    def load(self, file: str, functions: str = "", key: Optional[str] = None, **options: Any) -> Module:
        """Loads a module; `key` is what it is called in names of functions, "" for the program."""
        library = library32(file, functions, self._ends)
        stem = file.rpartition(".")[0].lower()
        known = {"dll": True, **library.options}
        if isinstance(self.owner, Process) or stem in FOLDERS:
            known["path"] = path_of(file).replace("Framework64", "Framework")
        module = self.owner.module(file, self._bases.base_of(file), **{**known, **options})
        self.modules[stem if key is None else key] = module, library
        return module

    def at(self, name: str) -> int:
        """Address of `module!function`, of a function of the program, or of a stub."""
        module, _, function = name.rpartition("!")
        loaded, library = self.modules[module]
        if function in library.stubs:
            return loaded.base + library.stubs[function]
        return loaded.base + library.routines[function].rva

    def stack(self, base: int, chain: Sequence[Union[str, Private32]], call: str = "") -> Stack86:
        """A stack on which functions called each other, the outermost first; the last called a stub."""
        stack = Stack86(self.space, base, direct=False).start()
        for link in chain:
            if isinstance(link, Private32):
                place, routine = link.base, Routine(0x100)
            else:
                module, _, function = link.rpartition("!")
                loaded, library = self.modules[module]
                place, routine = loaded.base, library.routines[function]
            stack.enter(place, routine)
            stack.call(place, routine)
        if call:
            stack.push(self.at(call) + BEHIND_STUB)
        return stack

    def frame_names(self, *links: Union[str, Private32]) -> Tuple[str, ...]:
        """How frames are shown."""
        names: List[str] = []
        for link in links:
            name = "<private>" if isinstance(link, Private32) else link
            names.append(name if "!" in name or name[0] == "<" else f"{self.name}!{name}")
        return tuple(names)
