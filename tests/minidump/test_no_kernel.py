# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process dump has no kernel: no row has a kernel's part, and options of a kernel are refused."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from volatility3.framework import exceptions
from volatility3.plugins.minidump import callstacks, info, traces

from tests.support.changeddumps import THREADS, ChangedDump
from tests.support.processdumps import OpenedDump

NAME = "tiny-exe-fastfail.dmp"

pytestmark = pytest.mark.shared


def damaged(path: pathlib.Path, kept: int) -> OpenedDump:
    """A real dump without its list of threads, or with a list that ends too early."""
    dump = ChangedDump.named(NAME)
    listed = dump.stream(THREADS)
    if kept:
        dump.replace(THREADS, listed[:kept])
    else:
        dump.drop(THREADS)
    path.write_bytes(dump.bytes())
    return OpenedDump(path)


@pytest.mark.parametrize(("kept", "said"), [(0, "no thread list"), (4 + 48, "thread list damaged")])
def test_a_gap_is_of_user_mode(kept: int, said: str, tmp_path: pathlib.Path) -> None:
    changed = damaged(tmp_path / NAME, kept)
    rows = [row for depth, row in changed.rows(callstacks.CallStacks) if not depth]
    assert {row["Part"] for row in rows if said in row["Status"]} == {"user"}
    kinds = {row["Kind"] for _, row in changed.rows(traces.StackTraces) if said in row["Status"]}
    assert kinds == {"user"}


@pytest.mark.parametrize("plugin", [callstacks.CallStacks, info.Info])
def test_symbols_of_a_kernel_are_refused(plugin: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(ChangedDump.named(NAME).bytes())
    with pytest.raises(exceptions.RenderException, match="--kernel-symbols: the dump of a process has no"):
        OpenedDump(path).rows(plugin, kernel_symbols=str(tmp_path / "none.json"))
