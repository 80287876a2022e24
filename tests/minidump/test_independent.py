# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Real process dumps: the first frame and the registers of every thread, as three other readers have them.

A thread with an exception has two CONTEXTs, its own and that of the exception. The others are asked for both.
"""

from __future__ import annotations

import logging
import pathlib
from typing import Any, Dict, List, Mapping, Set, Tuple

import pytest
from minidump.minidumpfile import MinidumpFile
from volatility3.plugins.minidump import callstacks, trapframes

from tests.support.changeddumps import OF_WINDOWS
from tests.support.processdumps import OpenedDump
from tests.support.writtendumps import LLDB, debugged_threads, needs_lldb

# Its wheel for Python 3.13 is installed on newer ones, too, which cannot load it.
udmp_parser = pytest.importorskip("udmp_parser")

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there"),
]

WIDE = {f"R{name}": f"R{name}" for name in ("ip", "sp", "bp", "ax", "bx", "cx", "dx", "si", "di")}
WIDE.update({f"R{number}": f"R{number}" for number in range(8, 16)})
NARROW = {name: f"E{name[1:]}" for name in ("Rip", "Rsp", "Rbp", "Rax", "Rbx", "Rcx", "Rdx", "Rsi", "Rdi")}
CONTROL = ("Rip", "Rsp")

Values = Tuple[Tuple[str, int], ...]


class Others:
    """A file as two other parsers read it.

    Attributes:
        wide: whether it is of x64
        own: the registers of each thread, by its ID, as both parsers have them
        raised: the thread of the exception, None without one
    """

    def __init__(self, path: pathlib.Path) -> None:
        logging.disable(logging.ERROR)  # it wants a PEB of every dump
        try:
            theirs = MinidumpFile.parse(str(path))
        finally:
            logging.disable(logging.NOTSET)
        udmp = udmp_parser.UserDumpParser()
        assert udmp.Parse(path)
        self.wide = theirs.sysinfo.ProcessorArchitecture.value == 9
        self.own: Dict[int, Values] = {}
        for thread in theirs.threads.threads:
            self.own[thread.ThreadId] = self.values(vars_of(thread.ContextObject))
            other = self.values(vars_of(udmp.Threads()[thread.ThreadId].Context))
            assert other == self.own[thread.ThreadId]
        records = theirs.exception.exception_records if theirs.exception is not None else []
        self.raised = records[0].ThreadId if records else None

    @property
    def names(self) -> Mapping[str, str]:
        return WIDE if self.wide else NARROW

    def values(self, members: Mapping[str, Any]) -> Values:
        return tuple((name, int(members[theirs])) for name, theirs in self.names.items())


def vars_of(context: Any) -> Dict[str, Any]:
    """Returns the registers of a context that another parser read."""
    return {
        name: getattr(context, name) for name in {*WIDE.values(), *NARROW.values()} if hasattr(context, name)
    }


@pytest.fixture(scope="module", params=OF_WINDOWS, ids=lambda path: str(path.stem))
def file(request: pytest.FixtureRequest) -> Tuple[pathlib.Path, Others]:
    return request.param, Others(request.param)


def check(found: Mapping[int, Set[Any]], expected: Mapping[int, Any], raised: Any, more: Set[Any]) -> None:
    """Compares what each thread has. The thread of the exception may have what `more` has, too."""
    assert set(found) == set(expected)
    for tid, values in found.items():
        assert expected[tid] in values or (tid == raised and values & more)
        assert values <= {expected[tid]} | (more if tid == raised else set())


def test_first_frames(file: Tuple[pathlib.Path, Others]) -> None:
    path, others = file
    found: Dict[int, Set[Tuple[int, int]]] = {}
    for depth, row in OpenedDump(path).rows(callstacks.CallStacks):
        if depth and row["Frame"] == 0:
            found.setdefault(row["TID"], set()).add((row["Address"], row["Sp"]))
    own = {tid: tuple(dict(values)[name] for name in CONTROL) for tid, values in others.own.items()}
    check(found, own, others.raised, {_control(values) for values in exception_registers(path, others)})


def test_registers(file: Tuple[pathlib.Path, Others]) -> None:
    path, others = file
    found: Dict[int, Set[Values]] = {}
    for depth, row in OpenedDump(path).rows(trapframes.TrapFrames):
        if not depth:
            values = tuple((name, row[name]) for name in others.names)
            found.setdefault(row["TID"], set()).add(values)
    check(found, others.own, others.raised, set(exception_registers(path, others)))


def _control(values: Values) -> Tuple[int, ...]:
    return tuple(dict(values)[name] for name in CONTROL)


def exception_registers(path: pathlib.Path, others: Others) -> List[Values]:
    """Returns the registers of the exception, which only LLDB reads; none without LLDB or an exception."""
    if LLDB is None or others.raised is None:
        return []
    index = list(others.own).index(others.raised)
    return [_of_lldb(others, debugged_threads(path, len(others.own))[index].registers)]


def _of_lldb(others: Others, registers: Mapping[str, int]) -> Values:
    return tuple((name, registers.get(theirs.lower(), -1)) for name, theirs in others.names.items())


@needs_lldb
def test_registers_of_lldb(file: Tuple[pathlib.Path, Others]) -> None:
    """LLDB shows the exception's registers for its thread, and each other thread's own."""
    path, others = file
    shown: Dict[int, Values] = {}
    for tid, thread in zip(others.own, debugged_threads(path, len(others.own))):
        shown[tid] = _of_lldb(others, thread.registers)
    for tid, values in shown.items():
        assert tid == others.raised or values == others.own[tid]
