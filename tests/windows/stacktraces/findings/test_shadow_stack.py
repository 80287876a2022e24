# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Shadow stacks of the kernel that agree with the stacks of threads, and such that do not."""

from __future__ import annotations

from typing import List

import pytest

from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.support.callstackimages import StackImage
from tests.support.findingimages import ALL, TID, FindingImage, answered, found

CHECK = "shadow_stack"
KERNEL = "win11-x64"
"""The only kernel with kernel shadow stacks among those that are forged."""

SHADOW = 0xFFFFAB8100000000
TOKEN = SHADOW + PAGE - 8 | 1
CS = 0x10


def walked(forged: FindingImage, tid: int = TID) -> List[int]:
    """The return addresses of the thread's stack in the kernel, innermost first."""
    assert isinstance(forged.stacks, StackImage)
    return [address for address, _, _ in forged.stacks.expected[tid, "kernel"].frames]


def shadow(forged: FindingImage, values: List[int]) -> None:
    """Gives the thread a shadow stack with these values on top."""
    kthread, space = forged.thread.kthread, forged.kernel.space
    start = SHADOW + PAGE - 8 * len(values)
    space.map(SHADOW, PAGE)
    for number, value in enumerate(values):
        space.write_int(start + 8 * number, value, 8)
    kthread["KernelShadowStack"] = start
    kthread["KernelShadowStackBase"] = SHADOW + PAGE


def test_a_shadow_stack_that_agrees_is_silent() -> None:
    forged = FindingImage(KERNEL)
    shadow(forged, [*walked(forged), TOKEN])
    assert answered(forged.image(), check=[CHECK]) == []


def test_what_the_switch_itself_called_is_silent() -> None:
    forged = FindingImage(KERNEL)
    frames = walked(forged)
    shadow(forged, [frames[0] + 0x40, frames[0] + 0x80, *frames, TOKEN])
    assert found(forged.image(), CHECK) == []


def test_an_interrupt_on_the_way_is_silent() -> None:
    """It leaves CS, the address and the shadow stack pointer; those that are no code are passed over."""
    forged = FindingImage(KERNEL)
    first, *rest = walked(forged)
    shadow(forged, [first, CS, SHADOW + 0x800, *rest, TOKEN])
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("number", [0, 2])
def test_a_return_address_that_the_shadow_stack_has_otherwise(number: int) -> None:
    forged = FindingImage(KERNEL)
    frames = walked(forged)
    true = forged.kernel.base + 0x1234
    changed = [*frames[:number], true, *frames[number + 1 :]]
    shadow(forged, [*changed, TOKEN])
    (row,) = found(forged.image(), CHECK)
    assert (row["Severity"], row["Kind"], row["TID"]) == ("medium", "kernel", TID)
    assert (row["Frame"], row["Address"]) == (number, frames[number] & 0xFFFFFFFFFFFF)
    start = SHADOW + PAGE - 8 * (len(frames) + 1)
    assert row["Evidence"].startswith(f"shadow stack {start:#x} has {true:#x} nt")
    assert row["Evidence"].endswith(f", {number} frames before agree")


def test_a_frame_that_the_stack_lacks() -> None:
    """The frames of a call were cut out of the stack."""
    forged = FindingImage(KERNEL)
    frames = walked(forged)
    shadow(forged, [*frames[:2], forged.kernel.base + 0x1234, *frames[2:], TOKEN])
    (row,) = found(forged.image(), CHECK)
    assert (row["Severity"], row["Frame"]) == ("medium", 2)


def test_a_shadow_stack_that_ends_early_is_silent() -> None:
    """The rest is on the shadow stack of another segment of the kernel's stack."""
    forged = FindingImage(KERNEL)
    shadow(forged, [*walked(forged)[:2], TOKEN])
    assert found(forged.image(), CHECK) == []


def test_a_return_address_that_was_changed_on_the_stack() -> None:
    """Nothing is said of the frames behind, to which the changed one led."""
    forged = FindingImage(KERNEL)
    shadow(forged, [*walked(forged), TOKEN])
    changed = forged.kernel.base + 0x2222
    forged.kernel_returns_to(changed)
    (row,) = found(forged.image(), CHECK)
    assert (row["Severity"], row["Frame"], row["Address"]) == ("medium", 1, changed & 0xFFFFFFFFFFFF)


@pytest.mark.parametrize(("agrees", "how"), [(True, "shadow"), (False, "unwind")])
def test_a_shadow_stack_confirms_what_other_checks_find(agrees: bool, how: str) -> None:
    """A driver without a module called: the processor noted where that will return to."""
    forged = FindingImage(KERNEL)
    frames = walked(forged)
    address = 0xFFFFFA8000100105
    forged.kernel.space.map(address & -PAGE, PAGE)
    forged.kernel.space.write(address - 5, b"\xe8\0\0\0\0")
    forged.kernel_returns_to(address)
    known = [frames[0], address if agrees else frames[1], *frames[2:]]
    shadow(forged, [*known, TOKEN])
    (row,) = found(forged.image(), "kernel_no_module")
    assert (row["Frame"], row["Address"], row["How"]) == (1, address & 0xFFFFFFFFFFFF, how)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("missing", "the shadow stack is not in memory: stacks.exe"),
        ("base", "the pointers to the shadow stack contradict each other: stacks.exe"),
        ("none", "threads without a kernel shadow stack: stacks.exe"),
        ("user", "no public symbol says where shadow stacks of user mode are: stacks.exe"),
    ],
)
def test_what_is_not_checked(state: str, said: str) -> None:
    forged = FindingImage(KERNEL)
    shadow(forged, [*walked(forged), TOKEN])
    if state == "missing":
        forged.kernel.space.set_state(SHADOW, PAGE, State.PAGEFILE)
    elif state == "base":
        forged.thread.kthread["KernelShadowStackBase"] = SHADOW - PAGE
    elif state == "none":
        forged.thread.kthread["KernelShadowStack"] = 0
    else:
        forged.thread.kthread["CetUserShadowStack"] = 1
    rows = answered(forged.image(), check=[CHECK])
    assert [(row["Severity"], row["Status"], row["Evidence"]) for row in rows] == [
        (None, "not checked", said)
    ]


@pytest.mark.parametrize("name", [name for name in ALL if name != KERNEL])
def test_kernels_without_shadow_stacks_are_not_checked(name: str) -> None:
    rows = answered(FindingImage(name).image(), check=[CHECK])
    assert [row["Evidence"] for row in rows] == ["the threads of this kernel have no KernelShadowStack"]
