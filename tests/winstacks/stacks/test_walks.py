# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Walks in an image: which trap frames they are told of, and in which address space they run."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import context
from tests.support.callstackimages import PID, StackImage
from tests.support.only import only, rows_of
from tests.support.trapsets import registers_64
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import has_status, status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import Image
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces
from winstacks.process.threads import Threads
from winstacks.stacks.cpu_x64 import Cpu64
from winstacks.stacks.cpus import WalkStart
from winstacks.stacks.decode import budget
from winstacks.stacks.decode.registers import Registers
from winstacks.stacks.kernel import KernelWalks
from winstacks.stacks.lister import StackLister
from winstacks.stacks.walkers import StackWalkers


@pytest.mark.parametrize(
    ("word", "is_known"),
    [
        (StatusCode.PARTLY_UNREADABLE, True),
        (StatusCode.TERMINATED, True),
        (StatusCode.STALE, False),
        (StatusCode.UNREADABLE, False),
    ],
)
def test_trap_frames_of_a_thread_of_which_a_part_is_paged_out(
    word: StatusCode, is_known: bool, tmp_path: pathlib.Path
) -> None:
    """Where the trap frame is known, the walk has the registers that lie beside its machine frame, too."""
    image = StackImage()
    image.waiting(1004)
    opened = context.open_image(image.kernel.image(), tmp_path).image
    thread = only(Threads.list_threads(opened, tids=[1004]))
    symbolizer = Symbolizer(opened)
    walks = KernelWalks(opened, symbolizer, StackWalkers(opened, symbolizer))
    states = [state._replace(status=status(word)) for state in walks.states(thread)]
    border = next(walks.pieces(thread, states)).walk.border
    assert border is not None and isinstance(border.registers, Registers)
    assert border.registers.named("Rdx") == (registers_64("user64")["rdx"] if is_known else None)


def test_the_last_few_address_spaces_are_kept(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    image.kernel.process("other.exe", pid=PID + 4)
    opened = context.open_image(image.kernel.image(), tmp_path).image
    first, second = rows_of(2, AddressSpaces.list_spaces(opened, [PID, PID + 4]))
    stack_walkers = StackWalkers(opened, Symbolizer(opened))
    before = stack_walkers.memory(first)
    assert stack_walkers.memory(second) is not before
    assert stack_walkers.memory(first) is before
    place = image.modules["app"].base
    assert before.read(place, 2) == b"MZ"
    assert stack_walkers.memory(second).read(place, 2) is None


def test_a_user_stack_is_walked_without_a_kernel(tmp_path: pathlib.Path) -> None:
    image = StackImage()
    image.waiting(1004)
    opened = context.open_image(image.kernel.image(), tmp_path).image
    space = only(AddressSpaces.list_spaces(opened, [PID]))
    listed = StackLister.list_stacks(opened, Symbolizer(opened), [PID], tids=[1004])
    user = next(stack for stack in listed if stack.part == "user")
    top = user.frames[0]
    assert isinstance(top.registers, Registers)
    bare = Image.of_layer(opened.context, space.layer_name, Machine.AMD64)
    process = space._replace(eprocess=0)
    stack_walkers = StackWalkers(bare, Symbolizer(bare))
    start = WalkStart(Cpu64(bare), top.registers, True)
    walk = stack_walkers.walk(process, start, [])
    found = [(frame.address, frame.sp, frame.how, frame.sure) for frame in walk.frames]
    assert found == [(frame.address, frame.sp, frame.how, frame.sure) for frame in user.frames]
    assert isinstance(walk.frames[0].registers, Registers)
    assert (walk.end, walk.gaps) == (None, ())


def test_walks_of_both_kinds_have_the_frames_of_an_image_together(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan that begins a walk takes from the frames that all walks may have, as a register state does."""
    image = StackImage()
    image.waiting(1004)
    opened = context.open_image(image.kernel.image(), tmp_path).image
    space = only(AddressSpaces.list_spaces(opened, [PID]))
    listed = StackLister.list_stacks(opened, Symbolizer(opened), [PID], tids=[1004])
    user = next(stack for stack in listed if stack.part == "user")
    top = user.frames[0]
    assert isinstance(top.registers, Registers) and len(user.frames) > 2
    monkeypatch.setattr(budget, "NEAR_FRAMES", 1)
    monkeypatch.setattr(budget, "MAX_DEEP", 2)
    stack_walkers = StackWalkers(opened, Symbolizer(opened))
    searched = stack_walkers.search(space, top.sp, StatusCode.NO_SAVED_REGISTERS, [])
    assert len(searched.frames) > 1
    left = 3 - (len(searched.frames) - 1)
    walked = stack_walkers.walk(space, WalkStart(Cpu64(opened), top.registers, True), [])
    assert (len(walked.frames), walked.end) == (left, StatusCode.TOO_MANY_FRAMES)


@pytest.mark.parametrize(("above", "said"), [(0, False), (8, True)])
def test_the_stack_of_a_thread_that_has_stored_nothing(
    above: int, said: bool, tmp_path: pathlib.Path
) -> None:
    """Rsp of an empty stack is its upper end: it lies on no byte of the stack, but the limits are known."""
    image = StackImage()
    thread = image.waiting(1004)
    place = thread.kthread["TrapFrame"] + image.kernel.isf.offset("_KTRAP_FRAME", "Rsp")
    image.kernel.space.write_int(place, thread.user_stack_base + above, 8)
    opened = context.open_image(image.kernel.image(), tmp_path).image
    listed = StackLister.list_stacks(opened, Symbolizer(opened), [PID], tids=[1004])
    user = next(stack for stack in listed if stack.part == "user")
    assert user.frames[0].sp == thread.user_stack_base + above
    assert has_status(user.status, StatusCode.STACK_LIMITS_UNKNOWN) == said
