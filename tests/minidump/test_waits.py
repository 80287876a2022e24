# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""minidump.waits: the threads of ../shared/waits in dumps of their process."""

from __future__ import annotations

import pathlib

import pytest
from volatility3.plugins.minidump import waits

from tests.support import waitdumps, waitrows
from tests.support.processdumps import OpenedDump

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("label,share", waitrows.CASES)
def test_every_wait(label: str, share: int, tmp_path: pathlib.Path) -> None:
    """Kinds, addresses and owners, whether or not the dump has ntdll's exports and arguments of calls."""
    path = tmp_path / "waits.dmp"
    for number, snapshot in enumerate(waitrows.some(label, share)):
        path.write_bytes(waitdumps.dump_of(snapshot, bool(number & 1), bool(number & 2)))
        rows = OpenedDump(path).rows(waits.WaitChains, fold=True)
        assert not waitrows.wrong(snapshot, rows), (snapshot.story, snapshot.number)
