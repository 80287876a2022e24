# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The clock of an image, compared with the times of what is in it."""

from __future__ import annotations

import logging
import pathlib
from typing import Optional

import pytest
from volatility3.plugins.windows import traceimage

from tests.forge import context, kernels, sample
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.obj import CREATED, filetime
from tests.support.environments import set_time
from tests.support.only import only
from winstacks.memory.decode.status import StatusItem, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.stacklist.clockcheck import merged

HOUR = 36_000_000_000
MADE = filetime(seconds=1000 + 1004)
"""When the thread of `kernel` is created: the newest time of the image."""


def kernel(clock: int, exited: Optional[int] = None) -> Kernel:
    known = kernels.load("win10-x64")
    new_kernel = Kernel(known.table, **known.options())
    process = new_kernel.process("app.exe", pid=1000)
    process.thread(1004)
    if exited is not None:
        process.eprocess["ExitTime.QuadPart"] = exited
    set_time(new_kernel, "SystemTime", clock)
    set_time(new_kernel, "InterruptTime", HOUR)
    return new_kernel


def image_status(opened: Opened) -> str:
    _, row = only(opened.rows(traceimage.TraceImage))
    return str(row["Status"])


@pytest.mark.parametrize(
    ("clock", "exited", "contradiction"),
    [
        (filetime(CREATED) - HOUR, None, "thread 1004 of process 1000 was created at 2024-02-29 12:33:24"),
        (MADE - HOUR - 1, None, "thread 1004 of process 1000 was created"),
        # A running machine makes threads while its memory is copied.
        (MADE - HOUR, None, ""),
        (MADE, None, ""),
        (MADE, MADE + HOUR, ""),
        (MADE, MADE + HOUR + 1, "process 1000 (app.exe) ended at 2024-02-29 13:33:24"),
    ],
)
def test_a_clock_behind_the_objects_of_its_image(
    clock: int,
    exited: Optional[int],
    contradiction: str,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened = context.open_image(kernel(clock, exited).image(), tmp_path, "image.raw")
    with caplog.at_level(logging.WARNING):
        found = image_status(opened)
    messages = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert found == ("contradicted: CaptureTime" if contradiction else "")
    assert len(messages) == bool(contradiction) and all(contradiction in message for message in messages)


@pytest.mark.parametrize("clock", [MADE - 1, MADE])
def test_a_machine_that_has_crashed_makes_no_more_objects(clock: int, tmp_path: pathlib.Path) -> None:
    found = image_status(context.open_image(kernel(clock).image(), tmp_path, "image.dmp"))
    assert found == ("contradicted: CaptureTime" if clock < MADE else "")


def test_the_sample_agrees_with_its_clock(tmp_path: pathlib.Path) -> None:
    """As does every other forged image: their Status is in the goldens."""
    assert image_status(context.open_image(sample.build().image(), tmp_path)) == ""


def test_members_stand_behind_one_word() -> None:
    boot, capture = (
        StatusItem(StatusCode.CONTRADICTED, members=(name,)) for name in ("KeBootTime", "CaptureTime")
    )
    unread = StatusItem(StatusCode.FILE_PARTS_UNREADABLE, 2)
    joined = text(merged((unread, boot), (capture, boot)))
    assert joined == "contradicted: KeBootTime CaptureTime, 2 parts of files unreadable"
    assert merged((unread,), ()) == (unread,)
