# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The table of functions in a program of Go (pclntab): names, and the depth of the stack at each instruction.

    table = GoTable(load, read, headers, base)       # nothing is read yet
    function = table.find(rva)                       # name and range, or None
    depth = table.depth(function, rva)               # bytes from the stack pointer to the end of the frame

Go's runtime walks stacks by this table. It is searched when an address of the program is first asked, and
read entry by entry. The program can write it: a function must repeat its address, and all lengths are
bounded. Addresses are RVAs.

Source: Go's runtime, symtab.go (pcHeader, moduledata, functab, step) and runtime2.go (_func), of Go 1.19 to
1.27; for older forms Go's debug/gosym, and programs of these forms.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Callable, Iterator, Optional, Sequence, Tuple

from ...memory.decode import text
from ...memory.decode.memo import Kept
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import unsigned
from .pe import (
    MACHINE_AMD64,
    MACHINE_ARM64,
    MACHINE_I386,
    MEM_DISCARDABLE,
    MEM_EXECUTE,
    MEM_WRITE,
    Headers,
    Section,
)
from .unwindinfo import ReadRva

SYMTAB = ".symtab"
"""The section that Go's own linker adds to each program."""
_CRT = ".CRT"
"""The section that GNU's linker adds to each program: the linker that joins Go code and C code."""
_CGO_EXPORT = "_cgo_dummy_export"
"""The export that a program with Go code and C code has up to Go 1.25, whatever linker joined them. Source:
Go's runtime/cgo."""

_MACHINES = {MACHINE_I386: (1, 4), MACHINE_AMD64: (1, 8), MACHINE_ARM64: (4, 8)}
"""The smallest size of an instruction, and the size of a pointer, by the machine."""
_GO_1_2, _GO_1_16, _GO_1_18, _GO_1_20 = 0xFB, 0xFA, 0xF0, 0xF1
"""The first byte of each form, by the version that began with it."""
_FLAG_AT = {_GO_1_16: 33, _GO_1_18: 33, _GO_1_20: 37}
"""Offset of a function's flags behind its address; the first form has none, and Go 1.16 writes 0."""
_DEPTHS_AT = 12
"""Offset of pcsp behind a function's address."""
_TEXT_WORD = 22
"""The member `text` of moduledata, counted in pointers."""

_SEARCHED = 1 << 26
"""Bytes of an image that are searched."""
_PORTION = 1 << 16
_MOST_CANDIDATES = 64
"""Places of a pattern that are examined in one search."""
_MOST_FUNCTIONS = 1 << 22
_KEPT = 1 << 12
_READ = 64
"""Bytes of a name or a list of depths that are read at once."""
_LONGEST_LIST = 1 << 14
"""Maximum bytes of a function's list of depths."""
_LONGEST_NUMBER = 5
"""Maximum bytes of a number of 32 bits with seven bits in a byte."""
_DEEPEST = 1 << 30
"""The limit of a goroutine's stack. Source: maxstacksize of Go's runtime."""

_WRITES_SP, _ASSEMBLER = 2, 4
"""FuncFlag_SPWRITE: the function gives the stack pointer values that its list lacks; FuncFlag_ASM."""
_ABI0 = ".abi0"
GOEXIT = "runtime.goexit"
"""The base of goroutines: each begins as if the second instruction of this function were its caller."""
GOEXITS = GOEXIT, GOEXIT + _ABI0
"""Its names: some programs mark functions in assembler."""
_SWITCHES = re.compile(
    r"runtime\.(?:asmcgocall|asmstdcall|badsignal2|callbackasm1|cgocallback|cgocallback_gofunc|ctrlhandler"
    r"|exceptiontramp|externalthreadhandler|firstcontinuetramp|gogo|jmpdefer|lastcontinuetramp|mcall|morestack"
    r"|onosstack|profileloop|rt0_go|sigtramp|switchtothread|systemstack|tstart|tstart_stdcall|usleep[12])"
    r"|.*/curve25519\..*"
)
"""Functions that leave their stack or align it, in forms without the flag."""


def may_be_go(headers: Headers, exports: Sequence[str]) -> bool:
    """Returns whether a module may be a Go program, by the names of its sections and exports: only then a
    table is worth a search."""
    return _CGO_EXPORT in exports or any(section.name in (SYMTAB, _CRT) for section in headers.sections)


class GoFunction(NamedTuple):
    """A function of a Go program.

    Attributes:
        end: RVA of the next function; padding before it belongs to this one
        depths: offset of the list of depths, 0 for a function without one
        switches: whether the stack pointer may have other values than the list of depths says, except at the
            first instruction
        assembler: whether the function is marked as one in assembler: it may keep a return address anywhere
    """

    begin: int
    end: int
    name: str
    depths: int
    switches: bool
    assembler: bool

    @property
    def plain_name(self) -> str:
        """The name without the mark of assembler functions."""
        return self.name[: -len(_ABI0)] if self.name.endswith(_ABI0) else self.name


