# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Process dumps on the real command line."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

import pytest

from tests.conftest import ROOT
from tests.forge import context, sample, vol
from tests.support.processdumps import dump_of

pytestmark = pytest.mark.cli

UPDATER = 4312
PLUGINS = sorted(
    path.stem
    for path in (ROOT / "volatility3_plugins" / "minidump").glob("*.py")
    if not path.stem.endswith("layer")
)
WRITERS = ("tracegraph", "tracereport")


class Files(NamedTuple):
    """The dump of a process, and a symbol directory without tables."""

    dump: pathlib.Path
    symbols: pathlib.Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "symbols").mkdir()
    opened = context.open_image(sample.build().image(), folder)
    path = folder / "app.dmp"
    path.write_bytes(dump_of(opened, UPDATER, raised=4316))
    return Files(path, folder / "symbols")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_each_plugin(files: Files, plugin: str) -> None:
    """None needs a table of a kernel."""
    result = vol.run(files.dump, f"minidump.{plugin}", symbols=files.symbols)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert result.rows or plugin == "handletraces"
    if plugin in WRITERS:
        written = files.symbols / result.rows[0]["File output"]
        assert written.stat().st_size > 10_000


def test_a_configuration_is_saved_and_used(files: Files, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config.json"
    saved = vol.run(
        files.dump, "minidump.gflags", symbols=files.symbols, arguments=("--save-config", str(config))
    )
    assert "MinidumpLayer" in config.read_text()
    used = vol.run(files.dump, "minidump.gflags", symbols=files.symbols, arguments=("-c", str(config)))
    assert saved.rows == used.rows != []


def test_one_sentence_says_which_plugins_are_meant(files: Files) -> None:
    result = vol.run(files.dump, "windows.callstacks", symbols=files.symbols)
    assert result.returncode == 1
    shown = [line for line in result.stdout.splitlines() if "dump" in line]
    assert shown == [
        "Unsatisfied requirement plugins.CallStacks.kernel: the file is a dump of one process, which plugins "
        "such as minidump.callstacks read"
    ]
    assert "Traceback" not in result.stderr
