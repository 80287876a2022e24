# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code that findings look at: jumps of hooks, closures, write barriers, stubs; lists of generated code."""

from __future__ import annotations

import functools
import struct
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from tests.support import bare
from winstacks.findings.code import barriers, stubs
from winstacks.findings.code.closures import closure_target
from winstacks.findings.code.codelists import VARIABLES, code_cache
from winstacks.findings.code.jumps import hops
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING
from winstacks.names import registeredtables
from winstacks.names.decode.pe import MEM_WRITE, Section
from winstacks.names.kernelmodules import Module
from winstacks.process.regions import Region

from .target import Target, Template

_PLACES = {Machine.AMD64: (0x7FF700001000, (1 << 64) - 0x1000), Machine.I386: (0x401000, (1 << 32) - 0x1000)}
_BARRIER = "488911 48b81122334455667788 483bd0 7215 48c1e90b 48b81122334455667788 803c01ff7502f3c3c60401ffc3"
_CODE = {
    Machine.AMD64: (
        "4c8d15f9ffffff ff2503000000 0f1f00 1020304050607080",
        "49ba1122334455667788 48b81020304050607080 48ffe0",
        "68112233 44 c744240455667788c3",
        "e90b000000 cccccccccccccccccccccc eb0e",
        _BARRIER,
        "4c8bd1 b855000000 f604250803fe7f01 7503 0f05",
    ),
    Machine.I386: (
        "b988776655 b810203040 ffe0",
        "c744240488776655 e9f3ff0000",
        "8902 3d11223344 720d c1ea0a 80ba11223344ff 7501 c3 c68211223344ff c3",
        "6810203040 c3 ff2510104000",
    ),
}


def _code(machine: Machine, data: bytes, whole: bytes) -> None:
    """Bytes of code, at an address in the middle and at the end of the address space."""
    limit = 1 << 8 * machine.pointer_size
    for base in _PLACES[machine]:
        memory, reads = Extents([(base, data)]), 0

        def read(address: int, length: int, memory: Extents = memory) -> Optional[bytes]:
            nonlocal reads
            reads += 1
            assert length > 0
            found = memory.read(address, length)
            return None if found is None else bytes(found)

        for start in range(base, base + min(len(data), 0x80), 8):
            way = hops(read, start, machine)
            assert len(way) <= 4 and all(0 <= target < limit for target in way)
            target = closure_target(read, start, machine)
            assert target is None or 0 <= target < limit
            for end in (start + 1, start + 0x20):
                barriers.is_write_barrier(read, ((start, end),), machine)
        assert reads < 1 << 14
    for end in range(min(len(data), 0x40)):
        number = stubs.number_before(data[:end])
        assert number is None or 0 <= number < 1 << 32
        assert end - stubs.LONGEST <= stubs.start_of(data[:end], end) <= end
    stubs.keeps_number(data)


def _codes(machine: Machine) -> List[bytes]:
    forms = [bytes.fromhex(form) for form in _CODE[machine]]
    return [*forms, b"".join(form.ljust(16, b"\xcc") for form in forms)]


_BASE, _ROWS, _TEXTS, _STRIDE = 0x10000, 0x100, 0x300, 0x30


def _cache(data: bytes, whole: bytes) -> None:
    """The variables of a JVM, its table of members, and their names."""
    memory = Memory.over(Extents([(_BASE, data)]), 8)
    variables = {name: _BASE + 8 * number for number, name in enumerate(VARIABLES)}
    found = code_cache(memory, variables)
    assert found is None or all(0 < value < 1 << 64 for value in found)
    assert found is not None or not whole or data != whole


def _caches() -> List[bytes]:
    """The tables of two generations: CodeCache has its bounds, or a heap with a VirtualSpace."""
    newer = (("CodeCache", "_low_bound", 0, 0x80), ("CodeCache", "_high_bound", 0, 0x88))
    older = (
        *(("CodeCache", "_heap", 0, 0x90), ("CodeHeap", "_memory", 0x10, 0)),
        *(("VirtualSpace", "_low_boundary", 0, 0), ("VirtualSpace", "_high_boundary", 8, 0)),
    )
    return [_table(rows) for rows in (newer, older)]


