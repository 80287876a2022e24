# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Tests that share what is dear to make run in one worker; a run does not forget what the tests made."""

from __future__ import annotations

import functools
import gc
import pathlib
import weakref
from typing import Any, Optional
from unittest import mock

import pytest

from tests import conftest
from tests.forge import context, sample
from tests.hostile import plugins, tellings
from tests.support import deep, remembered
from winstacks.memory.decode.statuscodes import StatusCode


class _Config:
    def __init__(self, dist: str) -> None:
        self.dist = dist

    def getoption(self, name: str) -> Any:
        return {"dist": self.dist, "tx": ["2*popen"]}.get(name)

    def getvalue(self, name: str) -> Any:
        return self.getoption(name)


@pytest.mark.parametrize(
    ("file", "unit"),
    [
        ("tests/hostile/test_sample.py", "tests/hostile/test_sample.py"),
        ("tests/hostile/test_undamaged.py", None),
        ("tests/docs/test_pages.py", "tests/docs"),
        ("tests/fleet/test_night.py", "tests/fleet"),
    ],
)
def test_what_one_worker_runs(file: str, unit: Optional[str]) -> None:
    found = conftest.unit_of(file)
    assert found == (unit and str(conftest.ROOT / unit) if unit in ("tests/docs", "tests/fleet") else unit)
    scheduler = conftest.pytest_xdist_make_scheduler(_Config("load"), mock.MagicMock())  # type: ignore[arg-type]
    first, second = (scheduler._split_scope(f"{file}::test_{number}") for number in "ab")
    assert (first == second) == (unit is not None)


def test_another_distribution_that_is_asked_for_is_kept() -> None:
    assert conftest.pytest_xdist_make_scheduler(_Config("loadfile"), None) is None  # type: ignore[arg-type]


def test_tests_with_more_cases_exist() -> None:
    for name in deep.FIRST:
        file, *functions = name.split("::")
        source = (conftest.ROOT / file).read_text(encoding="utf-8")
        assert f"def {functions[-1] if functions else 'test_'}" in source, name
    files = {name.partition("::")[0] for name in deep.FIRST}
    assert files >= deep.WHOLE


def test_the_first_cases_run_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "FIRST", {"test_many.py::test_a": 2, "test_many.py": 1, "test_one.py": 0})
    names = [f"test_many.py::test_{name}[{case}]" for name in "ab" for case in range(4)]
    items: Any = [mock.Mock(nodeid=name) for name in (*names, "test_one.py::test_a", "test_other.py::test_a")]
    deep.mark(items)
    default = [item.nodeid for item in items if not item.add_marker.called]
    assert default == [*names[:2], names[4], "test_other.py::test_a"]


def test_a_release_has_cases_that_a_change_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the second case of each test are in both, and all cases of some files."""
    first = {"test_many.py": 0, "test_three.py": 4, "test_whole.py": 1}
    monkeypatch.setattr(deep, "FIRST", first)
    monkeypatch.setattr(deep, "WHOLE", {"test_whole.py"})
    names = [f"{file}::test_a[{case}]" for file in first for case in range(1, 9)]
    items: Any = [mock.Mock(nodeid=name) for name in names]
    deep.mark(items)
    marks = {item.nodeid: [call.args[0] for call in item.add_marker.call_args_list] for item in items}
    assert all(words in ([], ["deep"], ["deep", "release"]) for words in marks.values())
    left = {
        file: "".join(name[-2] for name, words in marks.items() if file in name and "release" in words)
        for file in first
    }
    assert left == {"test_many.py": "34568", "test_three.py": "568", "test_whole.py": ""}


@pytest.mark.parametrize(
    ("expression", "tried"),
    [("not install", 200), ("not install and not release", 50), ("not install and not deep", 50)],
)
def test_a_change_tries_a_fourth_of_what_a_release_tries(
    expression: str, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep, "_everything", True)
    deep.configure(expression)
    assert deep.rounds(200) == tried
    assert deep.rounds(10) == 10
    assert deep.everything() == (tried == 200)


def test_only_what_was_read_of_an_image_is_forgotten() -> None:
    mine = functools.lru_cache(maxsize=None)(tellings.of_status)
    mine(StatusCode.FREED.value)
    found = remembered.caches()
    assert mine not in found
    assert any(cache.__wrapped__.__module__ == "volatility3.framework.interfaces.layers" for cache in found)
    for element in found:
        element.cache_clear()
    assert mine.cache_info().currsize == 1


def test_an_image_that_nobody_needs_leaves_memory(tmp_path: pathlib.Path) -> None:
    """Neither the library nor the forge keeps an image; else a worker would keep all that its tests open."""
    opened = context.open_image(sample.build("win10-x64").image(), tmp_path)
    for plugin in plugins.discover():
        if plugin.__name__ not in ("TraceGraph", "TraceReport"):  # they write files
            opened.construct(plugin).run().populate(None, None)
    image = weakref.ref(opened.context)
    del opened
    remembered.forget()
    gc.collect()
    assert image() is None
