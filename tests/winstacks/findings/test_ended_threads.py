# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads that have ended by State alone, which the checks examine, and threads that really have."""

from __future__ import annotations

from typing import Callable, Dict, Tuple

import pytest

from tests.forge.dump import Image
from tests.forge.obj import ring
from tests.forge.process import Process
from tests.machines import afterwards
from tests.support.clean.host64 import Host64
from tests.support.findingimages import PRIVATE, FindingImage, severities
from winstacks.process.thread import TERMINATED

from .checks.test_truncated import cut

NAME = "win10-x64"
UNMAPPED = 0x6F0000001000

Made = Tuple[Process, Callable[[], Image]]


def _truncated() -> Made:
    forged = FindingImage(NAME)
    cut(forged, left=2)
    return forged.app, forged.image


def _start_mismatch() -> Made:
    forged = FindingImage(NAME)
    forged.private()
    forged.thread.ethread["Win32StartAddress"] = PRIVATE + 0x40
    return forged.app, forged.image


def _returns_nowhere() -> Made:
    host = Host64(NAME)
    return afterwards.returns_to(UNMAPPED)(host), host.kernel.image


def _stack_pivot() -> Made:
    host = Host64(NAME)
    return afterwards.pivoted(host), host.kernel.image


def _hidden() -> Made:
    forged = FindingImage(NAME)
    forged.app.thread(1236)
    image = forged.image()
    head = forged.app.eprocess.at("ThreadListHead")
    listed = [thread.ethread.at("ThreadListEntry") for thread in forged.app.threads[:-1]]
    ring(forged.kernel.space, [head, *listed])
    return forged.app, lambda: image


POSITIVES: Dict[str, Callable[[], Made]] = {
    "truncated": _truncated,
    "start_mismatch": _start_mismatch,
    "returns_nowhere": _returns_nowhere,
    "stack_pivot": _stack_pivot,
    "hidden": _hidden,
}


@pytest.mark.parametrize("check", POSITIVES)
def test_a_state_that_its_object_contradicts_takes_no_thread_out(check: str) -> None:
    """Windows signals the object of a thread that ends: a write to State alone does not."""
    process, image = POSITIVES[check]()
    for thread in process.threads:
        thread.kthread["State"] = TERMINATED
    assert severities(image(), check) == ["medium"]


@pytest.mark.parametrize("check", POSITIVES)
def test_a_thread_that_has_ended_is_left_out(check: str) -> None:
    process, image = POSITIVES[check]()
    for thread in process.threads:
        thread.end()
    assert severities(image(), check) == []
