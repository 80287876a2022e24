# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is read of a dump before a plugin runs, and what a plugin says of a file of another kind."""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3 import symbols
from volatility3.framework import exceptions
from volatility3.framework.automagic import symbol_cache
from volatility3.framework.layers import physical
from volatility3.plugins.minidump import callstacks, gflags
from volatility3.plugins.windows import callstacks as image_callstacks

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.support.only import only
from tests.support.processdumps import OpenedDump, dump_of
from winstacks import options

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
    return {name: str(requirement.description) for name, requirement in caught.value.unsatisfied.items()}


def test_a_plugin_of_images_on_a_dump(dump: pathlib.Path) -> None:
    message = "the file is a dump of one process, which plugins such as minidump.callstacks read"
    assert reasons(dump, image_callstacks.CallStacks) == {"plugins.CallStacks.kernel": message}


def test_a_plugin_of_dumps_on_something_else(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "image.raw"
    path.write_bytes(b"PAGEDU64" + bytes(0x20000))
    message = (
        "the file is neither a dump of one process (MDMP) nor a small kernel dump; plugins such as "
        "windows.callstacks read images"
    )
    assert reasons(path, callstacks.CallStacks) == {"plugins.CallStacks.primary": message}


def test_a_file_that_only_begins_as_a_dump(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bad.dmp"
    path.write_bytes(b"MDMP" + bytes(0x2000))
    message = "the file begins as a dump of one process and is not one"
    assert reasons(path, callstacks.CallStacks) == {"plugins.CallStacks.primary": message}


@pytest.mark.parametrize("plugin", [callstacks.CallStacks, image_callstacks.CallStacks])
def test_a_file_that_cannot_be_any_input(plugin: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "empty.dmp"
    path.touch()
    assert "the file is empty" in reasons(path, plugin).values()
    reason = only(text for text in reasons(tmp_path, plugin).values() if "cannot be read" in text)
    assert str(tmp_path) in reason


@pytest.mark.parametrize("begin", [b"MDMP", b"PAGEDU64", b"none"])
def test_the_begin_of_a_file_is_not_read_for_each_question(
    begin: bytes, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Volatility asks again and again what is lacking while it looks for layers."""
    path = tmp_path / "bad.dmp"
    path.write_bytes(begin + bytes(0x20000))
    begin_of, asked = options._begin_of, []

    def counted(location: str) -> Tuple[str, str]:
        asked.append(location)
        return begin_of(location)

    monkeypatch.setattr(options, "_begin_of", counted)
    reasons(path, callstacks.CallStacks)
    reasons(path, image_callstacks.CallStacks)
    assert 2 <= len(asked) <= 4, "each context, and the copy in which layers are tried, asks once"


KERNELS = {
    "linux": ("linux_banner", b"Linux version 5.10.0-21-amd64 (root@builder)\n\0"),
    "mac": ("version", b"Darwin Kernel Version 20.6.0: root:xnu-7195.141.46~1/RELEASE_X86_64\0"),
}
"""What tells kernels of other systems: a symbol of their tables, and its text."""


@pytest.fixture()
def other_systems(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symbol tables of Linux and of macOS are installed."""
    folder = tmp_path / "symbols"
    for system, (name, banner) in KERNELS.items():
        (folder / system).mkdir(parents=True)
        text = base64.b64encode(banner).decode()
        table = {
            "metadata": {"format": "6.2.0", "producer": {"name": "tests", "version": "1"}},
            "base_types": {},
            "user_types": {},
            "enums": {},
            "symbols": {name: {"address": 0, "constant_data": text}},
        }
        (folder / system / "kernel.json").write_text(json.dumps(table))
    monkeypatch.setattr(symbols, "__path__", [str(folder), *symbols.__path__])
    cache = symbol_cache.SqliteCache(str(tmp_path / "identifier.cache"))
    cache.update()
    for system, (_, banner) in KERNELS.items():
        assert banner in cache.get_identifier_dictionary(operating_system=system)
    monkeypatch.setattr(symbol_cache, "load_cache_manager", lambda: cache)


@pytest.fixture()
def read(monkeypatch: pytest.MonkeyPatch) -> List[int]:
    """The bytes of each read of a file."""
    found: List[int] = []
    before = physical.FileLayer.read

    def counted(self: Any, offset: int, length: int, pad: bool = False) -> bytes:
        found.append(length)
        data: bytes = before(self, offset, length, pad)
        return data

    monkeypatch.setattr(physical.FileLayer, "read", counted)
    return found


@pytest.mark.usefixtures("other_systems")
def test_no_stacker_reads_more_than_headers(dump: pathlib.Path, read: List[int]) -> None:
    """Neither those for Linux and macOS, which search all of a layer when they know any banner."""
    opened_dump = OpenedDump(dump)
    plugin = opened_dump.construct(gflags.GFlags)
    assert sum(read) < 0x8000 < dump.stat().st_size
    assert plugin.run() is not None


@pytest.mark.usefixtures("other_systems")
def test_the_stackers_of_other_systems_search_what_is_no_dump(
    tmp_path: pathlib.Path, read: List[int]
) -> None:
    """The test above can fail: where the same tables are installed, another file is read as a whole."""
    path = tmp_path / "image.raw"
    path.write_bytes(bytes(0x40000))
    assert reasons(path, callstacks.CallStacks)
    assert sum(read) >= path.stat().st_size