def _table(rows: Sequence[Tuple[str, str, int, int]]) -> bytes:
    data = bytearray(0x500)
    struct.pack_into("<6Q", data, 0, _BASE + _ROWS, 0, 8, 0x10, 0x18, _STRIDE)
    struct.pack_into("<3Q", data, 0x80, 0x21000000, 0x21004000, _BASE + 0xA0)
    struct.pack_into("<QQ", data, 0xB0, 0x22000000, 0x22004000)
    for number, (kind, name, offset, address) in enumerate(rows):
        texts = _TEXTS + 0x80 * number
        for place, word in ((texts, kind.encode()), (texts + 0x40, name.encode())):
            data[place : place + len(word)] = word
        row = _BASE + texts, _BASE + texts + 0x40, offset, _BASE + address if address else 0
        struct.pack_into("<4Q", data, _ROWS + _STRIDE * number, *row)
    return bytes(data)


_NTDLL, _PRIVATE = 0x7FF800000000, 0x20000000000
_GETTER, _HEAD, _GENERATED, _STEP, _ELEMENTS = 0x1000, 0x2010, 0x1000, 0x80, 4
_LAYOUTS = {"windows": "<QQQQQQQQQQII", "wine": "<QQQQQIIQQ"}


class _Ntdll:
    """Ntdll, and the process that has it alone: for the names of addresses, too.

    Args:
        getter: RVA of the function that returns the head of the list, None if there is none
    """

    def __init__(self, getter: Optional[int]) -> None:
        self.module = Module(_NTDLL, 0x3000, "ntdll", "ntdll.dll", NOTHING)
        self.image = self.names = self
        self.status = NOTHING
        self.sections = [Section(0x2000, 0x3000, ".data", MEM_WRITE)]
        self.symbol = "ntdll!RtlOfNoKind"
        self._getter = getter

    def modules(self, name: str) -> List[Any]:
        return [self]

    def rva_of(self, name: str) -> Optional[int]:
        return self._getter if name == "RtlGetFunctionTableListHead" else None

    def name(self, address: int, return_address: bool) -> Any:
        return self


def _registered(form: str, data: bytes, whole: bytes) -> None:
    """The list of function tables in the memory of a process, which the getter and the data of ntdll name."""
    memory = Memory.over(_process(form).extents(data), 8)
    regions = [Region(start, start + 0x3000, 0, start == _NTDLL) for start in (_PRIVATE, _NTDLL)]
    found: Any = None
    for getter in (_GETTER, None):
        ntdll: Any = _Ntdll(getter)
        found = registeredtables.registered(memory, bare.image(), ntdll, regions)
        assert len(found.tables) <= len(data) // 8
        ends = [end for code in found.ranges for end in (code.start, code.end)]
        assert ends == sorted(ends) and all(0 < code.start < code.end < 1 << 64 for code in found.ranges)
        assert not any(code.start < _NTDLL < code.end for code in found.ranges)
        assert all(code.describe.isprintable() for code in found.ranges) and found.missing.isprintable()
        for table in registeredtables._entries(memory, found.tables):
            assert table.entries and not len(table.entries) % 12
            registeredtables._tells_nothing(memory, table)
    assert len(found.tables) == _ELEMENTS or not whole or data != whole


def _process(form: str) -> Template:
    """Code that loads the head's address, the head, a ring of elements, and their entries and unwind data."""
    nodes = [_PRIVATE + _STEP * number for number in range(_ELEMENTS)]
    ring = [_NTDLL + _HEAD, *nodes, _NTDLL + _HEAD]
    code = b"\x48\x8d\x05" + struct.pack("<i", _HEAD - _GETTER - 7) + b"\xc3"
    private, head = bytearray(0x400), struct.pack("<QQQQ", 1, _PRIVATE, nodes[0], nodes[-1])
    for number, node in enumerate(nodes):
        start, entries = _PRIVATE + _GENERATED + 0x100 * number, _PRIVATE + 0x200 + 0x20 * number
        values = {
            "windows": (entries, 0, start, start + 0x80, start, 0, 0, 0, 0, 1),
            "wine": (start, start + 0x80, entries, 1, 1, 0, 0),
        }
        links = ring[number + 2], ring[number]
        struct.pack_into(_LAYOUTS[form], private, node - _PRIVATE, *links, *values[form])
        struct.pack_into("<III", private, entries - _PRIVATE, 0, 0x40, 0x300)
    return Template([(_NTDLL + _GETTER, code), (_NTDLL + _HEAD - 0x10, head), (_PRIVATE, bytes(private))])


def _processes(form: str) -> List[bytes]:
    return [_process(form).bytes]


def targets() -> Iterator[Target]:
    for machine in _CODE:
        seeds = functools.partial(_codes, machine)
        yield Target(f"code-{machine.arch}", seeds, functools.partial(_code, machine))
    yield Target("codecache", _caches, _cache)
    for form in _LAYOUTS:
        seeds = functools.partial(_processes, form)
        yield Target(f"functiontables-{form}", seeds, functools.partial(_registered, form))
