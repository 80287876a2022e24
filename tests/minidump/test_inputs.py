# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is read of a dump before a plugin runs, and what a plugin says of a file of another kind."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.framework import exceptions
from volatility3.framework.automagic import symbol_cache
from volatility3.framework.layers import physical
from volatility3.plugins.minidump import callstacks, gflags
from volatility3.plugins.windows import callstacks as image_callstacks

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.support.processdumps import OpenedDump, dump_of

UPDATER = 4312


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


@pytest.fixture()
def dump(opened: Opened, tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "app.dmp"
    path.write_bytes(dump_of(opened, UPDATER))
    return path


def reasons(path: pathlib.Path, plugin: Any) -> Dict[str, str]:
    """Returns what Volatility prints of requirements that are not met."""
    with pytest.raises(exceptions.UnsatisfiedException) as caught:
        OpenedDump(path).construct(plugin)
    return {name: str(each.description) for name, each in caught.value.unsatisfied.items()}


def test_a_plugin_of_images_on_a_dump(dump: pathlib.Path) -> None:
    said = "the file is a dump of one process, which plugins such as minidump.callstacks read"
    assert reasons(dump, image_callstacks.CallStacks) == {"plugins.CallStacks.kernel": said}


def test_a_plugin_of_dumps_on_something_else(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "image.raw"
    path.write_bytes(b"PAGEDU64" + bytes(0x20000))
    said = "the file is no dump of one process (MDMP); plugins such as windows.callstacks read images"
    assert reasons(path, callstacks.CallStacks) == {"plugins.CallStacks.primary": said}


def test_a_file_that_only_begins_as_a_dump(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bad.dmp"
    path.write_bytes(b"MDMP" + bytes(0x2000))
    said = "the file begins as a dump of one process and is none"
    assert reasons(path, callstacks.CallStacks) == {"plugins.CallStacks.primary": said}


def test_no_stacker_reads_more_than_headers(dump: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those for Linux and macOS, which search all of a layer when they know any banner."""
    asked: List[str] = []

    class Banners:
        def get_identifier_dictionary(self, operating_system: str) -> Dict[bytes, str]:
            asked.append(operating_system)
            return {b"Linux version 5.10.0-21-amd64": "file:///nowhere.json"}

    monkeypatch.setattr(symbol_cache, "load_cache_manager", Banners)
    read: List[int] = []
    before = physical.FileLayer.read

    def counted(self: Any, offset: int, length: int, pad: bool = False) -> bytes:
        read.append(length)
        data: bytes = before(self, offset, length, pad)
        return data

    monkeypatch.setattr(physical.FileLayer, "read", counted)
    opened_dump = OpenedDump(dump)
    plugin = opened_dump.construct(gflags.GFlags)
    assert {"linux", "mac"} <= set(asked)
    assert sum(read) < 0x8000 < dump.stat().st_size
    assert plugin.run() is not None
