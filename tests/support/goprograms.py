# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Parts of real Go programs, compiled from tests/data/go/main.go."""

from __future__ import annotations

import itertools
import json
import lzma
from typing import Any, Dict, List, Optional, Tuple

from tests.conftest import ROOT
from tests.support import traplayouts
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.structure import Structures
from winstacks.names.decode import pe
from winstacks.names.decode.functiontable import FunctionTable
from winstacks.names.decode.pclntab import GoTable
from winstacks.stacks.decode.frames import CodeImage, StackWalk
from winstacks.stacks.decode.functions_x86 import Functions
from winstacks.stacks.decode.registers import Registers, Registers32
from winstacks.stacks.decode.surroundings import Surroundings
from winstacks.stacks.decode.walk_arm64 import WalkerArm64
from winstacks.stacks.decode.walk_x64 import Walker64
from winstacks.stacks.decode.walk_x86 import Walker32

FOLDER = ROOT / "tests" / "data" / "go"
PROGRAMS = ("amd64-1.19", "amd64-1.27", "386-1.19", "arm64-1.19")
STARTED = PROGRAMS[:3]
"""Those with the stack of a thread."""


class GoProgram:
    """The parts of a program.

    Attributes:
        functions: begin and end of the functions that are there, by name
        traceback: Go's own traceback of a goroutine: names and offsets, innermost first
        start: return address in `asmstdcall`, stack pointer there and, on x86, Ebp
        parts: all bytes that are there; an argument of that name replaces them, and may be shorter
        reads, searched: number of short reads, and bytes that were searched
    """

    def __init__(self, name: str, parts: Optional[bytes] = None) -> None:
        data: Dict[str, Any] = json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
        self.base: int = data["base"]
        self.size: int = data["size"]
        self.functions: Dict[str, Tuple[int, int]] = {
            key: (a, b) for key, (a, b) in data["functions"].items()
        }
        self.traceback: List[Tuple[str, int]] = [(key, at) for key, at in data.get("traceback", ())]
        self.start: List[int] = data.get("start", [])
        image = [(rva, bytes.fromhex(text)) for rva, text in data["image"]]
        memory = [(at, bytes.fromhex(text)) for at, text in data.get("memory", ())]
        self.parts = b"".join(part for _, part in image + memory)
        self.extents, self.memory = Extents(image), Extents(memory)
        if parts is not None:
            starts = [0, *itertools.accumulate(len(part) for _, part in image + memory)]
            cut = [parts[start:end] for start, end in zip(starts, starts[1:])]
            self.extents = Extents((rva, part) for (rva, _), part in zip(image, cut) if part)
            stack = ((at, part) for (at, _), part in zip(memory, cut[len(image) :]) if part)
            self.memory = Extents(stack)
        self.reads = self.searched = 0
        self.headers = pe.read_headers(self.extents.read)
        self.table = GoTable(self.load, self.read, self.headers, self.base)

    def read(self, rva: int, length: int) -> Optional[memoryview]:
        """Reads the image."""
        self.reads += 1
        return self.extents.read(rva, length)

    def load(self, rva: int, length: int) -> Extents:
        """Returns the present parts of the image."""
        self.searched += length
        return self.extents.part(rva, length)

    def image(self) -> CodeImage:
        """Returns the module for a walk."""
        rva, size = self.headers.directory(pe.DIRECTORY_EXCEPTION)
        pdata = self.extents.read(rva, size) if size else None
        functions = None if pdata is None else FunctionTable.from_bytes(pdata, self.extents.read)
        code = tuple((part.start, part.end) for part in self.headers.sections if part.characteristics & 0x20)
        return CodeImage(self.base, self.size, self.extents.read, functions, code, go=self.table)

    def named(self, address: int) -> Optional[Tuple[str, int]]:
        """Returns the name of the function of a return address, and the offset of the address."""
        function = self.table.find(address - 1 - self.base)
        return None if function is None else (function.plain_name, address - self.base - function.begin)


TYPES = traplayouts.ours("x86")


def walker(program: GoProgram, name: str, read: Any) -> Any:
    """Returns the walker for a program's machine. `read` reads memory outside the program."""
    image = program.image()
    find = lambda at: image if image.base <= at < image.base + image.size else None  # noqa: E731
    around = Surroundings(find_stack=lambda at: _run_at(program, at))
    if name.startswith("amd64"):
        return Walker64(find, read, surroundings=around)
    if name.startswith("386"):
        code = Functions(lambda at, length: image.read_rva(at - image.base, length))
        return Walker32(find, read, TYPES, functions=code, surroundings=around)
    return WalkerArm64(find, read, Structures(lambda name: None), surroundings=around)


def _run_at(program: GoProgram, address: int) -> Optional[Tuple[int, int]]:
    run = program.memory.run_at(address)
    return None if run is None else (run[0], run[0] + len(run[1]))


def walk(name: str, program: GoProgram) -> StackWalk:
    """Walks from behind Windows' return to `asmstdcall`."""
    ip, sp = program.start[:2]
    low, data = program.memory.run_at(sp) or (0, b"")
    first: Any
    if name.startswith("386"):
        first = Registers32(ip, sp, program.start[2], exact=False)
    else:
        slots = range(sp, low + len(data), 8)
        values = ((at, int.from_bytes(program.memory.read(at, 8) or b"", "little")) for at in slots)
        named = ((at, program.named(value)) for at, value in values)
        pad = next((at for at, found in named if found and "landingpad" in found[0]), 8)
        first = Registers.from_known(ip, sp, {"Rbp": pad - 8})
    found: StackWalk = walker(program, name, program.memory.read).walk(first, False, [(low, low + len(data))])
    return found
