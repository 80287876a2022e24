# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An image with a configuration file opens where searching would not find it."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import config, kernels, vol
from tests.forge.kernel import Kernel


@pytest.mark.parametrize(
    ("name", "file"), [("win10-x64", "a.raw"), ("win10-x64", "a.dmp"), ("win10-x86", "a.raw")]
)
def test_a_configured_image_opens(name: str, file: str, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **{**known.options(), "low_stub": False, "kdbg": False})
    kernel.process("app.exe", pid=1000)
    image = kernel.image()
    symbols = image.install(tmp_path / "symbols")
    path = config.write(image, image.save(tmp_path / file), symbols, tmp_path / "config.json")
    result = vol.run(
        tmp_path / file, "windows.pslist", symbols=symbols, plugins=None, arguments=["-c", str(path)]
    )
    assert result.returncode == 0, result.stderr
    assert "app.exe" in [row["ImageFileName"] for row in result.rows]
    second = vol.run(tmp_path / file, "windows.info", symbols=symbols, arguments=["-c", str(path)])
    variables = {row["Variable"]: row["Value"] for row in second.rows}
    assert variables["DTB"] == hex(image.dtb)
