# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Callbacks as records of one frame or two, so that tables and checks treat them as they treat stacks."""

from __future__ import annotations

from typing import Iterator

from ..callbacks.callback import Callback
from ..callbacks.lister import Callbacks
from ..columns.words import AWAITED, CALLBACK
from ..memory.image import AddressSpace, Image
from ..stacks.decode.frames import Frame
from .frames import NamedFrames
from .imagefacts import Totals
from .stack import Distinct, StackRecord


class CallbackStacks:
    """Lists the callbacks of an image."""

    def __init__(self, image: Image, frames: NamedFrames) -> None:
        self._callbacks = Callbacks(image)
        self._frames = frames

    def of_space(self, space: AddressSpace, _: Totals) -> Iterator[StackRecord]:
        """Yields the callbacks of an address space, and rows for those that cannot be read."""
        distinct = Distinct()
        for callback in self._callbacks.list_callbacks(space):
            if callback.routines:
                yield self._record(space, callback, distinct)
            else:
                row = distinct.lost(CALLBACK, space, callback.status, callback.address)
                yield row._replace(owner_name=callback.sort)

    def _record(self, space: AddressSpace, callback: Callback, distinct: Distinct) -> StackRecord:
        walked = [Frame(routine, 0, AWAITED, returns=False) for routine in callback.routines]
        return StackRecord(
            CALLBACK,
            distinct.key(CALLBACK, space, callback.address, ""),
            space,
            callback.address,
            callback.sort,
            self._frames.for_space(space).name_walked(walked),
            callback.status,
            walked=walked,
            counted=1,
            depth=len(walked),
        )
