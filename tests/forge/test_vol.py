# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The command line runs without what the user's own Volatility has."""

from __future__ import annotations

import pathlib

import pytest
import volatility3.symbols

from tests.forge import context, sample, vol


@pytest.mark.cli
def test_the_user_may_have_a_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    settings = tmp_path / "home" / ".config" / "volatility3" / "vol.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"renderer": "csv", "plugin_dirs": "/nowhere"}')
    for name in ("HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    image = sample.build().image()
    symbols = image.install(tmp_path / "symbols")
    assert vol.run(image.save(tmp_path / "image.raw"), "windows.gflags", symbols=symbols).rows


def test_tables_that_the_user_has_are_not_found() -> None:
    own = str(context.symbol_directory())
    first, *others = volatility3.symbols.__path__
    assert first == own
    # Volatility's own tables are for other systems, and for structures of all kernels.
    names = [path.name for other in others for path in pathlib.Path(other).glob("windows/*.pdb/*")]
    assert not names
