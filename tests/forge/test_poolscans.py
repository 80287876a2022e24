# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A search of the pool that is made once gives what each search gives."""

from __future__ import annotations

import pathlib
from typing import List, Tuple
from unittest import mock

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.windows import psscan, thrdscan

from tests.forge import context, kernels
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.support import poolscans

Found = List[Tuple[str, int]]


def _processes(opened: Opened) -> Found:
    return _places(psscan.PsScan.scan_processes(opened.context, opened.kernel))


def _threads(opened: Opened) -> Found:
    return _places(thrdscan.ThrdScan.scan_threads(opened.context, opened.kernel))


def _places(found: "List[interfaces.objects.ObjectInterface]") -> Found:
    return [(structure.vol.layer_name, structure.vol.offset) for structure in found]


def _opened(name: str, folder: pathlib.Path, processes: int) -> Opened:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    for number in range(processes):
        kernel.process("app.exe", pid=1000 + 100 * number).thread(1004 + 100 * number)
    return context.open_image(kernel.image(), folder, f"{processes}.dmp")


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64"])
def test_each_search_is_made_once_in_each_image(name: str, tmp_path: pathlib.Path) -> None:
    opened, second = (_opened(name, tmp_path, processes) for processes in (1, 2))
    expected = [search(image) for image in (opened, second) for search in (_processes, _threads)]
    assert all(expected)
    assert expected[0] != expected[2]
    with poolscans.made_once():
        scan = interfaces.layers.DataLayerInterface.scan
        with mock.patch.object(interfaces.layers.DataLayerInterface, "scan", autospec=True) as searched:
            searched.side_effect = scan
            for _ in range(2):
                found = [search(image) for image in (opened, second) for search in (_processes, _threads)]
                assert found == expected
                assert searched.call_count == len(expected)
