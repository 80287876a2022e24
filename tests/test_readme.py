# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""README's scripts run as they stand there, on the sample."""

from __future__ import annotations

import pathlib
import re
from typing import List

import pytest

from tests.conftest import ROOT
from tests.forge import context, sample
from tests.forge.context import Opened

SCRIPTS: List[str] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("readme"))


def run(script: str, opened: Opened) -> None:
    names = {"context": opened.context, "config_path": "plugins"}
    exec(compile(script.replace('"kernel"', repr(opened.kernel)), "README.md", "exec"), names)


def test_both_scripts_are_found() -> None:
    assert len(SCRIPTS) == 2


@pytest.mark.parametrize("script", SCRIPTS, ids=["names", "traces"])
def test_script_runs(script: str, opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    run(script, opened)
    shown = capsys.readouterr().out
    if "print" in script:
        assert "updater.exe 1 ['0x" in shown
        assert len(shown.splitlines()) == 5


def test_a_renamed_module_would_be_found(opened: Opened, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ImportError):
        run(SCRIPTS[0].replace("names.symbolizer", "names.gone"), opened)
