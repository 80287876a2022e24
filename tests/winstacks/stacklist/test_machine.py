# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a kernel says of itself, its clock and its computer."""

from __future__ import annotations

import pathlib
from typing import List

import pytest

from tests.conftest import SHARED
from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.obj import CAPTURED, Obj, filetime
from tests.forge.paging import State
from tests.support.bare import MACHINES
from tests.support.environments import give_environment, set_time, system_process
from winstacks.memory.decode.status import text
from winstacks.memory.image import Image
from winstacks.process.spaces import AddressSpaces
from winstacks.stacklist import machine

REAL = sorted((SHARED / "isf" / "symbols" / "windows").glob("ntkr*/*.json.xz"))
ALL = ("xp-x86", "win7-x86", "win10-x86", "2003-x64", "win7-x64", "win10-x64", "win11-x64")
HOUR = 36_000_000_000
NOW = filetime(CAPTURED)


def forged(name: str = "win10-x64", **options: object) -> Kernel:
    known = kernels.load(name)
    return Kernel(known.table, **{**known.options(), **options})


def opened(kernel: Kernel, folder: pathlib.Path) -> Image:
    found: Image = context.open_image(kernel.image(), folder).image
    return found


@pytest.mark.parametrize("name", ALL)
def test_every_kernel_tells_its_build_and_its_time(name: str, tmp_path: pathlib.Path) -> None:
    kernel = forged(name, cpus=3)
    set_time(kernel, "InterruptTime", 2 * HOUR)
    set_time(kernel, "TimeZoneBias", -HOUR)
    image = opened(kernel, tmp_path)
    build = kernel.version[2]
    assert machine.kernel(image) == machine.Kernel(
        build, f"{build}.1.forge_release.240229-1200", "workstation", 3
    )
    clock = machine.clock(image)
    assert (clock.capture_time, clock.boot_time) == (NOW, NOW - 2 * HOUR)
    assert (clock.source, clock.counted_by, clock.bias) == ("InterruptTime", clock.boot_time, -60)
    assert text(clock.status) == ""


