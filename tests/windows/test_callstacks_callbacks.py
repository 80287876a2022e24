# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.callstacks` of threads in callbacks to user mode: every piece of their stacks, newest first."""

from __future__ import annotations

import pathlib
from typing import Dict, List, Tuple

import pytest

from tests.forge import context
from tests.forge.context import Opened
from tests.forge.paging import State
from tests.support.callbackimages import CallbackImage
from tests.support.callbackimages86 import CallbackImage86
from tests.support.callstackimages import StackImage
from tests.support.callstackimages86 import TRAP_FRAME, Wow64Threads
from tests.windows.test_callstacks import MASK, Row, stacks
from winstacks.process.kernelstacks import MAX_SEGMENTS

X86 = ["xp-x86", "win7-x86", "win10-x86"]
X64 = ["win7-x64", "win10-x64", "win11-x64"]
Pieces = Dict[Tuple[int, str], Tuple[Row, List[Row]]]


def pieces(opened: Opened) -> Pieces:
    """What the plugin prints by thread and piece; one on an expanded stack has the word behind its name."""
    found: Pieces = {}
    for stack, frames in stacks(opened):
        expanded = " expanded" if "expanded" in (stack["Status"] or "") else ""
        key = (stack["TID"], stack["Part"] + expanded)
        assert key not in found
        found[key] = (stack, frames)
    return found


def check(image: StackImage, opened: Opened) -> None:
    found = pieces(opened)
    assert set(found) == set(image.expected)
    for key, expected in image.expected.items():
        stack, frames = found[key]
        assert (stack["Status"] or "") == expected.status, key
        shown = [(frame["Address"], frame["Sp"], frame["How"], frame["Status"]) for frame in frames]
        assert shown == [(ip & MASK, sp & MASK, how, "") for ip, sp, how in expected.frames], key


@pytest.mark.parametrize("name", X64)
def test_every_piece_of_a_stack_comes_back(name: str, tmp_path: pathlib.Path) -> None:
    image = CallbackImage(name)
    image.called_back(1004, 0)
    image.called_back(1008, 1, cs=0)
    image.called_back(1012, 2)
    image.called_back(1016, 5, cs=0x7FEF5A5A5A33)
    opened = context.open_image(image.kernel.image(), tmp_path)
    check(image, opened)
    order = [stack["Part"] for stack, _ in stacks(opened, tid=[1012])]
    assert order == ["kernel", "user", "kernel 2", "user 2", "kernel 3", "user 3"]


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("expanded", [1, 2, 3])
def test_an_expanded_segment_is_a_piece_of_its_stack(
    name: str, expanded: int, tmp_path: pathlib.Path
) -> None:
    image = CallbackImage(name)
    image.called_back(1004, 2, expanded=expanded)
    opened = context.open_image(image.kernel.image(), tmp_path)
    check(image, opened)
    parts = ["kernel", "user", "kernel 2", "user 2", "kernel 3", "user 3"]
    parts.insert(2 * expanded - 2, parts[2 * expanded - 2])
    assert [stack["Part"] for stack, _ in stacks(opened)] == parts


def test_callbacks_on_the_same_memory(tmp_path: pathlib.Path) -> None:
    image = CallbackImage("win7-x64")
    image.called_back(1004, 3, shared=True)
    check(image, context.open_image(image.kernel.image(), tmp_path))


def damaged(image: CallbackImage, folder: pathlib.Path) -> Pieces:
    """The pieces of the one thread; those of the depth that it is in are always right."""
    found = pieces(context.open_image(image.kernel.image(), folder))
    for part in ("kernel", "user"):
        shown = [(frame["Address"], frame["Status"]) for frame in found[1004, part][1]]
        assert shown == [(ip & MASK, "") for ip, _, _ in image.expected[1004, part].frames]
    return found


def check_lost(found: Pieces, depth: int, word: str) -> None:
    """The last depth has no frames, and its kernel part says why."""
    assert list(found)[-2:] == [(1004, f"kernel {depth}"), (1004, f"user {depth}")]
    assert (found[1004, f"kernel {depth}"][0]["Status"], found[1004, f"kernel {depth}"][1]) == (word, [])
    lost = found[1004, f"user {depth}"]
    assert (lost[0]["Status"], lost[1]) == ("no saved registers", [])


@pytest.mark.parametrize(
    ("member", "value", "word"),
    [
        ("Previous.StackBase", 0x4141414141414141, "stack limits unusable"),
        ("Previous.InitialStack", 0, "stack limits unusable"),
        ("Previous.StackLimit", 0xFFFF800000000000, "stack limits unusable"),
    ],
)
@pytest.mark.parametrize("name", ["win10-x64", "win11-x64"])
def test_a_control_block_with_nonsense(
    name: str, member: str, value: int, word: str, tmp_path: pathlib.Path
) -> None:
    image = CallbackImage(name)
    image.called_back(1004, 2)
    image.control(image.memory[1].initial)[member] = value
    found = damaged(image, tmp_path)
    parts = ["kernel", "user", "kernel 2", "user 2"]
    assert [part for _, part in found] == [*parts, "kernel 3", "user 3"]
    check_lost(found, 3, word)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_segments_that_lead_back(place: int, tmp_path: pathlib.Path) -> None:
    """The oldest stack's control block names one of the others, or itself."""
    image = CallbackImage("win10-x64")
    image.called_back(1004, 2)
    oldest, there = image.memory[0], image.memory[place]
    control = image.control(oldest.initial)
    for name, value in zip(("StackBase", "StackLimit", "InitialStack", "KernelStack"), (*there, there.limit)):
        control[f"Previous.{name}"] = value
    found = damaged(image, tmp_path)
    check_lost(found, 4, "cycle")


