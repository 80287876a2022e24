# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Shadow stacks that agree with the stacks of threads, and such that do not."""

from __future__ import annotations

import pathlib
import struct
from typing import Dict, List, Tuple

import pytest

from tests.forge import context
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.support.callstackimages import StackImage
from tests.support.findingimages import ALL, RETURNS, TID, FindingImage, answered, found
from tests.support.lacking import MEMBERS, LackingTable, Lost, Run
from tests.support.only import only
from winstacks.findings.shadowstacks import ComponentSizes, component

CHECK = "shadow_stack"
KERNEL = "win11-x64"
"""The only kernel with kernel shadow stacks among those that are forged."""
WITH_USER = ("win10-x64", KERNEL)
NONE = {
    "win10-x64": "the threads of this kernel have no KernelShadowStack",
    KERNEL: "threads without a kernel shadow stack: stacks.exe",
}
NONE_OF_USER = "threads without a shadow stack of user mode: stacks.exe"

SHADOW = 0xFFFFAB8100000000
TOKEN = SHADOW + PAGE - 8 | 1
CS = 0x10

USER_SHADOW = 0x30000000
AVX, PKRU, CET_U = 2, 9, 11
SIZES = {AVX: 256, PKRU: 8, CET_U: 16}
CET_U_AT = 840
"""Where Linux reports CET_U in the area of a processor that has these three (its message xstate_offset)."""


def walked(forged: FindingImage, mode: str = "kernel") -> List[int]:
    """The return addresses of the thread's stack in one mode, innermost first."""
    assert isinstance(forged.stacks, StackImage)
    frames = forged.stacks.expected[TID, mode].frames
    return [address for address, _, how in frames if mode == "kernel" or how != "trap"]


def shadow(forged: FindingImage, values: List[int]) -> None:
    """Gives the thread a shadow stack with these values on top."""
    kthread, space = forged.thread.kthread, forged.kernel.space
    start = SHADOW + PAGE - 8 * len(values)
    space.map(SHADOW, PAGE)
    for number, value in enumerate(values):
        space.write_int(start + 8 * number, value, 8)
    kthread["KernelShadowStack"] = start
    kthread["KernelShadowStackBase"] = SHADOW + PAGE


def user_shadow(forged: FindingImage, values: List[int], present: int = 1 << CET_U) -> int:
    """Gives the thread a shadow stack of user mode with these values on top; returns where its state is."""
    kernel, space = forged.kernel, forged.app.space
    start = USER_SHADOW + PAGE - 8 * len(values)
    forged.app.region(USER_SHADOW, bytes(PAGE - 8 * len(values)) + struct.pack(f"<{len(values)}Q", *values))
    space.tables.make_shadow_stack(USER_SHADOW)
    shared = kernel.kuser + kernel.isf.offset("_KUSER_SHARED_DATA", "XState.AllFeatures")
    for number, size in SIZES.items():
        kernel.space.write_int(shared + 4 * number, size, 4)
    area = kernel.space.allocate(PAGE)
    saved = 1 << 63 | sum(1 << number for number in SIZES)
    kernel.space.write(area + 0x200, struct.pack("<QQ", 3 | present, saved))
    kernel.space.write(area + CET_U_AT, struct.pack("<QQ", 1, start))
    forged.thread.kthread["StateSaveArea"] = area
    forged.thread.kthread["CetUserShadowStack"] = 1
    return area


@pytest.mark.parametrize(
    ("sizes", "aligned", "at"),
    [
        # As Linux reports them in its log: xstate_offset and xstate_sizes.
        (SIZES, (), CET_U_AT),
        ({2: 256, 5: 64, 6: 512, 7: 1024, 9: 8, 11: 16, 17: 64, 18: 8192}, (17, 18), 2440),
    ],
)
def test_where_a_component_of_the_state_is(sizes: Dict[int, int], aligned: Tuple[int, ...], at: int) -> None:
    known = ComponentSizes(
        [sizes.get(number, 0) for number in range(63)], sum(1 << number for number in aligned)
    )
    bits = sum(1 << number for number in sizes)
    assert component(struct.pack("<QQ", bits, bits | 1 << 63), CET_U, known) == at
    if 18 in sizes:
        assert component(struct.pack("<QQ", bits, bits | 1 << 63), 18, known) == 10752 - 8192
    assert component(struct.pack("<QQ", bits, bits), CET_U, known) is None
    assert component(struct.pack("<QQ", bits & ~(1 << CET_U), bits | 1 << 63), CET_U, known) is None


