# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""docs/unsure-registers.md against the code: which members may be unsure, in which kind of entry, and why."""

from __future__ import annotations

import ast
import itertools
import pathlib
import sys
from collections import defaultdict
from types import ModuleType
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest

from tests.conftest import ROOT
from tests.forge import kernels, trapframes
from tests.forge.trapentries import X64, X86_BLUE, X86_OLD
from tests.support import traplayouts
from tests.support.trapsets import FILLS, LINKAGE, every_entry, filled, registers_64, registers_86
from tests.winstacks.traps.decode.test_frame_forged import place
from winstacks.columns.words import KERNEL, USER
from winstacks.traps.decode import context, trapframe_x64, trapframe_x86
from winstacks.traps.decode.frame import REUSED_UNSURE, UNSURE, EntryFacts, set_validity

DOC = ROOT / "docs" / "unsure-registers.md"
CPUS = {
    X64: ("x64", "win10-x64"),
    X86_OLD: ("x86, XP to 7", "win7-x86"),
    X86_BLUE: ("x86, 8 to 10", "win10-x86"),
}
FORMS = {name: traplayouts.trap_frame_layout(kernels.load(table).table) for name, (_, table) in CPUS.items()}

Row = Tuple[str, str, str, str]
Lines = Set[Tuple[str, int]]


def facts(architecture: str) -> Iterator[EntryFacts]:
    """What may be known of a frame, in all combinations that matter."""
    linkages = (0, LINKAGE[X64]) if architecture == X64 else (0,)
    handlers = ("", "KiTrap0E", "KiPageFault", "KiInterruptDispatch")
    code = (b"",) if architecture == X64 else (b"", b"\xcd\x2b", b"\xcd\x2e")
    for active, linkage, handler, new, before in itertools.product(
        (None, 0, 3), linkages, handlers, (False, True), code
    ):
        yield EntryFacts(
            handler=handler,
            service_linkage=linkage,
            saves_arguments=new,
            debug_active=active,
            clears_dr7=new,
            instruction=before,
        )


def variants(architecture: str, data: bytes) -> Iterator[bytes]:
    """A frame as it was forged, and with slots that make its entry, or what it stored, ambiguous."""
    form = FORMS[architecture]

    def changed(**values: int) -> bytes:
        new_data = bytearray(data)
        for name, value in values.items():
            offset, size = form.members[name][:2]
            new_data[offset : offset + size] = value.to_bytes(size, "little")
        return bytes(new_data)

    yield data
    if architecture == X64:
        yield changed(ExceptionActive=3)
        yield changed(Rax=0x103, Rcx=0, Rdx=0, R8=0, R9=0, R10=0, R11=0)
        yield changed(Rcx=0x1234, R10=0x1234, R11=0x1234)
        yield changed(ErrorCode=6, FaultIndicator=1)
        yield changed(EFlags=0x200, ExceptionActive=0)
        return
    yield changed(EFlags=0x200)
    yield changed(DbgArgMark=0)
    if architecture == X86_OLD:
        yield changed(Edx=0, DbgArgPointer=0, PreviousPreviousMode=1, ErrCode=0)
    yield changed(SegFs=0x30, SegGs=0)


def entries_of(architecture: str) -> Iterator[Tuple[int, bytes]]:
    """Frames of every kind over what a stack may have held; Dr7 has its switches on."""
    for entry, fill in itertools.product(every_entry(architecture), FILLS):
        registers = registers_64(entry.mode) if architecture == X64 else registers_86(entry.mode)
        registers["dr7"] = 0x755
        address = place(entry, architecture)
        forged = trapframes.forge(architecture, entry, registers, address, filled(fill))
        yield address, forged.data


def explore(architecture: str) -> Set[Row]:
    """Decodes all of them; returns (kind, mode, member, reason) of what is unsure."""
    form, found = FORMS[architecture], set()
    entry_facts = list(facts(architecture))
    for address, forged in entries_of(architecture):
        for data, known in itertools.product(variants(architecture, forged), entry_facts):
            kind, validities = form.classify(address, data, known)
            mode = USER if form.is_user(data) else KERNEL
            for member, validity in validities.items():
                if validity.validity in (UNSURE, REUSED_UNSURE) and member in form.members:
                    found.add((kind or "not known", mode, member, validity.note))
    if architecture == X64:
        for mode, member in itertools.product((USER, KERNEL), context.NONVOLATILE):
            found.add(("exception", mode, member, context.NOT_DISPATCHED))
    return found


def cells(line: str) -> List[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables() -> List[List[List[str]]]:
    """The rows of each table of the document, without its head."""
    found: List[List[List[str]]] = []
    for before, line in zip(["", *DOC.read_text().splitlines()], DOC.read_text().splitlines()):
        if line.startswith("|") and not before.startswith("|"):
            found.append([])
        if line.startswith("|"):
            found[-1].append(cells(line))
    return [table[2:] for table in found]


def documented(architecture: str) -> Set[Row]:
    return {
        (kind, mode, member, why)
        for cpu, kinds, modes, members, why in tables()[0]
        for kind in kinds.split(", ")
        for mode in modes.split(", ")
        for member in members.split()
        if cpu == CPUS[architecture][0]
    }


class Recorder:
    """Stands for `set_validity`, and remembers which of its calls made something unsure."""

    def __init__(self) -> None:
        self.lines: Lines = set()

    def __call__(self, found: Any, validity: str, names: str, note: str = "") -> None:
        if validity in (UNSURE, REUSED_UNSURE):
            caller = sys._getframe(1)
            assert note, f"no reason at line {caller.f_lineno}"
            self.lines.add((caller.f_code.co_filename, caller.f_lineno))
        set_validity(found, validity, names, note)


def calls_that_make_unsure(module: ModuleType) -> Iterator[Tuple[str, int, int]]:
    """Yields the calls of `set_validity` with a validity that may be unsure: file, first line, last line."""
    path = str(module.__file__)
    for node in ast.walk(ast.parse(pathlib.Path(path).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "set_validity":
            named = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
            if named & {"UNSURE", "REUSED_UNSURE"}:
                yield path, node.lineno, node.end_lineno or node.lineno


@pytest.fixture(scope="module")
def explored() -> Iterator[Tuple[Dict[str, Set[Row]], Lines]]:
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trapframe_x64, "set_validity", recorder)
        patched.setattr(trapframe_x86, "set_validity", recorder)
        yield {name: explore(name) for name in CPUS}, recorder.lines


@pytest.mark.parametrize("architecture", list(CPUS))
def test_the_table_is_what_the_code_does(
    architecture: str, explored: Tuple[Dict[str, Set[Row]], Lines]
) -> None:
    assert documented(architecture) == explored[0][architecture]


def test_every_call_that_makes_something_unsure_was_explored(
    explored: Tuple[Dict[str, Set[Row]], Lines],
) -> None:
    known = [*calls_that_make_unsure(trapframe_x64), *calls_that_make_unsure(trapframe_x86)]
    reached = {
        call for call in known for path, line in explored[1] if path == call[0] and call[1] <= line <= call[2]
    }
    assert reached == set(known)
    lines = {(path, line) for path, first, last in known for line in range(first, last + 1)}
    assert explored[1] <= lines


def test_each_reason_is_explained(explored: Tuple[Dict[str, Set[Row]], Lines]) -> None:
    reasons = {row[3] for rows in explored[0].values() for row in rows}
    explanations: Dict[str, List[str]] = defaultdict(list)
    for reason, *rest in tables()[1]:
        explanations[reason] += rest
    assert set(explanations) == reasons
    assert all(len(rest) == 2 and all(rest) for rest in explanations.values())
