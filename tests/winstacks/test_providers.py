# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process without any kernel has the rows that it has in an image, if somebody provides the services."""

from __future__ import annotations

import pathlib
from typing import List, Tuple, Type

import pytest

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.support import bare
from tests.support.processbytes import PlainProcess, cells
from tests.windows.test_locks import new_process
from winstacks.commands.callstacks import CallStacks
from winstacks.commands.heaptraces import HeapTraces
from winstacks.commands.locks import Locks
from winstacks.commands.stacktracedb import StackTraceDb
from winstacks.locks.lister import LockLister
from winstacks.locks.lock import Lock
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces
from winstacks.process.threads import Threads
from winstacks.process.vads import regions
from winstacks.rows.command import Command
from winstacks.stacks.lister import CallStack, StackLister
from winstacks.tracedb.finder import Databases

UPDATER, LEGACY, SPOOLER = 4312, 5120, 6200


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


@pytest.mark.parametrize(
    ("command", "pid"),
    [
        (StackTraceDb, UPDATER),
        (StackTraceDb, LEGACY),
        (StackTraceDb, SPOOLER),
        (HeapTraces, UPDATER),
        (Locks, UPDATER),
        (Locks, LEGACY),
        (Locks, SPOOLER),
    ],
)
def test_databases_heaps_and_locks(opened: Opened, command: Type[Command], pid: int) -> None:
    expected = cells(command, opened.image, pid=[pid])
    assert len(expected) > 4
    assert cells(command, PlainProcess(opened, pid).image) == expected


@pytest.mark.parametrize("pid", [UPDATER, LEGACY, SPOOLER])
def test_stacks(opened: Opened, pid: int) -> None:
    """Frame by frame, with how each was found and how it is named."""
    plain = PlainProcess(opened, pid)
    symbolizer = Symbolizer(plain.image)
    found = list(StackLister.list_stacks(plain.image, symbolizer))
    assert [(stack.thread.tid, stack.part) for stack in found] == [
        (stack.thread.tid, stack.part) for stack in plain.stacks
    ]
    names = Symbolizer(opened.image)
    for known, element in zip(plain.stacks, found):
        assert _frames(element) == _frames(known)
        here, there = symbolizer.for_space(element.space), names.for_space(known.space)
        assert [here.name(frame.address, frame.returns) for frame in element.frames] == [
            there.name(frame.address, frame.returns) for frame in known.frames
        ]
    assert {stack.part for stack in found} == ({"user", "wow64"} if plain.wow64 else {"user"})
    rows = cells(CallStacks, plain.image)
    assert len(rows) == len(found) + sum(len(trace.frames) for trace in found)


def _frames(stack: CallStack) -> List[Tuple[int, int, str, bool]]:
    return [(frame.address, frame.sp, frame.how, frame.sure) for frame in stack.frames]


def test_nothing_of_a_kernel_is_there(opened: Opened) -> None:
    image = PlainProcess(opened, UPDATER).image
    assert (image.base, image.table_name, image.types.first_structure("_EPROCESS")) == (0, "", None)
    assert image.types.first_structure("_ETHREAD") is None
    assert image.symbol("PsActiveProcessHead") is None
    assert [space.kernel for space in AddressSpaces.list_spaces(image)] == [False]


def test_an_image_without_a_kernel_and_without_a_provider_has_nothing(opened: Opened) -> None:
    image = bare.image()
    assert list(AddressSpaces.list_spaces(image)) == []
    assert list(Threads.list_threads(image)) == []
    assert image.service(regions).list_regions(image.kernel) == ([], False)


@pytest.mark.parametrize(("name", "wow64"), [("xp-x86", False), ("win7-x86", False), ("win10-x64", True)])
def test_the_database_tells_how_wide_indices_are(name: str, wow64: bool, tmp_path: pathlib.Path) -> None:
    """Before Vista something else lies where the high part of an index is since."""
    kernel, _, sections, indices, _ = new_process(name, False, wow64)
    sections.add(index=indices[0])
    sections.add(index=0x50000 | indices[1])
    sections.link()
    plain = PlainProcess(context.open_image(kernel.image(), tmp_path), 1000)
    finder = Databases(plain.image, Symbolizer(plain.image).indexes)
    found = [
        lock.back_trace_index
        for space in AddressSpaces.list_spaces(plain.image)
        for lock in LockLister(plain.image, finder).list_locks(space)
        if isinstance(lock, Lock)
    ]
    high = 0 if name == "xp-x86" else 0x50000
    assert found == [indices[0], high | indices[1]]
