# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Process dumps: the file with all its streams."""

from __future__ import annotations

from typing import List

from tests.winstacks.minidump.decode import test_streams
from winstacks.minidump.decode.dumpfile import NotAMinidumpError

from .target import Target


def _decode(data: bytes, whole: bytes) -> None:
    try:
        found = test_streams.everything(test_streams.dump_of(data))
    except NotAMinidumpError:
        return
    assert found <= len(data)


def _seeds() -> List[bytes]:
    return [test_streams.full()]


def targets() -> List[Target]:
    """Returns the target."""
    return [Target("minidump", _seeds, _decode)]