def test_shadow_stacks_that_agree_are_silent() -> None:
    forged = FindingImage(KERNEL)
    shadow(forged, [*walked(forged), TOKEN])
    user_shadow(forged, walked(forged, "user"))
    assert answered(forged.image(), check=[CHECK]) == []


@pytest.mark.parametrize("name", WITH_USER)
def test_a_shadow_stack_of_user_mode_that_agrees_is_silent(name: str) -> None:
    forged = FindingImage(name)
    user_shadow(forged, walked(forged, "user"))
    assert [row["Evidence"] for row in answered(forged.image(), check=[CHECK])] == [NONE[name]]


@pytest.mark.parametrize("member", ["_XSTATE_CONFIGURATION.AllFeatures", "_KTHREAD.KernelShadowStackBase"])
def test_a_member_that_the_symbols_lost_is_named(member: str, tmp_path: pathlib.Path) -> None:
    forged = FindingImage(KERNEL)
    user_shadow(forged, walked(forged, "user"))
    table = LackingTable(context.open_image(forged.image(), tmp_path))
    with table.without(Lost(MEMBERS, member)):
        output = table.run(Run("tracefindings", (("check", [CHECK]),)), tmp_path / "out")
    assert any(member.rpartition(".")[2] in warning for warning in output.warnings)


@pytest.mark.parametrize("name", WITH_USER)
@pytest.mark.parametrize("number", [0, 2])
def test_a_return_address_that_the_shadow_stack_of_user_mode_has_otherwise(name: str, number: int) -> None:
    forged = FindingImage(name)
    frames, true = walked(forged, "user"), forged.app.modules[0].base + 0x1234
    user_shadow(forged, [*frames[:number], true, *frames[number + 1 :]])
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Kind"], row["TID"]) == ("medium", "user", TID)
    assert row["Address"] == frames[number]
    start = USER_SHADOW + PAGE - 8 * len(frames)
    assert row["Evidence"].startswith(f"shadow stack {start:#x} has {true:#x} ")
    assert row["Evidence"].endswith(f", {number} frames before agree")


@pytest.mark.parametrize("name", WITH_USER)
def test_callers_in_the_place_of_others(name: str) -> None:
    """The stack shows a harmless caller; the processor remembers the one that called."""
    forged = FindingImage(name)
    frames = walked(forged, "user")
    user_shadow(forged, frames)
    forged.returns_to(frames[-1])
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Kind"], row["Address"]) == ("medium", "user", frames[-1])
    assert f" has {frames[-2]:#x} stacks+" in row["Evidence"]


@pytest.mark.parametrize(("agrees", "how"), [(True, "shadow"), (False, "unwind")])
def test_a_shadow_stack_of_user_mode_confirms_what_other_checks_find(agrees: bool, how: str) -> None:
    forged = FindingImage(KERNEL)
    frames = walked(forged, "user")
    forged.private()
    forged.returns_to(RETURNS)
    main = forged.app.modules[0]
    place = next(at for at, address in enumerate(frames) if main.base <= address < main.base + main.size)
    user_shadow(forged, [*frames[:place], RETURNS, *frames[place + 1 :]] if agrees else frames)
    row = only(found(forged.image(), "unbacked"))
    assert (row["Address"], row["How"]) == (RETURNS, how)


