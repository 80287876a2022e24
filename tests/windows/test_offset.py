# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`--offset`: a process that has been taken off the list, by the address of its _EPROCESS."""

from __future__ import annotations

import logging
from typing import Any, List, NamedTuple, Set

import pytest
from volatility3.plugins.windows import callstacks, trapframes

from tests.forge import context
from tests.forge.context import Opened
from tests.forge.process import Process
from tests.support import grid
from tests.support.trapthreads import in_system_call, make_kernel

PLUGINS = [trapframes.TrapFrames, callstacks.CallStacks]
LISTED, HIDDEN = 1000, 2000


class Case(NamedTuple):
    opened: Opened
    hidden: Process


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    kernel = make_kernel()
    for pid in (LISTED, HIDDEN):
        process = kernel.process("app.exe", pid=pid, listed=pid == LISTED)
        in_system_call(kernel, process.thread(pid + 4))
    return Case(context.open_raw(kernel.image(), tmp_path_factory.mktemp("hidden")), process)


def pids(opened: Opened, plugin: Any, **options: Any) -> Set[int]:
    return {node.row["PID"] for node in grid.run(opened, plugin, **options)}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_it_is_found_by_its_virtual_and_by_its_physical_address(plugin: Any, case: Case) -> None:
    address = case.hidden.eprocess.address
    physical = case.hidden.kernel.space.physical(address)
    assert HIDDEN not in pids(case.opened, plugin)
    for offset in (address, grid.masked(address), physical):
        assert pids(case.opened, plugin, offset=offset) == {HIDDEN}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_an_address_that_leads_to_no_process_is_said(
    plugin: Any, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    messages: List[str] = []
    for offset in (1 << 46, 0x1000):
        with caplog.at_level(logging.WARNING):
            assert pids(case.opened, plugin, offset=offset) == set()
        messages += [record.getMessage() for record in caplog.records if "_EPROCESS" in record.getMessage()]
        caplog.clear()
    assert messages == [
        "There is no _EPROCESS at 0x400000000000, virtual or physical",
        "The physical offset 0x1000 is not the address of an _EPROCESS",
    ]