def test_callbacks_that_lead_back(tmp_path: pathlib.Path) -> None:
    image = CallbackImage("win7-x64")
    image.called_back(1004, 2, shared=True)
    image.callouts[0]["CallbackStack"] = image.callouts[1].address
    found = damaged(image, tmp_path)
    check_lost(found, 4, "outside the stack")


@pytest.mark.parametrize(
    ("member", "value", "lost", "word"),
    [
        ("InitialStack", 0x41414141, 2, "stack limits unusable"),
        ("CallbackStack", 0xFFFFF80000001000, 3, "outside the stack"),
        # The control block leads on to the oldest stack.
        ("CallbackStack", 0x41, 4, "no saved registers"),
    ],
)
def test_a_frame_of_a_callback_with_nonsense(
    member: str, value: int, lost: int, word: str, tmp_path: pathlib.Path
) -> None:
    image = CallbackImage("win7-x64")
    image.called_back(1004, 2)
    image.callouts[-1][member] = value
    found = damaged(image, tmp_path)
    check_lost(found, lost, word)


@pytest.mark.parametrize("name", X64)
def test_what_a_callback_left_proves_itself_or_is_searched(name: str, tmp_path: pathlib.Path) -> None:
    """Its frame names a trap frame that is not there: nothing that was saved in it is believed."""
    image = CallbackImage(name)
    image.called_back(1004, 2)
    image.callouts[-1]["TrapFrame"] = 0x41414141
    found = damaged(image, tmp_path)
    stack, frames = found[1004, "kernel 2"]
    assert stack["Status"] == "no saved registers, hash unsure"
    assert {frame["Status"] for frame in frames} == {"unsure"}
    addresses = [frame["Address"] for frame in frames]
    assert addresses == [ip & MASK for ip, _, _ in image.expected[1004, "kernel 2"].frames]
    # The trap frame lies where every entry from user mode has it.
    shown = [(frame["Address"], frame["Status"]) for frame in found[1004, "user 2"][1]]
    assert shown == [(ip & MASK, "") for ip, _, _ in image.expected[1004, "user 2"].frames]


@pytest.mark.parametrize("name", X64)
def test_an_older_stack_that_is_paged_out(name: str, tmp_path: pathlib.Path) -> None:
    image = CallbackImage(name)
    image.called_back(1004, 2)
    older = image.memory[1]
    image.kernel.space.set_state(older.limit, older.base - older.limit, State.PAGEFILE)
    found = damaged(image, tmp_path)
    if image.chained:
        # The frame of the callback is on it: that there is one is known, and no more.
        check_lost(found, 2, "unreadable")
    else:
        statuses = [
            (part, found[1004, part][0]["Status"], found[1004, part][1]) for _, part in list(found)[2:]
        ]
        assert statuses == [
            ("kernel 2", "no saved registers, stack unreadable", []),
            ("user 2", "unreadable", []),
            ("kernel 3", "unreadable", []),
            ("user 3", "no saved registers", []),
        ]


@pytest.mark.parametrize("name", X64)
def test_an_expanded_stack_without_the_way_back(name: str, tmp_path: pathlib.Path) -> None:
    """What the walk does not come to is searched from where the thread left it."""
    image = CallbackImage(name)
    image.called_back(1004, 1, expanded=1)
    initial = image.memory[-1].initial
    image.kernel.space.write(initial - 0x70, bytes(0x70))
    found = pieces(context.open_image(image.kernel.image(), tmp_path))
    assert [part for _, part in found] == ["kernel expanded", "kernel", "user", "kernel 2", "user 2"]
    stack, frames = found[1004, "kernel"]
    assert "no saved registers" in stack["Status"]
    assert {frame["Status"] for frame in frames} == {"unsure"}
    expected = [ip & MASK for ip, _, _ in image.expected[1004, "kernel"].frames]
    assert [frame["Address"] for frame in frames] == expected[1:]
    assert [frame["Address"] for frame in found[1004, "user"][1]] == [
        ip & MASK for ip, _, _ in image.expected[1004, "user"].frames
    ]


def test_no_more_than_so_many_segments(tmp_path: pathlib.Path) -> None:
    image = CallbackImage("win10-x64")
    image.called_back(1004, MAX_SEGMENTS + 3)
    found = damaged(image, tmp_path)
    check_lost(found, MAX_SEGMENTS + 1, "limit")


