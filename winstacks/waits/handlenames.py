# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The objects of handles, as an input without a kernel has them: the provider of `handle_objects`."""

from __future__ import annotations

from typing import Optional, Protocol, Tuple

from ..memory.decode.records import NamedTuple
from ..memory.image import Image


class HandleObject(NamedTuple):
    """The object of a handle.

    Attributes:
        type, name: of the object manager; None without one
        owner: PID and TID of the thread that owns a mutex; (0, 0) if nobody does, None if unknown
    """

    type: Optional[str]
    name: Optional[str]
    owner: Optional[Tuple[int, int]] = None


class HandleObjects(Protocol):
    """Looks up handles."""

    def object_of(self, handle: int) -> Optional[HandleObject]:
        """Returns the object of a handle, None if the input does not have it."""


class NoHandleObjects:
    """Knows no handle: a kernel's image has tables of handles instead."""

    def object_of(self, handle: int) -> Optional[HandleObject]:
        """Returns None."""
        return None


def handle_objects(image: Image) -> HandleObjects:
    """Returns the objects of handles, for `image.service(handle_objects)`: a dump provides them."""
    return NoHandleObjects()
