# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""--parallelism finds the page tables of a Windows image, with threads and with processes."""

import struct

import pytest
from volatility3.framework import constants, contexts
from volatility3.framework.automagic import windows
from volatility3.framework.layers import physical

ROOT, SHARED = 0x1AA000, 0x8000
TABLES = {
    # KUSER_SHARED_DATA at 0xFFFFF78000000000 and 0x7FFE0000, and the page table that refers to itself
    ROOT: {0: 0x5000, 0x1ED: ROOT, 0x1EF: 0x2000},
    0x2000: {0: 0x3000},
    0x3000: {0: 0x4000},
    0x4000: {0: SHARED},
    0x5000: {1: 0x6000},
    0x6000: {0x1FF: 0x7000},
    0x7000: {0x1E0: SHARED},
}


@pytest.fixture(params=[constants.Parallelism.Threading, constants.Parallelism.Multiprocessing])
def context(request, monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "PARALLELISM", request.param)
    memory = bytearray(0x400000)
    for table, entries in TABLES.items():
        for index, target in entries.items():
            struct.pack_into("<Q", memory, table + 8 * index, target | 0x63)
    path = tmp_path / "image.raw"
    path.write_bytes(memory)
    made = contexts.Context()
    made.config["file.location"] = path.as_uri()
    made.add_layer(physical.FileLayer(made, "file", "file"))
    return made


def test_a_scan_finds_what_it_finds_alone(context):
    scanner = windows.PageMapScanner([windows.DtbSelfRef64bit()])
    found = list(context.layers["file"].scan(context, scanner, sections=[(0x150000, 0x150000)]))
    assert [(type(test), offset) for test, offset in found] == [(windows.DtbSelfRef64bit, ROOT)]


def test_the_page_tables_are_found(context):
    layer = windows.WindowsIntelStacker.stack(context, "file")
    assert layer is not None
    assert layer.config["page_map_offset"] == ROOT
