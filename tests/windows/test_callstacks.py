# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.callstacks`: forged kernel, user and WoW64 stacks come back frame by frame."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.windows import callstacks

from tests.forge import context
from tests.forge import trapentries as entries
from tests.forge.context import Opened
from tests.support.callstackimages import DISPATCHERS, StackImage
from tests.support.callstackimages86 import APC, CALLBACK, EXCEPTION, StackImage86, Wow64Threads
from tests.support.only import only

Row = Dict[str, Any]
MASK = (1 << 48) - 1


def plain(row: Row) -> Row:
    return {
        name: None if isinstance(value, interfaces.renderers.BaseAbsentValue) else value
        for name, value in row.items()
    }


def stacks(opened: Opened, **options: Any) -> List[Tuple[Row, List[Row]]]:
    """What the plugin prints: each stack's row with the rows of its frames."""
    found: List[Tuple[Row, List[Row]]] = []
    for depth, row in opened.rows(callstacks.CallStacks, **options):
        if depth == 0:
            found.append((plain(row), []))
        else:
            found[-1][1].append(plain(row))
    return found


def by_key(found: List[Tuple[Row, List[Row]]]) -> Dict[Tuple[int, str], Tuple[Row, List[Row]]]:
    keyed = {(stack["TID"], stack["Part"]): (stack, frames) for stack, frames in found}
    assert len(keyed) == len(found)
    return keyed


@pytest.fixture(scope="module")
def image() -> StackImage:
    forged_image = StackImage()
    forged_image.system(12)
    forged_image.waiting(1004, start=forged_image.modules["ntdll"].base + 0x1200)
    forged_image.interrupted(1008)
    forged_image.faulted(1012)
    forged_image.waiting(1024)
    return forged_image


