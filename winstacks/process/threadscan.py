# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads that no list holds: found by the tags of their pool blocks."""

from __future__ import annotations

from typing import Collection, Iterator, Optional, Tuple

from volatility3.framework import exceptions, interfaces
from volatility3.plugins.windows import thrdscan

from ..memory import bulk
from ..memory.decode.structure import Field
from ..memory.image import Image
from .kernelobjects import thread_type
from .processlist import scanned

# Lists in a thread that are usually empty. The head of an empty list holds its own virtual address.
_OWN_LISTS = ("Tcb.Header.WaitListHead", "Tcb.ApcState.ApcListHead", "Tcb.MutantListHead", "IrpList")


Found = Tuple[str, int, int]
"""The place of a thread: name of a layer, address in that layer, and canonical virtual address of the
_ETHREAD, or 0 if unknown."""


def scan(image: Image, known: Collection[int]) -> Iterator[Found]:
    """Yields the threads that Volatility's pool scan finds.

    Before Windows 10 this scan reads physical memory, and a structure that crosses a page's end is cut. So
    the thread's virtual address is looked for first: an empty list within the thread holds it.
    """
    layer = image.layer
    found_lists = map(thread_type(image).first_member, _OWN_LISTS)
    lists = [field for field in found_lists if field is not None]
    places = {_translated(layer, address) for address in known}
    for found in _found(image):
        name, offset = str(found.vol.layer_name), int(found.vol.offset)
        virtual = name == layer.name
        place = _translated(layer, offset) if virtual else (name, offset)
        if place is None or place in places:
            continue
        places.add(place)
        address = offset if virtual else _own_address(image, place, lists)
        if address is None:
            yield name, offset, 0
        else:
            yield str(layer.name), address, image.machine.canonical(address)


def _found(image: Image) -> Iterator[interfaces.objects.ObjectInterface]:
    """Yields the results of Volatility's scan; nothing if the kernel variables that it needs are missing."""
    with scanned("threads"):
        yield from thrdscan.ThrdScan.scan_threads(image.context, image.kernel_module_name)


def _translated(layer: interfaces.layers.DataLayerInterface, address: int) -> Optional[Tuple[str, int]]:
    """Returns the place of an address in the layer below, which identifies a thread that is found twice."""
    try:
        offset, name = layer.translate(bulk.masked(layer, address))
    except exceptions.InvalidAddressException:
        return None
    return str(name), int(offset)


def _own_address(image: Image, place: Tuple[str, int], lists: Collection[Field]) -> Optional[int]:
    """Returns the virtual address, in the layer's form, of a thread that was found in physical memory."""
    below = image.context.layers[place[0]]
    for field in lists:
        try:
            data = below.read(place[1] + field.offset, image.pointer_size)
        except exceptions.InvalidAddressException:
            continue
        address = bulk.masked(image.layer, int.from_bytes(data, "little") - field.offset)
        if _translated(image.layer, address) == place:
            return address
    return None
