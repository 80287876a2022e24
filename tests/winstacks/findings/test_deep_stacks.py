# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Findings in deep recursions of private code: the work grows as the stack does."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Iterator, List, Tuple

import pytest

from tests.forge import context
from tests.forge.vad import EXECUTE_READWRITE
from tests.support.clean.host64 import Host64, Private, Program
from winstacks.columns.words import PRIVATE
from winstacks.findings.checks import unbacked
from winstacks.findings.code.neighbours import vendor_neighbour
from winstacks.findings.facts import CheckFacts
from winstacks.findings.finding import Finding, frame_places
from winstacks.names.symbolizer import AddressNamer, Symbolizer
from winstacks.stacklist.stack import StackRecord
from winstacks.stacklist.traces import StackCollector

KERNEL, WAIT_EX, OUT = "win10-x64", "kernelbase!WaitForSingleObjectEx", "clr!CallDescrWorkerInternal"
SHALLOW, DEEP = 200, 400


class Listed(List[Any]):
    """A list that counts how often all of it is gone through."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return super().__iter__()


class Counted(List[Any]):
    """Frames that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return super().__getitem__(place)


def registered(program: Program) -> None:
    """Code with a function table waits."""
    base = program.jitted(0x2000)
    program.register((base, base + 0x2000))
    program.waits("main", Private(base), WAIT_EX)


def unregistered(program: Program) -> None:
    """Code without a function table waits, and a runtime is loaded."""
    program.waits(OUT, Private(program.jitted(0x2000, EXECUTE_READWRITE)), WAIT_EX)


def interrupted(program: Program) -> None:
    """Code without a function table was interrupted."""
    program.interrupted(OUT, Private(program.jitted(0x2000, EXECUTE_READWRITE)))


def called_back(program: Program) -> None:
    """Code without a function table was called through Windows, and a runtime is further out."""
    base = program.jitted(0x2000, EXECUTE_READWRITE)
    program.waits(OUT, "kernelbase!SleepEx", Private(base), WAIT_EX)


def looked_at(stack: StackRecord, depth: int, symbolizer: Symbolizer) -> Tuple[int, List[Finding]]:
    """Looks at a stack whose first frame in private memory is repeated, with Windows' frame below it."""
    backings = [frame.name.backing if frame.name else "" for frame in stack.frames]
    at = backings.index(PRIVATE)
    part = slice(max(at - 1, 0), at + 1)
    frames = Counted(
        [*stack.frames[: part.start], *list(stack.frames[part]) * depth, *stack.frames[at + 1 :]]
    )
    walked = [*stack.walked[: part.start], *list(stack.walked[part]) * depth, *stack.walked[at + 1 :]]
    deep = stack._replace(frames=frames, walked=walked)
    found = list(unbacked.check_stack(deep, CheckFacts(symbolizer)))
    return frames.looks, found


@pytest.mark.parametrize("situation", [registered, unregistered, interrupted, called_back])
def test_each_frame_is_looked_at_a_few_times(
    situation: Callable[[Program], None], tmp_path: pathlib.Path
) -> None:
    host = Host64(KERNEL)
    situation(host.program("service.exe", "clr.dll", functions="main"))
    symbolizer = Symbolizer(context.open_image(host.kernel.image(), tmp_path).image)
    stacks = (stack for stack in StackCollector(symbolizer).list_stacks() if stack.kind == "user")
    stack = next(stack for stack in stacks if PRIVATE in [f.name.backing for f in stack.frames if f.name])
    few, first = looked_at(stack, SHALLOW, symbolizer)
    many, second = looked_at(stack, DEEP, symbolizer)
    assert len(first) >= SHALLOW
    assert len(second) == len(first) + DEEP - SHALLOW
    assert {finding.severity for finding in second} == {finding.severity for finding in first}
    assert many < 2.2 * few


def test_regions_are_gone_through_once_for_a_process(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each frame of code asks whether the process has much code, and whose the module next to it is."""
    host = Host64(KERNEL)
    folder = "C:\\Program Files\\Vendor"
    program = host.program("app.exe", functions="main", folder=folder)
    program.load("engine.dll", "Run Wait", path=f"{folder}\\engine.dll")
    base, *_ = (program.jitted() for _ in range(8))
    program.waits("main", "engine!Run", *DEEP * [Private(base)], "engine!Wait", WAIT_EX)
    symbolizer = Symbolizer(context.open_image(host.kernel.image(), tmp_path).image)
    stack = next(
        stack
        for stack in StackCollector(symbolizer).list_stacks()
        if PRIVATE in [frame.name.backing for frame in stack.frames if frame.name]
    )
    facts = CheckFacts(symbolizer)
    process = facts.namer(stack.space).process
    listed = Listed(process.vads)
    monkeypatch.setattr(AddressNamer, "process", process._replace(vads=listed))
    places = [place for place in frame_places(stack) if place.name.backing == PRIVATE]
    neighbours = [vendor_neighbour(stack, place, facts) for place in places]
    assert [neighbour.belongs for neighbour in neighbours if neighbour] == DEEP * [True]
    assert listed.passes < 8
