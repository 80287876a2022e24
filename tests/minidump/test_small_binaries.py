# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A small kernel dump without any code: with the files of its drivers the stack is whole."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.plugins.minidump import callstacks
from volatility3.plugins.windows import callstacks as image_callstacks

from tests.forge import context, modulefile, sample
from tests.support.processdumps import OpenedDump
from tests.support.smalldumps import small_dump_of

UPDATER_THREAD = 4316


def kernel_part(rows: List[Tuple[int, Dict[str, Any]]]) -> List[Tuple[int, str]]:
    return [(row["Address"], row["Symbol"]) for depth, row in rows if depth and row["Part"] == "kernel"]


def test_files_of_the_drivers_make_the_stack_whole(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = sample.build()
    opened = context.open_image(kernel.image(), tmp_path)
    whole = kernel_part(opened.rows(image_callstacks.CallStacks, tid=[UPDATER_THREAD]))
    files = modulefile.save(kernel.modules, tmp_path / "files")
    (tmp_path / "small.dmp").write_bytes(small_dump_of(opened, UPDATER_THREAD, with_code=False).file())
    without = OpenedDump(tmp_path / "small.dmp").rows(callstacks.CallStacks)
    assert any("ntoskrnl.exe TimeDateStamp" in record.message for record in caplog.records)
    given = OpenedDump(tmp_path / "small.dmp").rows(callstacks.CallStacks, binaries=[str(files)])
    assert len(kernel_part(without)) < len(kernel_part(given)) == len(whole)
    # The dump's innermost frame lies within the call, the image's behind it.
    assert kernel_part(given)[1:] == whole[1:]
    assert not any("unsure" in row["Status"] for depth, row in given if depth and row["Part"] == "kernel")
