# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""minidump.waits: the threads of ../shared/waits in dumps of their process."""

from __future__ import annotations

import pathlib
from typing import Tuple

import pytest
from volatility3.framework import exceptions
from volatility3.plugins.minidump import waits

from tests.conftest import SHARED
from tests.support import waitdumps, waitrows, waitsets
from tests.support.processdumps import OpenedDump

pytestmark = pytest.mark.shared

ARM64 = ("17763.475", "19044.1766")
"""The sets of x64 builds that Windows on ARM64 has, too."""

HANDLES = ((8, "Mutant", "signalled", 0), (12, "Event", "waited for", 0))
"""Handles of a dump: type and name of the object, and no owner."""


@pytest.mark.parametrize("label,share", waitrows.CASES)
def test_every_wait(label: str, share: int, tmp_path: pathlib.Path) -> None:
    """Kinds, addresses and owners, whether or not the dump has ntdll's exports and arguments of calls."""
    path = tmp_path / "waits.dmp"
    for number, snapshot in enumerate(waitrows.some(label, share)):
        path.write_bytes(waitdumps.dump_of(snapshot, bool(number & 1), bool(number & 2)))
        rows = OpenedDump(path).rows(waits.WaitChains, fold=True)
        assert not waitrows.wrong(snapshot, rows), (snapshot.story, snapshot.number)


@pytest.mark.parametrize("label,share", [case for case in waitrows.CASES if case[0] in ARM64])
def test_the_same_structures_with_registers_of_arm64(label: str, share: int, tmp_path: pathlib.Path) -> None:
    """Nothing is measured on ARM64: the dumps have the structures of x64, and no arguments of calls.

    The register that ntdll keeps for an RTL_RESOURCE is known for x64 and x86 only.
    """
    path = tmp_path / "waits.dmp"
    for snapshot in waitrows.some(label, share):
        path.write_bytes(waitdumps.dump_of(snapshot, exports=False, arm64=True))
        rows = OpenedDump(path).rows(waits.WaitChains, fold=True)
        assert {row["Arch"] for _, row in rows} <= {"arm64"}
        wrong = set(waitrows.wrong(snapshot, rows)) - {("resource", "none")}
        assert not wrong, (snapshot.story, snapshot.number)


@pytest.mark.parametrize(
    "path", sorted((SHARED / "real_minidumps").rglob("*.dmp")), ids=lambda path: path.stem
)
def test_real_dumps_have_no_lock(path: pathlib.Path) -> None:
    """Their threads crashed, or are idle workers of the thread pool, which lists them on their stacks."""
    try:
        rows = OpenedDump(path).rows(waits.WaitChains, fold=True)
    except (exceptions.UnsatisfiedException, exceptions.RenderException):
        pytest.skip("no dump of a Windows process that can be read")
    assert not [row for _, row in rows if row["WaitsFor"] in waitsets.KINDS]


def test_a_mutex_of_the_handles_has_its_owner(tmp_path: pathlib.Path) -> None:
    """HandleDataStream names the object of a handle, and the thread that owns a mutex."""
    snapshot = waitrows.some("17763.475", 0)[0]
    threads = snapshot.truth["threads"]
    waiting = next(each for each in threads if each["call"] == "NtWaitForSingleObject")
    running = next(each for each in threads if each["state"] == "running")
    path = tmp_path / "waits.dmp"
    for owner, expected in ((running["tid"], ("thread", "running")), (0, ("unknown", "not in the image"))):
        handles = [(waiting["args"][0], "Mutant", "Global\\Once", owner)]
        path.write_bytes(waitdumps.dump_of(snapshot, handles=handles))
        rows = OpenedDump(path).rows(waits.WaitChains, fold=True)
        row = next(row for _, row in rows if row["TID"] == waiting["tid"])
        assert (row["WaitsFor"], row["WaitName"], row["Known"]) == ("mutant", "Global\\Once", "handle")
        assert (row["Ownership"], row["ChainEnd"]) == expected
        assert not owner or row["OwnerTID"] == owner


@pytest.mark.parametrize("label", ["17763.475", "16299x86"])
@pytest.mark.parametrize(
    "name,arguments,expected",
    [
        ("NtWaitForMultipleObjects", (8, 1), ("several objects", "ntdll!NtWaitForMultipleObjects")),
        ("NtWaitForAlertByThreadId", (8, 0), ("alert", "ntdll!NtWaitForAlertByThreadId")),
        (
            "NtSignalAndWaitForSingleObject",
            (8, 12),
            ("event", "ntdll!NtSignalAndWaitForSingleObject, handle 0xc"),
        ),
    ],
)
def test_the_handle_of_a_call_is_the_one_waited_for(
    label: str, name: str, arguments: Tuple[int, int], expected: Tuple[str, str], tmp_path: pathlib.Path
) -> None:
    """The first argument may be a count, an address, or the object that the call signals.

    Wine's dumps of 32-bit programs showed it: each wait for three objects had handle 3.
    """
    snapshot = waitrows.some(label, 0)[0]
    waiting = next(each for each in snapshot.truth["threads"] if each["call"] == "NtWaitForSingleObject")
    data = waitdumps.dump_of(waitdumps.in_call(snapshot, waiting["tid"], name, arguments), handles=HANDLES)
    path = tmp_path / "waits.dmp"
    path.write_bytes(data)
    rows = OpenedDump(path).rows(waits.WaitChains, fold=True)
    row = next(row for _, row in rows if row["TID"] == waiting["tid"])
    assert (row["WaitsFor"], row["Evidence"]) == expected