def test_options_take_every_piece(tmp_path: pathlib.Path) -> None:
    image = CallbackImage("win10-x64")
    image.called_back(1004, 2)
    image.called_back(1008, 2)
    opened = context.open_image(image.kernel.image(), tmp_path)
    found = stacks(opened, find="*!waitex*", tid=[1008])
    assert [stack["Part"] for stack, _ in found] == ["user", "user 2", "user 3"]
    found = stacks(opened, unique=True)
    assert [(stack["TID"], stack["Part"], stack["Count"]) for stack, _ in found] == [
        (1004, part, 2) for part in ("kernel", "user", "kernel 2", "user 2", "kernel 3", "user 3")
    ]
    found = stacks(opened, frames_to_skip=1, frames_to_capture=1, tid=[1004])
    assert [stack["Depth"] for stack, _ in found] == [1] * 6


@pytest.mark.parametrize("name", X86)
def test_every_piece_of_an_x86_stack_comes_back(name: str, tmp_path: pathlib.Path) -> None:
    """The kept trap frame proves what KiUserCallbackDispatcher interrupted: nothing is unsure."""
    image = CallbackImage86(name)
    image.called_back(1004, 0)
    image.called_back(1008, 1)
    image.called_back(1012, 2)
    image.called_back(1016, 4)
    found = pieces(context.open_image(image.kernel.image(), tmp_path))
    assert set(found) == set(image.expected)
    for key, expected in image.expected.items():
        stack, frames = found[key]
        assert [(frame["Address"], frame["How"], frame["Status"]) for frame in frames] == [
            (*frame, "") for frame in expected
        ], key
        assert not stack["Status"], key


@pytest.mark.parametrize("name", X86)
def test_a_kept_trap_frame_that_does_not_fit_proves_nothing(name: str, tmp_path: pathlib.Path) -> None:
    """Another Ebp, and a stack pointer that lies below: the frame behind the dispatcher's is doubtful."""
    image = CallbackImage86(name)
    for tid, register in ((1004, "Ebp"), (1008, "HardwareEsp"), (1012, "SegCs")):
        image.called_back(tid, 1)
        frame = image.kernel.obj("_KTRAP_FRAME", image.memory[0].initial - TRAP_FRAME[image.architecture])
        frame[register] = 0
    found = pieces(context.open_image(image.kernel.image(), tmp_path))
    for tid in (1004, 1008, 1012):
        assert found[tid, "user"][0]["Status"] == "dispatcher, hash unsure"
        assert "unsure" in {frame["Status"] for frame in found[tid, "user"][1]}


@pytest.mark.parametrize("name", X86[1:])
@pytest.mark.parametrize("expanded", [1, 2])
def test_an_expanded_x86_segment_is_a_piece(name: str, expanded: int, tmp_path: pathlib.Path) -> None:
    """No frame pointer is believed to lead to other memory: the stack before is searched."""
    image = CallbackImage86(name)
    image.called_back(1004, 2, expanded=expanded)
    found = pieces(context.open_image(image.kernel.image(), tmp_path))
    assert set(found) == set(image.expected)
    for key, expected in image.expected.items():
        stack, frames = found[key]
        assert [frame["Address"] for frame in frames] == [address for address, _ in expected], key
        searched = key == (1004, "kernel" if expanded == 1 else "kernel 2")
        assert ("no saved registers" in (stack["Status"] or "")) == searched
        assert all(frame["Status"] == ("unsure" if searched else "") for frame in frames), key


@pytest.mark.parametrize("name", X86)
def test_what_an_x86_callback_left_is_behind_its_call_or_searched(name: str, tmp_path: pathlib.Path) -> None:
    image = CallbackImage86(name)
    image.called_back(1004, 1)
    site = image.expected[1004, "kernel 2"][0][0]
    # A call that goes elsewhere.
    image.kernel.space.write(site - 4, bytes(4))
    found = pieces(context.open_image(image.kernel.image(), tmp_path))
    assert "no saved registers" in found[1004, "kernel 2"][0]["Status"]
    assert all(frame["Status"] == "unsure" for frame in found[1004, "kernel 2"][1])


@pytest.mark.parametrize("name", X64)
def test_wow64_keeps_no_32_bit_registers_of_older_callbacks(name: str, tmp_path: pathlib.Path) -> None:
    """The CPU area holds the newest ones; for the older half there is a row that says so."""
    image = CallbackImage(name)
    image.simulating()
    wow = Wow64Threads(image)
    wow.beside(image.called_back(1004, 2))
    opened = context.open_image(image.kernel.image(), tmp_path)
    order = [stack["Part"] for stack, _ in stacks(opened)]
    names = ("kernel", "user", "wow64")
    assert order == [*names, *(f"{name} 2" for name in names), *(f"{name} 3" for name in names)]
    found = pieces(opened)
    for part in ("wow64 2", "wow64 3"):
        assert (found[1004, part][0]["Status"], found[1004, part][1]) == ("no saved registers", [])
    assert not found[1004, "wow64"][0]["Status"]
    for key in ((1004, "user"), (1004, "user 2"), (1004, "user 3")):
        shown = [(frame["Address"], frame["Status"]) for frame in found[key][1]]
        assert shown == [(ip & MASK, "") for ip, _, _ in image.expected[key].frames]
