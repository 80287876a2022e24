# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""No false alarm: of an image that nobody altered no word and no warning says that structures disagree."""

from __future__ import annotations

import pathlib
from typing import List, Set

import pytest

from tests.conftest import SHARED
from tests.forge import context, kernels, real_sets
from tests.forge.context import Opened
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.hostile import plugins, tellings, undamaged
from tests.hostile.judging import NEUTRAL
from tests.hostile.target import answer_of
from tests.support import poolscans, real_trapframes, realtruth
from tests.windows import test_trapframes_real
from winstacks.columns.tables import BRIEF, FLAT
from winstacks.memory.decode.statuscodes import StatusCode

ORDINARY = {
    # Of what is not in the image: the forge leaves out what no test asks for, a real set what was not taken.
    *(
        StatusCode.UNREADABLE,
        StatusCode.STACK_UNREADABLE,
        StatusCode.CODE_UNREADABLE,
        StatusCode.NTDLL_DATA_INCOMPLETE,
    ),
    *(
        StatusCode.NO_DATABASE,
        StatusCode.NO_POINTER,
        StatusCode.NO_NTDLL,
        StatusCode.NO_PEB,
        StatusCode.NO_SUCH_INDEX,
    ),
    *(
        StatusCode.NO_SAVED_REGISTERS,
        StatusCode.NO_SWITCH_FRAME,
        StatusCode.NO_FUNCTION_TABLE,
        StatusCode.NO_UNWIND_DATA,
    ),
    *(StatusCode.STACK_LIMITS_UNKNOWN, StatusCode.CODE_IN_NO_MODULE, StatusCode.FRAME_POINTER_IMPLAUSIBLE),
    # Of what Windows leaves as it is.
    *(
        StatusCode.FREED,
        StatusCode.STALE,
        StatusCode.RUNNING,
        StatusCode.EXPANDED,
        StatusCode.IN_32_BIT_CODE,
        StatusCode.UNINDEXED,
    ),
    *(
        StatusCode.SATURATED,
        StatusCode.OVERWRITTEN,
        StatusCode.UNTRACED,
        StatusCode.STACK_OF_THE_FREE,
        StatusCode.TERMINATED,
    ),
    *(StatusCode.STACK_OF_ALLOCATION_OR_FREE, StatusCode.UST_WITHOUT_HPC),
    # Of checks, and of members of a dump, that need what the image does not have.
    *(StatusCode.NOT_CHECKED, StatusCode.ZERO_FOR_UNKNOWN),
    # Of what a walk has to guess, and of what is not told at all.
    *(StatusCode.UNSURE, StatusCode.HASH_UNSURE, StatusCode.NOT_READ_YET, StatusCode.UNSIZED),
    *(StatusCode.CANDIDATES, StatusCode.CANDIDATE, StatusCode.CODE_ABSENT, StatusCode.FRAMES_NOT_SHOWN),
}
"""The words that a sound image may have. All others say that its structures disagree."""

PLAIN = ("No ", NEUTRAL)
"""Begin the warnings that nothing is there to be shown."""

PARTS = (": no database", ": ntdll data incomplete", "the PEB's list of heaps cannot be read")
"""Parts of the warnings that something is not in the image."""


def alarms(image: Image, folder: pathlib.Path, scan_processes: bool = False) -> List[str]:
    """Returns what the plugins say of an image that no sound image has, with the switches that add rows."""
    opened = context.open_image(image, folder)
    with poolscans.made_once():
        return sorted(_alarms(opened, scan_processes))


def _alarms(opened: Opened, scan_processes: bool) -> Set[str]:
    found: Set[str] = set()
    for plugin in plugins.discover():
        name = plugins.full_name(plugin)
        # The flat tables and the pages have what these plugins find, in another form.
        if name.rpartition(".")[2] not in BRIEF.keys() - FLAT.keys():
            continue
        options = {**plugins.switches(plugin), "scan_processes": scan_processes}
        answer = answer_of(opened, plugin, options)
        for status_text in filter(
            None, answer.column("Status") if answer.place("Status") is not None else ()
        ):
            found |= {
                f"{name}: {status_item}"
                for status_item in tellings.of_status(status_text)
                if status_item.word not in ORDINARY
            }
        for warning in answer.warnings:
            if not warning.startswith(PLAIN) and not any(part in warning for part in PARTS):
                found.add(f"{name}: {warning}")
    return found


@pytest.mark.parametrize("name", undamaged.BUILDERS)
def test_of_a_forged_image(name: str, tmp_path: pathlib.Path) -> None:
    assert not alarms(undamaged.BUILDERS[name](), tmp_path, scan_processes=name.startswith("plain"))


REAL = [
    pytest.param(path, kernel, id=f"{path.name[:-7]}-{kernel}")
    for path in sorted((SHARED / "real_std").glob("*.tar.xz"))
    for kernel in realtruth.kernels_of(path.name)
]


@pytest.mark.shared
@pytest.mark.parametrize(("path", "kernel"), REAL)
def test_of_a_real_set(path: pathlib.Path, kernel: str, tmp_path: pathlib.Path) -> None:
    """A database, heaps and critical sections that Windows made."""
    assert not alarms(realtruth.image_of(real_sets.load(path), kernel, symbols=True), tmp_path)


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_of_real_trap_frames(build: str, shared_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for number, (label, kernel) in enumerate(undamaged.real_trap_frames(build, shared_dir)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not alarms(kernel.image(), folder), label


@pytest.mark.shared
def test_of_nested_real_stacks(shared_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for number, stack in enumerate(real_trapframes.load_nested(shared_dir)):
        kernel, *_ = test_trapframes_real.kernel_of(
            stack.build, real_trapframes.load(shared_dir, stack.build)
        )
        kernel.space.write(stack.stack_address, stack.stack)
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not alarms(kernel.image(), folder), stack.build


def test_the_words_of_damage_are_not_ordinary(tmp_path: pathlib.Path) -> None:
    """An image with one wrong link has an alarm: the tests above can fail."""
    kernel = Kernel(kernels.load("win7-x64").table, **kernels.load("win7-x64").options())
    kernel.process("app.exe", pid=1000)
    image = kernel.image()
    kernel.space.write_int(kernel.symbol("PsActiveProcessHead"), 0)
    assert any("PROCESS_LIST_DAMAGED" in alarm for alarm in alarms(image, tmp_path))
