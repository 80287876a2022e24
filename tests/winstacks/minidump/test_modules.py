# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Modules of a 32-bit program, whose headers the dump lacks, are distinguished by their paths."""

from __future__ import annotations

import pathlib

import pytest

import winstacks
from tests.forge.minidump import Module, Writer
from winstacks.memory.decode.machine import Machine
from winstacks.names.loaderlists import module_lists


@pytest.mark.parametrize("separator", ["\\", "/"])
def test_both_separators_of_paths_count(separator: str, tmp_path: pathlib.Path) -> None:
    paths = [separator.join(("C:", "Windows", "System32", "wow64.dll")), separator.join(("C:", "app.exe"))]
    writer = Writer()
    writer.system_info()
    writer.modules([Module(0x10000000 * place, 0x1000, 0, path) for place, path in enumerate(paths, 1)])
    path = tmp_path / "process.dmp"
    path.write_bytes(writer.bytes())
    with winstacks.open(path) as opened:
        lists, native = opened.image.service(module_lists), opened.image.kernel
        listed = [
            [entry.name for entry in lists.process_modules(space)[0]]
            for space in (native, native._replace(machine=Machine.I386))
        ]
    assert listed == [["wow64.dll"], ["app.exe"]]
