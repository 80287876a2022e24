# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Who owns the locks of `windows.traces`: one thread, several that share a resource, or what is no thread."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Tuple

import pytest

from tests.forge import context
from tests.forge.context import Opened
from tests.forge.locks import Resources
from tests.support import flattables, grid
from tests.support.tracedkernels import KERNELS, new_kernel, put_database, traces_of
from winstacks.stacklist import recorded


def shared(name: str, generation: str, folder: pathlib.Path) -> Tuple[Opened, Dict[str, str]]:
    """A kernel with resources that nobody, one or several own; returns their addresses, too."""
    kernel = new_kernel(name)
    app = kernel.process("app.exe", pid=1000)
    threads = [kernel.system.thread(100), kernel.system.thread(104), app.thread(108)]
    first, second, third = (thread.ethread.address for thread in threads)
    (index, *_) = put_database(kernel, generation, traces_of(kernel))
    event = kernel.pool.executive("_KEVENT", "Event").address
    resources = Resources(kernel)
    owned = {
        "free": resources.add(index=index),
        "exclusive": resources.add(index=index, active=1, exclusive=threads[2]),
        "one": resources.add(index=index, active=1, embedded=[(second, 1)]),
        "three": resources.add(
            index=index, active=3, embedded=[(first, 2)], table=[(0, 0), (second | 3, 1), (third, 4)]
        ),
        "twice": resources.add(index=index, active=2, embedded=[(first, 1)], table=[(first, 1)]),
        "nobody": resources.add(index=index, active=2, embedded=[(event | 3, 1)], table=[(third, 1)]),
    }
    resources.link()
    return context.open_image(kernel.image(), folder), {
        name: f"{grid.masked(owner.address):#x}" for name, owner in owned.items()
    }


@pytest.mark.parametrize(("name", "generation"), KERNELS)
def test_all_owners_are_said(name: str, generation: str, tmp_path: pathlib.Path) -> None:
    opened, owned = shared(name, generation, tmp_path)
    rows = {row["Owner"]: row for row in flattables.stacks(opened, kinds=["lock"])}
    assert {name: (rows[owner]["TID"], rows[owner]["Status"]) for name, owner in owned.items()} == {
        "free": (None, ""),
        "exclusive": (108, ""),
        "one": (104, ""),
        "three": (100, "owned by 100 104 108"),
        "twice": (100, ""),
        "nobody": (108, "no thread"),
    }


@pytest.mark.parametrize(
    ("tid", "found"),
    [
        (100, {"three", "twice"}),
        (104, {"one", "three"}),
        (108, {"exclusive", "three", "nobody"}),
        (112, set()),
    ],
)
def test_a_thread_is_found_as_any_owner(tid: int, found: Any, tmp_path: pathlib.Path) -> None:
    opened, owned = shared("win10-x64", "6.1", tmp_path)
    rows = flattables.stacks(opened, kinds=["lock"], tid=[tid])
    assert {row["Owner"] for row in rows} == {owned[name] for name in found}
    every = {row["TraceId"]: row for row in flattables.stacks(opened, kinds=["lock"])}
    assert all(every[row["TraceId"]] == row for row in rows)


def test_of_many_owners_the_first_are_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MAX_OWNERS", 2)
    opened, owned = shared("win10-x64", "6.1", tmp_path)
    rows = {row["Owner"]: row["Status"] for row in flattables.stacks(opened, kinds=["lock"], tid=[108])}
    assert rows[owned["three"]] == "owned by 100 104, 1 more owners"
