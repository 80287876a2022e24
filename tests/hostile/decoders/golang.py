# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Go's table of functions, and walks through Go programs: the program can write all of it."""

from __future__ import annotations

import functools
from typing import Iterator, List

from tests.support import goprograms
from winstacks.memory.decode.text import MAX_NAME
from winstacks.names.decode import pclntab, rules
from winstacks.names.decode.pe import HeaderError
from winstacks.stacks.decode.registers_arm64 import RegistersArm64

from .arm64 import check
from .target import Target

_MOST_READS = 1500
"""Short reads for one function: a name, a list of depths, and a search in the list of functions."""


def _seeds(name: str) -> List[bytes]:
    return [goprograms.GoProgram(name).parts]


def _program(name: str, data: bytes, whole: bytes) -> None:
    try:
        program = goprograms.GoProgram(name, data)
    except HeaderError:
        return
    table, limits = program.table, sorted(program.functions.values())
    names = rules.GoNames([], [], program.headers.sections, None, table)
    pclntab.may_be_go(program.headers, [])
    for begin, end in limits[:8]:
        for rva in (begin, begin + 9, end - 1):
            before = program.reads
            label = names.find_label(rva)
            function = table.find(rva)
            if function is not None and label is not None:
                assert function.begin <= rva < function.end
                assert label[1].isprintable()
                assert 0 < len(label[1]) <= 12 * MAX_NAME
                depth = table.depth(function, rva)
                assert depth is None or 0 <= depth < 1 << 30
            assert program.reads - before < _MOST_READS
    assert program.searched <= 1 << 27
    if program.start:
        check(goprograms.walk(name, program))
    else:
        _leaves(name, program, [begin for begin, _ in limits])


def _leaves(name: str, program: goprograms.GoProgram, begins: List[int]) -> None:
    """Walks from the first and a later instruction of functions."""
    stack = program.extents.runs[0]
    for begin in begins[:12]:
        for offset in (0, 0x20):
            to = program.base + begins[0] + 8
            state = RegistersArm64.from_known(program.base + begin + offset, stack[0], {"Lr": to})
            walker = goprograms.walker(program, name, program.extents.read)
            check(walker.walk(state, True, [(0, len(stack[1]))]))


def targets() -> Iterator[Target]:
    for name in goprograms.PROGRAMS:
        yield Target(f"goprogram-{name}", functools.partial(_seeds, name), functools.partial(_program, name))
