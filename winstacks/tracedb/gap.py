# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Gaps: what stands in a list for owners of stacks that cannot be found or read."""

from __future__ import annotations

from typing import Mapping, Union

from ..memory.decode.records import NamedTuple
from ..memory.decode.status import Status, StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace


class Gap(NamedTuple):
    """A place where entries of a list may be missing. `status` is never empty; `cells` hold what is known of
    an entry whose memory is absent, by column."""

    space: AddressSpace
    status: Status
    cells: Mapping[str, object] = {}


def gap(space: AddressSpace, *parts: Union[StatusCode, StatusItem, Status]) -> Gap:
    """Returns a gap whose status has these parts."""
    return Gap(space, status(*parts))