class _Form(NamedTuple):
    """The RVAs of a table's parts.

    Attributes:
        kind: first byte of the table
        width: bytes of each value in the list of functions
        zero: what the list would say of RVA 0: lists have addresses, or offsets in the code
        records: origin of the offsets in the list
    """

    kind: int
    width: int
    zero: int
    number: int
    functions: int
    records: int
    names: int
    depths: int


class GoTable:
    """The functions of a Go program.

    Args:
        load: takes an RVA and a length; returns the present parts of the image there, which are not kept
        read: reads short ranges of the image
        base: address of the image, from which its pointers count
    """

    def __init__(
        self, load: Callable[[int, int], Extents], read: ReadRva, headers: Headers, base: int
    ) -> None:
        self._load = load
        self._read = read
        self._headers = headers
        self._base = base
        self._left = _SEARCHED
        self._quantum, self._pointer = _MACHINES.get(headers.machine, (0, 0))
        self._found: Kept[int, Optional[GoFunction]] = Kept(_KEPT)
        self._depths: Kept[Tuple[int, int], Optional[int]] = Kept(_KEPT)

    def find(self, rva: int) -> Optional[GoFunction]:
        """Returns the function at an RVA, None if there is none or the table cannot be read there."""
        if rva not in self._found:
            self._found.keep(rva, self._look_for(rva))
        return self._found[rva]

    def _look_for(self, rva: int) -> Optional[GoFunction]:
        form = self._form
        if form is None:
            return None
        low, high = 0, form.number
        while low < high:
            middle = (low + high) // 2
            begin = self._begin(form, middle)
            if begin is None:
                return None
            low, high = (middle + 1, high) if begin <= rva else (low, middle)
        function = self._function(form, low - 1)
        return function if function is not None and function.begin <= rva < function.end else None

    def depth(self, function: GoFunction, rva: int) -> Optional[int]:
        """Returns the bytes from the stack pointer to the end of a function's frame; None if the table does
        not say. On x86 and x64 the return address is at the end. The value is that before the instruction at
        the RVA."""
        key = function.begin, rva
        if key not in self._depths:
            self._depths.keep(key, self._look_up(function, rva))
        return self._depths[key]

    @functools.cached_property
    def _form(self) -> Optional[_Form]:
        """The parts of the table, None if there is no table that proves itself."""
        if not self._pointer:
            return None
        pattern = re.compile(rb"[\xf0\xf1\xfa\xfb]\xff{3}\0\0" + bytes((self._quantum, self._pointer)), re.S)
        for rva in self._places(pattern, 0):
            form = self._form_at(rva)
            if form is not None and self._proves_itself(form):
                return form
        return None

    def _places(self, pattern: re.Pattern[bytes], access: int) -> Iterator[int]:
        """Yields the first _MOST_CANDIDATES places of a pattern in the sections with data of the running
        program: not in code, nor in what can be discarded, as debug information. `access` is MEM_WRITE for
        the sections that can be written, 0 for the others."""
        found = (
            self._search(section, pattern)
            for section in self._headers.sections
            if section.characteristics & (MEM_WRITE | MEM_EXECUTE | MEM_DISCARDABLE) == access
        )
        return itertools.islice(itertools.chain.from_iterable(found), _MOST_CANDIDATES)

    def _search(self, section: Section, pattern: re.Pattern[bytes]) -> Iterator[int]:
        """Yields the RVAs in a section at which a pattern of up to eight bytes is, in aligned places. All
        searches of an image together end after _SEARCHED bytes."""
        for start in range(section.start, section.end, _PORTION):
            if self._left <= 0:
                return
            self._left -= _PORTION
            for rva, data in self._load(start, min(_PORTION + 8, section.end - start)).runs:
                for match in pattern.finditer(data):
                    place = rva + match.start()
                    if not place % self._pointer and place < start + _PORTION:
                        yield place

    def _form_at(self, rva: int) -> Optional[_Form]:
        """Returns the parts of the table whose header is at an RVA."""
        pointer = self._pointer
        data = self._read(rva, 8 + 8 * pointer)
        if data is None:
            return None
        kind = data[0]
        words = [int.from_bytes(data[at : at + pointer], "little") for at in range(8, len(data), pointer)]
        if not 0 < words[0] <= _MOST_FUNCTIONS:
            return None
        if kind == _GO_1_2:
            first = unsigned(self._read(rva + 8 + pointer, pointer))
            zero = None if first is None else self._zero(first)
            parts = (rva + 8 + pointer, rva, rva, rva)
        elif kind == _GO_1_16:
            first = unsigned(self._read(rva + words[6], pointer))
            zero = None if first is None else self._zero(first)
            parts = (rva + words[6], rva + words[6], rva + words[2], rva + words[5])
        else:
            text_start = self._code_start(rva, words[2])
            zero = None if text_start is None else -text_start
            parts = (rva + words[7], rva + words[7], rva + words[3], rva + words[6])
        width = pointer if kind in (_GO_1_2, _GO_1_16) else 4
        return None if zero is None else _Form(kind, width, zero, words[0], *parts)

    @functools.cached_property
    def _text(self) -> Optional[int]:
        """RVA of the Go code if Go's own linker made the program: it begins the section. Else None."""
        sections = self._headers.sections
        if all(section.name != SYMTAB for section in sections):
            return None
        return next((section.start for section in sections if section.characteristics & MEM_EXECUTE), None)

    def _zero(self, first: int) -> int:
        """Returns the address of RVA 0 for a list that begins with an address."""
        return self._base if self._text is None else first - self._text

    def _code_start(self, table: int, address: int) -> Optional[int]:
        """Returns the RVA of the Go code. `address` is what the header has for it: since Go 1.26 it is 0, and
        only moduledata has the address."""
        if self._text is not None:
            return self._text
        if address:
            return address - self._base
        pattern = re.compile(re.escape((self._base + table).to_bytes(self._pointer, "little")))
        for rva in self._places(pattern, MEM_WRITE):
            text_start = unsigned(self._read(rva + _TEXT_WORD * self._pointer, self._pointer))
            if text_start is not None and self._is_code(text_start - self._base):
                return text_start - self._base
        return None

    def _is_code(self, rva: int) -> bool:
        sections = self._headers.sections
        return any(part.start <= rva < part.end and part.characteristics & MEM_EXECUTE for part in sections)

    def _proves_itself(self, form: _Form) -> bool:
        """Returns whether the first, middle and last function lie in code and repeat their addresses."""
        functions = (self._function(form, place) for place in {0, form.number // 2, form.number - 1})
        return all(function is not None and self._is_code(function.begin) for function in functions)

    def _begin(self, form: _Form, position: int) -> Optional[int]:
        """Returns the RVA of the function at a position in the list; behind the last, the end of the code."""
        value = unsigned(self._read(form.functions + position * 2 * form.width, form.width))
        return None if value is None else value - form.zero

    def _function(self, form: _Form, position: int) -> Optional[GoFunction]:
        """Returns the function at a position in the list; None if it is unreadable or contradicts that."""
        if not 0 <= position < form.number:
            return None
        width = form.width
        begin, end = self._begin(form, position), self._begin(form, position + 1)
        place = unsigned(self._read(form.functions + (position * 2 + 1) * width, width))
        if begin is None or end is None or place is None or begin >= end:
            return None
        flag_at = _FLAG_AT.get(form.kind, _DEPTHS_AT + 3)
        record = self._read(form.records + place, width + flag_at + 1)
        if record is None or int.from_bytes(record[:width], "little") - form.zero != begin:
            return None
        words = [int.from_bytes(record[at : at + 4], "little") for at in (width, width + _DEPTHS_AT)]
        name = self._name(form.names + words[0])
        if name is None:
            return None
        flags = record[width + flag_at] if form.kind in _FLAG_AT else 0
        function = GoFunction(begin, end, name, words[1], bool(flags & _WRITES_SP), bool(flags & _ASSEMBLER))
        return function._replace(switches=True) if _SWITCHES.fullmatch(function.plain_name) else function

    def _name(self, rva: int) -> Optional[str]:
        """Returns the name at an RVA, printable; None if it is empty or unreadable."""
        found = b""
        for part in self._parts(rva, 4 * text.MAX_NAME):
            found += part
            if b"\0" in part:
                break
        else:
            return None
        name = found[: found.index(b"\0")].decode("utf-8", "backslashreplace")
        return text.printable(name).replace(";", "\\x3b") or None

    def _parts(self, rva: int, most: int) -> Iterator[bytes]:
        """Yields the bytes from an RVA on in short parts, up to a limit or to what is missing."""
        end = rva + most
        while 0 <= rva < end:
            data = self._read(rva, min(_READ, PAGE_SIZE - rva % PAGE_SIZE, end - rva))
            if data is None:
                return
            yield bytes(data)
            rva += len(data)

    def _look_up(self, function: GoFunction, rva: int) -> Optional[int]:
        form = self._form
        if form is None or not function.depths:
            return None
        value, end = -1, function.begin
        numbers = self._numbers(form.depths + function.depths)
        for change, length in zip(numbers, numbers):
            if not change and end != function.begin:
                return None
            value += -(change & 1) ^ (change >> 1)
            end += length * self._quantum
            if rva < end:
                known = 0 <= value < _DEEPEST and not value % self._pointer
                return value if known and rva >= function.begin else None
        return None

    def _numbers(self, rva: int) -> Iterator[int]:
        """Yields the numbers of a list: seven bits in a byte, the lowest first."""
        number, bits = 0, 0
        for part in self._parts(rva, _LONGEST_LIST):
            for byte in part:
                number |= (byte & 0x7F) << bits
                bits += 7
                if byte < 0x80:
                    yield number
                    number = bits = 0
                elif bits >= 7 * _LONGEST_NUMBER:
                    return