@pytest.mark.parametrize("name", WITH_USER)
@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("page", "the shadow stack is not in memory"),
        ("writable", "the pointer to the shadow stack of user mode leads to a page of another kind"),
        ("nowhere", "the pointers to the shadow stack contradict each other"),
        ("kernel", "the pointers to the shadow stack contradict each other"),
        ("absent", "no saved state has the pointer to the shadow stack of user mode"),
        ("area", "no saved state has the pointer to the shadow stack of user mode"),
        ("off", "no saved state has the pointer to the shadow stack of user mode"),
    ],
)
def test_what_is_not_checked_of_user_mode(name: str, state: str, message: str) -> None:
    forged = FindingImage(name)
    values = [forged.app.modules[0].base + 0x1234, *walked(forged, "user")]
    area = user_shadow(forged, values, present=0 if state == "absent" else 1 << CET_U)
    if state == "page":
        forged.app.space.set_state(USER_SHADOW, PAGE, State.PAGEFILE)
    elif state == "writable":
        forged.app.space.set_state(USER_SHADOW, PAGE, State.VALID)
    elif state == "area":
        forged.thread.kthread["StateSaveArea"] = 0x1000
    elif state != "absent":
        pointers = {"nowhere": (1, 0x50000000), "kernel": (1, SHADOW), "off": (0, USER_SHADOW)}
        forged.kernel.space.write(area + CET_U_AT, struct.pack("<QQ", *pointers[state]))
    rows = answered(forged.image(), check=[CHECK])
    reasons = [NONE[name], f"{message}: stacks.exe"]
    severity, evidence = only((row["Severity"], row["Evidence"]) for row in rows)
    assert severity is None
    assert sorted(evidence.split("; ")) == sorted(reasons)


def test_a_shadow_stack_without_its_flag() -> None:
    """The flag in _KTHREAD decides nothing: who clears it hides no shadow stack."""
    forged = FindingImage(KERNEL)
    values = walked(forged, "user")
    user_shadow(forged, [forged.app.modules[0].base + 0x1234, *values])
    forged.thread.kthread["CetUserShadowStack"] = 0
    assert [row["Kind"] for row in found(forged.image(), CHECK)] == ["user"]


def test_a_shadow_stack_that_agrees_is_silent() -> None:
    forged = FindingImage(KERNEL)
    shadow(forged, [*walked(forged), TOKEN])
    rows = answered(forged.image(), check=[CHECK])
    assert [row["Evidence"] for row in rows] == [NONE_OF_USER]


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
    row = only(found(forged.image(), CHECK))
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
    row = only(found(forged.image(), CHECK))
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
    row = only(found(forged.image(), CHECK))
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
    row = only(found(forged.image(), "kernel_no_module"))
    assert (row["Frame"], row["Address"], row["How"]) == (1, address & 0xFFFFFFFFFFFF, how)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("missing", "the shadow stack is not in memory: stacks.exe"),
        ("base", "the pointers to the shadow stack contradict each other: stacks.exe"),
        ("none", "threads without a kernel shadow stack: stacks.exe"),
    ],
)
def test_what_is_not_checked(state: str, message: str) -> None:
    forged = FindingImage(KERNEL)
    shadow(forged, [*walked(forged), TOKEN])
    if state == "missing":
        forged.kernel.space.set_state(SHADOW, PAGE, State.PAGEFILE)
    elif state == "base":
        forged.thread.kthread["KernelShadowStackBase"] = SHADOW - PAGE
    else:
        forged.thread.kthread["KernelShadowStack"] = 0
    rows = answered(forged.image(), check=[CHECK])
    assert [(row["Severity"], row["Status"], row["Evidence"]) for row in rows] == [
        (None, "not checked", f"{message}; {NONE_OF_USER}")
    ]


@pytest.mark.parametrize("name", ALL)
def test_threads_without_shadow_stacks_are_not_checked(name: str) -> None:
    rows = answered(FindingImage(name).image(), check=[CHECK])
    neither = "the threads of this kernel have no KernelShadowStack and no CetUserShadowStack"
    expected = neither if "win7" in name else f"{NONE.get(name, NONE['win10-x64'])}; {NONE_OF_USER}"
    assert [row["Evidence"] for row in rows] == [expected]