@pytest.fixture(scope="module")
def opened(image: StackImage, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(image.kernel.image(), tmp_path_factory.mktemp("stacks"))


@pytest.mark.parametrize("name", ["2003-x64", "win7-x64", "win10-x64", "win11-x64"])
def test_x64_stacks_come_back_exactly(name: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage(name)
    forged_image.system(12)
    forged_image.waiting(1004)
    forged_image.interrupted(1008)
    forged_image.faulted(1012)
    check(forged_image, context.open_image(forged_image.kernel.image(), tmp_path))


@pytest.mark.parametrize("name", ["2003-x64", "win7-x64", "win10-x64", "win11-x64"])
def test_x64_stacks_with_an_interrupt_in_the_middle(name: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage(name)
    forged_image.preempted(1004, entries.DEVICE, entered=True)
    forged_image.preempted(1008, entries.DEVICE, entered=False)
    forged_image.preempted(1012, entries.SOFTWARE, entered=True)
    forged_image.preempted(1016, entries.DEVICE, entered=True, nested=True)
    traps = [
        how for tid in (1004, 1008, 1016) for _, _, how in forged_image.expected[tid, "kernel"].frames[1:]
    ]
    assert traps.count("trap") == 4
    check(forged_image, context.open_image(forged_image.kernel.image(), tmp_path))


@pytest.mark.parametrize("name", ["2003-x64", "win7-x64", "win10-x64", "win11-x64"])
def test_x64_user_stacks_go_on_below_the_dispatchers(name: str, tmp_path: pathlib.Path) -> None:
    """The slot of SegCs in the machine frames that the kernel leaves on user stacks holds what lay there."""
    forged_image = StackImage(name)
    for number, cs in enumerate((0, 0x33, 0x10, 0x7FEF5A5A5A33)):
        for place, through in enumerate([*([dispatcher] for dispatcher in DISPATCHERS), [*DISPATCHERS] * 2]):
            forged_image.dispatched(1004 + 0x40 * number + 4 * place, through, cs)
    assert [how for _, _, how in forged_image.expected[1016, "user"].frames].count("trap") == 7
    check(forged_image, context.open_image(forged_image.kernel.image(), tmp_path))


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64"])
def test_wow64_stacks_come_back_exactly(name: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage(name)
    wow = Wow64Threads(forged_image)
    wow.in_system_call(1016)
    wow.in_32_bit_code(1020)
    check(forged_image, context.open_image(forged_image.kernel.image(), tmp_path))


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64", "win11-x64"])
def test_both_halves_of_wow64_go_on_below_the_dispatchers(name: str, tmp_path: pathlib.Path) -> None:
    """The 64-bit half: wow64 and wow64cpu as x64 code, below every dispatcher, with any stale SegCs."""
    forged_image = StackImage(name)
    forged_image.simulating()
    wow = Wow64Threads(forged_image)
    for number, cs in enumerate((0, 0x33, 0x23, 0x7FEF5A5A5A33)):
        for place, native in enumerate([*([dispatcher] for dispatcher in DISPATCHERS), [*DISPATCHERS] * 2]):
            tid = 1004 + 0x10 * number + 4 * place
            wow.beside(forged_image.dispatched(tid, native, cs), ("", EXCEPTION, APC, EXCEPTION)[place])
    modules = {forged_image.modules[name].base for name in ("wow64", "wow64cpu")}
    for tid in (1004, 1008, 1012, 1016):
        frames = forged_image.expected[tid, "user"].frames
        assert {address & ~0xFFFF for address, _, _ in frames} > modules
    assert [how for _, _, how in forged_image.expected[1016, "user"].frames].count("trap") == 7
    check(forged_image, context.open_image(forged_image.kernel.image(), tmp_path))


def check(image: StackImage, opened: Opened) -> None:
    """Compares every frame: address, stack pointer, how it was found."""
    found = by_key(stacks(opened))
    assert set(found) == set(image.expected)
    for key, expected in image.expected.items():
        stack, frames = found[key]
        assert (stack["Status"] or "") == expected.status, key
        assert [frame["Frame"] for frame in frames] == list(range(len(expected.frames)))
        assert not any(frame["Status"] for frame in frames), key
        shown = [(frame["Address"], frame["Sp"], frame["How"]) for frame in frames]
        expected_frames = [(address & MASK, sp & MASK, how) for address, sp, how in expected.frames]
        if key[1] == "wow64":
            assert [(address, how) for address, _, how in shown] == [
                (address, how) for address, _, how in expected_frames
            ]
        else:
            assert shown == expected_frames, key


@pytest.mark.parametrize("name", ["xp-x86", "win7-x86", "win10-x86"])
def test_x86_stacks_come_back_exactly(name: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage86(name)
    forged_image.waiting(1004, interrupted=False)
    forged_image.waiting(1008, interrupted=True)
    check_86(forged_image, tmp_path)


@pytest.mark.parametrize("name", ["xp-x86", "win7-x86", "win10-x86"])
def test_x86_stacks_with_an_interrupt_in_the_middle(name: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage86(name)
    forged_image.preempted(1004, entered=True)
    forged_image.preempted(1008, entered=False)
    forged_image.preempted(1012, entered=True, nested=True)
    traps = [how for tid in (1004, 1008, 1012) for _, how in forged_image.expected[tid, "kernel"][1:]]
    assert traps.count("trap") == 4
    check_86(forged_image, tmp_path)


def check_86(forged_image: StackImage86, folder: pathlib.Path) -> None:
    found = by_key(stacks(context.open_image(forged_image.kernel.image(), folder)))
    assert set(found) == set(forged_image.expected)
    for key, expected in forged_image.expected.items():
        stack, frames = found[key]
        assert [(frame["Address"], frame["How"]) for frame in frames] == expected, key
        assert not stack["Status"], key
        assert not any(frame["Status"] for frame in frames)


# Words that a CONTEXT cannot have: flags of nothing, of x64, without Esp; Esp on no stack; Eip in no code;
# SegCs of the kernel.
NO_CONTEXTS = [
    *({0: 0x12345678}, {0: 0x10001F}, {0: 0x10002}, {0: 0}),
    *({0xC4: 0x10}, {0xC4: 0}, {0xB8: 0x10}, {0xB8: 0}, {0xBC: 8}),
]


@pytest.mark.parametrize("name", ["xp-x86", "win7-x86", "win10-x86"])
def test_x86_user_stacks_go_on_below_an_exception_and_an_apc(name: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage86(name)
    for tid, through in ((1004, EXCEPTION), (1008, APC)):
        forged_image.dispatched(tid, through)
        assert [how for _, how in forged_image.expected[tid, "user"]].count("trap") == 2
    check_86(forged_image, tmp_path)


@pytest.mark.parametrize("through", [EXCEPTION, APC])
@pytest.mark.parametrize("name", ["xp-x86", "win7-x86", "win10-x86"])
def test_x86_what_no_context_proves_is_doubtful(name: str, through: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage86(name)
    forged_image.dispatched(1004, CALLBACK)
    for number, changed in enumerate(NO_CONTEXTS):
        forged_image.dispatched(1008 + 4 * number, through, changed)
    found = by_key(stacks(context.open_image(forged_image.kernel.image(), tmp_path)))
    for tid in range(1004, 1008 + 4 * len(NO_CONTEXTS), 4):
        check_doubt(found[tid, "user"], forged_image.expected[tid, "user"])


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64"])
def test_wow64_stacks_go_on_below_an_exception_and_an_apc(name: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage(name)
    wow = Wow64Threads(forged_image)
    wow.dispatched(1016, EXCEPTION)
    wow.dispatched(1020, APC)
    check(forged_image, context.open_image(forged_image.kernel.image(), tmp_path))


@pytest.mark.parametrize("through", [EXCEPTION, APC])
@pytest.mark.parametrize("name", ["win7-x64", "win10-x64"])
def test_wow64_what_no_context_proves_is_doubtful(name: str, through: str, tmp_path: pathlib.Path) -> None:
    forged_image = StackImage(name)
    wow = Wow64Threads(forged_image)
    wow.dispatched(1004, CALLBACK)
    for number, changed in enumerate(NO_CONTEXTS):
        wow.dispatched(1008 + 4 * number, through, changed)
    found = by_key(stacks(context.open_image(forged_image.kernel.image(), tmp_path)))
    for tid in range(1004, 1008 + 4 * len(NO_CONTEXTS), 4):
        expected = [(address, how) for address, _, how in forged_image.expected[tid, "wow64"].frames]
        check_doubt(found[tid, "wow64"], expected)


def check_doubt(found: Tuple[Row, List[Row]], expected: List[Tuple[int, str]]) -> None:
    """The frame behind the dispatcher's is doubtful, and no other."""
    stack, frames = found
    assert [(frame["Address"], frame["How"]) for frame in frames] == expected
    assert stack["Status"] in ("dispatcher", "dispatcher, hash unsure")
    behind = only(place for place, frame in enumerate(frames) if "Ki" in (frame["Symbol"] or ""))
    doubtful = [place for place, frame in enumerate(frames) if frame["Status"]]
    assert doubtful == [behind + 1]


def test_keys_repeat_and_quantities_do_not(opened: Opened) -> None:
    stack, frames = by_key(stacks(opened))[1004, "user"]
    key = (1000, "stacks.exe", 1004, "user")
    assert (stack["PID"], stack["Process"], stack["TID"], stack["Part"]) == key
    assert (stack["State"], stack["WaitReason"], stack["Count"]) == ("Waiting", "UserRequest", 1)
    assert stack["StartSymbol"] == "ntdll!RtlUserThreadStart"
    for frame in frames:
        assert (frame["PID"], frame["Process"], frame["TID"], frame["Part"]) == key
        assert frame["Depth"] is frame["BackTraceHash"] is frame["State"] is frame["Count"] is None
    assert [frame["Symbol"] for frame in frames] == [
        *("ntdll!NtWait+0x14", "kernelbase!WaitEx+0x20", "stacks+0x1130", "ntdll!RtlUserThreadStart+0x20"),
    ]
    assert [frame["Source"] for frame in frames] == ["nearest", "export", "module", "export"]


def test_a_fold_without_candidates_says_so(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    assert not [frames for _, frames in stacks(opened, tid=[1004], candidates=True, fold=True) if frames]
    assert "--fold leaves out the rows of --candidates" in caplog.messages


def test_only_return_addresses_are_captured(image: StackImage, opened: Opened) -> None:
    """The interrupted instruction stays in the listing and counts for nothing."""
    addresses = [address for address, _, _ in image.expected[1004, "user"].frames]
    stack, frames = by_key(stacks(opened))[1004, "user"]
    assert (stack["Depth"], stack["BackTraceHash"]) == (3, sum(addresses[1:]) & 0xFFFFFFFF)
    options = {"tid": [1004], "frames_to_skip": 1, "frames_to_capture": 1}
    stack, frames = by_key(stacks(opened, **options))[1004, "user"]
    assert [frame["Frame"] for frame in frames] == [0, 2]
    assert [frame["Address"] for frame in frames] == [addresses[0], addresses[2]]
    assert (stack["Depth"], stack["BackTraceHash"]) == (1, addresses[2] & 0xFFFFFFFF)


def test_a_thread_that_was_switched_out_returns_from_everywhere(image: StackImage, opened: Opened) -> None:
    addresses = [address for address, _, _ in image.expected[12, "kernel"].frames]
    stack, frames = by_key(stacks(opened, tid=[12], frames_to_skip=2))[12, "kernel"]
    assert [frame["Frame"] for frame in frames] == [2, 3, 4]
    assert (stack["Depth"], stack["BackTraceHash"]) == (3, sum(addresses[2:]) & 0xFFFFFFFF)


def test_more_skipped_than_there_is_captures_nothing(opened: Opened) -> None:
    stack, frames = by_key(stacks(opened, tid=[1004], frames_to_skip=9))[1004, "user"]
    assert (stack["Depth"], stack["BackTraceHash"]) == (0, None)
    assert [frame["Frame"] for frame in frames] == [0]


def test_selections(opened: Opened) -> None:
    assert {stack["PID"] for stack, _ in stacks(opened, pid=[4])} == {4}
    assert {stack["TID"] for stack, _ in stacks(opened, tid=[1008, 1012])} == {1008, 1012}
    found = by_key(stacks(opened, find="*!waitex*"))
    assert set(found) == {
        *((1004, "user"), (1008, "user"), (1024, "user")),
    }
    assert stacks(opened, find="*!nothing*") == []
    assert stacks(opened, unbacked=True) == []


def test_equal_stacks_are_shown_once(opened: Opened) -> None:
    found = stacks(opened, tid=[1004, 1008, 1024], unique=True)
    assert [(stack["TID"], stack["Part"], stack["Count"]) for stack, _ in found] == [
        *((1004, "kernel", 2), (1004, "user", 3), (1008, "kernel", 1)),
    ]