@pytest.mark.shared
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name[:8])
def test_the_symbols_of_real_kernels_lead_to_all_of_it(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    known = kernels.real(path)
    kernel = Kernel(known.table, **known.options())
    set_time(kernel, "InterruptTime", 2 * HOUR)
    set_time(kernel, "TimeZoneBias", HOUR)
    has_boot_time = kernel.set("KeBootTime", NOW - 3 * HOUR, 8)
    system_process(kernel, "services.exe", 600, "ACCOUNTS-7")
    image = opened(kernel, tmp_path)
    clock, build = machine.clock(image), known.version[2]
    assert (clock.capture_time, clock.counted_by) == (NOW, NOW - 2 * HOUR)
    assert clock.source == ("KeBootTime" if has_boot_time else "InterruptTime")
    assert (clock.bias, text(clock.status)) == (60, "")
    found = machine.kernel(image)
    assert (found.build, found.product, found.processors) == (build, "workstation", 1)
    assert found.build_lab.startswith(f"{build}.")
    name = machine.computer_name(image, AddressSpaces.list_spaces(image))
    assert name == machine.ComputerName("ACCOUNTS-7", ())


def with_boot_time(value: int) -> Kernel:
    known = kernels.load("win10-x64").variant("boot", rename={"CmNtCSDVersion": "KeBootTime"})
    kernel = Kernel(known.table, **known.options())
    kernel.set("KeBootTime", value, 8)
    set_time(kernel, "InterruptTime", 2 * HOUR)
    return kernel


@pytest.mark.parametrize(
    ("value", "boot", "source", "message"),
    [
        (NOW - 3 * HOUR, NOW - 3 * HOUR, "KeBootTime", ""),
        (0, NOW - 2 * HOUR, "InterruptTime", ""),
        (NOW + 1, NOW - 2 * HOUR, "InterruptTime", "contradicted: KeBootTime"),
    ],
)
def test_the_boot_time_that_the_kernel_keeps(
    value: int, boot: int, source: str, message: str, tmp_path: pathlib.Path
) -> None:
    clock = machine.clock(opened(with_boot_time(value), tmp_path))
    assert (clock.boot_time, clock.source, text(clock.status)) == (boot, source, message)
    assert clock.counted_by == NOW - 2 * HOUR


def test_a_time_that_was_being_set_is_none(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    set_time(kernel, "SystemTime", NOW, NOW + (1 << 32))
    clock = machine.clock(opened(kernel, tmp_path))
    assert (clock.capture_time, clock.boot_time, clock.source) == (None, None, "")
    assert text(clock.status) == "contradicted: SystemTime"


def test_times_that_cannot_be_are_none(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    set_time(kernel, "SystemTime", 1 << 62)
    set_time(kernel, "TimeZoneBias", 25 * HOUR)
    clock = machine.clock(opened(kernel, tmp_path))
    assert (clock.capture_time, clock.boot_time, clock.bias) == (None, None, None)
    assert text(clock.status) == "contradicted: SystemTime TimeZoneBias"


def test_a_machine_that_ran_before_time_began_has_no_boot_time(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    set_time(kernel, "InterruptTime", NOW)
    clock = machine.clock(opened(kernel, tmp_path))
    assert (clock.capture_time, clock.boot_time) == (NOW, None)
    assert text(clock.status) == "contradicted: InterruptTime"


def test_a_machine_that_has_not_run_has_no_boot_time(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    set_time(kernel, "InterruptTime", 0)
    clock = machine.clock(opened(kernel, tmp_path))
    assert (clock.capture_time, clock.boot_time, clock.source) == (NOW, None, "")
    assert clock.counted_by is None
    assert text(clock.status) == "contradicted: InterruptTime"


def test_products_and_processors(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    shared = Obj(kernel.space, kernel.isf, "_KUSER_SHARED_DATA", kernel.kuser)
    shared["NtProductType"] = 3
    kernel.set("KeNumberProcessors", 70000, 4)
    found = machine.kernel(opened(kernel, tmp_path))
    assert (found.product, found.processors) == ("server", None)


def named(kernel: Kernel, folder: pathlib.Path) -> machine.ComputerName:
    image = opened(kernel, folder)
    return machine.computer_name(image, AddressSpaces.list_spaces(image))


@pytest.mark.parametrize("name", ALL)
def test_the_name_that_services_have(name: str, tmp_path: pathlib.Path) -> None:
    kernel = forged(name)
    system_process(kernel, "services.exe", 600, "ACCOUNTS-7")
    assert named(kernel, tmp_path) == machine.ComputerName("ACCOUNTS-7", ())


def test_disagreement_is_said(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    for pid, computer in ((600, "ACCOUNTS-7"), (604, "OTHER"), (608, "ACCOUNTS-7")):
        system_process(kernel, "svchost.exe", pid, computer)
    found = named(kernel, tmp_path)
    assert (found.name, text(found.status)) == ("ACCOUNTS-7", "2 computer names")


def test_a_name_of_another_session_or_program_is_not_taken(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    system_process(kernel, "svchost.exe", 600, "SESSION-1", session=1)
    system_process(kernel, "notepad.exe", 604, "NOTEPAD")
    assert named(kernel, tmp_path) == machine.ComputerName("", ())


@pytest.mark.parametrize(
    ("name", "shown"), [("=1+1", "\\x3d1+1"), ("A\x1b[31m", "A\\x1b[31m"), ("N" * 100, "N" * 62 + "…")]
)
def test_a_hostile_name_is_harmless(name: str, shown: str, tmp_path: pathlib.Path) -> None:
    kernel = forged()
    system_process(kernel, "lsass.exe", 600, name)
    assert named(kernel, tmp_path).name == shown


def test_an_environment_that_ends_in_a_missing_page_gives_what_is_there(tmp_path: pathlib.Path) -> None:
    kernel = forged()
    names: List[str] = []
    for pid, filler in ((600, 100), (604, 4000)):
        process = kernel.process("services.exe", pid=pid)
        place = process.space.reserve(0x3000)
        process.region(place, size=0x3000)
        process.space.set_state(place + 0x1000, 0x1000, State.PAGEFILE)
        address = give_environment(process, {})
        variables = f"A={'a' * filler}\0COMPUTERNAME=PC-{pid}\0\0".encode("utf-16-le")
        process.space.write(place, variables[:0x1000])
        assert process.peb is not None
        parameters = Obj(
            process.space, kernel.isf, "_RTL_USER_PROCESS_PARAMETERS", process.peb["ProcessParameters"]
        )
        assert parameters["Environment"] == address
        parameters["Environment"] = place
        names.append(f"PC-{pid}")
    assert named(kernel, tmp_path) == machine.ComputerName(names[0], ())


@pytest.mark.parametrize("name", ALL)
def test_the_clock_needs_no_symbols(name: str, tmp_path: pathlib.Path) -> None:
    kernel = forged(name)
    set_time(kernel, "InterruptTime", 2 * HOUR)
    set_time(kernel, "TimeZoneBias", -HOUR)
    image = opened(kernel, tmp_path)
    hidden = Image.of_layer(image.context, str(image.layer.name), MACHINES[kernel.bits // 8])
    assert machine.clock(hidden) == machine.clock(image)
    assert machine.clock(hidden).counted_by == NOW - 2 * HOUR
    assert machine.kernel(hidden) == machine.Kernel(None, "", "", None)


def test_without_shared_data_nothing_is_told(tmp_path: pathlib.Path) -> None:
    image = opened(forged("win7-x64"), tmp_path)
    nowhere = Image.of_layer(image.context, str(image.layer.config["memory_layer"]), MACHINES[8])
    assert machine.clock(nowhere)[:-1] == (None, None, "", None, None)
    assert text(machine.clock(nowhere).status) == "KUSER_SHARED_DATA unreadable"
    assert machine.kernel(nowhere) == machine.Kernel(None, "", "", None)
