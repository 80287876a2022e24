# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Texts about dumps name the commands that read dumps."""

from __future__ import annotations

import contextlib
import importlib
import io
import pathlib
import re
from typing import Dict

import pytest
from volatility3 import framework
from volatility3.cli import CommandLine, text_renderer
from volatility3.plugins.minidump import tracefindings, tracereport

from tests.conftest import ROOT
from tests.forge import context
from tests.support.findingimages import PRIVATE, FindingImage
from tests.support.only import only
from tests.support.processdumps import OpenedDump, dump_of
from winstacks.columns.commands import OF_DUMPS, for_input
from winstacks.columns.words import MEMORY_IMAGE, PROCESS_DUMP
from winstacks.findings.registry import check_named
from winstacks.options import CHECKS

LAYERS = {"layer", "bitmaplayer"}


def test_the_plugins_for_dumps_are_known() -> None:
    folder = ROOT / "volatility3_plugins" / "minidump"
    assert {path.stem for path in folder.glob("*.py")} - LAYERS == set(OF_DUMPS)


@pytest.mark.parametrize("name", [name for name in OF_DUMPS if name != "info"])
def test_volatility_lists_a_plugin_for_dumps_as_it_does_any_other(name: str) -> None:
    importlib.import_module(f"volatility3.plugins.minidump.{name}")
    listed = framework.list_plugins()
    of_dumps, of_images = (
        only(plugin for path, plugin in listed.items() if path.startswith(f"{folder}.{name}."))
        for folder in ("minidump", "windows")
    )
    assert of_dumps.__name__ == of_images.__name__
    assert of_dumps._version == of_images._version
    assert of_dumps.__doc__ and of_dumps.__doc__.count(f"windows.{name}.") == 1
    required = {requirement.name: requirement for requirement in of_dumps.get_requirements()}
    assert "primary" in required and "kernel" not in required
    assert all(requirement.description for requirement in required.values())


@pytest.mark.parametrize("name", CHECKS)
def test_next_steps(name: str) -> None:
    check = check_named(name)
    assert for_input(check.next_steps, MEMORY_IMAGE) == check.next_steps
    if not check.kernel:
        assert "windows." not in for_input(check.next_steps, PROCESS_DUMP)


@pytest.fixture
def dump(tmp_path: pathlib.Path) -> OpenedDump:
    forged = FindingImage("win10-x64")
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    path = tmp_path / "app.dmp"
    path.write_bytes(dump_of(context.open_image(forged.image(), tmp_path), forged.app.pid))
    return OpenedDump(path)


def test_an_explanation(dump: OpenedDump) -> None:
    rows = [row for _, row in dump.rows(tracefindings.TraceFindings, explain="unbacked")]
    texts: Dict[str, str] = {row["What"]: row["Explanation"] for row in rows}
    assert "minidump.callstacks" in texts["what to do next"]
    assert "windows." not in texts["what to do next"]


def test_a_page(dump: OpenedDump, tmp_path: pathlib.Path) -> None:
    plugin = dump.construct(tracereport.TraceReport)
    line = CommandLine()
    line.output_dir = str(tmp_path)
    plugin.set_open_method(line.file_handler_class_factory())
    with contextlib.redirect_stdout(io.StringIO()):
        text_renderer.JsonRenderer().render(plugin.run())
    page = (tmp_path / "tracereport.html").read_text(encoding="utf-8")
    assert "minidump.callstacks" in page
    assert "minidump.locks" in page
    assert not re.search(rf"windows\.({'|'.join(OF_DUMPS)}|vadinfo)", page)
