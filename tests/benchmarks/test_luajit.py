# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The dumps of LuaJIT: a scene is started, dumped while it runs, and ended."""

from __future__ import annotations

import pathlib

import pytest

from benchmarks import luajit

WINE = """#!/bin/sh
cd "$(dirname "$0")"
case "$1" in
  fastdump.exe) echo "$2" > "$3"; test -e running && echo dumped "$2" ;;
  taskkill) rm running; echo "$4" > ended ;;
  *) echo "$3" > program; touch running; while test -e running; do sleep 0.1; done ;;
esac
"""


@pytest.mark.parametrize("scene", luajit.SCENES)
def test_a_scene_is_dumped_while_it_runs(scene: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "dumps").mkdir()
    wine = tmp_path / "w10.sh"
    wine.write_text(WINE)
    wine.chmod(0o755)
    assert luajit.dump(tmp_path, scene, 1) == f"dumped {luajit.PROGRAM}"
    assert (tmp_path / "program").read_text() == luajit.SCENES[scene] + "\n"
    assert (tmp_path / "dumps" / f"luajit_{scene}.dmp").read_text() == f"{luajit.PROGRAM}\n"
    assert (tmp_path / "ended").read_text() == f"{luajit.PROGRAM}\n"
