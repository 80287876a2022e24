# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Shadow stacks prove callers where a walk guessed; a stack that contradicts them is left as it is."""

from __future__ import annotations

import struct
from typing import Dict, List, Optional, Tuple

import pytest

from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.stacks.decode.frames import MAX_FRAMES, MAX_SCANNED, Frame, StackWalk
from winstacks.stacks.decode.shadow import proven_walk
from winstacks.traps.decode.xstate import shadow_pointers

SP = 0x10000
TRAP = Frame(0x7000, SP, "trap", False)


def stack(*values: Tuple[int, int]) -> Dict[int, int]:
    """A stack of zeros with some values at offsets."""
    slots = dict.fromkeys(range(SP, SP + 0x1000, 8), 0)
    slots.update({SP + offset: value for offset, value in values})
    return slots


def shown(walk: StackWalk) -> List[Tuple[int, int, str, bool]]:
    return [(frame.address, frame.sp - SP, frame.how, frame.sure) for frame in walk.frames]


def test_callers_behind_a_guess_and_beyond_the_end() -> None:
    guess = Frame(0x9999, SP + 0x10, "scan", True, False)
    slots = stack((0, 0x7100), (0x40, 0x7200))
    for frames in ((TRAP,), (TRAP, guess)):
        walk = StackWalk(frames, StatusCode.STACK_UNREADABLE, (StatusCode.NO_FUNCTION_TABLE,))
        found = proven_walk(walk, [0x7100, 0x7200], slots.get)
        assert shown(found) == [
            (0x7000, 0, "trap", True),
            (0x7100, 8, "shadow", True),
            (0x7200, 0x48, "shadow", True),
        ]
        assert (found.end, found.gaps) == (None, ())


def test_sure_frames_stay_as_they_were_found() -> None:
    unwound = Frame(0x7100, SP + 8, "unwind", True)
    slots = stack((0, 0x7100), (0x40, 0x7200))
    found = proven_walk(StackWalk((TRAP, unwound), StatusCode.NO_UNWIND_DATA), [0x7100, 0x7200], slots.get)
    assert [how for _, _, how, _ in shown(found)] == ["trap", "unwind", "shadow"]


def test_a_sure_frame_that_contradicts_is_not_hidden() -> None:
    walk = StackWalk((TRAP, Frame(0x6666, SP + 8, "unwind", True)), StatusCode.NO_UNWIND_DATA)
    assert proven_walk(walk, [0x7100], stack((0, 0x7100)).get) is walk


def test_a_value_that_is_not_on_the_stack_ends_the_proof() -> None:
    walk = StackWalk((TRAP,), StatusCode.NO_UNWIND_DATA, (StatusCode.NO_FUNCTION_TABLE,))
    found = proven_walk(walk, [0x7100, 0x7200], stack((0x20, 0x7100)).get)
    assert shown(found)[1:] == [(0x7100, 0x28, "shadow", True)]
    assert (found.end, found.gaps) == (walk.end, walk.gaps)
    assert proven_walk(walk, [0x7100], stack().get) is walk
    assert proven_walk(StackWalk(()), [0x7100], stack().get) == StackWalk(())


def test_the_work_is_bounded() -> None:
    reads: List[int] = []

    def read(address: int) -> Optional[int]:
        reads.append(address)
        return 0x7100

    found = proven_walk(StackWalk((TRAP,), StatusCode.NO_UNWIND_DATA), [0x7100] * (1 << 16), read)
    assert len(found.frames) == MAX_FRAMES
    assert len(reads) <= MAX_SCANNED // 8


def area(header: Tuple[int, int], rest: bytes, offset: int = 0x50, flags: int = 0x10005F) -> bytes:
    context = bytearray(0x4D0)
    struct.pack_into("<I", context, 0x30, flags)
    ex = struct.pack("<iIiIiI", -0x4D0, 0x600, -0x4D0, 0x4D0, offset, 0x40 + len(rest))
    return bytes(context) + ex.ljust(offset, b"\0") + struct.pack("<QQ", *header).ljust(0x40, b"\0") + rest


CET, PACKED = 1 << 11, 1 << 63


@pytest.mark.parametrize(
    ("data", "pointers"),
    [
        (area((CET, PACKED | CET), struct.pack("<QQ", 1, 0x5000)), [0x5000]),
        # AVX before it.
        (area((CET | 4, PACKED | CET | 4), bytes(0x100) + struct.pack("<QQ", 1, 0x5000)), [0x5000]),
        # PKRU of eight bytes before it: aligned to 64 bytes, or not.
        (
            area((CET, PACKED | CET | 1 << 9), bytes(8) + struct.pack("<QQ", 1, 0x5000) + bytes(0x80)),
            [0x5000],
        ),
        (
            area((CET, PACKED | CET | 1 << 9), bytes(0x40) + struct.pack("<QQ", 1, 0x5000) + bytes(0x80)),
            [0x5000],
        ),
        # No shadow stack in use, none saved, not compacted, no area, a pointer that is none.
        (area((CET, PACKED | CET), struct.pack("<QQ", 0, 0x5000)), []),
        (area((0, PACKED | CET), struct.pack("<QQ", 1, 0x5000)), []),
        (area((CET, CET), struct.pack("<QQ", 1, 0x5000)), []),
        (area((CET, PACKED | CET), struct.pack("<QQ", 1, 0x5000), flags=0x10001F), []),
        (area((CET, PACKED | CET), struct.pack("<QQ", 1, 0x5004)), []),
        (area((CET, PACKED | CET), b"\1"), []),
        (area((CET, PACKED | CET), struct.pack("<QQ", 1, 0x5000))[:0x4E0], []),
        (b"", []),
    ],
)
def test_the_pointer_in_a_context(data: bytes, pointers: List[int]) -> None:
    assert list(shadow_pointers(data)) == pointers
